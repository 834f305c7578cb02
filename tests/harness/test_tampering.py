"""Nothing of an observation is left out of the comparison: every single change of it turns the replay red."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from spec import observation
from spec.harness.difference import Kind, Result, Verdict
from spec.observation import Observation
from spec.payload import Content
from spec.system import Outcome
from tests.harness.rich import Numbers, script, steps
from tests.harness.scripted import play
from tests.harness.tamper import tamperings

OTHERS_NUMBERS = Numbers(slots=(5, 3, 7, 1, 0, 2, 4, 6), version=7, factor=10, bytes=True)
LAST = len(steps()) - 1


def _played(implementation: list[tuple[Outcome, Observation]]) -> Result:
    return play(steps(), script(Numbers()), implementation)


def _cases() -> list[Any]:
    last = script(OTHERS_NUMBERS)[LAST][1]
    return [pytest.param(new, id="/".join(where)) for where, new in tamperings(last)]


def test_other_slots_versions_and_bytes_are_no_difference() -> None:
    result = _played(script(OTHERS_NUMBERS))
    assert result.verdict is Verdict.PASSED, result.failure
    assert result.steps == LAST + 1


@pytest.mark.parametrize("tampered", _cases())
def test_a_change_anywhere_is_red(tampered: Observation) -> None:
    implementation = script(OTHERS_NUMBERS)
    implementation[LAST] = (implementation[LAST][0], tampered)
    result = _played(implementation)
    assert result.verdict is Verdict.FAILED
    assert result.failure is not None
    assert result.failure.step == LAST


def test_the_changes_reach_every_field_there_is() -> None:
    reached = {part for case in _cases() for part in str(case.id).split("/")}
    views = [cls for cls in vars(observation).values() if is_dataclass(cls) and isinstance(cls, type)]
    names = {f"{cls.__name__}.{field.name}" for cls in views if cls is not Content for field in fields(cls)}
    assert names - reached == set()


def test_almost_all_changes_are_named_and_do_not_just_confuse_the_harness() -> None:
    confused = []
    for case in _cases():
        implementation = script(OTHERS_NUMBERS)
        implementation[LAST] = (implementation[LAST][0], case.values[0])
        failure = _played(implementation).failure
        if failure is not None and failure.differences[0].kind is Kind.RAISED:
            confused.append(case.id)
    assert len(confused) <= len(_cases()) // 20, confused
