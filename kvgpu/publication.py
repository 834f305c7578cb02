"""What one publication says: views of what the members show, packed by array operations into staging memory (R8.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvgpu.gather import gather
from kvgpu.publish_kernels import padded, sections
from kvgpu.request import Request

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
NO_ENTRIES = np.empty(0, dtype=np.int32)
NO_LEVELS = np.empty(0, dtype=np.int8)


@dataclass(frozen=True, slots=True)
class Publication:
    """The contents of one publication of ``n`` rows. A row keeps it for as long as it shows it.

    ``rows[n]``: the rows written. ``lengths[n, groups]``, ``counts[n, groups]``: entries and eligible counts. ``entries``,
    ``levels``: arrays that begin with the slots and levels of each row and group, row by row; blocks behind them are BAD. They
    are the members' own arrays, which change no more: nothing is copied.
    """

    rows: Int32
    lengths: Int32
    counts: Int32
    entries: Sequence[Int32]
    levels: Sequence[Int8]

    @property
    def room(self) -> int:
        """How many entries the packed form has."""
        return int(padded(self.lengths).sum())

    def row(self, number: int, group: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count of the ``number``-th row written, in the ``group``-th group of the tables."""
        place, length = number * self.counts.shape[1] + group, int(self.lengths[number, group])
        return self.entries[place][:length], self.levels[place][:length], int(self.counts[number, group])


def publication(rows: Sequence[int], members: Sequence[Request | None], groups: Sequence[int]) -> Publication:
    """What the dirty ``rows`` show now, for the layer groups ``groups``; ``members`` stand in the order of the rows (R8.4)."""
    entries: list[Int32] = []
    levels: list[Int8] = []
    counts: list[int] = []
    lengths: list[int] = []
    for member in members:
        if member is None:
            # An empty row is all BAD, with counts of 0.
            entries += [NO_ENTRIES] * len(groups)
            levels += [NO_LEVELS] * len(groups)
            counts += [0] * len(groups)
            lengths.append(0)
        else:
            member.show(groups, entries, levels, counts)
            lengths.append(0 if member.closed else member.blocks)
    shape = (len(rows), len(groups))
    return Publication(
        np.array(rows, dtype=np.int32),
        np.repeat(np.array(lengths, dtype=np.int32), len(groups)).reshape(shape),
        np.array(counts, dtype=np.int32).reshape(shape),
        entries,
        levels,
    )


@contextmanager
def packing(what: Publication, staging: npt.NDArray[np.uint8], with_levels: bool) -> Iterator[None]:
    """Copy a publication into ``staging``, in the form of ``publish_kernels``. It is there at the end of the ``with`` block.

    Other work can be done inside the block while threads copy.
    """
    lengths = what.lengths.reshape(-1)
    room = padded(lengths)
    starts = np.cumsum(room, dtype=np.int32) - room
    packed = sections(staging, lengths.size, what.room, with_levels)
    packed.heads[:, 0] = np.repeat(what.rows, what.lengths.shape[1])
    packed.heads[:, 1] = starts
    packed.heads[:, 2] = lengths
    packed.heads[:, 3] = what.counts.reshape(-1)
    with ExitStack() as threads:
        threads.callback(gather(what.entries, lengths, starts, packed.entries))
        if with_levels:
            threads.callback(gather(what.levels, lengths, starts, packed.levels))
        yield
