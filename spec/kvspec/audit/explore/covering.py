"""A few walks through a small model that have every kind of transition which the search has seen.

A kind is an operation, its outcome, whether a copy was refused, and either the kind of state that it begins in or what happens in
it. A walk begins with the shortest path to a kind that no walk has yet, takes along what leads back to the same state, and goes
on as long as one or two operations more bring something new.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from kvspec.audit.explore.expanding import Kind, Move, Transition, Walker, kinds_of
from kvspec.audit.explore.search import Explored

LONGEST = 20
"""A walk has no more operations than this, refusals aside."""
AT_ONCE = 4
"""So many that lead back to the same state are taken one after the other."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk: its transitions, the kind that it was begun for, and all those that it has and no walk before it, in order."""

    taken: tuple[Transition, ...]
    about: Kind
    kinds: tuple[Kind, ...]


def walks(done: Explored, walker: Walker, known: Container[Kind] = ()) -> list[Walk]:
    """Walks that have all kinds of what was gone through, those that need the longest way first.

    :param known: kinds that need no walk.
    """
    left = {kind for kind in done.kinds if kind not in known}
    found = []
    order = sorted(left, key=lambda kind: (-len(done.path(done.kinds[kind][0])), done.kinds[kind], kind))
    for kind in order:
        if kind in left:
            number, move = done.kinds[kind]
            found.append(_walk(walker, (*done.path(number), move), kind, left))
    return found


def _walk(walker: Walker, path: Sequence[Move], about: Kind, left: set[Kind]) -> Walk:
    """A walk that begins with a path; what it has is taken out of ``left``."""
    one = _Walking(walker, left)
    for place, move in enumerate(path):
        one.take_along(room=LONGEST - len(one.taken) - (len(path) - place))
        one.take(walker.take(one.state, move))
    while len(one.taken) < LONGEST:
        one.take_along(room=LONGEST - len(one.taken))
        ahead = one.ahead(LONGEST - len(one.taken))
        if not ahead:
            break
        for made in ahead:
            one.take(made)
    return Walk(tuple(one.taken), about, tuple(one.kinds))


class _Walking:
    def __init__(self, walker: Walker, left: set[Kind]) -> None:
        self.walker, self.left = walker, left
        self.state = walker.first
        self.taken: list[Transition] = []
        self.kinds: list[Kind] = []

    def new(self, made: Transition) -> list[Kind]:
        return [kind for kind in kinds_of(self.walker.exploring, made) if kind in self.left]

    def take(self, made: Transition) -> None:
        new = self.new(made)
        self.kinds += new
        self.left.difference_update(new)
        self.taken.append(made)
        self.state = made.after

    def ahead(self, room: int) -> Sequence[Transition]:
        """What brings the most that is new: one transition, or two where none does."""
        there = list(self.walker.transitions(self.state)) if room > 0 else []
        best = max(there, key=lambda made: len(self.new(made)), default=None)
        if best is None or self.new(best):
            return [] if best is None else [best]
        if room > 1:
            for first in there:
                for second in self.walker.transitions(first.after) if not first.raised else ():
                    if self.new(second):
                        return first, second
        return []

    def take_along(self, room: int) -> None:
        """Take what leads back to the same state and is new."""
        key = self.walker.exploring.key
        own = key(self.state)
        for made in self._back(own, min(room, AT_ONCE)):
            self.take(made)

    def _back(self, own: bytes, most: int) -> Iterable[Transition]:
        """At most so many transitions that are new and lead back to a state, each after those before it."""
        for made in list(self.walker.transitions(self.state)) if most > 0 else ():
            if most > 0 and self.new(made) and self.walker.exploring.key(made.after) == own:
                most -= 1
                again = self.walker.take(self.state, made.move)
                yield again
