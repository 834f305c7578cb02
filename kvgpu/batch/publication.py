"""What one publication says: the entries that the dirty rows show (R8.4).

A row that shows what it did, but for a few blocks, is written by those blocks alone: a decode step changes one in thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvgpu.requests.request import Request
from kvgpu.requests.row_entries import ChangedBlocks, RequestEntries, Rows, no_entries
from kvgpu.storage.fences import Fence, FenceTable, Point
from kvgpu.upload.packing.packer import Packer

PART = 128
"""Rows that are packed at a time: the threads that copy them are at work while the next ones are looked up."""


class Publication(NamedTuple):
    """One publication. ``shows``: each row written. ``ready``: the readiness of all pages in them, a point a stream (R7.5).

    ``changes``: for each row and group, what may differ from what the row showed; ``None``: it is not known.
    """

    shows: Rows
    ready: tuple[Point, ...]
    changes: Sequence[ChangedBlocks | None]


def publication(
    rows: Sequence[int],
    members: Sequence[Request | None],
    groups: int,
    before: Sequence[RequestEntries | None],
    fences: FenceTable,
    packer: Packer,
) -> Publication:
    """What the dirty ``rows`` show now, in so many ``groups`` of the tables (R8.4); ``packer`` gets it part by part.

    ``members``, ``before``: who is in each of the rows, and what that row shows so far; ``None`` for nobody and nothing.
    """
    empty, unknown = no_entries(groups), (None,) * groups
    lengths: list[int] = []
    countable: list[int] = []
    entries: list[RequestEntries] = []
    every: list[ChangedBlocks | None] = []
    ready: list[Point] = []
    for first in range(0, len(rows), PART):
        part = slice(first, first + PART)
        changes: list[ChangedBlocks | None] = []
        for member, old in zip(members[part], before[part], strict=True):
            if member is None:
                entries.append(empty)
                lengths.append(0)
                countable.append(0)
                changes += unknown
            else:
                shown, changed = member.show(fences, old)
                entries.append(shown)
                lengths.append(member.blocks)
                countable.append(member.most_eligible())
                changes += changed
                ready += shown.ready
        packer.add(rows[part], Rows(lengths[part], countable[part], entries[part]), changes)
        every += changes
    return Publication(Rows(lengths, countable, entries), Fence(ready).points, every)
