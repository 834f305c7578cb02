"""What all the mapped pages of a request in one layer group wait for, kept in step with moves (R7.5)."""

from __future__ import annotations

from kvgpu.runs import Int32, counted
from kvgpu.storage.fences import Fence, FenceTable


class Readiness:
    """How many of the pages have each fence, and the fence of them all. A move costs what it moves, not what there is."""

    __slots__ = ("_all", "_counts")

    def __init__(self) -> None:
        """No pages."""
        self._counts: dict[int, int] | None = {}
        self._all: Fence | None = Fence()

    @property
    def known(self) -> bool:
        """Whether ``count`` need not be called before ``all``."""
        return self._counts is not None

    def forget(self) -> None:
        """The pages, or what they wait for, have changed in some other way than by a move: they must be counted again."""
        self._counts = self._all = None

    def count(self, numbers: Int32) -> None:
        """Count anew. ``numbers``: the fence of each page."""
        self._counts, self._all = counted(numbers), None

    def moved(self, fences: FenceTable, was: Int32, now: int) -> None:
        """Pages that had the fences ``was`` all have ``now``."""
        if self._counts is None:
            return
        for number, count in counted(was).items():
            self._counts[number] -= count
            if not self._counts[number]:
                del self._counts[number]
                self._all = None
        self._counts[now] = self._counts.get(now, 0) + len(was)
        if self._all is not None:
            self._all = Fence((*self._all.points, *fences[now].points))

    def one_moved(self, fences: FenceTable, was: int, now: int) -> None:
        """The same for one page."""
        counts = self._counts
        if counts is None:
            return
        if counts[was] > 1:
            counts[was] -= 1
        else:
            del counts[was]
            self._all = None
        counts[now] = counts.get(now, 0) + 1
        if self._all is not None:
            before, after = self._all.points, fences[now].points
            if len(before) == len(after) == 1 and before[0].key == after[0].key and before[0].number < after[0].number:
                self._all = fences[now]
            else:
                self._all = Fence((*before, *after))

    def all(self, fences: FenceTable) -> Fence:
        """The fence of all pages together."""
        assert self._counts is not None
        if self._all is None:
            self._all = Fence(point for number in self._counts for point in fences[number].points)
        return self._all
