"""A small KV-cache manager, as somebody else might have written it: nothing in it knows of kvspec.

One kind of cache lines, sequences that share nothing, fast memory and a backing store. When a sequence starts to generate,
its full lines move to the store; ``Rows`` keeps, for the kernels, a table of line numbers and how many leading lines of each
sequence are in the store.

``TINY_BUG`` in the environment plants one of three mistakes: ``stale_version``, ``partial_line``, ``stale_index``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FAST, STORE = 0, 1
NO_LINE = -1


class BadValue(ValueError):
    """A value that makes no sense."""


class WrongMoment(RuntimeError):
    """A call that does not fit the state of its sequence or table."""


class Full(RuntimeError):
    """There are not enough lines."""


@dataclass
class Sequence:
    """A sequence of tokens and its lines, each as (tier, line number)."""

    name: str
    lines: list[tuple[int, int]] = field(default_factory=list)
    limit: int = 0
    done: int = 0
    started: bool = False
    generating: bool = False
    gone: bool = False
    row: int | None = None
    stamp: int = 1
    seen: int = 0

    def in_store(self) -> int:
        """How many leading lines are in the store, if the sequence generates."""
        count = 0
        while self.generating and count < len(self.lines) and self.lines[count][0] == STORE:
            count += 1
        return count


class Tiny:
    """The manager: ``line_tokens`` per line; ``fast`` and ``store`` lines of ``line_bytes`` each."""

    def __init__(self, line_tokens: int, fast: int, store: int, line_bytes: int, offload: bool = True) -> None:
        """Everything is free. ``offload``: whether full lines of a generating sequence move to the store."""
        self.line_tokens, self.offload = line_tokens, offload
        self.memory = [np.zeros((fast, line_bytes), np.uint8), np.zeros((store, line_bytes), np.uint8)]
        self.free = [list(range(fast)), list(range(store))]
        self.sequences: dict[str, Sequence] = {}
        self.bug = os.environ.get("TINY_BUG", "")

    def open(self, name: str) -> Sequence:
        """A new sequence."""
        old = self.sequences.get(name)
        if old is not None and not old.gone:
            raise WrongMoment(f"{name} is open")
        self.sequences[name] = Sequence(name)
        return self.sequences[name]

    def start(self, one: Sequence, generating: bool = False) -> bool:
        """Let a sequence work."""
        if one.gone or one.started:
            raise WrongMoment(f"{one.name} cannot start: it has {'gone' if one.gone else 'started'}")
        one.started, one.generating = True, generating
        one.stamp += 1
        return True

    def grow(self, one: Sequence, limit: int | None, done: int | None) -> bool:
        """Set how many tokens a sequence may hold and how many are done; false if the lines run out."""
        limit, done = one.limit if limit is None else limit, one.done if done is None else done
        if one.gone:
            raise WrongMoment(f"{one.name} has gone")
        if not one.done <= done <= limit:
            raise BadValue(f"{one.name}: done {done} must lie in {one.done}..{limit}")
        if one.started and one.generating and self.offload and done > one.limit:
            raise BadValue(f"{one.name}: done {done} is beyond the old limit {one.limit}")
        if not one.started:
            raise WrongMoment(f"{one.name} has not started")
        want = -(-limit // self.line_tokens)
        full = self._full(done) if one.generating else 0
        moving = [n for n in range(min(full, len(one.lines))) if one.lines[n][0] == FAST]
        if want - len(one.lines) > len(self.free[FAST]) or len(moving) > len(self.free[STORE]):
            return False
        changed = want != len(one.lines)
        for _ in range(want - len(one.lines)):
            one.lines.append((FAST, self.free[FAST].pop()))
        for tier, line in reversed(one.lines[want:]):
            self.free[tier].append(line)
        del one.lines[want:]
        one.limit, one.done = limit, done
        self._move(one, moving)
        one.stamp += changed and not moving
        return True

    def generate(self, one: Sequence) -> bool:
        """Begin to generate: full lines go to the store. False if it is full."""
        if one.gone or not one.started:
            raise WrongMoment(f"{one.name} does not work")
        if one.generating:
            return True
        moving = list(range(min(self._full(one.done), len(one.lines))))
        if len(moving) > len(self.free[STORE]):
            return False
        one.generating = True
        one.stamp += 1
        self._move(one, moving)
        return True

    def close(self, one: Sequence) -> None:
        """Give everything back."""
        if one.gone:
            return
        for tier, line in one.lines:
            self.free[tier].append(line)
        one.lines = []
        one.gone, one.row, one.stamp = True, None, one.stamp + 1

    def _full(self, done: int) -> int:
        """How many leading lines are done with."""
        if not self.offload:
            return 0
        return -(-done // self.line_tokens) if self.bug == "partial_line" else done // self.line_tokens

    def _move(self, one: Sequence, lines: list[int]) -> None:
        for n in lines:
            fast, store = one.lines[n][1], self.free[STORE].pop()
            self.memory[STORE][store] = self.memory[FAST][fast]
            one.lines[n] = (STORE, store)
            self.free[FAST].append(fast)
        one.stamp += bool(lines) and self.bug != "stale_version"


class Rows:
    """A table of line numbers for the kernels, one row a sequence; its arrays never move."""

    def __init__(self, owner: Tiny, rows: int, width: int) -> None:
        """An empty table."""
        if rows < 1 or width < 1:
            raise BadValue("a table needs a row and a line")
        self.owner, self.width, self.closed = owner, width, False
        self.members: list[Sequence | None] = [None] * rows
        self.written: list[tuple[int, int] | None] = [None] * rows
        self.lines: npt.NDArray[np.int32] = np.full((rows, width), NO_LINE, np.int32)
        self.in_store: npt.NDArray[np.int32] = np.zeros(rows, np.int32)
        self.remembered: dict[str, list[int]] = {}

    def dirty(self) -> list[int]:
        """The rows whose sequence is not as it was when the row was written."""
        stamps = [(id(one), one.stamp) if one is not None else (0, 0) for one in self.members]
        return [row for row, stamp in enumerate(stamps) if self.written[row] != stamp]

    def add(self, one: Sequence, row: int | None = None) -> int:
        """Give a sequence a row, the first free one if none is named."""
        self._working()
        if one.gone:
            raise WrongMoment(f"{one.name} has gone")
        if one in self.members:
            mine = self.members.index(one)
            if row not in (None, mine):
                raise WrongMoment(f"{one.name} has row {mine}")
            return mine
        if one.row is not None:
            raise WrongMoment(f"{one.name} is in another table")
        free = [n for n, member in enumerate(self.members) if member is None]
        if not free or (row is not None and row not in free) or len(one.lines) > self.width:
            raise BadValue(f"no such row for {one.name}")
        mine = free[0] if row is None else row
        self.members[mine], one.row, one.stamp = one, mine, one.stamp + 1
        return mine

    def remove(self, one: Sequence) -> None:
        """Take a sequence out."""
        self._working()
        if one in self.members:
            self.members[self.members.index(one)] = None
            one.row, one.stamp = None, one.stamp + 1
        elif one.row is not None:
            raise WrongMoment(f"{one.name} is in another table")

    def publish(self) -> list[int]:
        """Write the rows that are dirty; returns them."""
        self._working()
        if any(one is not None and len(one.lines) > self.width for one in self.members):
            raise BadValue("a sequence has outgrown the table")
        rows = self.dirty()
        for row in rows:
            one = self.members[row]
            self.lines[row], self.in_store[row] = NO_LINE, 0
            self.written[row] = (id(one), one.stamp) if one is not None else (0, 0)
            if one is not None:
                self.lines[row, : len(one.lines)] = self._numbers(one)
                self.in_store[row] = one.in_store()
                one.seen = one.stamp
        return rows

    def close(self) -> None:
        """Let the members go."""
        for one in self.members:
            if one is not None:
                one.row, one.stamp = None, one.stamp + 1
        self.closed, self.members = True, [None] * len(self.members)

    def _numbers(self, one: Sequence) -> list[int]:
        numbers = [line for _, line in one.lines]
        if self.owner.bug == "stale_index":  # line numbers are remembered, and not forgotten when a line moves
            known = self.remembered.setdefault(one.name, [])
            known += numbers[len(known) :]
            return known[: len(numbers)]
        return numbers

    def _working(self) -> None:
        if self.closed:
            raise WrongMoment("the table is closed")
