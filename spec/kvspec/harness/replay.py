"""Replaying a scenario through two systems, step by step, up to the first divergence."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kvspec.collecting import seldom_collected
from kvspec.harness import watch as time_limit
from kvspec.harness.compare import Comparison, Shared, inconsistencies
from kvspec.harness.difference import Difference, Failure, Kind, Result, Verdict, deciding, side_names
from kvspec.harness.expectations import compare_expectations
from kvspec.harness.fetching import compare_fetching
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index, PageKey, page_name
from kvspec.harness.outcomes import compare_outcomes
from kvspec.harness.policies import lacking_policies, not_asked, settled
from kvspec.harness.side import Side
from kvspec.harness.state import compare_state
from kvspec.harness.systems import Factory, device_of, lacking, setup_for, unobserved_by
from kvspec.harness.tables import compare_tables
from kvspec.harness.unobserved import passed_over
from kvspec.harness.watch import TimedOut, limited, telling
from kvspec.observation import Observation
from kvspec.ops import Operation, Sync
from kvspec.refs import group_shapes
from kvspec.scenario import UNSET, Expect, Scenario, Step
from kvspec.system import DeviceLimit, Outcome, RemoteError, System, Unsupported

T = TypeVar("T")

NO_OPERATION, NO_EXPECTATION = Sync(), Expect()
FRAMES = 5
"""How many of the innermost frames of an exception a report shows."""
_OWN_FILES = (__file__, time_limit.__file__, contextlib.__file__)
"""Frames in these say nothing about a system."""


@dataclass(frozen=True, slots=True)
class Named:
    """A system's factory and the name by which reports call it."""

    name: str
    factory: Factory


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a system let out: what it was, and its innermost frames.

    ``limit``: that of the device, if it is one; ``unsupported``: what the system cannot do. ``late``: the time of the replay was
    up.
    """

    text: str
    frames: tuple[str, ...]
    limit: str = ""
    late: bool = False
    unsupported: str = ""


Look = Callable[[Step, Observation, Observation], None]
"""Called after each step that held, with what the reference and the implementation show."""
Choose = Callable[[Observation], "Operation | None"]
"""Called before each step with what the reference shows: the next operation, or none at the end."""
Refused = Callable[[Operation, str], None]
"""Called with an operation that the implementation said it cannot do, and what it lacks."""


def replay(
    scenario: Scenario,
    implementation: Named,
    reference: Named,
    options: Mapping[str, str] | None = None,
    look: Look | None = None,
    watch: Watch | None = None,
    timeout: float = 0.0,
) -> Result:
    """Replay a scenario through both systems and compare after every step.

    Stops at the first step with a difference and collects all differences of that step, or where a device cannot go on
    (``DeviceLimit``). Never raises for anything that a system does. Where the implementation lacks nothing but policies that
    the scenario asks for, the reference alone is held to what it expects.

    :param options: handed to both systems in their ``Setup``.
    :param look: called after each step that held.
    :param watch: called after each step that could be compared, also the one that diverges.
    :param timeout: after so many seconds it fails at the step that it is at; 0 for no limit. It holds in the main thread alone.
    """
    start = time.perf_counter()
    run = _Replay(scenario, implementation, reference, options or {}, look, watch)
    asked = {named.name: guarded(lambda n=named: lacking(run.scenario, n.factory)) for named in (reference, implementation)}  # type: ignore[misc]
    lacks = {name: answer for name, answer in asked.items() if not isinstance(answer, Raised)}
    if len(lacks) < len(asked):
        return _result(scenario, Verdict.FAILED, 0, start, failure=run.not_asked([*asked.values()]))
    if any(lacks.values()):
        skipped = replace(_result(scenario, Verdict.SKIPPED, 0, start, reason=said_lacks(lacks)), lacks=all_lacks(lacks))
        missing = lacks[implementation.name]
        if missing and not lacks[reference.name] and missing == lacking_policies(scenario, implementation.factory):
            return _alone(skipped, scenario, reference, options or {}, timeout)
        return skipped
    if not scenario.steps:
        return _result(scenario, Verdict.FAILED, 0, start, failure=_nothing(scenario))
    return run.through(run.steps, start, timeout)


def _alone(skipped: Result, scenario: Scenario, reference: Named, options: Mapping[str, str], timeout: float) -> Result:
    """Hold the reference alone to a scenario that asks for policies which the implementation does not have."""
    run = _Replay(scenario, reference, reference, options, None, None)
    result = run.through(run.steps, time.perf_counter(), timeout)
    if result.verdict is not Verdict.PASSED:
        return replace(result, alone=result.verdict is Verdict.FAILED)
    reason = f"{skipped.reason}; {reference.name} alone does what is expected"
    return replace(skipped, reason=reason, alone=True, steps=result.steps, seconds=result.seconds)


def said_lacks(lacks: Mapping[str, Sequence[str]]) -> str:
    """What systems lack, by their names, for the reader."""
    return "; ".join(f"{name} lacks {', '.join(lack)}" for name, lack in lacks.items() if lack)


def all_lacks(lacks: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The same as single things."""
    return tuple(dict.fromkeys(thing for lack in lacks.values() for thing in lack))


def replay_chosen(
    scenario: Scenario,
    choose: Choose,
    implementation: Named,
    reference: Named,
    options: Mapping[str, str] | None = None,
    look: Look | None = None,
    timeout: float = 0.0,
    refused: Refused | None = None,
) -> tuple[Result, tuple[Step, ...]]:
    """Replay operations that are chosen one by one, with what the reference shows in view; else as `replay`.

    Whatever error the reference has is meant, so the implementation must have it, too. It ends where a system lacks something.

    :param refused: what the implementation says only then that it cannot do (``Unsupported``) is passed over, and told to this:
        the reference has not done it. Left out, the replay ends there.
    :param scenario: one without steps. All steps stand at its position.
    :param timeout: as of `replay`; choosing takes from it, too.
    :returns: the result, and the steps that were carried out, each with its ``raises``.
    """
    start = time.perf_counter()
    run = _Replay(scenario, implementation, reference, options or {}, look, None)
    return run.through(lambda: run.choose(choose, refused), start, timeout), tuple(run.taken)


Watch = Callable[[Comparison, tuple[Difference, ...]], None]
"""Called after each step that could be compared, with both sides and what differs between them."""


class _Replay:
    def __init__(
        self,
        scenario: Scenario,
        implementation: Named,
        reference: Named,
        options: Mapping[str, str],
        look: Look | None,
        watch: Watch | None,
    ) -> None:
        own = guarded(lambda: settled(scenario, implementation.factory))  # what it raises, it raises again when it is asked
        self.scenario = scenario if isinstance(own, Raised) else own
        self.names = side_names(reference.name, implementation.name)
        self.factories = (reference.factory, implementation.factory)
        self.options = options
        self.look = look
        self.watch = watch
        self.systems: list[System] = []
        self.device = "unknown"
        self.done = 0
        self.at = self._first()
        self.limit = ""
        self.unsupported: tuple[str, ...] = ()
        groups = tuple(group_shapes(scenario.manager))
        self.memories = (Memory(groups), Memory(groups))
        self.indexes: tuple[Index | None, Index | None] = (None, None)
        self.shared = Shared.of(self.scenario.manager, unobserved_by(*self.factories))
        self.shared.loose = not isinstance(own, Raised) and bool(not_asked(scenario, implementation.factory))
        self.touched: tuple[dict[PageKey, int], dict[tuple[str, int], int]] = ({}, {})
        self.taken: list[Step] = []
        self.agree = False

    def through(self, steps: Callable[[], Failure | None], start: float, timeout: float) -> Result:
        """Build both systems, go through the steps, and close both, which may take as long again."""
        with seldom_collected():
            failure = self.within(timeout, lambda: self.build() or (None if self.limit else steps()))
            closing = self.within(timeout, self.close)
        failure = failure or closing
        if failure is None and self.limit:  # no device has checked it
            skipped = _result(self.scenario, Verdict.SKIPPED, self.done, start, reason=self.limit)
            return replace(skipped, lacks=self.unsupported)
        verdict = Verdict.PASSED if failure is None else Verdict.FAILED
        result = _result(self.scenario, verdict, self.done, start, device=self.device, failure=failure)
        return replace(result, passed_over=self.shared.passed_over)

    def not_asked(self, answers: Sequence[object]) -> Failure:
        """A system raised when it was asked what it cannot do. ``answers``: of each system."""
        if not self.scenario.steps:
            return _nothing(self.scenario)
        return self._raised(self.scenario.steps[0], "while it was asked what it lacks", answers)

    def within(self, seconds: float, part: Callable[[], Failure | None]) -> Failure | None:
        """A part of the replay, in a limited time."""
        try:
            with limited(seconds):
                return part()
        except TimedOut as error:  # not in a system, which would have been guarded, but on the way to one or back
            said = _raised_by(error)
            return self._raised(self.at, f"in the comparison after {self.at.op.verb}", [said, said])

    def build(self) -> Failure | None:
        setup = setup_for(self.scenario, self.options)
        built: list[System | Raised] = []
        for factory in self.factories:
            system = guarded(lambda factory=factory: factory(setup))  # type: ignore[misc]
            built.append(system)
            if not isinstance(system, Raised):
                self.systems.append(system)
        if self._cannot(built, "while it was built"):
            return None
        if any(isinstance(one, Raised) for one in built):
            return self._raised(self._first(), "while it was built", built)
        self.device = device_of(self.systems[1])
        return None

    def steps(self) -> Failure | None:
        for step in self.scenario.steps:
            failure = self._step(step)
            self.done += not self.limit
            if failure is not None or self.limit:
                return failure
        return None

    def choose(self, choose: Choose, refused: Refused | None = None) -> Failure | None:
        """Go through steps that are chosen one by one (see `replay_chosen`)."""
        self.agree = True
        shown = guarded(self.systems[0].observe)
        if isinstance(shown, Raised):
            return self._raised(self._first(), "while it was observed", [shown])
        while (op := choose(shown)) is not None:
            step = replace(_no_step(self.scenario), number=len(self.taken), op=op)
            if self._lacks(step):
                return None
            self.at = step
            telling[0](step.number)
            answer = guarded(lambda op=op: self.systems[1].apply(op))  # type: ignore[misc]
            if refused is not None and isinstance(answer, Raised) and answer.unsupported:
                refused(op, answer.unsupported)
                continue
            self.taken.append(step)
            failure = self._step(step, answer)
            self.done += not self.limit
            if failure is not None or self.limit:
                return failure
            assert self.indexes[0] is not None
            shown = self.indexes[0].observation
        return None

    def _lacks(self, step: Step) -> bool:
        """Whether a system lacks what a step needs; ``limit`` then says so."""
        alone = replace(self.scenario, steps=(step,))
        for name, factory in zip(self.names, self.factories, strict=True):
            if lack := lacking(alone, factory):
                self.limit = f"{name} lacks {', '.join(lack)}"
        return bool(self.limit)

    def close(self) -> Failure | None:
        closed = [guarded(system.close) for system in self.systems]
        self.systems = []
        if any(isinstance(one, Raised) for one in closed):
            steps = self.scenario.steps or self.taken
            return self._raised(steps[-1] if steps else self._first(), "while it was closed", closed)
        return None

    def _first(self) -> Step:
        return self.scenario.steps[0] if self.scenario.steps else _no_step(self.scenario)

    def _step(self, step: Step, answer: Outcome | Raised | None = None) -> Failure | None:
        """Go through a step. ``answer``: of the implementation, if it has done it already."""
        self.at = step
        telling[0](step.number)
        asked = self.systems if answer is None else self.systems[:1]
        outcomes: list[Outcome | Raised] = [guarded(lambda s=s: s.apply(step.op)) for s in asked]  # type: ignore[misc]
        outcomes += [] if answer is None else [answer]
        if self.agree and isinstance(outcomes[0], Outcome):
            step = self.taken[-1] = replace(step, raises=outcomes[0].error)
        if self._cannot(outcomes, f"from step {step.number}, {step.op.verb}, on"):
            return None
        if any(isinstance(one, Raised) for one in outcomes):
            return self._raised(step, f"in {step.op.verb}", outcomes)
        seen: list[Index | Raised] = [
            guarded(lambda s=s, before=before: Index(s.observe(), before))  # type: ignore[misc]
            for s, before in zip(self.systems, self.indexes, strict=True)
        ]
        if any(isinstance(one, Raised) for one in seen):
            return self._raised(step, f"while it was observed after {step.op.verb}", seen)
        compared = guarded(lambda: self._compare(step, outcomes, seen))
        if isinstance(compared, Raised):
            both: list[object] = [compared, compared]
            return self._raised(step, "a comparison: what was observed is malformed", both)
        comparison, differences = compared
        if self.watch is not None:
            self.watch(comparison, differences)
        if differences:
            return self._failure(step, comparison, differences)
        self.indexes = (comparison.reference.now, comparison.implementation.now)
        self.touched = (dict(self.shared.touched_pages), dict(self.shared.touched_rows))
        if self.look is not None:
            self.look(step, comparison.reference.now.observation, comparison.implementation.now.observation)
        return None

    def _cannot(self, answers: Sequence[object], when: str) -> bool:
        """Whether a device or a system cannot go on; ``limit`` then says so."""
        for name, one in zip(self.names, answers, strict=False):
            if isinstance(one, Raised) and one.limit:
                self.limit = f"{when}: {one.limit}"
            elif isinstance(one, Raised) and one.unsupported:
                self.limit = f"{name} lacks {one.unsupported} ({when})"
                self.unsupported = (one.unsupported,)
        return bool(self.limit)

    def _compare(
        self, step: Step, outcomes: list[Outcome | Raised], seen: list[Index | Raised]
    ) -> tuple[Comparison, tuple[Difference, ...]]:
        sides = []
        for name, memory, before, outcome, now in zip(self.names, self.memories, self.indexes, outcomes, seen, strict=True):
            assert isinstance(outcome, Outcome) and isinstance(now, Index)
            memory.update(step.number, step.op, outcome, before, now)
            sides.append(Side(name, memory, before, now, outcome))
        comparison = Comparison.of(step, sides[0], sides[1], self.shared)
        differences = tuple(sorted(all_differences(comparison), key=deciding))
        self.shared.clean = not differences
        return comparison, differences

    def _failure(self, step: Step, comparison: Comparison, differences: tuple[Difference, ...]) -> Failure:
        touched: dict[str, int] = {}
        before = self.indexes[0]
        if before is not None:
            pages: dict[str, int] = {}
            for number, key in enumerate(before.keys):
                if key in self.touched[0]:
                    page = before.pages[number]
                    names = [str(ref) for ref in page.refs] or [page_name(page)]
                    pages.update(dict.fromkeys([*names, page_name(page)], self.touched[0][key]))
            touched = {d.page: pages[d.page] for d in differences if d.page is not None and d.page in pages}
        rows = {d.row: self.touched[1][d.row] for d in differences if d.row is not None and d.row in self.touched[1]}
        touched.update({f"row {row} of {batch}": last for (batch, row), last in rows.items()})
        gates = dict(comparison.reference.memory.gates)
        sides = comparison.reference, comparison.implementation
        remarks = tuple(f"{side.name}: {side.outcome.message}" for side in sides if side.outcome.message)
        return Failure(step.number, step.op.verb, step.position, step.last_line, differences, touched, gates, remarks)

    def _raised(self, step: Step, doing: str, answers: Sequence[object]) -> Failure:
        late = any(isinstance(one, Raised) and one.late for one in answers)
        said = [one.text if isinstance(one, Raised) else "-" if late else "no exception" for one in answers]
        frames = tuple(
            f"{name}: {frame}"
            for name, one in zip(self.names, answers, strict=False)
            if isinstance(one, Raised)
            for frame in one.frames
        )
        said += ["not built"] * (2 - len(said))
        kind, identity = (Kind.SILENT, "no answer") if late else (Kind.RAISED, _exception_identity(answers))
        difference = Difference(kind, doing, said[0], said[1], identity=identity, detail=frames)
        gates = dict(self.memories[0].gates)
        return Failure(step.number, step.op.verb, step.position, step.last_line, (difference,), gates=gates)


def all_differences(c: Comparison) -> Iterator[Difference]:
    """Everything that one step shows to differ: faults, inconsistencies, outcomes, expectations, state, tables."""
    yield from _faults(c)
    yield from inconsistencies(c.reference, c)
    yield from inconsistencies(c.implementation, c)
    yield from compare_outcomes(c)
    unobserved = c.shared.unobserved
    for difference in (*compare_expectations(c), *compare_state(c), *compare_tables(c), *compare_fetching(c)):
        if not passed_over(difference.identity, difference.kind is Kind.STATE, unobserved):
            yield difference


def _faults(c: Comparison) -> Iterator[Difference]:
    for number, side in enumerate((c.reference, c.implementation)):
        for fault in side.now.observation.faults:
            values = ("a fault", "-") if number == 0 else ("-", "a fault")
            lines = fault.splitlines() or ["(no text)"]
            yield Difference(Kind.FAULT, f"{side.name} reports", *values, identity=f"fault: {lines[0]}", detail=tuple(lines))


def guarded(call: Callable[[], T]) -> T | Raised:
    """What a call returns, or the exception that it let out."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a system's bug of any kind must become a report, a call of exit and a cancellation too
        return _raised_by(error)


def _raised_by(error: BaseException) -> Raised:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in _OWN_FILES][-FRAMES:]
    lines = tuple(f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in reversed(frames))
    late = isinstance(error, TimedOut)
    if isinstance(error, RemoteError) or (isinstance(error, TimedOut) and error.lines):
        lines = error.lines
    text = str(error) if late or isinstance(error, RemoteError) else traceback.format_exception_only(error)[-1].strip()
    limit = str(error) if isinstance(error, DeviceLimit) else ""
    unsupported = (str(error) or "something that it does not name") if isinstance(error, Unsupported) else ""
    return Raised(text, lines, limit, late, unsupported)


def _exception_identity(answers: Sequence[object]) -> str:
    for one in answers:
        if isinstance(one, Raised):
            place = one.frames[0].split(": ")[0] if one.frames else ""
            return f"{one.text.split(':')[0]} at {place}"
    return "raised"


def _no_step(scenario: Scenario) -> Step:
    """Where there is no step yet: at the scenario itself."""
    return Step(0, NO_OPERATION, UNSET, None, NO_EXPECTATION, None, scenario.position, scenario.position.line, {})


def _nothing(scenario: Scenario) -> Failure:
    difference = Difference(Kind.EXPECTATION, "the scenario has no steps", "-", "-", expected="at least one step")
    return Failure(0, "-", scenario.position, scenario.position.line, (difference,))


def _result(
    scenario: Scenario,
    verdict: Verdict,
    steps: int,
    start: float,
    device: str = "unknown",
    reason: str = "",
    failure: Failure | None = None,
) -> Result:
    return Result(
        scenario.name,
        scenario.position,
        scenario.index,
        scenario.rules,
        verdict,
        steps,
        time.perf_counter() - start,
        device,
        reason,
        failure,
    )
