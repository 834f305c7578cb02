"""What is seen of a replay, step by step: facts, what has changed, and at a divergence the facts of both systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvspec.config import ManagerConfig
from kvspec.harness.compare import Comparison
from kvspec.harness.difference import Difference
from kvspec.harness.memory import Memory
from kvspec.harness.naming import Index, page_name
from kvspec.harness.policies import settled
from kvspec.harness.replay import Raised, guarded
from kvspec.harness.side import Side
from kvspec.harness.systems import Factory, setup_for
from kvspec.harness.timeline.changes import Change, changes
from kvspec.harness.timeline.facts import Facts, Key, Numbers, PageFact, RequestFact, facts
from kvspec.harness.watch import TimedOut, limited
from kvspec.refs import group_shapes
from kvspec.scenario import Scenario, Step
from kvspec.system import Outcome, Turn

NOT_MARKED: dict[str, tuple[str, ...]] = {
    "page": ("base", "name", "slot", "gates", "why", "rule", "deferred"),
    "request": (),
}
"""Fields of facts that are each system's own, follow from others, or may differ (R7): only a difference found marks those."""
OWN = frozenset({"slots", "gate", "read", "batch", "fetch"})
"""Kinds of facts of which the same is true."""
UNSEEN: dict[str, tuple[str, ...]] = {
    "eviction": ("evictable",),
    "tree": ("tree",),
    "reserved": ("reserved",),
    "caches": ("cached",),
}
"""By what a system cannot show: kinds of facts that are not marked then."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The system under test at the step that diverges.

    ``marks``: by key the indexes in the value at which the two systems differ; a page is marked also where what differs is not
    shown, such as its payload. ``differences``: as found.
    """

    outcome: Outcome
    facts: Facts
    marks: Mapping[Key, tuple[int, ...]]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One step, as the reference, or the only system, shows it; ``now``: the pages; ``divergence``: what the other shows."""

    step: Step
    outcome: Outcome
    before: Facts
    facts: Facts
    changes: tuple[Change, ...]
    now: Index
    divergence: Divergence | None = None


class Recorder:
    """Sees the steps of one replay, and hands each on.

    ``memory``: what the harness remembers of the system that is shown. ``turns``: after the last step, for the pages of its
    ``now``, if the system says so (``kvspec.system.System``). ``broken``: why nothing more is seen, if a system shows
    something so malformed that it cannot be drawn; the comparison says what is wrong with it.
    """

    def __init__(self, manager: ManagerConfig, take: Callable[[Seen], None]) -> None:
        """``take``: called with each step as it is seen."""
        self.manager = manager
        self.take = take
        self.numbers = Numbers()
        self.facts: Facts = {}
        self.memory: Memory | None = None
        self.turns: Sequence[Turn] = ()
        self.broken = ""

    def watch(self, comparison: Comparison, differences: tuple[Difference, ...]) -> None:
        """See a step of a replay of two systems (``kvspec.harness.replay``). What cannot be drawn ends it: see ``broken``."""
        if not self.broken:
            drawn = guarded(lambda: self._both(comparison, differences))
            self.broken = drawn.text if isinstance(drawn, Raised) else ""

    def _both(self, comparison: Comparison, differences: tuple[Difference, ...]) -> None:
        ours = self._facts(comparison.step, comparison.reference)
        divergence = None
        if differences:
            theirs = self._of_other(comparison)
            marks = dict(_marks(ours, theirs, comparison.shared.unobserved))
            marks.update(_named_marks(comparison, self.numbers.of, differences))
            divergence = Divergence(comparison.implementation.outcome, theirs, marks, differences)
        self._hand_on(comparison.step, comparison.reference, ours, divergence)

    def see(self, step: Step, side: Side) -> None:
        """See a step of one system by itself."""
        self._hand_on(step, side, self._facts(step, side), None)

    def _facts(self, step: Step, side: Side) -> Facts:
        self.numbers.update(side.before, side.now)
        return facts(self.manager, side.now, side.memory, self.numbers, step.number, self.facts)

    def _of_other(self, c: Comparison) -> Facts:
        """The facts of the system under test, its pages with the numbers of the reference's."""
        numbers = Numbers()
        numbers.blocks = self.numbers.blocks
        own = {index: -1 - index for index in range(len(c.implementation.now.pages))}
        numbers.of = own | {two: self.numbers.of[one] for one, two in c.matching.pairs}
        return facts(self.manager, c.implementation.now, c.implementation.memory, numbers, c.step.number, self.facts)

    def _hand_on(self, step: Step, side: Side, now: Facts, divergence: Divergence | None) -> None:
        self.memory = side.memory
        before = side.before.observation if side.before is not None else None
        said = tuple(changes(self.facts, now, before, side.now.observation))
        seen = Seen(step, side.outcome, self.facts, now, said, side.now, divergence)
        self.facts = now
        self.take(seen)


def _marks(ours: Facts, theirs: Facts, unobserved: frozenset[str]) -> Iterator[tuple[Key, tuple[int, ...]]]:
    """Where the facts of two systems differ, slots and readiness aside."""
    unseen = {kind for aspect in unobserved for kind in UNSEEN.get(aspect, ())} | OWN
    for key in ours.keys() | theirs.keys():
        kind = str(key[0])
        if kind in unseen:
            continue
        one, two = ours.get(key, ()), theirs.get(key, ())
        passed = {PageFact._fields.index(field) for field in NOT_MARKED["page"]} if kind == "page" else set()
        if kind == "page" and "tree" in unobserved:
            passed.add(PageFact._fields.index("tokens"))
        if kind == "request" and "versions" in unobserved:
            passed.update(RequestFact._fields.index(field) for field in ("version", "dirty"))
        indexes = [p for p in range(max(len(one), len(two))) if p not in passed and one[p : p + 1] != two[p : p + 1]]
        if indexes:
            yield key, tuple(indexes)


def _named_marks(
    c: Comparison, numbers: Mapping[int, int], differences: tuple[Difference, ...]
) -> Iterator[tuple[Key, tuple[int, ...]]]:
    """The pages that differences name, whatever differs of them."""
    names = {difference.page for difference in differences if difference.page is not None}
    for index, page in enumerate(c.reference.now.pages):
        if page_name(page) in names or names & {str(ref) for ref in page.refs}:
            yield ("page", numbers[index]), (PageFact._fields.index("name"),)


def walk(
    scenario: Scenario, name: str, factory: Factory, options: Mapping[str, str], recorder: Recorder, timeout: float = 0.0
) -> str:
    """Carry out a scenario with one system, and let a recorder see every step.

    :param timeout: it ends after so many seconds; 0 for no limit. As of ``replay``.
    :returns: what the system raised, or that it gave no answer, and where; nothing if all went well.
    """
    doing = ["while it was built"]
    try:
        with limited(timeout):
            raised = _walked(scenario, name, factory, options, recorder, doing)
    except TimedOut as error:  # not in the system, which would have been guarded
        raised = Raised(str(error), (), late=True)
    if raised is None:
        return ""
    where = f" (at {raised.frames[0]})" if raised.late and raised.frames else ""
    return f"{'gave no answer' if raised.late else 'raised'} {doing[0]}: {raised.text}{where}"


def _walked(
    scenario: Scenario, name: str, factory: Factory, options: Mapping[str, str], recorder: Recorder, doing: list[str]
) -> Raised | None:
    system = guarded(lambda: factory(setup_for(settled(scenario, factory), options)))
    if isinstance(system, Raised):
        return system
    memory = Memory(tuple(group_shapes(scenario.manager)))
    before: Index | None = None
    try:
        for step in scenario.steps:
            doing[0] = f"in step {step.number}, {step.op.verb}"
            outcome = guarded(lambda step=step: system.apply(step.op))  # type: ignore[misc]
            if isinstance(outcome, Raised):
                return outcome
            now = guarded(lambda: Index(system.observe()))
            if isinstance(now, Raised):
                return now
            memory.update(step.number, step.op, outcome, before, now)
            recorder.see(step, Side(name, memory, before, now, outcome))
            before = now
        turns = guarded(getattr(system, "turns", tuple))
        recorder.turns = () if isinstance(turns, Raised) or before is None or len(turns) != len(before.pages) else turns
    finally:
        guarded(system.close)
    return None
