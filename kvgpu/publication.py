"""What one publication says: views of what the members show, packed by array operations into staging memory (R8.4).

A row that shows what it did, but for a few blocks, is written by those blocks alone: a decode step changes one in thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.fences import Fence, FenceTable, Point
from kvgpu.gather import gather
from kvgpu.group_blocks import Moved
from kvgpu.publish_kernels import HEAD, Packed, padded, sections
from kvgpu.request import Request

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]
NO_ENTRIES = np.empty(0, dtype=np.int32)
NO_LEVELS = np.empty(0, dtype=np.int8)
WORDS = 2
"""Words that a changed block takes in the packed form; a block of a row that is written whole takes one."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The contents of one publication of ``n`` rows. A row keeps it for as long as it shows it.

    ``rows[n]``: the rows written. ``lengths[n, groups]``, ``counts[n, groups]``: entries and eligible counts. ``entries``,
    ``levels``: arrays that begin with the slots and levels of each row and group, row by row; blocks behind them are BAD. They
    are the members' own arrays, which change no more: nothing is copied. ``changes``: likewise what may differ from what the
    row showed before, or ``None`` for all. ``ready``: the readiness of all pages in the rows, one point a stream (R7.5).
    """

    rows: Int32
    lengths: Int32
    counts: Int32
    entries: Sequence[Int32]
    levels: Sequence[Int8]
    changes: Sequence[Moved | None]
    ready: tuple[Point, ...]

    def row(self, number: int, group: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count of the ``number``-th row written, in the ``group``-th group of the tables."""
        place, length = number * self.counts.shape[1] + group, int(self.lengths[number, group])
        return self.entries[place][:length], self.levels[place][:length], int(self.counts[number, group])


class RowWords(NamedTuple):
    """What a row shows: the ``number``-th row of a publication."""

    publication: Publication
    number: int


def publication(
    rows: Sequence[int],
    members: Sequence[Request | None],
    groups: Sequence[int],
    before: Sequence[RowWords | None],
    fences: FenceTable,
) -> Publication:
    """What the dirty ``rows`` show now, for the layer groups ``groups`` (R8.4).

    ``members``, ``before``: who is in each of the rows, and what that row shows so far; ``None`` for nobody and nothing.
    """
    entries: list[Int32] = []
    levels: list[Int8] = []
    counts: list[int] = []
    lengths: list[int] = []
    changes: list[Moved | None] = []
    ready: set[Point] = set()  # the groups of a request mostly wait for the same
    for member, words in zip(members, before, strict=True):
        if member is None:
            # An empty row is all BAD, with counts of 0.
            entries += [NO_ENTRIES] * len(groups)
            levels += [NO_LEVELS] * len(groups)
            counts += [0] * len(groups)
            changes += [None] * len(groups)
            lengths.append(0)
            continue
        length, most, pages = member.blocks, member.most_eligible(), member.table
        lengths.append(length)
        place = 0 if words is None else words.number * len(groups)
        for group in groups:
            blocks = member.groups[group]
            index, level = blocks.view(pages, 0)
            entries.append(index)
            levels.append(level)
            counts.append(min(blocks.on_host(pages, 0), most) if most and member.sparse[group] else 0)
            ready.update(blocks.readiness(pages, fences).points)
            change = blocks.hold(None if words is None else words.publication.entries[place])
            changes.append(None if change is None or WORDS * len(change.blocks) > length else change)
            place += 1
    shape = (len(rows), len(groups))
    return Publication(
        np.array(rows, dtype=np.int32),
        np.repeat(np.array(lengths, dtype=np.int32), len(groups)).reshape(shape),
        np.array(counts, dtype=np.int32).reshape(shape),
        entries,
        levels,
        changes,
        Fence(sorted(ready, key=attrgetter("number"))).points,
    )


@dataclass(frozen=True, slots=True)
class Packing:
    """How a publication is laid out in staging memory. ``heads``: as in ``publish_kernels``. ``room``: of all entries.

    ``work``: the largest number of blocks that have to be written for any row and group; 0: the whole row, for some.
    """

    heads: Int32
    room: int
    work: int


def layout_of(what: Publication) -> Packing:
    """The layout of a publication."""
    lengths = what.lengths.reshape(-1)
    changes = np.fromiter((-1 if moved is None else len(moved.blocks) for moved in what.changes), np.int32, len(what.changes))
    whole = changes < 0
    room = padded(np.where(whole, lengths, WORDS * changes))
    heads = np.empty((len(lengths), HEAD), dtype=np.int32)
    heads[:, 0] = np.repeat(what.rows, what.lengths.shape[1])
    heads[:, 1] = np.cumsum(room) - room
    heads[:, 2] = np.where(whole, lengths, ~changes)
    heads[:, 3] = what.counts.reshape(-1)
    return Packing(heads, int(room.sum()), 0 if whole.any() else int(changes.max(initial=1)))


@contextmanager
def packing(what: Publication, how: Packing, staging: npt.NDArray[np.uint8], with_levels: bool) -> Iterator[None]:
    """Copy a publication into ``staging``, in the form of ``publish_kernels``. It is there at the end of the ``with`` block.

    Other work can be done inside the block while threads copy.
    """
    packed = sections(staging, len(how.heads), how.room, with_levels)
    packed.heads[:] = how.heads
    whole = [place for place, moved in enumerate(what.changes) if moved is None]
    starts, lengths = how.heads[whole, 1], how.heads[whole, 2]
    with ExitStack() as threads:
        threads.callback(gather([what.entries[place] for place in whole], lengths, starts, packed.entries))
        if with_levels:
            threads.callback(gather([what.levels[place] for place in whole], lengths, starts, packed.levels))
        _pack_changes(what, how, packed, with_levels)
        yield


def _pack_changes(what: Publication, how: Packing, packed: Packed, with_levels: bool) -> None:
    places = [place for place, moved in enumerate(what.changes) if moved is not None and len(moved.blocks)]
    if not places:
        return
    parts = [moved for place in places if (moved := what.changes[place]) is not None]
    counts = ~how.heads[places, 2]
    starts = np.repeat(how.heads[places, 1], counts)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    packed.entries[starts + WORDS * within] = np.concatenate([moved.blocks for moved in parts])
    packed.entries[starts + WORDS * within + 1] = np.concatenate(
        [
            what.entries[place][moved.blocks] if moved.slots is None else moved.slots
            for place, moved in zip(places, parts, strict=True)
        ]
    )
    if with_levels:
        packed.levels[starts + within] = np.concatenate(
            [what.levels[place][moved.blocks] for place, moved in zip(places, parts, strict=True)]
        )
