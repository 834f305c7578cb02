"""Driving two systems through a scenario by hand: some steps unseen, some compared, and what is remembered can be copied.

A replay that only differs from another one late need not look at anything before: it carries out the operations, takes over
what the harness remembered of the other replay at that point, and compares from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kvspec.harness.compare import Comparison, Shared
from kvspec.harness.difference import Difference, side_names
from kvspec.harness.memory import BatchMemory, Memory, ReadTarget
from kvspec.harness.naming import Index
from kvspec.harness.policies import settled
from kvspec.harness.replay import Named, Raised, all_differences, guarded
from kvspec.harness.side import Side
from kvspec.harness.systems import setup_for, unobserved_by
from kvspec.ops import Operation
from kvspec.refs import group_shapes
from kvspec.scenario import Scenario, Step
from kvspec.system import Outcome, System


class Crashed(Exception):
    """A system let an exception out. ``str()`` of it says which one, when, and where."""


@dataclass(slots=True)
class Remembered:
    """What the harness knows of both systems between steps, the reference's part first."""

    memories: tuple[Memory, Memory]
    shared: Shared
    indexes: tuple[Index | None, Index | None]

    @classmethod
    def nothing(cls, scenario: Scenario, unobserved: frozenset[str] = frozenset()) -> Remembered:
        """At the start. ``unobserved``: what one of the systems cannot show."""
        groups = tuple(group_shapes(scenario.manager))
        return cls((Memory(groups), Memory(groups)), Shared.of(scenario.manager, unobserved), (None, None))

    def copy(self) -> Remembered:
        """Another one that goes on by itself. What never changes is shared."""
        shared = replace(
            self.shared,
            allowed=dict(self.shared.allowed),
            label_allowed={label: dict(gates) for label, gates in self.shared.label_allowed.items()},
            writes=dict(self.shared.writes),
            contents=dict(self.shared.contents),
            touched_pages=dict(self.shared.touched_pages),
            touched_rows=dict(self.shared.touched_rows),
        )
        return Remembered((_copy(self.memories[0]), _copy(self.memories[1])), shared, self.indexes)


@dataclass(frozen=True, slots=True)
class Compared:
    """One step that was looked at: outcomes and what the systems show, the reference's first, and what differs."""

    outcomes: tuple[Outcome, Outcome]
    seen: tuple[Index, Index]
    differences: tuple[Difference, ...]


class Stepper:
    """Two systems, and what is remembered of them."""

    def __init__(
        self, scenario: Scenario, implementation: Named, reference: Named, options: tuple[Mapping[str, str], Mapping[str, str]]
    ) -> None:
        """Build both. ``options``: of the reference, then of the implementation. Raises `Crashed`."""
        self.names = side_names(reference.name, implementation.name)
        scenario = settled(scenario, implementation.factory)
        self.remembered = Remembered.nothing(scenario, unobserved_by(reference.factory, implementation.factory))
        self.systems: list[System] = []
        for name, named, chosen in zip(self.names, (reference, implementation), options, strict=True):
            made = guarded(lambda named=named, chosen=chosen: named.factory(setup_for(scenario, chosen)))  # type: ignore[misc]
            if isinstance(made, Raised):
                self.close()
                raise Crashed(_crash(name, "while it was built", made))
            self.systems.append(made)

    def unseen(self, op: Operation) -> tuple[Outcome, Outcome]:
        """Carry out an operation in both systems, and look at nothing. Raises `Crashed`."""
        outcomes = []
        for name, system in zip(self.names, self.systems, strict=True):
            outcome = guarded(lambda system=system: system.apply(op))  # type: ignore[misc]
            if isinstance(outcome, Raised):
                raise Crashed(_crash(name, f"in {op.verb}", outcome))
            outcomes.append(outcome)
        return outcomes[0], outcomes[1]

    def alone(self, op: Operation) -> Outcome:
        """Carry out an operation in the implementation only. Raises `Crashed`."""
        outcome = guarded(lambda: self.systems[1].apply(op))
        if isinstance(outcome, Raised):
            raise Crashed(_crash(self.names[1], f"in {op.verb}", outcome))
        return outcome

    def look(self) -> tuple[Index, Index]:
        """What both show now. Raises `Crashed`."""
        seen = []
        for name, system, before in zip(self.names, self.systems, self.remembered.indexes, strict=True):
            index = guarded(lambda system=system, before=before: Index(system.observe(), before))  # type: ignore[misc]
            if isinstance(index, Raised):
                raise Crashed(_crash(name, "while it was observed", index))
            seen.append(index)
        return seen[0], seen[1]

    def step(self, step: Step, *, agree: bool = False) -> Compared:
        """Carry out a step and compare. ``agree``: any error is fine that both have. Raises `Crashed`."""
        outcomes = self.unseen(step.op)
        seen = self.look()
        if agree:
            step = replace(step, raises=outcomes[0].error)
        known = self.remembered
        sides = []
        for name, memory, before, outcome, now in zip(self.names, known.memories, known.indexes, outcomes, seen, strict=True):
            memory.update(step.number, step.op, outcome, before, now)
            sides.append(Side(name, memory, before, now, outcome))
        comparison = Comparison.of(step, sides[0], sides[1], known.shared)
        differences = tuple(all_differences(comparison))
        known.shared.clean = not differences
        known.indexes = seen
        return Compared(outcomes, seen, differences)

    def close(self) -> None:
        """Close both. Raises `Crashed`."""
        for name, system in zip(self.names, self.systems, strict=False):
            closed = guarded(system.close)
            if isinstance(closed, Raised):
                raise Crashed(_crash(name, "while it was closed", closed))
        self.systems = []


def _crash(name: str, doing: str, raised: Raised) -> str:
    return f"{name} raised {raised.text} {doing}" + (f", at {raised.frames[0]}" if raised.frames else "")


def _copy(memory: Memory) -> Memory:
    batches: dict[int, BatchMemory] = {}

    def batch(old: BatchMemory) -> BatchMemory:
        if id(old) not in batches:
            batches[id(old)] = replace(old, publications=list(old.publications))
        return batches[id(old)]

    def target(old: ReadTarget | None) -> ReadTarget | None:
        return None if old is None else replace(old, batch=batch(old.batch))

    return replace(
        memory,
        versions=memory.versions.copy(),
        batches={name: batch(one) for name, one in memory.batches.items()},
        labels=dict(memory.labels),
        reads={label: replace(one, batch=batch(one.batch)) for label, one in memory.reads.items()},
        graphs={label: target(one) for label, one in memory.graphs.items()},
        captured=target(memory.captured),
        gates=dict(memory.gates),
        streams=dict(memory.streams),
        tree_pages=dict(memory.tree_pages),
    )
