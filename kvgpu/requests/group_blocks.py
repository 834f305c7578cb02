"""The pages of one request in one layer group, by block, and what they show: worked out when asked, kept in step with moves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kvgpu.requests.entries_tracker import EntriesTracker
from kvgpu.requests.readiness import Readiness
from kvgpu.requests.row_entries import ChangedBlocks
from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Fence, FenceTable
from kvgpu.storage.pages import NO_PAGE, PageTable
from kvspec.observation import BAD


class GroupBlocks:
    """The pages of one request in one layer group: int32 ``page``, bool ``locked`` and ``kept``, ``[beams, columns]`` each.

    A page that is not locked is held (R2.2): its index is BAD. ``kept``: it is stale and held until it is committed or
    committing ends (R3.7). Columns beyond the request's blocks hold ``NO_PAGE``.

    ``tracker`` is told what beam row 0 shows, which is what the request shows in table ``number``.
    """

    __slots__ = ("_entries_valid", "_index", "_level", "_number", "_on_host", "_readiness", "_tracker", "kept", "locked", "page")

    def __init__(self, tracker: EntriesTracker, number: int) -> None:
        """No blocks."""
        self._tracker, self._number = tracker, number
        self.page: Int32 = np.full((1, 8), NO_PAGE, dtype=np.int32)
        self.locked: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self.kept: npt.NDArray[np.bool_] = np.zeros((1, 8), dtype=np.bool_)
        self._index: list[Int32] = [np.full(8, BAD, dtype=np.int32)]
        self._level: list[Int8] = [np.full(8, BAD, dtype=np.int8)]
        self._entries_valid = [True]
        self._on_host: int | None = 0
        self._readiness = Readiness()

    def reserve(self, blocks: int, beams: int) -> None:
        """Make space for more blocks or beam rows."""
        rows, columns = self.page.shape
        if blocks <= columns and beams <= rows:
            return
        new_columns = columns if blocks <= columns else max(blocks, 2 * columns)
        page = np.full((max(rows, beams), new_columns), NO_PAGE, dtype=np.int32)
        locked, kept = np.zeros(page.shape, dtype=np.bool_), np.zeros(page.shape, dtype=np.bool_)
        page[:rows, :columns], locked[:rows, :columns], kept[:rows, :columns] = self.page, self.locked, self.kept
        self.page, self.locked, self.kept = page, locked, kept
        self._index = [np.full(new_columns, BAD, dtype=np.int32) for _ in range(page.shape[0])]
        self._level = [np.full(new_columns, BAD, dtype=np.int8) for _ in range(page.shape[0])]
        self._entries_valid = [False] * page.shape[0]
        self._on_host = None
        self.readiness_changed()

    def changed(self) -> None:
        """The entries, and what they wait for, must be worked out anew."""
        self._entries_valid = [False] * len(self._entries_valid)
        self._on_host = None
        self.readiness_changed()

    def readiness_changed(self) -> None:
        """What mapped pages wait for must be worked out anew."""
        self._tracker.forget(self._number)
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
        """Pages moved, and those of them that are locked here are in beam row 0. What is known of the others is not looked at.

        ``was``: the fence of each before; ``ready``: that of all now.
        """
        if len(blocks) == 1:
            block = int(blocks[0])
            if block < self.page.shape[1] and self.locked[0, block] and self.page[0, block] == numbers[0]:
                self.block_moved(pages, fences, block, int(slots[0]), level, int(was[0]), ready, ChangedBlocks(blocks, slots))
            return
        mine = blocks < self.page.shape[1]
        mine[mine] = self.locked[0, blocks[mine]] & (self.page[0, blocks[mine]] == numbers[mine])
        blocks, slots, was = blocks[mine], slots[mine], was[mine]
        if not blocks.size:
            return
        first = int(blocks.min())
        self._tracker.forget(self._number)
        self._readiness.moved(fences, was, ready)
        if not self._entries_valid[0]:
            return
        self._index[0], self._level[0] = self._tracker.to_change(self._number, self._index[0], self._level[0])
        self._index[0][blocks] = slots
        self._level[0][blocks] = level
        self._tracker.blocks_changed(self._number, ChangedBlocks(blocks, slots), len(self._index[0]))
        if self._on_host is not None:
            if level != 1:
                self._on_host = min(self._on_host, first)
            elif first <= self._on_host:
                self._on_host += _leading_ones(self._level[0][self._on_host :])
            if self._readiness.known:
                self.put_entries(pages, fences)  # nothing is left to do

    def moves(self) -> None:
        """A block is about to move. Said first of all groups in which one does, what the request shows is worked out once."""
        self._tracker.forget(self._number)

    def block_moved(
        self,
        pages: PageTable,
        fences: FenceTable,
        block: int,
        slot: int,
        level: int,
        was: int,
        ready: int,
        changed: ChangedBlocks,
    ) -> None:
        """The page of one block that is locked in beam row 0 moved to a slot. ``was``, ``ready``: its fence before, and now.

        ``changed``: the same block and slot.
        """
        tracker, number = self._tracker, self._number
        tracker.forget(number)
        self._readiness.one_moved(fences, was, ready)
        if not self._entries_valid[0]:
            return
        indices, levels = self._index[0], self._level[0] = tracker.to_change(number, self._index[0], self._level[0])
        indices[block], levels[block] = slot, level
        tracker.blocks_changed(number, changed, len(indices))
        on_host = self._on_host
        if on_host is None:
            return
        if level != 1:
            self._on_host = min(on_host, block)
        elif block == on_host:
            self._on_host = on_host = block + 1
            if on_host < len(levels) and levels[on_host] == 1:
                self._on_host += _leading_ones(levels[on_host:])
        if self._readiness.known:
            self.put_entries(pages, fences)  # nothing is left to do

    def entries(self, pages: PageTable, beam: int) -> tuple[Int32, Int8]:
        """Index and level of each column, BAD and -1 where nothing is locked (R6.2)."""
        if not self._entries_valid[beam]:
            page, locked = self.page[beam], self.locked[beam]
            self._index[beam] = np.where(locked, pages.slot[page], np.int32(BAD))
            self._level[beam] = np.where(locked, pages.level[page], np.int8(BAD))
            self._entries_valid[beam] = True
            if beam == 0:
                self._tracker.made_anew(self._number, self._index[0], self._level[0])
        return self._index[beam], self._level[beam]

    def put_entries(self, pages: PageTable, fences: FenceTable) -> None:
        """Tell the tracker what beam row 0 shows."""
        indices, levels = self.entries(pages, 0)
        self._tracker.put(self._number, indices, levels, self.on_host(pages, 0), self.readiness(pages, fences).points)

    def on_host(self, pages: PageTable, beam: int) -> int:
        """How many leading columns are mapped on the host."""
        if beam:
            return _leading_ones(self.entries(pages, beam)[1])
        if self._on_host is None:
            self._on_host = _leading_ones(self.entries(pages, 0)[1])
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
