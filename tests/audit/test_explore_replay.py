"""`kvspec explore --replay`: every transition to a depth goes through a system under test; what is broken there is seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kvspec.audit.explore.expanding import Plan, Walker
from kvspec.audit.explore.models import MODELS
from kvspec.audit.explore.search import Here
from kvspec.audit.explore.search import explore as search
from kvspec.audit.explore.touring import Tour
from kvspec.audit.mutants import find_mutants
from kvspec.cli.main import app
from kvspec.language import load_file

MUTANTS = {one.name: one for one in find_mutants("kvgpu")}


def replay(*args: str) -> Result:
    return CliRunner().invoke(app, ["explore", "--replay", "--device", "sim", "--jobs", "1", *args])


@pytest.mark.parametrize("ownership", ["shared", "private"])
def test_every_transition_agrees(ownership: str) -> None:
    result = replay("--depth", "1", "--ownership", ownership)
    assert result.exit_code == 0, result.output
    assert re.search(r"to depth 1: \d+ walks, \d+ steps through kvgpu, [\d.]+ s, no difference", result.output)


@pytest.mark.parametrize("depth", [1, 2])
def test_walks_have_all_transitions(depth: int) -> None:
    done = search(Plan("fetch"), depth - 1, Here())
    walker = Walker(done.plan)
    tour = Tour(done, walker, depth)
    walked = list(tour.walks())
    key = walker.exploring.key
    wanted = {
        (key(state), key(made.after), made.op.verb, str(made.fault))
        for number in range(done.states)
        for state in [walker.at(done.path(number))]
        for made in walker.transitions(state)
    }
    taken = set()
    for walk in walked:
        state = walker.first
        for move in walk:
            made = walker.take(state, move)
            taken.add((key(state), key(made.after), made.op.verb, str(made.fault)))
            state = made.after
    assert wanted <= taken


@pytest.mark.parametrize(
    ("mutant", "depth"),
    [("R10.2 the last page in leaves first", 2), ("R4.2 a decode entry stays a prefill owner", 3)],
)
def test_a_broken_system_is_seen_with_a_short_path(mutant: str, depth: int, tmp_path: Path) -> None:
    file = tmp_path / "found.yaml"
    with MUTANTS[mutant].broken():
        result = replay("--depth", str(depth), "--output", str(file))
    assert result.exit_code == 1, result.output
    found = re.search(r"the shortest path to it: (\d+) operations", result.output)
    assert found is not None
    assert int(found[1]) <= 5
    (scenario,) = load_file(file)
    assert len(scenario.steps) <= len(MODELS["standard"].begin) + 2 * 5


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--system", "kvref"), "--system kvref --against kvref: a system always agrees with itself: name two"),
        (("--system", "kvgpo"), "no system is called 'kvgpo'"),
    ],
)
def test_wrong_usage_is_told(args: tuple[str, ...], said: str) -> None:
    result = replay(*args)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
