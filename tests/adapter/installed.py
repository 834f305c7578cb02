"""Runs of kvspec on the example for a manager that the reader has installed, with its profile and a mistake planted in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

from tests.paths import PATHS, ROOT

RUN = "import sys; from kvspec.cli.main import main; sys.argv[0] = 'kvspec'; main()"


def kvspec_on(system: str, variable: str) -> Callable[..., tuple[int, str]]:
    """A function that runs kvspec on a system: exit status and output. ``bug``: the mistake, which ``variable`` names."""

    def kvspec(*args: str, bug: str = "") -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": PATHS, "COLUMNS": "100", variable: bug}
        command = [sys.executable, "-c", RUN, *args, "--profile", "prefix", "--system", system]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    return kvspec


def counts(said: str) -> tuple[int, int]:
    """How many scenarios passed, and how many failed."""
    found = re.search(r"^(\d+) passed, (\d+) failed", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1]), int(found[2])


def caught_by(kvspec: Callable[..., tuple[int, str]], bug: str, seeds: int = 30) -> int:
    """The lifecycle that first differed with a mistake planted, which it must within some."""
    code, said = kvspec("fuzz", "--seeds", str(seeds), "--jobs", "1", bug=bug)
    found = re.search(r"^lifecycle (\d+) differs at step", said, re.MULTILINE)
    assert code == 1 and found is not None, said
    return int(found[1])
