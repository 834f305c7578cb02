"""How a break gets into ``kvgpu``: patches from outside, for as long as a context manager is open."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

Patch = Callable[[], AbstractContextManager[None]]

PACKAGE = Path(__file__).parents[1]
DROPPED = "R7 a place that was broken"
"""The site that broken places use, which the device is told to drop."""


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` is what ``make`` makes of it, while the context is open."""
    descriptor = inspect.getattr_static(owner, name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, descriptor)


@contextmanager
def replaced_everywhere(module: str, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A function of a module of ``kvgpu``, also where other modules have imported it by name."""
    original = getattr(importlib.import_module(module), name)
    new = make(original)
    users = [one for key, one in list(sys.modules.items()) if key.startswith("kvgpu") and vars(one).get(name) is original]
    for user in users:
        setattr(user, name, new)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, original)


@contextmanager
def unnamed_dropped(module: str) -> Iterator[None]:
    """The one wait of a module that takes the sites of what it waits for does nothing, whatever those are called."""
    from kvgpu.storage.fences import FenceTable

    ((first, last),) = unnamed_waits(module)
    path = str(PACKAGE / f"{module.replace('.', '/')}.py")

    def wait(old: Any) -> Any:
        def broken(self: Any, stream: Any, points: Any, site: str | None = None) -> None:
            frame = sys._getframe(1)
            here = frame.f_code.co_filename == path and first <= frame.f_lineno <= last
            old(self, stream, points, DROPPED if here else site)

        return broken

    with replaced(FenceTable, "wait", wait):
        yield


def unnamed_waits(module: str) -> list[tuple[int, int]]:
    """The first and last lines of the calls in a module that wait for points and name no site of their own."""
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return [
        (call.lineno, call.end_lineno or call.lineno)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "wait"
        if len(call.args) == 2
    ]
