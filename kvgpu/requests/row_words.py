"""What a row of a batch shows."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Point

FACTS = 3
"""Words of the facts of a group."""
FORM = struct.Struct(f"{FACTS}q")
INDICES, LEVELS, COUNTABLE = range(FACTS)
"""Which of these words is what: see ``Shown``."""


FEW = 4
"""A row is written by the blocks that changed if so many times their number are no more than all of its blocks."""


class Moved(NamedTuple):
    """Blocks whose index or level may differ from what was shown, int32, and their slots now, if that is known already."""

    blocks: Int32
    slots: Int32 | None


class Shown(NamedTuple):
    """What stands in beam row 0 in one group: ``indices`` int32, ``levels`` int8, ``[room]``, BAD and -1 where nothing is locked.

    ``facts``: int64 ``[3]`` as bytes: the addresses of both, and how many leading blocks are on the host, if that counts in this
    group. ``ready``: what all mapped pages wait for, a point a stream.
    """

    indices: Int32
    levels: Int8
    facts: bytes
    ready: tuple[Point, ...]


def shown_of(indices: Int32, levels: Int8, countable: int, ready: tuple[Point, ...]) -> Shown:
    """See ``Shown``. ``countable``: the leading blocks on the host, or 0 where they do not count."""
    return Shown(indices, levels, FORM.pack(_address(indices), _address(levels), countable), ready)


def _address(array: Any) -> int:
    # A third of the time of ``array.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.size else 0


class View(NamedTuple):
    """What a request shows in all groups of the tables; it never changes. ``shown``, ``facts``, ``ready``: of these, in order.

    Many views are looked at in a row by publications, and what is not in the processor's caches costs the more, the more objects
    it is: facts and readiness are all that one looks at.
    """

    shown: tuple[Shown, ...]
    facts: bytes
    ready: tuple[Point, ...]


def view_of(shown: Sequence[Shown]) -> View:
    """See ``View``."""
    return View(tuple(shown), b"".join([one.facts for one in shown]), tuple(point for one in shown for point in one.ready))


class RowWords(NamedTuple):
    """What a row shows: the first ``length`` blocks of ``view``; those behind them are BAD.

    ``countable``: so many blocks at most are eligible, in any group.
    """

    length: int
    countable: int
    view: View

    def group(self, place: int) -> tuple[Int32, Int8, int]:
        """Slots, levels and eligible count in the ``place``-th group of the tables. Views: copy what is kept."""
        shown = self.view.shown[place]
        countable = FORM.unpack(shown.facts)[COUNTABLE]
        return shown.indices[: self.length], shown.levels[: self.length], min(countable, self.countable)


class Rows(NamedTuple):
    """What several rows show, a column for each part of ``RowWords``: rows are many, and objects are slow."""

    lengths: list[int]
    countable: list[int]
    views: list[View]


NOTHING = shown_of(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8), 0, ())
"""What stands in a group of an empty row."""


def empty_view(groups: int) -> View:
    """What a row without a member shows in ``groups`` groups, with a length of 0."""
    return view_of((NOTHING,) * groups)
