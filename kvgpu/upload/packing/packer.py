"""A publication in its packed form: staging memory, filled part by part while the caller works on (R8.4, R7.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.requests.row_entries import COUNTABLE, INDICES, LEVELS, ORIGIN, ORIGIN_WORDS, ChangedBlocks, GroupEntries, Rows
from kvgpu.runs import Int32
from kvgpu.upload.packing.form import CHANGE, COUNT, LENGTH, MIXED, ROW, SAME, START, PackedForm, padded
from kvgpu.upload.packing.gather import UNKNOWN, Sources, gather
from kvgpu.upload.packing.gather import prepare as prepare_gather


def prepare(form: PackedForm, nbytes: int) -> None:
    """Compile what packing a publication of so many bytes will need, so that the first one need not wait for it."""
    packed = form.sections(np.empty(0, np.uint8), 0, 0)
    prepare_gather(np.int32, (packed.low, packed.high), nbytes)
    if form.levels:
        prepare_gather(np.int8, (packed.levels,), nbytes)


FEW = 32
"""So many (dirty row, group) at most, and so many blocks of each, are packed one by one: arrays of so few are slower."""


class Packer:
    """Fills ``staging`` (uint8) in ``form``, for ``pairs`` (dirty row, group) of at most ``blocks`` each.

    ``entries``: how many the form can take. ``work``: at most so many blocks are written for any pair; 0: whole rows.
    """

    def __init__(self, staging: npt.NDArray[np.uint8], form: PackedForm, pairs: int, blocks: int) -> None:
        """Nothing is packed yet."""
        self.entries = pairs * padded(blocks)
        self._packed = form.sections(staging, pairs, self.entries)
        self._changes = self._packed.changes(0, self.entries // CHANGE)
        self._with_levels = form.levels
        self._pairs = self._used = self._most = 0
        self._whole = False
        self._under_way: list[Callable[[], object]] = []

    @property
    def work(self) -> int:
        """See the class."""
        return 0 if self._whole else max(1, self._most)

    def add(self, numbers: Sequence[int], rows: Rows, changes: Sequence[ChangedBlocks | None]) -> None:
        """Pack the next rows. Threads may copy until ``finish``.

        ``changes``: for each row and group what may differ from what stands there; ``None``: all. Where that is much, all is
        written as well.
        """
        groups = len(changes) // len(numbers)
        if len(changes) <= FEW and self._add_few(numbers, rows, changes, groups):
            return
        origins = np.frombuffer(b"".join([one.origins for one in rows.entries]), np.int64).reshape(len(changes), ORIGIN_WORDS)
        columns = np.array([numbers, rows.lengths, rows.countable], np.int32)
        row, lengths, countable = np.repeat(columns, groups, axis=1)
        of_change = np.array([-1 if changed is None else len(changed.blocks) for changed in changes], np.int32)
        whole = (of_change < 0) | (CHANGE * of_change > lengths)
        heads = self._packed.heads[self._pairs : self._pairs + len(changes)]
        heads[:, ROW] = row
        heads[:, LENGTH] = np.where(whole, lengths, ~of_change)
        heads[:, COUNT] = np.minimum(origins[:, COUNTABLE], countable)
        sizes = padded(np.where(whole, lengths, CHANGE * of_change))
        heads[:, START] = self._used + np.cumsum(sizes) - sizes
        heads[:, SAME] = MIXED
        self._used += int(sizes.sum())
        self._pairs += len(changes)
        if not whole.all():
            self._most = max(self._most, int(of_change[~whole].max()))
            self._add_changes(heads, rows, changes, np.flatnonzero(~whole & (of_change > 0)))
        if whole.any():
            self._whole = True
            self._add_whole(heads, rows, origins, np.flatnonzero(whole))

    def _add_few(self, numbers: Sequence[int], rows: Rows, changes: Sequence[ChangedBlocks | None], groups: int) -> bool:
        """The same for a few rows of which few blocks are written, without arrays: as in most decode steps. Whether it was so."""
        words: list[tuple[int, ...]] = []
        places: list[int] = []
        written: list[tuple[int, int]] = []
        levels: list[tuple[int, int]] = []
        used, most = self._used, 0
        for pair, changed in enumerate(changes):
            row = pair // groups
            if changed is None or CHANGE * len(changed.blocks) > min(rows.lengths[row], CHANGE * FEW):
                return False
            shown = rows.entries[row].groups[pair % groups]
            count = min(ORIGIN.unpack(shown.origin)[COUNTABLE], rows.countable[row])
            blocks = changed.blocks.tolist()
            words.append((numbers[row], used, ~len(blocks), count, MIXED, 0, 0, 0))
            slots = shown.indices[changed.blocks] if changed.slots is None else changed.slots
            places += range(used // CHANGE, used // CHANGE + len(blocks))
            written += zip(blocks, slots.tolist(), strict=True)
            if self._with_levels:
                levels += zip(range(used, used + len(blocks)), shown.levels[changed.blocks].tolist(), strict=True)
            used += padded(CHANGE * len(blocks))
            most = max(most, len(blocks))
        if words:  # with SSM groups alone there are no tables
            self._packed.heads[self._pairs : self._pairs + len(words)] = words
        if written:
            self._changes[places] = written
        for at, level in levels:
            self._packed.levels[at] = level
        self._used, self._most = used, max(self._most, most)
        self._pairs += len(words)
        return True

    def _add_whole(self, heads: Int32, rows: Rows, origins: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> None:
        starts, lengths = heads[chosen, START], heads[chosen, LENGTH]

        def parts() -> list[GroupEntries]:
            return [_entries(rows, pair, len(heads)) for pair in chosen.tolist()]

        sources = Sources(np.int32, origins[chosen, INDICES], lambda: [part.indices for part in parts()])
        copied = gather(sources, lengths, starts, (self._packed.low, self._packed.high))

        def tell() -> None:
            same = copied()
            heads[chosen, SAME] = np.where(same == UNKNOWN, MIXED, same)

        self._under_way.append(tell)
        if self._with_levels:
            sources = Sources(np.int8, origins[chosen, LEVELS], lambda: [part.levels for part in parts()])
            self._under_way.append(gather(sources, lengths, starts, (self._packed.levels,)))

    def _add_changes(
        self, heads: Int32, rows: Rows, changes: Sequence[ChangedBlocks | None], chosen: npt.NDArray[np.int64]
    ) -> None:
        if not chosen.size:
            return
        parts = [(pair, changed) for pair in chosen.tolist() if (changed := changes[pair]) is not None]
        counts = ~heads[chosen, LENGTH]
        starts = np.repeat(heads[chosen, START], counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = starts // CHANGE + within
        self._changes[at, 0] = np.concatenate([changed.blocks for _, changed in parts])
        self._changes[at, 1] = np.concatenate(
            [
                _entries(rows, pair, len(heads)).indices[changed.blocks] if changed.slots is None else changed.slots
                for pair, changed in parts
            ]
        )
        if self._with_levels:
            levels = [_entries(rows, pair, len(heads)).levels[changed.blocks] for pair, changed in parts]
            self._packed.levels[starts + within] = np.concatenate(levels)

    def finish(self) -> None:
        """Wait for the threads: everything that was added is packed. Idempotent."""
        while self._under_way:
            self._under_way.pop()()


def _entries(rows: Rows, pair: int, pairs: int) -> GroupEntries:
    row, group = divmod(pair, pairs // len(rows.entries))
    return rows.entries[row].groups[group]
