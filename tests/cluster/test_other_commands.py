"""``mutants``, ``vacuity`` and ``explore`` on a cluster: the same results as without, to the letter."""

import pickle
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvspec.audit.packed import packed, unpacked
from kvspec.cli.main import app
from kvspec.language import load_file
from kvspec.scenario import UNSET

pytest.importorskip("distributed")
SMALL = ["scenarios/requests/windows_let_go.yaml", "scenarios/order/sync.yaml"]
COMMANDS = {
    "vacuity": ["vacuity", *SMALL],
    "named breaks": ["mutants", "--only", "R15.7 the end", "scenarios/fetch/order.yaml"],
    "every transition": ["explore", "--replay", "--depth", "1", "--device", "sim"],
    "random breaks": [
        "mutants",
        "--random",
        "2",
        "--seed",
        "7",
        "--package",
        "kvref",
        "--tests",
        "tests/kvref/test_values.py",
        *SMALL,
    ],
}


@pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS)
def test_results_are_those_of_processes(args: list[str]) -> None:
    alone, together = (CliRunner().invoke(app, [*args, "--jobs", "2", *more]) for more in ([], ["--scheduler", "local"]))
    assert alone.exit_code == together.exit_code
    without_time = [re.sub(r" \(\d+ s\)|, [\d.]+ s( \(.+\))?", "", one.output) for one in (alone, together)]
    assert without_time[0] == without_time[1]
    assert len(without_time[0].splitlines()) >= 1


def test_scenarios_that_have_travelled_are_the_same() -> None:
    [*scenarios] = load_file(Path(SMALL[0]))
    found = unpacked(packed(scenarios))
    assert list(found) == scenarios
    assert any(step.returns is UNSET for one in found for step in one.steps)
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET


def test_tests_are_files_of_this_machine() -> None:
    found = CliRunner().invoke(
        app, ["mutants", "--random", "1", "--package", "harness", "--scheduler", "tcp://127.0.0.1:1", *SMALL]
    )
    assert found.exit_code == 2
    assert "--scheduler tcp://127.0.0.1:1: tests are files of this machine: expected local" in found.output
