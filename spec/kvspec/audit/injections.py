"""What can fail inside a step: each copy submission, each allocation of slots, each file access.

What a step does is known from a plain replay of its scenario; an injection is then one operation of the language before the
step (``fail_copy``, ``take_slots``), or an option of the system under test for file accesses, which the language does not name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvspec.audit.stepper import Remembered
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.harness.naming import Index
from kvspec.ops import Direction, FailCopy, Operation, TakeSlots
from kvspec.scenario import Scenario, Step
from kvspec.system import Outcome, Value

ALLOCATING = frozenset(
    (
        *("resume", "resize", "enter_decode", "admit_generation", "commit", "prefetch", "offload", "set_beam_width"),
        *("seed_prefix", "evict", "publish", "resize_batch", "iterate"),
    )
)
"""Verbs that may take slots."""
PUBLISHING = frozenset(("publish", "resize_batch", "iterate"))
"""Verbs that may publish."""
COPYING = ALLOCATING - {"set_beam_width"}
"""Verbs that may submit copies."""
COPIES = (Direction.OFFLOAD, Direction.ONBOARD, Direction.COPY)
SLOTS_LABEL = "slots taken by the sweep"


class InjectionError(ValueError):
    """A text that names no injection."""


@dataclass(frozen=True, slots=True, order=True)
class Injection:
    """One failure. ``step``: its number. ``kind``: a direction of copies, ``file``, or ``level.group`` for slots.

    ``n``: the submission or access of the step that fails, from 1; for slots, how many are left free.
    """

    step: int
    kind: str
    n: int
    queued: bool = False

    def __str__(self) -> str:
        """``step:kind:n``, with ``+queued`` where the copy is refused after its work was queued."""
        return f"{self.step}:{self.kind}:{self.n}" + ("+queued" if self.queued else "")

    @property
    def sort(self) -> str:
        """What it makes fail, in a word or two, for counting."""
        if self.kind in tuple(Direction):
            return f"{self.kind}, queued" if self.queued else self.kind
        return self.kind if self.kind == "file" else f"{self.kind.partition('.')[0]} slots"

    @property
    def slots(self) -> bool:
        """Whether it takes slots away."""
        return "." in self.kind

    @classmethod
    def parse(cls, text: str) -> Injection:
        """The injection that ``str`` writes so. Raises `InjectionError`."""
        step, _, rest = text.partition(":")
        kind, _, count = rest.rpartition(":")
        number, plus, tail = count.partition("+")
        level, dot, group = kind.partition(".")
        known = (kind in (*Direction, "file") and not dot) or (dot and group and level in {one.label for one in Level})
        if not (step.isdecimal() and number.isdecimal() and known) or (plus and tail != "queued"):
            raise InjectionError(
                f"{text!r} names no failure: expected STEP:offload:N (or onboard, copy, upload, file), STEP:offload:N+queued, "
                "or STEP:level.group:FREE"
            )
        return cls(int(step), kind, int(number), bool(plus))

    def operation(self, free: int) -> Operation | None:
        """What is done before the step; ``free``: the free slots of the pool group then. ``None`` for a file access."""
        if self.kind == "file":
            return None
        if not self.slots:
            return FailCopy(direction=Direction(self.kind), call=self.n, queued=self.queued)
        level, _, group = self.kind.partition(".")
        return TakeSlots.model_validate({"level": level, "group": group, "count": free - self.n, "as": SLOTS_LABEL})


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of the plain replay. ``before``: what was remembered before it. ``files``: file accesses made so far, before it
    and after it. ``armed``: directions in which the scenario has a refusal of its own in store."""

    step: Step
    before: Remembered
    outcomes: tuple[Outcome, Outcome]
    seen: tuple[Index, Index]
    files: tuple[int, int]
    armed: frozenset[Direction]

    @property
    def failed(self) -> bool:
        """Whether the step fails without any injection."""
        return self.outcomes[0].error is not None or partly_false(self.outcomes[0].value)


def partly_false(value: Value) -> bool:
    """Whether a value says that something did not work: false, a list or mapping with such an entry."""
    if isinstance(value, tuple):
        return any(one is False for one in value)
    return value is False or (isinstance(value, dict) and "waiting" in value.values())


def copies(moment: Moment) -> Iterator[Injection]:
    """Each copy submission of a step, refused before and after its work was queued; and its upload."""
    step = moment.step
    now, index = moment.seen[0].observation, moment.before.indexes[0]
    before = index.observation.copy_calls if index is not None else {}
    for direction in COPIES:
        made = now.copy_calls.get(direction.value, 0) - before.get(direction.value, 0)
        for call in range(1, made + 1):
            yield Injection(step.number, direction.value, call)
            yield Injection(step.number, direction.value, call, queued=True)
    if step.op.verb in PUBLISHING and moment.outcomes[0].error is None:
        yield Injection(step.number, Direction.UPLOAD.value, 1)
        yield Injection(step.number, Direction.UPLOAD.value, 1, queued=True)


def files(moment: Moment) -> Iterator[Injection]:
    """Each file access of a step."""
    for access in range(1, moment.files[1] - moment.files[0] + 1):
        yield Injection(moment.step.number, "file", access)


def slots(moment: Moment) -> Iterator[Sequence[Injection]]:
    """For each pool group, what to try in order: none left free, one left free, and so on until nothing fails any more."""
    index = moment.before.indexes[0]
    if moment.step.op.verb not in ALLOCATING or index is None or moment.failed:
        return
    for (level, group), pool in index.observation.pools.items():
        if pool.free:
            yield [Injection(moment.step.number, f"{level.label}.{group}", left) for left in range(pool.free)]


def right_failure(injection: Injection, verb: str, outcome: Outcome) -> bool:
    """Whether an outcome is a failure of the declared kind (section 9, R3.5-R3.9, R4.7, R4.8)."""
    if not injection.slots:
        return outcome.error is ErrorKind.COPY_FAILED
    if outcome.error is not None:
        return outcome.error is ErrorKind.OUT_OF_PAGES and verb in OUT_OF_PAGES
    return partly_false(outcome.value)


OUT_OF_PAGES = frozenset(("commit", "offload", "seed_prefix", "evict", "publish", "resize_batch", "iterate"))
"""Verbs for which a full level is an error; for the others it is false."""


def armed(scenario: Scenario, number: int, refused: Sequence[bool]) -> frozenset[Direction]:
    """Directions in which the scenario may still have a refusal in store before a step.

    ``refused``: by earlier step, whether it was refused a copy.
    """
    store: list[Direction] = []
    for step, failed in zip(scenario.steps[:number], refused, strict=False):
        if isinstance(step.op, FailCopy):
            store.append(step.op.direction)
        elif failed and store:
            store.pop(0)
    return frozenset(store)
