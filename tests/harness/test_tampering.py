"""Nothing of an observation is left out of the comparison: every single change of it turns the replay red."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from kvspec import observation
from kvspec.errors import ErrorKind
from kvspec.harness import naming
from kvspec.harness.difference import Kind, Result, Verdict
from kvspec.harness.replay import Named
from kvspec.harness.replay import replay as replayed
from kvspec.harness.systems import find_system, setup_for
from kvspec.language import load_file
from kvspec.observation import Counters, GroupCounters, Observation
from kvspec.payload import Content, Part
from kvspec.scenario import Scenario, Step
from kvspec.system import OffsetTable, Outcome
from tests.harness.rich import Numbers, script, steps
from tests.harness.scripted import Scripted, play
from tests.harness.tamper import tamperings

OTHERS_NUMBERS = Numbers(slots=(5, 3, 7, 1, 0, 2, 4, 6), version=7, factor=10, bytes=True)
LAST = len(steps()) - 1


EXAMPLE = Path(__file__).parent.parent / "corpora" / "valid_pass" / "everything.yaml"


@dataclass(frozen=True)
class Script:
    """What the reference shows in every step of a scenario."""

    scenario: Scenario
    script: list[tuple[Outcome, Observation]]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.scenario.steps

    def play(self, implementation: list[tuple[Outcome, Observation]]) -> Result:
        """Replay with another script in the place of the implementation."""
        return replayed(self.scenario, Named("tested", Scripted(implementation)), Named("kvref", Scripted(self.script)))


@pytest.fixture(autouse=True)
def also_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has changed is told of few pages, too, so that nothing is found only because everything is looked at."""
    monkeypatch.setattr(naming, "FEW", 0)


@pytest.fixture(scope="module")
def kvref_script() -> Script:
    (scenario,) = load_file(EXAMPLE)
    system = find_system("kvref.system:Reference")(setup_for(scenario, {}))
    script_ = [(system.apply(one.op), system.observe()) for one in scenario.steps]
    found = Script(scenario, script_)
    assert found.play(script_).verdict is Verdict.PASSED
    return found


def _played(implementation: list[tuple[Outcome, Observation]]) -> Result:
    return play(steps(), script(Numbers()), implementation)


@dataclass(frozen=True)
class Case:
    """One change, and how the replay with it ended."""

    where: tuple[str, ...]
    result: Result


@cache
def _cases() -> tuple[Case, ...]:
    cases = []
    reference, played, implementation = steps(), script(Numbers()), script(OTHERS_NUMBERS)
    for where, tampered in tamperings(implementation[LAST][1]):
        changed = [*implementation[:LAST], (implementation[LAST][0], tampered)]
        cases.append(Case(where, play(reference, played, changed)))
    return tuple(cases)


def test_other_slots_versions_and_bytes_are_no_difference() -> None:
    result = _played(script(OTHERS_NUMBERS))
    assert result.verdict is Verdict.PASSED, result.failure
    assert result.steps == LAST + 1


@pytest.mark.parametrize("field", [f"Observation.{field.name}" for field in fields(Observation)])
def test_a_change_anywhere_is_red(field: str) -> None:
    cases = [case for case in _cases() if case.where[0] == field]
    assert cases
    survivors = ["/".join(case.where) for case in cases if case.result.verdict is not Verdict.FAILED]
    assert survivors == []
    assert all(case.result.failure is not None and case.result.failure.step == LAST for case in cases)


def test_the_changes_reach_every_field_there_is() -> None:
    reached = {part for case in _cases() for part in case.where}
    views = [cls for cls in vars(observation).values() if is_dataclass(cls) and isinstance(cls, type)]
    names = {f"{cls.__name__}.{field.name}" for cls in views if cls not in (Content, Part) for field in fields(cls)}
    assert names - reached == set()


def test_almost_all_changes_are_named_and_do_not_just_confuse_the_harness() -> None:
    failures = [(case.where, case.result.failure) for case in _cases()]
    confused = ["/".join(where) for where, failure in failures if failure and failure.differences[0].kind is Kind.RAISED]
    assert len(confused) <= len(failures) // 20, confused


def _outcomes() -> list[tuple[Outcome, Outcome]]:
    offsets = OffsetTable({"index": 1}, {"index": 0}, {"index": {"d": (0, 1, -1)}})
    counters = Counters({"main": GroupCounters(1)}, 1, 0)
    failed = Outcome.failed(ErrorKind.LOGIC_ERROR, "no")
    return [
        (Outcome(), Outcome(True)),
        (Outcome(True), Outcome(False)),
        (Outcome(True), Outcome(1)),
        (Outcome(0), Outcome(False)),
        (Outcome(3), Outcome(4)),
        (Outcome((0, 1)), Outcome((0,))),
        (Outcome((True, None)), Outcome((True, False))),
        (Outcome((0, 1)), Outcome((False, True))),
        (Outcome(counters), Outcome(replace(counters, suspends=2))),
        (Outcome(counters), Outcome(Counters({"main": GroupCounters(2)}, 1, 0))),
        (Outcome(offsets), Outcome(replace(offsets, scale={"index": 2}))),
        (Outcome(offsets), Outcome(replace(offsets, base={"index": 1}))),
        (Outcome(offsets), Outcome(replace(offsets, offsets={"index": {"d": (0, 1, 2)}}))),
        (Outcome(offsets), Outcome(replace(offsets, offsets={"index": {"s": (0, 1, -1)}}))),
        (Outcome(), failed),
        (failed, Outcome()),
    ]


@pytest.mark.parametrize(("one", "two"), _outcomes())
def test_outcomes_that_differ_are_red_and_equal_ones_are_not(one: Outcome, two: Outcome) -> None:
    states = [script(Numbers()), script(Numbers())]
    for outcome, verdict in ((one, Verdict.PASSED), (two, Verdict.FAILED)):
        if one.error is not None and outcome is one:
            continue  # an error that no step means is red by itself
        states[0][LAST] = (one, states[0][LAST][1])
        states[1][LAST] = (outcome, states[1][LAST][1])
        assert play(steps(), *states).verdict is verdict


@pytest.mark.parametrize("kind", ErrorKind)
def test_an_error_is_green_only_where_exactly_that_kind_is_meant(kind: ErrorKind) -> None:
    failed = Outcome.failed(kind, "as meant")
    for meant in (*ErrorKind, None):
        meaning = steps()
        meaning[LAST] = replace(meaning[LAST], raises=meant)
        states = [script(Numbers()), script(Numbers())]
        for state in states:
            state[LAST] = (failed, state[LAST][1])
        assert (play(meaning, *states).verdict is Verdict.PASSED) == (meant is kind)


def test_real_states_are_compared_just_as_wholly(kvref_script: Script) -> None:
    survivors = []
    tried = 0
    for at in range(len(kvref_script.steps)):
        for where, tampered in islice(tamperings(kvref_script.script[at][1]), at % 7, None, 41):
            if "PageView.slot" in where:
                continue  # a page that is new may be in any slot
            if "Observation.copy_calls" in where and where[-1] == "gone":
                continue  # a direction that is not named has had no submission, as in these states
            tried += 1
            implementation = [*kvref_script.script]
            implementation[at] = (implementation[at][0], tampered)
            if kvref_script.play(implementation).verdict is not Verdict.FAILED:
                survivors.append("/".join((str(at), *where)))
    assert tried > 200
    assert survivors == []
