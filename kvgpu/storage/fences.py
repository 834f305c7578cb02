"""Fences: sets of points in streams, kept as small integers in the tables of pages and slots.

A *point* is an event that somebody recorded. A *fence* is what has to have run before something may be used: at most one
point per stream, the latest. Pages and slots name a fence by its number in the ``FenceTable``, so that thousands of them share
one and are merged, compared and waited for with array operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Device, Event, Stream
from kvgpu.errors import LogicError
from kvgpu.runs import SHORT, Int32

EMPTY = 0
"""The number of the fence that waits for nothing."""
FEWEST, MOST = 1 << 10, 1 << 14
"""So many new fences, by how much there is to look through, are made before those are forgotten that nothing names."""
LOOK_AGAIN = 64
"""New fences at least between two looks at all that have not passed, where nobody needs the look."""
LOOK = 64
"""Numbers that may be looked through for each new fence: that takes a tenth of the time of making one."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """An event and why it was kept. ``key``: the stream's name. ``number``: of two points of a stream, the greater is later.

    ``site``: the rule that put it into a fence; a wait for the fence names it.
    """

    key: str
    number: int
    event: Event
    site: str


class Wait(NamedTuple):
    """Points that work is about to wait for.

    ``site``: the name of the waits; ``None``: each is called what its point was kept for. Then ``where`` tells them apart.
    """

    points: Sequence[Point]
    site: str | None = None
    where: str | None = None


class Fence:
    """An immutable set of points, by stream."""

    __slots__ = ("_passed", "points")

    def __init__(self, points: Iterable[Point] = ()) -> None:
        """Keep the latest point of each stream."""
        latest: dict[str, Point] = {}
        for point in points:
            old = latest.get(point.key)
            if old is None or old.number < point.number:
                latest[point.key] = point
        self.points: tuple[Point, ...] = tuple(latest.values())
        self._passed = not latest

    @classmethod
    def of(cls, point: Point) -> Fence:
        """One of a single point."""
        fence = cls.__new__(cls)
        fence.points, fence._passed = (point,), False
        return fence

    def passed(self, run: dict[str, int] | None = None, held: dict[str, int] | None = None) -> bool:
        """Whether all its work has run. Never blocks.

        ``run``, ``held``: by stream, up to which point its work has run, and from which on it has not, as far as anybody has
        asked; they are kept up to date. The work of a stream runs in order, and to ask a GPU takes its time.
        """
        if self._passed:
            return True
        run, held = {} if run is None else run, {} if held is None else held
        for point in self.points:
            if point.number <= run.get(point.key, 0):
                continue
            if point.key in held and point.number >= held[point.key]:
                return False
            if not point.event.done():
                held[point.key] = point.number
                return False
            run[point.key] = point.number
        self._passed = True
        return True


class FenceTable:
    """Fences by number. Numbers that no registered array names any more are used again."""

    def __init__(self, device: Device) -> None:
        """A table with the empty fence alone."""
        self._device = device
        self._fences: list[Fence | None] = [Fence()]
        self._spare: list[int] = []
        self._roots: list[Int32] = []
        self._passed = np.ones(256, dtype=np.bool_)
        self._waiting: set[int] = set()
        self._look_at = LOOK_AGAIN
        self._collect_at = FEWEST
        self._counter = 0
        self._beside: dict[str, Stream] = {}
        self._own: set[str] = set()

    def register(self, numbers: Int32) -> Int32:
        """Have the table keep alive the fences that ``numbers`` names. Returns the array."""
        self._roots.append(numbers)
        self._collect_at = max(self._collect_at, self._afford())
        return numbers

    def replace(self, old: Int32, new: Int32) -> Int32:
        """A registered array was grown into a new one."""
        self._roots = [new if root is old else root for root in self._roots]
        return new

    def record(self, stream: Stream, site: str, why: str | None = None) -> Point:
        """An event after all work submitted to ``stream`` so far. ``why``: the site of waits for it, if another."""
        self._counter += 1
        stream = self.live(stream)
        return Point(stream.name, self._counter, self._device.record(stream, site), why or site)

    def live(self, stream: Stream) -> Stream:
        """Where work for a stream goes: itself, or, while the manager has it in capture, the stream beside it.

        ``LogicError`` while somebody else has it in capture: what is recorded or waited for there would go into their graph
        (R8.8).
        """
        if stream.name in self._own:
            return stream
        beside = self._beside.get(stream.name)
        if beside is not None:
            return beside
        if self._device.is_capturing(stream):
            self.refuse_capture(stream, "nothing can be ordered on it")
        return stream

    def own(self, stream: Stream) -> Stream:
        """Note that a stream is known to nobody else, who therefore cannot capture it. Returns the stream."""
        self._own.add(stream.name)
        return stream

    def refuse_capture(self, stream: Stream, what: str) -> None:
        """``LogicError`` for ``what`` while a stream is in capture, whoever began it."""
        if self._device.is_capturing(stream):
            raise LogicError(f"{what}: stream {stream.name!r} is being captured: wait for the end of the capture (R8.8)")

    def begin_capture(self, stream: Stream, beside: Stream) -> None:
        """``stream`` is about to be captured: records, waits and work for it go to ``beside`` until ``end_capture`` (R8.8)."""
        self.wait(beside, [self.record(stream, "R8.8 work before a capture")], "R8.8 beside a capture, after the work before it")
        self._beside[stream.name] = beside

    def end_capture(self, stream: Stream) -> None:
        """``stream`` is captured no more, and goes on after what was done beside it."""
        done = self.record(stream, "R8.8 work beside a capture")
        del self._beside[stream.name]
        self.wait(stream, [done], "R8.8 after a capture, after the work beside it")

    def again(self, point: Point, why: str) -> Point:
        """The same point, kept for another reason."""
        return Point(point.key, point.number, point.event, why)

    def foreign(self, key: str, event: Event, site: str) -> Point:
        """A point of an event that was recorded elsewhere; of points with the same ``key`` the last made counts."""
        self._counter += 1
        return Point(key, self._counter, event, site)

    def add(self, points: Iterable[Point]) -> int:
        """The number of a fence of these points."""
        fence = Fence(points)
        return self._put(fence) if fence.points else EMPTY

    def add_one(self, point: Point) -> int:
        """The same for a point alone."""
        return self._put(Fence.of(point))

    def _put(self, fence: Fence) -> int:
        if self._spare:
            number = self._spare.pop()
            self._fences[number] = fence
        else:
            number = len(self._fences)
            self._fences.append(fence)
            if number >= len(self._passed):
                self._passed = np.concatenate([self._passed, np.ones_like(self._passed)])
        self._passed[number] = False
        self._waiting.add(number)
        return number

    def put(self, number: int, points: Iterable[Point]) -> None:
        """Whatever names a fence waits for other points from now on. Only for who knows all that names it."""
        self._fences[number] = Fence(points)
        self._passed[number] = False
        self._waiting.add(number)

    def __getitem__(self, number: int) -> Fence:
        """A fence by its number."""
        fence = self._fences[number]
        assert fence is not None
        return fence

    def distinct(self, numbers: Int32) -> list[Fence]:
        """The fences that an array names, each once, without the empty one."""
        each = sorted(set(numbers.tolist())) if len(numbers) <= SHORT else self._each_once(numbers).tolist()
        return [self[number] for number in each if number != EMPTY]

    def _each_once(self, numbers: Int32) -> Int32:
        """The numbers that an array names, each once, ascending. Most arrays name few."""
        if not numbers.size or bool((numbers == numbers[0]).all()):
            return numbers[:1]
        if len(numbers) < len(self._fences):
            return np.unique(numbers)
        named = np.zeros(len(self._fences), dtype=np.bool_)  # cheaper than sorting a long array
        named[numbers] = True
        return np.flatnonzero(named).astype(np.int32)

    def points(self, *arrays: Int32) -> tuple[Point, ...]:
        """The points of all fences that the arrays name: the latest of each stream."""
        named: list[int] = []
        for numbers in arrays:
            each = sorted(set(numbers.tolist())) if len(numbers) <= SHORT else self._each_once(numbers).tolist()
            named += each[1:] if each and each[0] == EMPTY else each
        return self.points_of(named)

    def points_of(self, named: Sequence[int]) -> tuple[Point, ...]:
        """The same for numbers of fences, the empty one not among them."""
        if not named:
            return ()
        if len(named) == 1 or named.count(named[0]) == len(named):
            return self[named[0]].points
        return Fence(point for number in named for point in self[number].points).points

    def merged(self, numbers: Int32, points: Iterable[Point]) -> Int32:
        """For each fence of an array, one with ``points`` added."""
        more = tuple(points)
        if not more or not numbers.size:
            return numbers.copy()
        if len(numbers) <= SHORT:
            olds = numbers.tolist()
            news = {old: self.add((*self[old].points, *more)) for old in sorted(set(olds))}
            return np.array([news[old] for old in olds], dtype=np.int32)
        found = self._each_once(numbers)
        new = np.fromiter((self.add((*self[old].points, *more)) for old in found.tolist()), np.int32, len(found))
        if len(found) == 1:
            return np.full(len(numbers), new[0], dtype=np.int32)
        of_old = np.empty(int(found[-1]) + 1, dtype=np.int32)
        of_old[found] = new
        return of_old[numbers]

    def united(self, left: Int32, right: Int32) -> Int32:
        """Element by element, the fence of both."""
        if not left.size or not (right != EMPTY).any():
            return left.copy()
        if len(left) <= SHORT:
            both = list(zip(left.tolist(), right.tolist(), strict=True))
            united = {pair: self._both(*pair) for pair in sorted(set(both))}
            return np.array([united[pair] for pair in both], dtype=np.int32)
        base = len(self._fences)
        pairs, inverse = np.unique(left.astype(np.int64) * base + right, return_inverse=True)
        new = np.fromiter((self._both(*divmod(pair, base)) for pair in pairs.tolist()), np.int32, len(pairs))
        return np.asarray(new[inverse.reshape(-1)], dtype=np.int32)

    def _both(self, left: int, right: int) -> int:
        if left == right or right == EMPTY:
            return left
        return right if left == EMPTY else self.add((*self[left].points, *self[right].points))

    def passed(self, numbers: Int32) -> npt.NDArray[np.bool_]:
        """For each number, whether that fence had passed at the last ``refresh``."""
        return self._passed[numbers]

    def refresh(self) -> None:
        """Look at the fences that have not passed yet (R7.2)."""
        run: dict[str, int] = {}
        held: dict[str, int] = {}
        for number in [number for number in self._waiting if self[number].passed(run, held)]:
            self._passed[number] = True
            self._waiting.discard(number)
        self._look_at = 2 * len(self._waiting) + LOOK_AGAIN

    def long_not_looked_at(self) -> bool:
        """Whether so many fences are new since the last ``refresh`` that the next would take long."""
        return len(self._waiting) > self._look_at

    def collect(self) -> None:
        """Forget the fences that no registered array names, if there are many. Not while an operation runs."""
        if len(self._fences) - len(self._spare) <= self._collect_at:
            return
        named = np.zeros(len(self._fences), dtype=np.bool_)
        named[EMPTY] = True
        for root in self._roots:
            if root.size:  # few fences have many numbers side by side: the last of each run is enough, and quickly found
                named[root[:-1][root[:-1] != root[1:]]] = True
                named[root[-1]] = True
        for number in np.flatnonzero(~named).tolist():
            if self._fences[number] is not None:
                self._fences[number] = None
                self._passed[number] = True
                self._waiting.discard(number)
                self._spare.append(number)
        used = len(self._fences) - len(self._spare)
        self._collect_at = used + max(used, self._afford())

    def _afford(self) -> int:
        """So many new fences are worth a look at all the numbers."""
        return min(max(sum(root.size for root in self._roots) // LOOK, FEWEST), MOST)

    def wait(self, stream: Stream, points: Iterable[Point], site: str | None = None, *, where: str | None = None) -> None:
        """Order ``stream`` after points. ``site``, ``where``: see ``Wait``."""
        stream = self.live(stream)
        for point in points:
            if point.key != stream.name:
                self._device.wait(stream, point.event, site or point.site)
