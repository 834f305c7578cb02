"""What one publication says: views of what the members show (R8.4).

A row that shows what it did, but for a few blocks, is written by those blocks alone: a decode step changes one in thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from kvgpu.fences import Fence, FenceTable, Point
from kvgpu.group_blocks import Moved
from kvgpu.packing.form import CHANGE
from kvgpu.packing.packer import Packer
from kvgpu.request import Request
from kvgpu.row_words import RowWords, empty_row

PART = 128
"""Rows that are packed at a time: the threads that copy them are at work while the next ones are looked up."""


class Publication(NamedTuple):
    """One publication. ``words``: of each row written. ``ready``: the readiness of all pages in them, a point a stream (R7.5)."""

    words: list[RowWords]
    ready: tuple[Point, ...]


def publication(
    rows: Sequence[int],
    members: Sequence[Request | None],
    groups: Sequence[int],
    before: Sequence[RowWords | None],
    fences: FenceTable,
    packer: Packer,
) -> Publication:
    """What the dirty ``rows`` show now, for the layer groups ``groups`` (R8.4); ``packer`` gets it part by part.

    ``members``, ``before``: who is in each of the rows, and what that row shows so far; ``None`` for nobody and nothing.
    """
    words: list[RowWords] = []
    changes: list[Moved | None] = []
    ready: set[Point] = set()  # the groups of a request mostly wait for the same
    for number, (member, old) in enumerate(zip(members, before, strict=True)):
        if member is None:
            words.append(empty_row(len(groups)))
            changes += [None] * len(groups)
        else:
            length, most, pages = member.blocks, member.most_eligible(), member.table
            shown, counts = [], []
            for place, group in enumerate(groups):
                now, moved = member.groups[group].show(pages, fences, None if old is None else old.shown[place])
                shown.append(now)
                counts.append(min(now.on_host, most) if most and member.sparse[group] else 0)
                ready.update(now.ready)
                changes.append(None if moved is None or CHANGE * len(moved.blocks) > length else moved)
            words.append(RowWords(length, shown, counts))
        if number % PART == PART - 1 or number == len(rows) - 1:
            part = slice(number - number % PART, number + 1)
            packer.add(rows[part], words[part], changes)
            changes = []
    return Publication(words, Fence(sorted(ready, key=attrgetter("number"))).points)
