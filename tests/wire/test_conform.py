"""The check of the protocol passes what speaks it, and says of each mistake what it is."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kvspec.harness.systems import find_system
from kvspec.wire.client import Command
from kvspec.wire.conform import conform
from tests.paths import ROOT
from tests.wire.test_process import RUN, command
from tests.wire.test_serve import served

HALF = Path(__file__).with_name("half.py")


def wrong(name: str) -> dict[str, str]:
    """By what was checked, what is wrong."""
    factory = find_system(name)
    assert isinstance(factory, Command)
    checked = list(conform(factory))
    assert len(checked) == 15
    return {one.title: one.wrong for one in checked if one.wrong}


@pytest.mark.parametrize("system", ["kvref", "kvgpu"])
def test_what_is_served_conforms(system: str) -> None:
    assert wrong(served(system)) == {}


def test_a_driver_of_nobody_conforms(tmp_path: Path) -> None:
    assert wrong(command("right", tmp_path)) == {}


@pytest.mark.parametrize(
    ("mistake", "title", "says"),
    [
        ("before hello", "a message before hello", "must be answered with id and wrong, this is"),
        ("no json", "a line that is no JSON", "its process ended with exit code 1"),
        ("bad message", "an unknown message", '"id": 102'),
        ("early", "apply, observe and close without a manager", "must be answered with id and wrong"),
        ("strict", "keys that the system does not know", "it did not understand hello"),
        ("shows", "a manager is built, and shows itself", "a new manager has no requests"),
        ("changes", "observe changes nothing", "the second answer to observe is another one"),
        ("any verb", "a verb that hello did not name", "must be answered with id and wrong"),
        ("no error", "every verb of hello is understood", "close of a request that there is not must be out_of_range (R3.13)"),
        ("other error", "every verb of hello is understood", "this is logic_error"),
        ("half", "an operation that fails changes nothing", "close of a request that there is not has changed something"),
        ("keeps", "a second manager", "the new manager does not look like the first one did"),
        ("twice", "close gives the manager back", "expected wrong, this is"),
        ("stays", "the process ends by itself", "it had to be ended"),
        ("code", "the process ends by itself", "its exit code is 4"),
    ],
)
def test_each_mistake_is_found(mistake: str, title: str, says: str) -> None:
    found = wrong(f"cmd:{shlex.join([sys.executable, str(HALF), mistake])}")
    assert any(one.startswith(title) and says in text for one, text in found.items()), found


def test_the_command_says_what_is_wrong_and_leaves_with_1() -> None:
    line = [sys.executable, "-c", RUN, "conform", shlex.join([sys.executable, str(HALF), "twice"])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "1 thing is wrong\n")
    lines = done.stdout.splitlines()
    assert [line[:5] for line in lines].count("ok   ") == 14
    assert "WRONG  close gives the manager back, and the process goes on" in lines
