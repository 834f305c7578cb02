"""A publication in its packed form: staging memory, filled part by part while the caller works on (R8.4, R7.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.group_blocks import Moved, Shown
from kvgpu.packing.form import CHANGE, COUNT, LENGTH, MIXED, ROW, SAME, START, PackedForm, padded
from kvgpu.packing.gather import UNKNOWN, Sources, gather
from kvgpu.packing.gather import prepare as prepare_gather
from kvgpu.row_words import RowWords

Int32 = npt.NDArray[np.int32]


def prepare(form: PackedForm, nbytes: int) -> None:
    """Compile what packing a publication of so many bytes will need, so that the first one need not wait for it."""
    packed = form.sections(np.empty(0, np.uint8), 0, 0)
    prepare_gather(np.int32, (packed.low, packed.high), nbytes)
    if form.levels:
        prepare_gather(np.int8, (packed.levels,), nbytes)


class Packer:
    """Fills ``staging`` (uint8) in ``form``, for ``pairs`` (dirty row, group) of at most ``blocks`` each.

    ``room``: the entries that the form has room for. ``work``: at most so many blocks are written for any pair; 0: whole rows.
    """

    def __init__(self, staging: npt.NDArray[np.uint8], form: PackedForm, pairs: int, blocks: int) -> None:
        """Nothing is packed yet."""
        self.room = pairs * padded(blocks)
        self._packed = form.sections(staging, pairs, self.room)
        self._changes = self._packed.changes(0, self.room // CHANGE)
        self._with_levels = form.levels
        self._pairs = self._used = self._most = 0
        self._whole = False
        self._under_way: list[Callable[[], object]] = []

    @property
    def work(self) -> int:
        """See the class."""
        return 0 if self._whole else max(1, self._most)

    def add(self, rows: Sequence[int], words: Sequence[RowWords], changes: Sequence[Moved | None]) -> None:
        """Pack the next rows. Threads may copy until ``finish``.

        ``changes``: for each row and group what may differ from what stands there; ``None``: all.
        """
        shown = [one for row in words for one in row.shown]
        groups = len(shown) // len(rows)
        of_change = np.fromiter((-1 if moved is None else len(moved.blocks) for moved in changes), np.int32, len(changes))
        whole = of_change < 0
        heads = self._packed.heads[self._pairs : self._pairs + len(shown)]
        heads[:, ROW] = np.repeat(rows, groups)
        heads[:, LENGTH] = np.where(whole, np.repeat([row.length for row in words], groups), ~of_change)
        heads[:, COUNT] = [count for row in words for count in row.counts]
        room = padded(np.where(whole, heads[:, LENGTH], CHANGE * of_change))
        heads[:, START] = self._used + np.cumsum(room) - room
        heads[:, SAME] = MIXED
        self._used += int(room.sum())
        self._pairs += len(shown)
        if not whole.all():
            self._most = max(self._most, int(of_change.max()))
            self._add_changes(heads, shown, changes)
        if whole.any():
            self._whole = True
            self._add_whole(heads, shown, np.flatnonzero(whole).tolist())

    def _add_whole(self, heads: Int32, shown: Sequence[Shown], places: Sequence[int]) -> None:
        starts, lengths = heads[places, START], heads[places, LENGTH]
        parts = [shown[place] for place in places]
        sources = Sources(np.int32, [part.index_address for part in parts], lambda: [part.indices for part in parts])
        copied = gather(sources, lengths, starts, (self._packed.low, self._packed.high))

        def tell() -> None:
            same = copied()
            heads[places, SAME] = np.where(same == UNKNOWN, MIXED, same)

        self._under_way.append(tell)
        if self._with_levels:
            sources = Sources(np.int8, [part.level_address for part in parts], lambda: [part.levels for part in parts])
            self._under_way.append(gather(sources, lengths, starts, (self._packed.levels,)))

    def _add_changes(self, heads: Int32, shown: Sequence[Shown], changes: Sequence[Moved | None]) -> None:
        parts = [(place, moved) for place, moved in enumerate(changes) if moved is not None and len(moved.blocks)]
        if not parts:
            return
        places = [place for place, _ in parts]
        counts = ~heads[places, LENGTH]
        starts = np.repeat(heads[places, START], counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = starts // CHANGE + within
        self._changes[at, 0] = np.concatenate([moved.blocks for _, moved in parts])
        self._changes[at, 1] = np.concatenate(
            [shown[place].indices[moved.blocks] if moved.slots is None else moved.slots for place, moved in parts]
        )
        if self._with_levels:
            levels = [shown[place].levels[moved.blocks] for place, moved in parts]
            self._packed.levels[starts + within] = np.concatenate(levels)

    def finish(self) -> None:
        """Wait for the threads: everything that was added is packed. Idempotent."""
        while self._under_way:
            self._under_way.pop()()
