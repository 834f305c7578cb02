"""The pages of one request in one layer group, by block, and what they show: worked out when asked, kept in step with moves."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.fences import Fence, FenceTable, Point
from kvgpu.pages import NO_PAGE, PageTable
from kvgpu.readiness import Readiness
from spec.observation import BAD

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

FEW = 64
"""So many moves are remembered from one time that the blocks are shown to the next."""


class Shown(NamedTuple):
    """What stands in beam row 0: ``indices`` int32 and ``levels`` int8 ``[room]``, BAD and -1 where nothing is locked.

    ``on_host``: how many leading blocks are mapped on the host. ``ready``: what all mapped pages wait for, a point a stream.
    ``index_address``, ``level_address``: of the first element of the arrays; a publication has no time to ask each of them.
    """

    indices: Int32
    levels: Int8
    on_host: int
    ready: tuple[Point, ...]
    index_address: int
    level_address: int


def showing(indices: Int32, levels: Int8, on_host: int, ready: tuple[Point, ...]) -> Shown:
    """See ``Shown``."""
    return Shown(indices, levels, on_host, ready, _address(indices), _address(levels))


def _address(array: Any) -> int:
    # A third of the time of ``array.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.size else 0


class Moved(NamedTuple):
    """Blocks whose index or level may differ from what was shown, int32, and their slots now, if that is known already."""

    blocks: Int32
    slots: Int32 | None


NONE = np.empty(0, dtype=np.int32)
UNMOVED = Moved(NONE, NONE)


class GroupBlocks:
    """The pages of one request in one layer group: int32 ``page``, bool ``locked`` and ``kept``, ``[beams, room]`` each.

    A page that is not locked is held (R2.2): its index is BAD. ``kept``: it is stale and held until it is committed or
    committing ends (R3.7). Columns beyond the request's blocks hold ``NO_PAGE``.

    What stands in beam row 0 is kept in three generations while rows of a batch show it: ``_now``, which is up to date, if it
    was worked out; ``_base``, what was shown last, and ``_since``, how the views differ from that; ``_earlier``, what was shown
    before. What is older than these no row shows any more, and its arrays, ``_spare``, are used again. ``_held``: the arrays of
    the views are those of ``_base``, and must not change.
    """

    __slots__ = (
        "_base",
        "_earlier",
        "_held",
        "_index",
        "_level",
        "_now",
        "_on_host",
        "_readiness",
        "_since",
        "_spare",
        "_view_valid",
        "kept",
        "locked",
        "page",
    )

    def __init__(self) -> None:
        """No blocks."""
        self.page: Int32 = np.full((1, 8), NO_PAGE, dtype=np.int32)
        self.locked: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self.kept: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self._index: list[Int32] = [np.full(8, BAD, dtype=np.int32)]
        self._level: list[Int8] = [np.full(8, BAD, dtype=np.int8)]
        self._view_valid = [True]
        self._held = False
        self._now: Shown | None = None
        self._base: Shown | None = None
        self._earlier: Shown | None = None
        self._spare: Shown | None = None
        self._since: tuple[Moved, ...] | None = None
        self._on_host: int | None = 0
        self._readiness = Readiness()

    def reserve(self, blocks: int, beams: int) -> None:
        """Make room for more blocks or beam rows."""
        rows, room = self.page.shape
        if blocks <= room and beams <= rows:
            return
        new_room = room if blocks <= room else max(blocks, 2 * room)
        page = np.full((max(rows, beams), new_room), NO_PAGE, dtype=np.int32)
        locked, kept = np.zeros(page.shape, dtype=np.bool_), np.zeros(page.shape, dtype=np.bool_)
        page[:rows, :room], locked[:rows, :room], kept[:rows, :room] = self.page, self.locked, self.kept
        self.page, self.locked, self.kept = page, locked, kept
        self._index = [np.full(new_room, BAD, dtype=np.int32) for _ in range(page.shape[0])]
        self._level = [np.full(new_room, BAD, dtype=np.int8) for _ in range(page.shape[0])]
        self._view_valid = [False] * page.shape[0]
        self._on_host = self._since = self._now = None
        self._readiness.forget()

    def changed(self) -> None:
        """What the views show, and what they wait for, must be worked out anew."""
        self._view_valid = [False] * len(self._view_valid)
        self._on_host = self._now = None
        self._readiness.forget()

    def readiness_changed(self) -> None:
        """What mapped pages wait for must be worked out anew."""
        self._now = None
        self._readiness.forget()

    def moved(
        self,
        pages: PageTable,
        fences: FenceTable,
        numbers: Int32,
        blocks: Int32,
        slots: Int32,
        level: int,
        was: Int32,
        ready: int,
    ) -> None:
        """Pages moved, and those of them that are locked here are in beam row 0: keep what is known in step, at their cost alone.

        ``was``: the fence of each before; ``ready``: that of all now.
        """
        mine = blocks < self.page.shape[1]
        mine[mine] = self.locked[0, blocks[mine]] & (self.page[0, blocks[mine]] == numbers[mine])
        blocks, slots, was = blocks[mine], slots[mine], was[mine]
        if not blocks.size:
            return
        self._now = None
        self._readiness.moved(fences, was, ready)
        if not self._view_valid[0]:
            return
        if self._held:
            self._copy_held()
        self._index[0][blocks] = slots
        self._level[0][blocks] = level
        if self._since is not None:
            # Of a request that is published no more nobody asks, and its list must not grow for ever.
            self._since = (*self._since, Moved(blocks, slots)) if len(self._since) < FEW else None
        if self._on_host is not None:
            first = int(blocks.min())
            if level != 1:
                self._on_host = min(self._on_host, first)
            elif first <= self._on_host:
                self._on_host += _leading_ones(self._level[0][self._on_host :])
            if self._readiness.known:
                self._now = self._work_out(pages, fences)  # nothing is left to do, and a publication of many rows has no time

    def _copy_held(self) -> None:
        # Into arrays that no row shows any more, if there are any: new memory would have to be mapped page by page.
        spare, self._spare, self._held = self._spare, None, False
        if spare is None or len(spare.indices) != len(self._index[0]):
            self._index[0], self._level[0] = self._index[0].copy(), self._level[0].copy()
            return
        np.copyto(spare.indices, self._index[0])
        np.copyto(spare.levels, self._level[0])
        self._index[0], self._level[0] = spare.indices, spare.levels

    def view(self, pages: PageTable, beam: int) -> tuple[Int32, Int8]:
        """Index and level of each column, BAD and -1 where nothing is locked (R6.2)."""
        if not self._view_valid[beam]:
            page, locked = self.page[beam], self.locked[beam]
            self._index[beam] = np.where(locked, pages.slot[page], np.int32(BAD))
            self._level[beam] = np.where(locked, pages.level[page], np.int8(BAD))
            self._view_valid[beam] = True
            if beam == 0:
                self._held = False
                self._since = self._compare()
        return self._index[beam], self._level[beam]

    def show(self, pages: PageTable, fences: FenceTable, before: Shown | None) -> tuple[Shown, Moved | None]:
        """What stands in beam row 0, for a row of a batch that shows ``before``: a later change makes new arrays.

        Also how it differs from ``before``; ``None`` if that is not known. The caller shows either of the two from now on, and
        nothing of before that.
        """
        now = self._now
        if now is None:
            now = self._now = self._work_out(pages, fences)
        since, base, earlier = self._since, self._base, self._earlier
        self._base, self._since, self._held = now, (), True
        if base is None or base is not before:
            self._earlier = None
            return now, None
        if earlier is not None and earlier.indices is not base.indices:
            self._spare = earlier
        self._earlier = base
        if since is None:
            return now, None
        if len(since) == 1:
            return now, since[0]
        return now, Moved(np.concatenate([NONE, *(moved.blocks for moved in since)]), None) if since else UNMOVED

    def _work_out(self, pages: PageTable, fences: FenceTable) -> Shown:
        return showing(*self.view(pages, 0), self.on_host(pages, 0), self.readiness(pages, fences).points)

    def _compare(self) -> tuple[Moved, ...] | None:
        base = self._base
        if base is None or len(base.indices) != len(self._index[0]):
            return None
        differ = np.flatnonzero((base.indices != self._index[0]) | (base.levels != self._level[0])).astype(np.int32)
        return (Moved(differ, None),)

    def on_host(self, pages: PageTable, beam: int) -> int:
        """How many leading columns are mapped on the host."""
        if beam:
            return _leading_ones(self.view(pages, beam)[1])
        if self._on_host is None:
            self._on_host = _leading_ones(self.view(pages, 0)[1])
        return self._on_host

    def readiness(self, pages: PageTable, fences: FenceTable) -> Fence:
        """What has to have run before all mapped pages are valid (R7.5)."""
        if not self._readiness.known:
            self._readiness.count(pages.ready[self.page[self.locked]])
        return self._readiness.all(fences)


def _leading_ones(levels: Int8) -> int:
    others = levels != 1
    first = int(np.argmax(others)) if len(levels) else 0
    return first if len(levels) and others[first] else len(levels)
