"""What a row of a batch shows."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.fences import Point

Int32 = npt.NDArray[np.int32]
Int8 = npt.NDArray[np.int8]

FACTS = 3
"""Words of ``View.facts`` for a group."""
INDICES, LEVELS, COUNTABLE = range(FACTS)
"""Which of these words is what: see ``View``."""


class Shown(NamedTuple):
    """What stands in beam row 0 in one group: ``indices`` int32, ``levels`` int8, ``[room]``, BAD and -1 where nothing is locked.

    ``on_host``: how many leading blocks are mapped on the host. ``ready``: what all mapped pages wait for, a point a stream.
    """

    indices: Int32
    levels: Int8
    on_host: int
    ready: tuple[Point, ...]


class View(NamedTuple):
    """What a request shows in all groups of the tables; it never changes. ``shown``: by group of the tables.

    ``facts``: int64 ``[groups, 3]`` as bytes: the addresses of indices and levels, and how many leading blocks are on the host if
    that counts in this group. ``ready``: what all mapped pages wait for. Many views are looked at in a row by publications, and
    what is not in the processor's caches costs the more, the more objects it is: these two are all that one looks at.
    """

    shown: tuple[Shown, ...]
    facts: bytes
    ready: tuple[Point, ...]


def view_of(shown: Sequence[Shown], sparse: Sequence[bool]) -> View:
    """See ``View``. ``sparse``: of each group of the tables."""
    facts: list[int] = []
    ready: dict[Point, None] = {}
    for one, counts in zip(shown, sparse, strict=True):
        facts += (_address(one.indices), _address(one.levels), one.on_host if counts else 0)
        ready.update(dict.fromkeys(one.ready))
    return View(tuple(shown), struct.pack(f"{len(facts)}q", *facts), tuple(ready))


def _address(array: Any) -> int:
    # A third of the time of ``array.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.size else 0


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
        (on_host,) = struct.unpack_from("q", self.view.facts, 8 * (FACTS * place + COUNTABLE))
        return shown.indices[: self.length], shown.levels[: self.length], min(on_host, self.countable)


class Rows(NamedTuple):
    """What several rows show, a column for each part of ``RowWords``: rows are many, and objects are slow."""

    lengths: list[int]
    countable: list[int]
    views: list[View]


NOTHING = Shown(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8), 0, ())
"""What stands in a group of an empty row."""


def empty_view(groups: int) -> View:
    """What a row without a member shows in ``groups`` groups, with a length of 0."""
    return view_of((NOTHING,) * groups, (False,) * groups)
