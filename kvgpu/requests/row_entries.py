"""Entries: what a row of a batch shows, in each group the index and the level of each block, and the eligible count (R8.4)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Point

ORIGIN_WORDS = 3
"""Words of the origin of what a group shows."""
ORIGIN = struct.Struct(f"{ORIGIN_WORDS}q")
INDICES, LEVELS, COUNTABLE = range(ORIGIN_WORDS)
"""Which of these words is what: see ``GroupEntries``."""

FEW = 4
"""A row is written by the blocks that changed if so many times their number are no more than all of its blocks."""


class ChangedBlocks(NamedTuple):
    """Blocks whose entries may differ from those of a row, int32, and their slots now, int32, if these are known already."""

    blocks: Int32
    slots: Int32 | None


class GroupEntries(NamedTuple):
    """What beam row 0 shows in one group: ``indices`` int32, ``levels`` int8, ``[columns]``, BAD and -1 where nothing is locked.

    ``origin``: int64 ``[3]`` as bytes: the addresses of both, and how many leading blocks are on the host, if that counts in this
    group. ``ready``: what all mapped pages wait for, a point a stream.
    """

    indices: Int32
    levels: Int8
    origin: bytes
    ready: tuple[Point, ...]


def group_entries(
    indices: Int32, levels: Int8, countable: int, ready: tuple[Point, ...], like: GroupEntries | None = None
) -> GroupEntries:
    """See ``GroupEntries``. ``countable``: the leading blocks on the host, or 0 where they do not count.

    ``like``: others, whose arrays may be the same: then it is known where they are.
    """
    if like is not None and like.indices is indices and like.levels is levels:
        at, to, _ = ORIGIN.unpack(like.origin)
    else:
        at, to = _address(indices), _address(levels)
    return GroupEntries(indices, levels, ORIGIN.pack(at, to, countable), ready)


def _address(array: Any) -> int:
    # A third of the time of ``array.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.size else 0


class RequestEntries(NamedTuple):
    """What a request shows in all groups of the tables; it never changes. ``origins``, ``ready``: those of ``groups``, in order.

    A publication goes through the entries of many requests, one after the other, and each object that it touches may be a cache
    miss. So it reads two objects of each, ``origins`` and ``ready``, and not the groups.
    """

    groups: tuple[GroupEntries, ...]
    origins: bytes
    ready: tuple[Point, ...]


def request_entries(groups: Sequence[GroupEntries]) -> RequestEntries:
    """See ``RequestEntries``."""
    return RequestEntries(
        tuple(groups), b"".join([one.origin for one in groups]), tuple(point for one in groups for point in one.ready)
    )


class RowEntries(NamedTuple):
    """What a row shows: the first ``length`` blocks of ``entries``; those beyond are BAD.

    ``countable``: so many blocks at most are eligible, in any group.
    """

    length: int
    countable: int
    entries: RequestEntries

    def group(self, number: int) -> tuple[Int32, Int8, int]:
        """Slots int32 and levels int8, ``[length]``, and the eligible count, in table ``number``. Views: copy what is kept."""
        shown = self.entries.groups[number]
        countable = ORIGIN.unpack(shown.origin)[COUNTABLE]
        return shown.indices[: self.length], shown.levels[: self.length], min(countable, self.countable)


class Rows(NamedTuple):
    """What several rows show, a column for each part of ``RowEntries``: rows are many, and objects are slow."""

    lengths: list[int]
    countable: list[int]
    entries: list[RequestEntries]


NOTHING = group_entries(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8), 0, ())
"""What an empty row shows in a group."""


def no_entries(groups: int) -> RequestEntries:
    """What a row without a member shows in ``groups`` groups, with a length of 0."""
    return request_entries((NOTHING,) * groups)
