"""Walks that have every transition up to a depth: far fewer steps than if each were gone to from the beginning.

A walk goes to a state that has transitions which no walk has yet by the shortest path, takes one after the other of what is left
there and where that leads, and ends where nothing is left, or where it is long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kvspec.audit.explore.expanding import Move, Path, Transition, Walker
from kvspec.audit.explore.search import Explored

LONGEST = 60
"""A walk has no more operations than this, those on the shortest path aside."""

Id: TypeAlias = tuple[bytes, bytes, str, str]
"""A transition, whatever its request is called: the states before and after it, its operation, and what is refused."""


@dataclass(slots=True)
class Tour:
    """Walks through what was gone through. ``had``: the transitions that some walk has.

    ``ways``: by state and what of it has names, the transitions that there are, each by its move.
    """

    done: Explored
    walker: Walker
    depth: int
    had: set[Id] = field(default_factory=set)
    ways: dict[tuple[bytes, str], list[tuple[Move, Id]]] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Know the states whose transitions are wanted: all but those of the last depth."""
        wanted = sum(layer.states for layer in self.done.layers[: self.depth])
        self.numbers = {key: number for number, key in enumerate(self.done.keys[:wanted])}

    def walks(self) -> Iterator[Path]:
        """Walks, until they have all transitions."""
        for key, number in self.numbers.items():
            while True:
                walk = list(self.done.path(number))
                state = self._gone(walk)
                if not self._left(state, key):
                    break
                self._go_on(walk, state, key)
                yield tuple(walk)

    def _gone(self, path: list[Move]) -> Any:
        state = self.walker.first
        for move in path:
            made = self.walker.take(state, move)
            self._note(state, made)
            state = made.after
        return state

    def _go_on(self, walk: list[Move], state: Any, key: bytes) -> None:
        for _ in range(LONGEST):
            left = self._left(state, key) if key in self.numbers else self._back(state)
            if not left:
                return
            move, wanted = left[0]
            made = self.walker.take(state, move)
            self.had.add(wanted)
            key = self._note(state, made)
            walk.append(move)
            state = made.after

    def _left(self, state: Any, key: bytes) -> list[tuple[Move, Id]]:
        """The transitions of a state that no walk has; those that stay in it before the others."""
        at = key, repr(self.walker.exploring.facts(state))
        if at not in self.ways:
            found = [(made.move, self._id(made, key)) for made in self.walker.transitions(state)]
            self.ways[at] = sorted(found, key=lambda way: way[1][1] != key)
        left = [way for way in self.ways[at] if way[1] not in self.had]
        self.ways[at] = left
        return left

    def _back(self, state: Any) -> list[tuple[Move, Id]]:
        """From a state of the last depth: a transition to one where something is left."""
        key = self.walker.exploring.key(state)
        for made in self.walker.transitions(state):
            way = self._id(made, key)
            if way[1] in self.numbers and self._left(made.after, way[1]):
                return [(made.move, way)]
        return []

    def _note(self, state: Any, made: Transition) -> bytes:
        way = self._id(made, self.walker.exploring.key(state))
        self.had.add(way)
        return way[1]

    def _id(self, made: Transition, before: bytes) -> Id:
        named = made.op.model_dump(exclude={"request"})
        return before, self.walker.exploring.key(made.after), f"{made.op.verb} {named}", repr(made.fault)

    def shortest(self, walk: Path, number: int) -> list[Path]:
        """The shortest paths to what may be the move of this number in a walk: in the same state, the same operation."""
        state = self.walker.at(walk[:number])
        wanted = self.walker.take(state, walk[number])
        at = self.numbers.get(self.walker.exploring.key(state))
        if at is None:
            return []
        path = self.done.path(at)
        same = self._id(wanted, self.done.keys[at])
        there = list(self.walker.transitions(self.walker.at(path)))
        return [(*path, made.move) for made in there if self._id(made, self.done.keys[at]) == same]
