"""What `kvspec explore` asks of a reference whose states are values: the next one, when two are the same, what is broken.

A system that can be explored has a class attribute ``exploring`` that is an `Exploring`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvspec.observation import Phase, RequestStatus
from kvspec.ops import Direction, Operation
from kvspec.system import Outcome, Setup

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold: its name, its rule, and what was found."""

    invariant: str
    rule: str
    text: str

    def __str__(self) -> str:
        """``name (rule): what was found``."""
        return f"{self.invariant} ({self.rule}): {self.text}"


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the next operation on a request hangs on. Lengths in tokens; ``member``: it is in a batch."""

    status: RequestStatus
    phase: Phase
    capacity: int
    history: int
    committed: int
    member: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a state the choice of the next operations hangs on.

    ``requests``: by name, the closed ones too; ``gates``, ``taken``: the labels of closed gates and of taken slots.
    """

    requests: Mapping[str, RequestFacts]
    gates: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()


class Exploring(Protocol[S]):
    """A reference whose states are immutable values: any of them can be gone on from, any number of times."""

    def initial(self, setup: Setup) -> S:
        """The state of a new manager."""
        ...

    def step(self, state: S, op: Operation) -> tuple[S, Outcome]:
        """The next state, and the outcome. Changes nothing."""
        ...

    def key(self, state: S) -> bytes:
        """A digest of what decides how it can go on: equal for states that differ in names, slots, numbers that only grow."""
        ...

    def same(self, before: S, after: S) -> bool:
        """Whether it is seen at a glance that nothing has changed. False where it is not."""
        ...

    def facts(self, state: S) -> Facts:
        """What the next operations are chosen by."""
        ...

    def submitted(self, before: S, op: Operation, after: S) -> Mapping[Direction, int]:
        """How many copies and uploads an operation has submitted, by direction: each of them may be refused (R4.8)."""
        ...

    def kind(self, before: S, op: Operation, outcome: Outcome, after: S) -> tuple[str, str]:
        """Of a transition: what kind of state it begins in, and what happens in it; both in words."""
        ...

    def broken_by(self, before: S, op: Operation, outcome: Outcome, after: S) -> Sequence[Broken]:
        """The invariants of operations that do not hold of one."""
        ...

    def broken_in(self, state: S) -> Sequence[Broken]:
        """The invariants of states that do not hold of one."""
        ...
