"""A digest of the sources that decide about a result: two runs are of the same thing if theirs are equal."""

from __future__ import annotations

import hashlib
import importlib
import platform
from pathlib import Path

from kvspec.harness.systems import find_system


def digest(systems: tuple[str, ...]) -> str:
    """Of kvspec, of the packages of some systems, by name, and of Python's version.

    :raises SystemNotFound: one of them is not there.
    """
    sums = hashlib.sha256(platform.python_version().encode())
    for package in sorted({"kvspec", *(find_system(name).__module__.partition(".")[0] for name in systems)}):
        file = importlib.import_module(package).__file__
        if file is None:
            continue
        root = Path(file)
        files = sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [root]
        for one in files:
            sums.update(str(one.relative_to(root.parent)).encode() + one.read_bytes())
    return sums.hexdigest()
