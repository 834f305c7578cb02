"""How a replay behaves: what stops it, what it remembers between steps, what it skips."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from kvspec.config import Level
from kvspec.harness.difference import Failure, Kind, Result, Verdict
from kvspec.harness.replay import Named, replay
from kvspec.observation import GroupCounters, Observation, Order
from kvspec.ops import OpenGate, Operation, Resume, Sync
from kvspec.payload import Content
from kvspec.scenario import Expect
from kvspec.system import DeviceLimit, Outcome, Setup
from tests.harness.rich import Numbers, script, steps
from tests.harness.scripted import Scripted, play, scenario, step

LAST = len(steps()) - 1
Change = Callable[[Observation], Observation]


def _failure(change: Change, at: int = LAST, both: bool = False) -> Failure | None:
    """What comes of a change of what the implementation, or both, show from a step on."""
    reference, implementation = script(Numbers()), script(Numbers(slots=(5, 3, 7, 1, 0, 2, 4, 6), version=7, factor=10))
    for n in range(at, LAST + 1):
        implementation[n] = (implementation[n][0], change(implementation[n][1]))
        if both:
            reference[n] = (reference[n][0], change(reference[n][1]))
    return play(steps(), reference, implementation).failure


def _with_page(number: int, **changes: object) -> Change:
    def change(seen: Observation) -> Observation:
        page = replace(seen.pages[number], **changes)  # type: ignore[arg-type]
        return replace(seen, pages=(*seen.pages[:number], page, *seen.pages[number + 1 :]))

    return change


def _subjects(failure: Failure | None) -> str:
    assert failure is not None
    return "\n".join(difference.subject for difference in failure.differences)


def test_a_page_that_nobody_moved_must_stay_in_its_slot() -> None:
    # Page 6 is in the tree alone, at GPU slot 5, which the implementation calls 2; slot 6 is free.
    assert "slot of page main[9, 9, 9, 9]" in _subjects(_failure(_with_page(6, slot=6), at=4))


def test_the_same_slot_from_the_start_is_only_another_name() -> None:
    assert _failure(_with_page(6, slot=6), at=0) is None


def test_even_both_systems_may_not_move_a_page_without_counting_it() -> None:
    def change(seen: Observation) -> Observation:
        free = {page.slot for page in seen.pages if page.level is Level.GPU and page.group == "main"}
        slot = next(n for n in range(8) if n not in free)
        return _with_page(6, slot=slot)(seen)

    assert _subjects(_failure(change, at=4, both=True)).count("slot of page main[9, 9, 9, 9]") == 2


def test_a_page_may_change_its_slot_if_it_was_away_and_came_back() -> None:
    def change(seen: Observation) -> Observation:
        old = seen.lifetime.groups["main"]
        counted = GroupCounters(old.offload_pages + 1, 999, old.onboard_pages + 1, 999, old.copy_pages, old.drop_pages)
        taken = {p.slot for p in seen.pages if p.group == "main"} | seen.reserved["d"]["main"]
        moved = _with_page(6, slot=next(n for n in range(8) if n not in taken))(seen)
        return replace(moved, lifetime=replace(seen.lifetime, groups={**seen.lifetime.groups, "main": counted}))

    assert _failure(change, at=4, both=True) is None


@pytest.mark.parametrize("seed", range(30))
def test_any_permutation_of_slots_is_only_a_renaming(seed: int) -> None:
    slots = random.Random(seed).sample(range(8), 8)
    other = Numbers(slots=slots, version=-seed, factor=seed + 1, bytes=bool(seed % 2))
    assert play(steps(), script(Numbers()), script(other)).failure is None


def test_two_pages_in_one_slot_are_no_renaming() -> None:
    assert "are both in slot" in _subjects(_failure(_with_page(6, slot=3), at=0))


def test_a_version_that_comes_back_is_not_the_newest() -> None:
    def change(seen: Observation) -> Observation:
        view = seen.requests["d"]
        old = replace(view, version=17, snapshots={key: replace(one, version=17) for key, one in view.snapshots.items()})
        return replace(seen, requests={**seen.requests, "d": old})

    failure = _failure(change)
    assert "version of d" in _subjects(failure)


def test_a_change_of_published_words_between_publications_is_red_even_in_both() -> None:
    def change(seen: Observation) -> Observation:
        batch = seen.batches["rows"]
        words = replace(batch.published["main"], num_blocks=(0, 0))
        tables = {**batch.published, "main": words}
        return replace(seen, batches={**seen.batches, "rows": replace(batch, published=tables, device=tables)})

    assert "rows.main row 0 changed without a publication of it" in _subjects(_failure(change, both=True))


def test_a_system_that_raises_is_a_report_with_the_innermost_frames() -> None:
    class Broken(Scripted):
        def apply(self, op: Operation) -> Outcome:
            if self.at == 2:
                raise KeyError("slot 7")
            return super().apply(op)

        __call__ = Scripted.__call__

    result = replay(
        scenario(steps()), Named("broken", Broken(script(Numbers()))), Named("reference", Scripted(script(Numbers())))
    )
    assert result.failure is not None
    (difference,) = result.failure.differences
    assert result.failure.step == 3
    assert difference.kind is Kind.RAISED
    assert difference.implementation == "KeyError: 'slot 7'"
    assert difference.reference == "no exception"
    assert "in apply: raise KeyError" in difference.detail[0]


def _raising_in_step_3(error: BaseException) -> Result:
    class Raises(Scripted):
        def apply(self, op: Operation) -> Outcome:
            if self.at == 2:
                raise error
            return super().apply(op)

        __call__ = Scripted.__call__

    return replay(scenario(steps()), Named("raises", Raises(script(Numbers()))), Named("reference", Scripted(script(Numbers()))))


@pytest.mark.parametrize("error", [SystemExit(0), asyncio.CancelledError("gone"), GeneratorExit()])
def test_a_system_that_exits_or_is_cancelled_fails_like_one_that_raises(error: BaseException) -> None:
    result = _raising_in_step_3(error)
    assert result.verdict is Verdict.FAILED and result.failure is not None
    (difference,) = result.failure.differences
    assert type(error).__name__ in difference.implementation


@pytest.mark.parametrize(("answer", "said"), [(IndexError("none"), "IndexError: none"), ([7], "TypeError: what a system lacks")])
def test_a_system_that_cannot_say_what_it_lacks_fails(answer: object, said: str) -> None:
    class Unsure(Scripted):
        def lacks(self, scenario: object) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer

    result = replay(
        scenario(steps()), Named("unsure", Unsure(script(Numbers()))), Named("reference", Scripted(script(Numbers())))
    )
    assert result.failure is not None
    (difference,) = result.failure.differences
    assert difference.subject == "while it was asked what it lacks"
    assert (difference.reference, said in difference.implementation) == ("no exception", True)


def test_a_limit_of_the_device_ends_a_scenario_without_a_verdict_on_the_system() -> None:
    result = _raising_in_step_3(DeviceLimit("few streams: open a gate"))
    assert (result.verdict, result.failure, result.steps) == (Verdict.SKIPPED, None, 3)
    assert result.reason == f"from step 3, {steps()[3].op.verb}, on: few streams: open a gate"


@pytest.mark.parametrize("where", ["build", "observe", "close"])
def test_an_exception_elsewhere_is_a_failure_too(where: str) -> None:
    class Broken(Scripted):
        def __call__(self, setup: Setup) -> Scripted:
            if where == "build":
                raise MemoryError("no room")
            return self

        def observe(self) -> Observation:
            if where == "observe":
                raise MemoryError("no room")
            return super().observe()

        def close(self) -> None:
            super().close()
            if where == "close":
                raise MemoryError("no room")

    broken, sound = Broken(script(Numbers())), Scripted(script(Numbers()))
    result = replay(scenario(steps()), Named("broken", broken), Named("reference", sound))
    assert result.verdict is Verdict.FAILED
    assert result.failure is not None
    assert result.failure.differences[0].implementation == "MemoryError: no room"
    assert sound.closed == 1
    assert broken.closed == (0 if where == "build" else 1)


@pytest.mark.parametrize(("stream", "held"), [("side", True), ("exec", False)])
def test_bytes_may_be_old_only_while_a_gate_holds_up_the_write(stream: str, held: bool) -> None:
    resumed = steps()
    resumed[1] = step(1, Resume(request="d", stream=stream))
    reference, implementation = script(Numbers()), script(Numbers(bytes=True))
    for at in (LAST - 1, LAST):
        written = _with_page(2, payload=Content("d", "main", 1, 0, 1))(reference[at][1])
        reference[at] = (reference[at][0], written)
    failure = play(resumed, reference, implementation).failure
    if held:
        assert failure is None
        resumed[LAST] = replace(resumed[LAST], op=OpenGate.model_validate({"as": "g"}))
        failure = play(resumed, reference, implementation).failure
    assert _subjects(failure) == "payload of page d.main.1"


def test_systems_are_closed_after_a_failure() -> None:
    one, two = Scripted(script(Numbers())), Scripted(script(Numbers(version=3)))
    two.script = [(Outcome(True), seen) for _, seen in two.script]
    assert replay(scenario(steps()), Named("two", two), Named("one", one)).verdict is Verdict.FAILED
    assert (one.closed, two.closed) == (1, 1)


def test_a_missing_verb_or_capability_is_a_skip_with_its_reason() -> None:
    able = Scripted(script(Numbers()))
    unable = Scripted(script(Numbers()), capabilities=frozenset({"sync", "fetch"}))
    result = replay(scenario(steps()), Named("small", unable), Named("reference", able))
    assert result.verdict is Verdict.SKIPPED
    assert result.reason.startswith("small lacks verb batch, verb gate, verb publish")
    wants = replace(scenario([step(0, Sync())]), requires=("async",))
    assert replay(wants, Named("small", unable), Named("reference", able)).reason == "small lacks capability async"
    assert unable.closed == 0


def test_a_scenario_without_steps_shows_nothing_and_fails() -> None:
    sound = Scripted([])
    assert replay(scenario([]), Named("one", sound), Named("two", sound)).verdict is Verdict.FAILED


def test_a_fault_of_either_system_is_a_failure() -> None:
    failure = _failure(lambda seen: replace(seen, faults=("two writes of slot 3\nstep 4 and step 5",)))
    assert failure is not None
    assert failure.differences[0].kind is Kind.FAULT
    assert failure.differences[0].detail == ("two writes of slot 3", "step 4 and step 5")


def test_an_expectation_holds_the_reference_to_account_too() -> None:
    expecting = steps()
    expecting[LAST] = replace(expecting[LAST], expect=Expect.model_validate({"history": {"d": 9}}))
    states = script(Numbers()), script(Numbers())
    wrong = replace(states[0][LAST][1].requests["d"], history=10)
    seen = replace(states[0][LAST][1], requests={**states[0][LAST][1].requests, "d": wrong})
    states[0][LAST] = (states[0][LAST][0], seen)
    failure = play(expecting, *states).failure
    assert failure is not None
    expected = next(d for d in failure.differences if d.kind is Kind.EXPECTATION)
    assert (expected.expected, expected.reference, expected.implementation) == ("9", "10", "9")


def test_waiting_for_another_page_of_the_same_submission_is_allowed_and_for_anything_else_is_not() -> None:
    held = Order(frozenset({"g"}), {"exec": 1, "side": 0})

    def moved(numbers: Numbers, shared: bool, second: Order) -> list[tuple[Outcome, Observation]]:
        played = script(numbers)
        seen = played[LAST][1]
        ready = {0: held, 4: second}
        for n in (0, 4) if shared else (4,):
            page = replace(seen.pages[n], level=Level.GPU if n == 0 else Level.HOST, slot=numbers.slot(n + 3), ready=ready[n])
            seen = replace(seen, pages=(*seen.pages[:n], page, *seen.pages[n + 1 :]))
        played[LAST] = (played[LAST][0], seen)
        return played

    def orders(shared: bool) -> list[str]:
        reference = moved(Numbers(), shared, Order(frozenset(), {"exec": 1}))
        implementation = moved(Numbers(version=3), shared, held)
        failure = play(steps(), reference, implementation).failure
        assert failure is not None  # the snapshots still show the old places
        return [d.subject for d in failure.differences if d.subject == "readiness of page d.main.2"]

    assert orders(shared=True) == []
    assert orders(shared=False) == ["readiness of page d.main.2"]
