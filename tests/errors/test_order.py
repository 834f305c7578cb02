"""Every verb with up to three things wrong at once: both systems say the error that section 9 says, and change nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml

from kvgpu.adapter.system import Implementation
from kvref.system import Reference
from kvspec import ops
from kvspec.audit.leftovers import Allowed, leftovers
from kvspec.config import ManagerConfig
from kvspec.harness.naming import Index
from kvspec.ops import Operation
from kvspec.system import Setup, System
from tests.errors.choices import Arguments, Verb
from tests.errors.verbs import CAPTURE, CAPTURED, CROWDED, FULL, MANAGER, SCENE, STREAMS, VERBS, WITHOUT

SYSTEMS: dict[str, Callable[[Setup], System]] = {"kvref": Reference, "kvgpu": Implementation}


def operation(verb: str, given: Arguments) -> Operation:
    values = dict(given)
    if verb == "iterate":
        values["requests"] = tuple({"request": name} for name in values["requests"])
    return ops.VERBS[verb].model_validate(values)


def scene(make: Callable[[Setup], System], *more: str) -> System:
    system = make(Setup(ManagerConfig.model_validate(MANAGER), STREAMS, {"device": "sim"}))
    for line in (*SCENE.strip().splitlines(), *more):
        ((verb, given),) = yaml.safe_load(line).items()
        outcome = system.apply(ops.VERBS[verb].model_validate(given))
        assert outcome.error is None and outcome.value is not False, (line, outcome)
    return system


def hold(system: System, verb: str, choices: Verb) -> None:
    before = Index(system.observe())
    calls, wrong = 0, []
    for given, expected in choices.calls():
        calls += 1
        outcome = system.apply(operation(verb, given))
        if outcome.error is not expected:
            wrong.append(f"{given}: {outcome.error} ({outcome.message}), section 9 says {expected}")
    changed = [] if wrong else list(leftovers(before, Index(system.observe()), Allowed()))
    system.close()
    assert calls and not wrong, "\n".join(wrong)
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("verb", VERBS)
def test_the_first_error_of_section_9_is_said(name: str, verb: str) -> None:
    hold(scene(SYSTEMS[name]), verb, VERBS[verb])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("verb", CAPTURED)
def test_a_capture_has_its_place_among_the_errors(name: str, verb: str) -> None:
    hold(scene(SYSTEMS[name], CAPTURE), verb, CAPTURED[verb])


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("verb", CROWDED)
def test_slots_that_are_not_there_come_last(name: str, verb: str) -> None:
    hold(scene(SYSTEMS[name], *FULL), verb, CROWDED[verb])


def test_every_verb_is_here() -> None:
    assert VERBS.keys() | WITHOUT == ops.VERBS.keys()
    assert not VERBS.keys() & WITHOUT


def test_several_things_are_wrong_at_once() -> None:
    """Where more than one argument can be wrong."""
    for verb, choices in VERBS.items():
        several = [name for name, values in choices.arguments.items() if any(value.faults for value in values)]
        more = sum(1 for _ in choices.calls(2)) > sum(1 for _ in choices.calls(1))
        assert more == (len(several) > 1), verb
