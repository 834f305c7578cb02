"""The sweep: every call inside a step that can fail is made to fail in turn, and nothing may be left of it (R3.14, section 9).

For each injection both systems are built anew and carried to the step. There the failure is put in place, the step fails, and

- its outcome is the declared error or false, the same in both systems, and the harness finds no difference between them;
- the state of each system is the one before the step, apart from what the rules name (`kvspec.audit.leftovers`);
- the failure is taken away, the step is repeated, and the state is then the one without the failure (`kvspec.audit.outline`);
- the rest of the scenario runs as if nothing had happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvspec.audit.injections import (
    SLOTS_LABEL,
    Injection,
    Moment,
    armed,
    copies,
    files,
    partly_false,
    right_failure,
    slots,
)
from kvspec.audit.leftovers import Allowed, leftovers
from kvspec.audit.outline import LOOSE, departures
from kvspec.audit.stepper import Compared, Crashed, Stepper
from kvspec.errors import ErrorKind
from kvspec.harness.difference import Difference
from kvspec.harness.naming import Index, PageKey
from kvspec.harness.replay import Named
from kvspec.harness.systems import capabilities, lacking
from kvspec.observation import Observation
from kvspec.ops import Commit, Direction, GiveSlots, Iterate, Operation
from kvspec.scenario import UNSET, Expect, Scenario, Step

PARTLY = frozenset(("commit", "publish", "resize_batch", "iterate"))
"""Verbs of which a part may stay done when they fail (R3.9, R8.6, R8.9, R11.1)."""
GROWING = frozenset(("resize", "commit", "resize_batch", "iterate"))
"""Verbs that write payloads, which stay (R3.14)."""
AGAINST_BEFORE = ("version", "moved", "copy_calls", "events")
"""Expectations that compare a step with the one before: a repeated step of which a part was done already cannot meet them."""


ARMED = "the scenario has a refusal of its own in store"
"""Why copies were not refused: a step that is repeated submits more copies, so that another one would be."""
NO_REFUSALS = "a system has no verb fail_copy"
"""Why else they were not."""
NO_SLOTS = "a system lacks verb take_slots or give_slots"
"""Why slots were not taken away."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An injection with leftovers. ``stage``: when it showed. ``texts``: what."""

    injection: Injection | None
    verb: str
    stage: str
    texts: tuple[str, ...]


@dataclass(slots=True)
class SweepResult:
    """One scenario after the sweep. Counts are by (verb, sort of failure)."""

    name: str
    tested: dict[tuple[str, str], int] = field(default_factory=dict)
    absorbed: dict[tuple[str, str], int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Sweeper:
    """What a sweep needs besides scenarios. ``choose``: whether an injection is made at all."""

    implementation: Named
    reference: Named
    options: Mapping[str, str] = field(default_factory=dict)
    choose: Callable[[Scenario, Injection], bool] = lambda scenario, injection: True

    def sweep(self, scenario: Scenario) -> SweepResult:
        """All chosen injections of one scenario."""
        done = SweepResult(scenario.name)
        lack = [
            f"{one.name} lacks {', '.join(why)}"
            for one in (self.reference, self.implementation)
            if (why := lacking(scenario, one.factory))
        ]
        if lack:
            done.skipped = "; ".join(dict.fromkeys(lack))
            return done
        try:
            moments = self._plain(scenario)
        except _Found as found:
            done.findings.append(found.finding)
            return done
        for moment in moments:
            for queue in self._injections(moment, done):
                for injection in queue:
                    if not self.choose(scenario, injection):
                        continue
                    failed = self._try(scenario, moments, moment, injection, done)
                    if not failed and injection.slots:
                        break  # with more slots it fails even less
        return done

    def _injections(self, moment: Moment, done: SweepResult) -> Iterator[Sequence[Injection]]:
        able = capabilities(self.reference.factory) & capabilities(self.implementation.factory)
        for injection in (*copies(moment), *files(moment)):
            if injection.kind != "file" and "fail_copy" not in able:
                done.left_out[NO_REFUSALS] += 1
            elif moment.armed:
                done.left_out[ARMED] += 1
            else:
                yield [injection]
        queues = list(slots(moment))
        if {"take_slots", "give_slots"} <= able:
            yield from queues
        elif queues:
            done.left_out[NO_SLOTS] += len(queues)

    def _plain(self, scenario: Scenario) -> list[Moment]:
        """The replay without a failure. Raises `_Found` if it does not hold."""
        moments: list[Moment] = []
        refused: list[bool] = []
        with _systems(self, scenario, None) as stepper:
            stepper.remembered.indexes = stepper.look()
            before = 0
            for number, step in enumerate(scenario.steps):
                remembered = stepper.remembered.copy()
                compared = stepper.step(step)
                _must_hold(compared.differences, None, step, "without any failure")
                files_now = int(getattr(stepper.systems[1], "file_accesses", 0))
                moments.append(
                    Moment(
                        step, remembered, compared.outcomes, compared.seen, (before, files_now), armed(scenario, number, refused)
                    )
                )
                refused.append(compared.outcomes[0].error is ErrorKind.COPY_FAILED)
                before = files_now
        return moments

    def _try(
        self, scenario: Scenario, moments: Sequence[Moment], moment: Moment, injection: Injection, done: SweepResult
    ) -> bool:
        """One injection; whether the step failed."""
        key = (moment.step.op.verb, injection.sort)
        try:
            failed = _Attempt(self, scenario, moments, moment, injection).run()
        except _Found as found:
            done.findings.append(found.finding)
            failed = True
        counts = done.tested if failed else done.absorbed
        counts[key] = counts.get(key, 0) + 1
        return failed


class _Found(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.stage)
        self.finding = finding


class _systems:
    """Both systems as a context; whatever they let out becomes a finding."""

    def __init__(self, sweeper: Sweeper, scenario: Scenario, injection: Injection | None, file: int | None = None) -> None:
        self.sweeper, self.scenario, self.injection, self.file = sweeper, scenario, injection, file

    def __enter__(self) -> Stepper:
        options = dict(self.sweeper.options)
        mine = options if self.file is None else {**options, "fail_file": str(self.file)}
        try:
            self.stepper = Stepper(self.scenario, self.sweeper.implementation, self.sweeper.reference, (options, mine))
        except Crashed as crash:
            raise self._found(crash) from None
        return self.stepper

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.stepper.close()
        except Crashed as crash:
            error = error or crash
        if isinstance(error, Crashed):
            raise self._found(error) from None

    def _found(self, crash: Crashed) -> _Found:
        return _Found(Finding(self.injection, "", "a system let an exception out", (str(crash),)))


@dataclass(frozen=True, slots=True)
class _Attempt:
    sweeper: Sweeper
    scenario: Scenario
    moments: Sequence[Moment]
    moment: Moment
    injection: Injection

    def run(self) -> bool:
        """Whether the step failed. Raises `_Found`."""
        place = self.moments.index(self.moment)
        injection, step = self.injection, self.moment.step
        file = self.moment.files[0] + injection.n if injection.kind == "file" else None
        with _systems(self.sweeper, self.scenario, injection, file) as stepper:
            self._carry(stepper, place)
            before = stepper.remembered.indexes
            assert before[0] is not None and before[1] is not None
            if file is not None:
                return self._file(stepper, place, before[1])
            failing = stepper.step(_silent(step), agree=True)
            self._hold(failing.differences, "in the step that fails")
            outcome = failing.outcomes[0]
            if not self._failed(failing):
                if injection.slots or injection.kind == Direction.UPLOAD:
                    return False
                self._found("the copy was refused and the step succeeded all the same", ())
            if not right_failure(injection, step.op.verb, outcome):
                self._found(f"the outcome is {outcome.error or outcome.value}: not the declared one", (outcome.message,))
            allowed = self._allowed()
            for side in (0, 1):
                texts = tuple(leftovers(_there(before[side]), failing.seen[side], allowed))
                if texts:
                    self._found(f"after the step that failed, {stepper.names[side]} is not as before", texts)
            if injection.slots:
                stepper.unseen(GiveSlots.model_validate({"as": SLOTS_LABEL}))
            self._again(stepper, place, before[0], failing.seen[0])
        return True

    def _carry(self, stepper: Stepper, place: int) -> None:
        """Both systems to the step, the failure put in place, what was remembered taken over."""
        for moment in self.moments[:place]:
            stepper.unseen(moment.step.op)
        plain = self.moment.before.indexes
        stepper.remembered = self.moment.before.copy()
        free = 0
        if self.injection.slots:
            assert plain[0] is not None
            pools = {f"{level.label}.{group}": pool for (level, group), pool in plain[0].observation.pools.items()}
            free = pools[self.injection.kind].free
        operation = self.injection.operation(free)
        if operation is not None:
            outcomes = stepper.unseen(operation)
            if any(outcome.error is not None for outcome in outcomes):
                self._found("the failure could not be put in place", tuple(outcome.message for outcome in outcomes))
        seen = stepper.look()
        if all(index is None or _numbers(index) == _numbers(now) for index, now in zip(plain, seen, strict=True)):
            stepper.remembered.indexes = seen
            for memory, index in zip(stepper.remembered.memories, seen, strict=True):
                for name, view in index.observation.batches.items():
                    memory.batches[name].address = view.address  # of a batch built anew
            return
        self._found("two replays of the same steps differ in slots or versions, so that they cannot be compared", ())

    def _failed(self, compared: Compared) -> bool:
        outcome, plain = compared.outcomes[0], self.moment.outcomes[0]
        if outcome.error is not None:
            return outcome.error is not plain.error or outcome.error is ErrorKind.COPY_FAILED
        return partly_false(outcome.value) and outcome.value != plain.value

    def _allowed(self) -> Allowed:
        """What the rules except for this call, from what it does when nothing fails."""
        op, injection = self.moment.step.op, self.injection
        before, after = self.moment.before.indexes[0], self.moment.seen[0]
        assert before is not None
        request = getattr(op, "request", None)
        stream = op.verb in ("resume", "admit_generation", "iterate")
        lengthened = request if isinstance(op, Commit) else None
        batch = getattr(op, "batch", None) if op.verb in PARTLY else None
        label = op.as_ if isinstance(op, Iterate) else None
        if injection.slots:
            return Allowed(stream=stream, lengthened=lengthened, batch=batch, label=label)
        wrote = op.verb in GROWING
        if not injection.queued and self._only_submission():
            return Allowed(wrote=wrote, stream=stream, lengthened=lengthened, batch=batch, label=label)
        copied = frozenset(_copied(before, after, request))
        newer = frozenset(owner for key in copied for owner in before.pages[before.by_key[key]].owners)
        return Allowed(copied, newer, True, wrote, stream, lengthened, batch, label)

    def _only_submission(self) -> bool:
        """Whether no other submission came before the refused one."""
        before = self.moment.before.indexes[0]
        assert before is not None
        made = sum(self.moment.seen[0].observation.copy_calls.values()) - sum(before.observation.copy_calls.values())
        return made <= 1 and self.injection.kind != Direction.UPLOAD and not _disk_moves(before, self.moment.seen[0])

    def _again(self, stepper: Stepper, place: int, before: Index, failed: Index) -> None:
        """The step once more, then the rest."""
        step = self.moment.step
        loose: set[str] = set()
        if stepper.remembered.memories[0].gates:
            # Readiness and fences have more behind them (R4.8), slots come in another order (R7.2), more buffers are in flight.
            loose = {"pending", "done", "payload", "staging", "fetched", "resident"}
        newer = self.injection.queued or not self._only_submission()
        if newer:  # versions, of owners of what was copied from too (R4.8)
            loose |= {"dirty", "dirty_rows"}
        # Where members have gone ahead, what is left to do is another call than the one that the scenario speaks of.
        ahead = step.op.verb in PARTLY and not isinstance(step.op, Commit) and _ahead(before, failed)
        dropped = set(AGAINST_BEFORE) if step.op.verb in PARTLY else set()
        again = _renumbered(step, _rest_of(step.op, before, failed), dropped | loose)
        repeated = stepper.step(_silent(again) if ahead else again, agree=ahead)
        self._hold(repeated.differences, "when the step was repeated")
        departed = False
        for side in (0, 1):
            for name, text in departures(self.moment.seen[side], repeated.seen[side]):
                departed = True
                if not ahead and not (name.startswith(LOOSE) and self._may_depart()):
                    self._found(f"after the step was repeated, {stepper.names[side]} is not as without the failure", (text,))
        if newer:
            loose.add("version_since")
        for later in self.scenario.steps[place + 1 :]:
            changed = _renumbered(later, later.op, loose)
            compared = stepper.step(_silent(changed) if departed else changed, agree=departed)
            self._hold(compared.differences, f"later, in step {later.number} ({later.op.verb}, line {later.position.line})")

    def _may_depart(self) -> bool:
        return self.injection.queued or self.moment.step.op.verb in PARTLY or not self._only_submission()

    def _file(self, stepper: Stepper, place: int, before: Index) -> bool:
        """A file access that fails, in the system under test alone: the reference has no files."""
        step, name = self.moment.step, stepper.names[1]
        outcome = stepper.alone(step.op)
        if not right_failure(self.injection, step.op.verb, outcome):
            self._found(f"the outcome of {name} is {outcome.error or outcome.value}: not the declared one", (outcome.message,))
        failed = stepper.look()[1]
        texts = tuple(leftovers(before, failed, self._allowed()))
        if texts:
            self._found(f"after the step that failed, {name} is not as before", texts)
        op = _rest_of(step.op, before, failed)
        for moment in self.moments[place:]:
            stepper.alone(op if moment is self.moment else moment.step.op)
            now = stepper.look()[1]
            texts = now.observation.faults + tuple(
                text for part, text in departures(moment.seen[1], now) if not (part.startswith(LOOSE) and self._may_depart())
            )
            if texts:
                when = "when the step was repeated" if moment is self.moment else f"later, in step {moment.step.number}"
                self._found(f"{when}, {name} is not as without the failure", texts)
        return True

    def _hold(self, differences: Sequence[Difference], stage: str) -> None:
        _must_hold(differences, self.injection, self.moment.step, stage)

    def _found(self, stage: str, texts: tuple[str, ...]) -> None:
        raise _Found(Finding(self.injection, self.moment.step.op.verb, stage, texts))


def _must_hold(differences: Sequence[Difference], injection: Injection | None, step: Step, stage: str) -> None:
    if differences:
        texts = tuple(
            f"{d.subject}: {d.reference}, {d.implementation}"
            + (f" (expected {d.expected})" if d.expected is not None else "")
            + "".join(f"\n{line}" for line in d.detail)
            for d in differences
        )
        raise _Found(Finding(injection, step.op.verb, stage, texts))


def _there(index: Index | None) -> Index:
    assert index is not None
    return index


def _numbers(index: Index) -> object:
    versions = {name: view.version for name, view in index.observation.requests.items()}
    return versions, {key: index.pages[n].slot for key, n in index.by_key.items()}


def _copied(before: Index, after: Index, request: str | None) -> Iterator[PageKey]:
    """The pages that a step copies: those that are elsewhere afterwards, or gone, and whatever the request itself refers to."""
    successors = {after.successor_of(n, before): n for n in range(len(after.pages))}
    for number, key in enumerate(before.keys):
        page = before.pages[number]
        now = successors.get(number)
        where = None if now is None else (after.pages[now].level, after.pages[now].slot)
        if where != (page.level, page.slot) or any(ref.request == request for ref in page.refs):
            yield key


def _disk_moves(before: Index, after: Index) -> bool:
    pools = before.observation.pools
    return any(
        level.label == "disk" and after.observation.pools[level, group].free != pool.free
        for (level, group), pool in pools.items()
    )


def _rest_of(op: Operation, before: Index, failed: Index) -> Operation:
    """What is left to do of an operation, of which a part may be done already: tokens not committed yet (R3.9)."""
    if not isinstance(op, Commit):
        return op
    done = failed.observation.requests[op.request].committed - before.observation.requests[op.request].committed
    return op.model_copy(update={"tokens": op.tokens[done:]})


def _ahead(before: Index, failed: Index) -> bool:
    """Whether a failed call has brought any request forward."""
    old, new = before.observation, failed.observation

    def where(seen: Observation) -> object:
        return {
            name: (
                view.status,
                view.phase,
                view.capacity,
                view.history,
                [snapshot.levels for snapshot in view.snapshots.values()],
            )
            for name, view in seen.requests.items()
        }

    return where(old) != where(new)


def _renumbered(step: Step, op: Operation, dropped: set[str]) -> Step:
    """The step as the next one, without some of its expectations."""
    expect = step.expect.model_copy(update=dict.fromkeys(dropped)) if dropped else step.expect
    return replace(step, number=step.number + 1, op=op, expect=expect)


def _silent(step: Step) -> Step:
    """The step without anything that the scenario says of it: the systems must agree, that is all."""
    return replace(step, expect=Expect(), returns=UNSET, raises=None)
