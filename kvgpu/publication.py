"""What one publication says: views of what the members show, packed by array operations into staging memory (R8.4)."""

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
NOTHING = (np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8), 0)


@dataclass(frozen=True, slots=True)
class Publication:
    """The contents of one publication of ``n`` rows. A row keeps it for as long as it shows it.

    ``rows[n]``: the rows written. ``lengths[n, groups]``, ``counts[n, groups]``: entries and eligible counts. ``entries``,
    ``levels``: the slots and levels of each row and group, row by row; blocks behind them are BAD. They are the members' own
    arrays, which change no more: nothing is copied.
    """

    rows: Int32
    lengths: Int32
    counts: Int32
    entries: Sequence[Int32]
    levels: Sequence[Int8]

    @property
    def total(self) -> int:
        """How many entries there are."""
        return int(self.lengths.sum())

    def row(self, number: int, group: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count of the ``number``-th row written, in the ``group``-th group of the tables."""
        place = number * self.counts.shape[1] + group
        return self.entries[place], self.levels[place], int(self.counts[number, group])


def publication(rows: Sequence[int], members: Sequence[Request | None], groups: Sequence[int]) -> Publication:
    """What the dirty ``rows`` show now, for the layer groups ``groups``; ``members`` stand in the order of the rows (R8.4)."""
    entries: list[Int32] = []
    levels: list[Int8] = []
    counts: list[int] = []
    for member in members:
        for group in groups:
            # An empty row is all BAD, with counts of 0.
            shown = NOTHING if member is None else member.shown(group)
            entries.append(shown[0])
            levels.append(shown[1])
            counts.append(shown[2])
    shape = (len(rows), len(groups))
    return Publication(
        np.array(rows, dtype=np.int32),
        np.fromiter(map(len, entries), np.int32, len(entries)).reshape(shape),
        np.array(counts, dtype=np.int32).reshape(shape),
        entries,
        levels,
    )


def pack(what: Publication, staging: npt.NDArray[np.uint8], with_levels: bool) -> None:
    """Copy a publication into ``staging``, in the form of ``publish_kernels``."""
    dirty, groups = what.lengths.shape
    lengths = what.lengths.reshape(-1)
    ends = np.cumsum(lengths, dtype=np.int32)
    packed = sections(staging, dirty, groups, what.total, with_levels)
    packed.rows[:] = what.rows
    packed.starts[:] = ends - lengths
    packed.lengths[:] = lengths
    packed.counts[:] = what.counts.reshape(-1)
    if lengths.size:  # SSM groups alone have no tables
        gather(what.entries, ends, packed.entries)
        if with_levels:
            gather(what.levels, ends, packed.levels)
