"""Reached states: named situations that a lifecycle or a scenario can come to, and how often it did.

A state is recognised from what a reference shows before and after a step, and from the step's outcome: never by hooks in a
system. Each count is kept by verb and result, so that a matrix of states and calls needs no more than another view of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kvspec import ops
from kvspec.audit.coverage.cells import Counts, Covering
from kvspec.audit.moment import Moment, Trail
from kvspec.audit.states import STATES
from kvspec.harness.naming import Index
from kvspec.harness.replay import Named
from kvspec.observation import Observation
from kvspec.system import Outcome, Setup, System


@dataclass(slots=True)
class Reached:
    """How often each state was reached: by name, verb and result. ``steps``: how many were looked at.

    ``calls``: how often each verb was called, by result: ``done``, ``false``, or the kind of error. ``fetched``: ``hits`` and
    ``misses`` of fetches that have run (R15.10), and in how many ``lifecycles``. ``cells``: how often each kind of state,
    operation and outcome came together (`kvspec.audit.coverage`).
    """

    steps: int = 0
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    fetched: Counter[str] = field(default_factory=Counter)
    cells: Counts = field(default_factory=Counter)

    def add(self, other: Reached) -> None:
        """Add the counts of another run."""
        self.steps += other.steps
        self.counts.update(other.counts)
        self.calls.update(other.calls)
        self.fetched.update(other.fetched)
        self.cells.update(other.cells)

    def of(self, name: str) -> int:
        """How often a state was reached, whatever the verb and the result."""
        return sum(count for (one, _, _), count in self.counts.items() if one == name)

    def verbs(self, name: str) -> dict[str, int]:
        """How often a state was reached by each verb, the most frequent first, then by name."""
        found: Counter[str] = Counter()
        for (one, verb, _), count in self.counts.items():
            if one == name:
                found[verb] += count
        return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))

    @property
    def never(self) -> tuple[str, ...]:
        """The states that were not reached."""
        return tuple(name for name in STATES if not self.of(name))


class Watched:
    """A system that counts, in ``reached``, the states that it comes to; it does and shows what the system in it does and shows.

    A step counts if it was shown before and after.
    """

    def __init__(self, system: System, setup: Setup, reached: Reached) -> None:
        """Watch ``system``, which was built with ``setup``."""
        self.system, self.setup, self.reached = system, setup, reached
        self.capabilities = system.capabilities
        self.trail = Trail.of(setup.manager)
        self.covering = Covering()
        self.steps: list[tuple[ops.Operation, Outcome]] = []
        self.seen: Index | None = None
        self.number = 0

    def apply(self, op: ops.Operation) -> Outcome:
        """Carry out an operation."""
        outcome = self.system.apply(op)
        self.steps.append((op, outcome))
        return outcome

    def observe(self) -> Observation:
        """What the system shows; what happened since it was asked last is counted."""
        seen = self.system.observe()
        steps, self.steps = self.steps, []
        before, self.seen = self.seen, Index(seen)
        if before is not None and len(steps) == 1:
            self.number += 1
            moment = Moment(self.number, self.setup.manager, *steps[0], before, self.seen, self.trail)
            count(moment, self.reached)
            self.covering.count(moment, self.reached.cells)
            moment.follow()
        return seen

    def close(self) -> None:
        """Close the system."""
        self.system.close()


def watched(reference: Named, reached: Reached, made: Callable[[Watched], None] = lambda system: None) -> Named:
    """A reference whose systems are watched, one at a time or one after the other; what it says of itself stays.

    :param made: called with each of them.
    """
    factory = reference.factory

    def make(setup: Setup) -> Watched:
        system = Watched(factory(setup), setup, reached)
        made(system)
        return system

    for attribute in ("capabilities", "unobserved", "policies", "raises", "lacks"):
        if hasattr(factory, attribute):
            setattr(make, attribute, getattr(factory, attribute))
    return Named(reference.name, make)


def count(moment: Moment, reached: Reached) -> None:
    """Count every state that a step came to."""
    reached.steps += 1
    reached.calls[moment.verb, moment.result] += 1
    if moment.fetching:
        for group, now in moment.after.observation.lifetime.groups.items():
            was = moment.before.observation.lifetime.groups[group]
            reached.fetched += Counter(hits=now.fetch_hits - was.fetch_hits, misses=now.fetch_misses - was.fetch_misses)
    for one in STATES.values():
        if one.recognise(moment):
            reached.counts[one.name, moment.verb, moment.result] += 1


def reached_by(scenarios: Iterable[tuple[Setup, Iterable[ops.Operation]]], reference: Named) -> Reached:
    """The states that a reference comes to in scenarios: each as what its system is built with, and its operations."""
    reached = Reached()
    for setup, operations in scenarios:
        system = watched(reference, reached).factory(setup)
        try:
            system.observe()
            for op in operations:
                system.apply(op)
                system.observe()
        finally:
            system.close()
    return reached
