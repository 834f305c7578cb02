"""What one publication says, packed by array operations into staging memory and kept for as long as a row shows it (R8.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.gather import gather
from kvgpu.publish_kernels import sections
from kvgpu.request import Request

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
NO_ENTRIES = np.empty(0, dtype=np.int32)
NO_LEVELS = np.empty(0, dtype=np.int8)


@dataclass(frozen=True, slots=True)
class Publication:
    """The contents of one publication.

    ``rows[n]``: the rows written. ``lengths[n, groups]``, ``counts[n, groups]``: entries and eligible counts. ``entries``,
    ``levels``: slot and level of every entry, row by row, group by group. Blocks behind the entries of a row are BAD.
    """

    rows: Int32
    starts: Int32
    lengths: Int32
    counts: Int32
    entries: Int32
    levels: Int8

    def row(self, number: int, group: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count of the ``number``-th row written, in the ``group``-th group of the tables."""
        first = int(self.starts[number, group])
        end = first + int(self.lengths[number, group])
        return self.entries[first:end], self.levels[first:end], int(self.counts[number, group])


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a publication, as views of what the members show now: nothing is copied yet."""

    rows: Int32
    lengths: Int32
    counts: Int32
    entries: Sequence[Int32]
    levels: Sequence[Int8]

    @property
    def total(self) -> int:
        """How many entries there are."""
        return int(self.lengths.sum())


def draft(rows: Sequence[int], members: Sequence[Request | None], groups: Sequence[int]) -> Draft:
    """Look at the dirty ``rows``, whose ``members`` stand in the same order, for the layer groups ``groups`` (R8.4)."""
    entries: list[Int32] = []
    levels: list[Int8] = []
    counts: list[int] = []
    for member in members:
        for group in groups:
            # An empty row is all BAD, with counts of 0.
            entries.append(NO_ENTRIES if member is None else member.indices(group))
            levels.append(NO_LEVELS if member is None else member.levels(group))
            counts.append(0 if member is None else member.eligible(group))
    shape = (len(rows), len(groups))
    return Draft(
        np.array(rows, dtype=np.int32),
        np.fromiter(map(len, entries), np.int32, len(entries)).reshape(shape),
        np.array(counts, dtype=np.int32).reshape(shape),
        entries,
        levels,
    )


def pack(parts: Draft, staging: npt.NDArray[np.uint8], with_levels: bool) -> Publication:
    """Copy a draft into ``staging`` (the form of ``publish_kernels``) and keep a copy of it."""
    dirty, groups = parts.lengths.shape
    lengths = parts.lengths.reshape(-1)
    ends = np.cumsum(lengths, dtype=np.int32)
    starts = ends - lengths
    packed = sections(staging, dirty, groups, parts.total, with_levels)
    packed.rows[:] = parts.rows
    packed.starts[:] = starts
    packed.lengths[:] = lengths
    packed.counts[:] = parts.counts.reshape(-1)
    gather(parts.entries, ends, packed.entries)
    levels = np.empty(parts.total, dtype=np.int8)
    gather(parts.levels, ends, levels)
    if with_levels:
        packed.levels[:] = levels
    counts = parts.counts
    return Publication(parts.rows, starts.reshape(dirty, groups), parts.lengths, counts, packed.entries.copy(), levels)
