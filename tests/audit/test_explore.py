"""`kvspec explore`: every state once, what is broken with the shortest path to it, and messages for whatever is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner, Result

from kvref.canonical import canonical
from kvref.invariants import OF_STATES, OF_STEPS
from kvref.system import Reference
from kvspec.audit.explore.alphabet import operations
from kvspec.audit.explore.covering import walks
from kvspec.audit.explore.expanding import Plan, Walker, kinds_of
from kvspec.audit.explore.models import MODELS
from kvspec.audit.explore.search import Here
from kvspec.audit.explore.search import explore as search
from kvspec.audit.explore.writing import all_kinds, file_name
from kvspec.cli.main import app
from kvspec.language import load_file
from tests.audit.breaks import BREAKS, Break
from tests.paths import ROOT


def explore(*args: str) -> Result:
    return CliRunner().invoke(app, ["explore", "--jobs", "1", *args])


@pytest.mark.parametrize("ownership", ["shared", "private"])
@pytest.mark.parametrize("model", MODELS)
def test_no_invariant_is_broken(model: str, ownership: str) -> None:
    done = search(Plan(model, ownership), 2, Here())
    assert [str(one.broken) for one in done.violations] == []
    assert done.states > 8


def test_what_is_tried_comes_to_every_result() -> None:
    done = search(Plan("standard"), 3, Here())
    verbs, results = {verb for verb, _ in done.outcomes}, {result for _, result in done.outcomes}
    assert verbs >= {"create", "resume", "resize", "enter_decode", "commit", "suspend", "close", "publish", "evict"}
    assert results == {"done", "false", "copy_failed", "invalid_argument", "logic_error", "out_of_pages"}


def test_each_state_is_counted_once_whoever_finds_it() -> None:
    one = search(Plan("standard"), 3, Here())
    two = CliRunner().invoke(app, ["explore", "--jobs", "2", "--depth", "3"])
    assert two.exit_code == 0
    assert f"{one.states:,} states, {one.transitions:,} operations, depth 3" in two.output
    walker = Walker(one.plan)
    keys = [walker.exploring.key(walker.at(one.path(number))) for number in range(one.states)]
    assert len(set(keys)) == one.states
    assert {len(one.path(number)) for number in range(one.states)} == {0, 1, 2, 3}


def test_states_that_are_the_same_go_on_alike() -> None:
    """What the canonical form leaves out decides nothing: two paths to the same form have the same outcomes ever after."""
    walker = Walker(Plan("standard"))
    rng = Random(5)
    known: dict[object, object] = {}
    met = 0
    for _ in range(200):
        state = walker.first
        for _ in range(rng.randint(2, 7)):
            tried = operations(walker.model, walker.exploring.facts(state))
            state = walker.take(state, rng.randrange(len(tried))).after
        form = canonical(state)
        if form in known and known[form] is not state:
            met += 1
            assert _goes_on(walker, known[form]) == _goes_on(walker, state)
        known[form] = state
    assert met > 20


def _goes_on(walker: Walker, state: object) -> list[tuple[object, ...]]:
    return sorted(
        (made.op.verb, made.result, str(made.fault), walker.exploring.key(made.after)) for made in walker.transitions(state)
    )


@pytest.mark.parametrize("broken", BREAKS, ids=lambda one: one.invariant)
def test_a_broken_reference_is_seen_with_the_shortest_path(
    broken: Break, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken.apply(monkeypatch)
    file, found = tmp_path / "found.yaml", tmp_path / "found.json"
    args = ("--model", broken.model, "--ownership", broken.ownership, "--depth", str(broken.depth))
    result = explore(*args, "--output", str(file), "--json", str(found))
    assert result.exit_code == 1, result.output
    told = json.loads(found.read_text())["broken"]
    assert broken.invariant in {one["invariant"] for one in told}, told
    model = MODELS[broken.model]
    (scenario,) = load_file(file)
    assert len(model.begin) < len(scenario.steps) <= len(model.begin) + 2 * broken.depth
    if 1 < told[0]["operations"] <= 3:  # a deeper one takes long
        assert explore(*args, "--depth", str(told[0]["operations"] - 1)).exit_code == 0, "a shorter path shows it, too"


def test_each_invariant_is_seen_broken() -> None:
    assert {one.invariant for one in BREAKS} == {one.name for one in (*OF_STATES, *OF_STEPS)}


def test_invariants_say_what_they_are() -> None:
    for one in (*OF_STATES, *OF_STEPS):
        assert one.text.endswith("."), one.name
        assert one.rules.startswith(("R", "section")), one.name
    names = [one.name for one in (*OF_STATES, *OF_STEPS)]
    assert len(set(names)) == len(names)


def test_the_scenarios_of_every_kind_are_those_that_the_search_finds(tmp_path: Path) -> None:
    """The first file: those after it hang on what it has."""
    plan, text, count = next(all_kinds("kvref", Here()))
    known = (ROOT / "scenarios" / "explored" / file_name(plan)).read_text(encoding="utf-8")
    assert text == known, "write them anew: kvspec explore --write scenarios/explored"
    assert len(load_file(ROOT / "scenarios" / "explored" / file_name(plan))) == count


def test_walks_have_every_kind_once(tmp_path: Path) -> None:
    done = search(Plan("fetch"), 2, Here(), kinds=True)
    walker = Walker(done.plan)
    found = walks(done, walker)
    assert sorted(kind for walk in found for kind in walk.kinds) == sorted(done.kinds)
    for walk in found:
        assert walk.about in walk.kinds
        assert {kind for made in walk.taken for kind in kinds_of(walker.exploring, made)} >= set(walk.kinds)
    assert walks(done, walker, known=done.kinds) == []


def test_scenarios_are_written_into_a_folder(tmp_path: Path) -> None:
    result = explore("--write", str(tmp_path / "new"), "--depth", "1")
    assert result.exit_code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {*(f"{name}.yaml" for name in MODELS), "standard-private.yaml"}
    assert all(load_file(path) for path in (tmp_path / "new").glob("standard*.yaml"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--write", "somewhere", "--model", "disk"), "scenarios are of all models: leave --model out"),
        (("--model", "standart"), "Did you mean 'standard'?"),
        (("--ownership", "both"), "--ownership both: expected shared or private"),
        (("--against", "kvrex"), "no system is called 'kvrex'"),
        (("--against", "kvgpu"), "--against kvgpu: kvgpu cannot be explored: it has no class attribute 'exploring'"),
        (("--json", "nowhere/figures.json"), "--json nowhere/figures.json: cannot be written: there is no folder nowhere"),
        (("--output", "."), "--output .: cannot be written: it is a folder"),
    ],
)
def test_wrong_usage_is_told(args: tuple[str, ...], said: str) -> None:
    result = explore(*args)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_the_reference_can_be_explored() -> None:
    assert Reference.exploring.key(Walker(Plan("standard")).first) == Reference.exploring.key(Walker(Plan("standard")).first)
