"""What rows of batches show of one request, in generations: so that a row is written by what differs from it (R8.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.requests.row_words import FEW, Moved, Shown, View, shown_of, view_of
from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Point

NONE = np.empty(0, dtype=np.int32)
UNMOVED = Moved(NONE, NONE)


class Display:
    """Of one request, by group of the tables.

    ``_shown``: what is up to date; ``_now``: all of it, if nothing is missing. ``_base``: what was shown last, whose arrays must
    not change; ``_since``: how each group differs from that, ``None`` if it is not known. ``_earlier``: what was shown before; a
    row still shows it if its publication failed. ``_oldest``: what was shown before that. No row shows it any more, and its
    arrays are used again: new memory would have to be mapped page by page. ``_elsewhere``: what a row shows that the request has
    left, maybe for ever; its arrays are never used again.
    """

    __slots__ = ("_base", "_earlier", "_elsewhere", "_now", "_oldest", "_shown", "_since", "_sparse", "_unknown", "_unmoved")

    def __init__(self, sparse: Sequence[bool]) -> None:
        """Nothing is shown. ``sparse``: of each group, whether its blocks on the host count."""
        self._sparse = tuple(sparse)
        self._unknown, self._unmoved = (None,) * len(self._sparse), (UNMOVED,) * len(self._sparse)
        self._shown: list[Shown | None] = [None] * len(self._sparse)
        self._since: list[Moved | None] = [None] * len(self._sparse)
        self._now = None if self._sparse else view_of(())
        self._base: View | None = None
        self._earlier: View | None = None
        self._oldest: View | None = None
        self._elsewhere: View | None = None

    # ---- what the blocks of a group tell ----------------------------------------------------------------------------

    def forget(self, place: int) -> None:
        """What the group shows must be put anew."""
        self._shown[place] = self._now = None

    def put(self, place: int, indices: Int32, levels: Int8, on_host: int, ready: tuple[Point, ...]) -> None:
        """What the group shows now (see ``Shown``; ``on_host``: of its leading blocks).

        Done early: a publication of many rows has no time.
        """
        self._shown[place] = shown_of(indices, levels, on_host if self._sparse[place] else 0, ready)
        every = [one for one in self._shown if one is not None]
        if len(every) == len(self._shown):
            self._now = view_of(every)

    def moved(self, place: int, moved: Moved, room: int) -> None:
        """Some of the ``room`` blocks of the group differ from what they were."""
        since = self._since[place]
        if since is None or since is UNMOVED:
            self._since[place] = None if since is None else moved
        else:
            # Where much has changed all is written; and of a request that is published no more this must not grow for ever.
            blocks = np.concatenate([since.blocks, moved.blocks])
            self._since[place] = Moved(blocks, None) if FEW * len(blocks) <= room else None

    def made_anew(self, place: int, indices: Int32, levels: Int8) -> None:
        """The group has new arrays, which may differ from what they were anywhere."""
        self._since[place] = self._compare(place, indices, levels)

    def _compare(self, place: int, indices: Int32, levels: Int8) -> Moved | None:
        if self._base is None:
            return None
        base = self._base.shown[place]
        if len(base.indices) != len(indices):
            return None
        differ = np.flatnonzero((base.indices != indices) | (base.levels != levels)).astype(np.int32)
        return Moved(differ, None)

    def to_change(self, place: int, indices: Int32, levels: Int8) -> tuple[Int32, Int8]:
        """The group's arrays, or, where a row shows them, others with the same in them."""
        base = self._base
        if base is None or base.shown[place].indices is not indices:
            return indices, levels
        spare = None if self._oldest is None else self._oldest.shown[place]
        if spare is None or len(spare.indices) != len(indices) or not self._free(spare.indices, place):
            return indices.copy(), levels.copy()
        np.copyto(spare.indices, indices)
        np.copyto(spare.levels, levels)
        return spare.indices, spare.levels

    def _free(self, indices: Int32, place: int) -> bool:
        """Whether no row may show these arrays: those that nothing changed are in several generations."""
        shown = (self._base, self._earlier, self._elsewhere)
        return not any(view is not None and view.shown[place].indices is indices for view in shown)

    # ---- what a publication asks ------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether ``show`` may be called: ``missing`` is empty."""
        return self._now is not None

    def missing(self) -> Sequence[int]:
        """The groups that have to be put before ``show``."""
        return [place for place, shown in enumerate(self._shown) if shown is None]

    def show(self, before: View | None) -> tuple[View, Sequence[Moved | None]]:
        """What there is now, for a row that shows ``before``, and how each group differs from that; ``None`` if it is not known.

        The row shows either of the two from now on, and nothing of before that.
        """
        now, base = self._now, self._base
        assert now is not None
        if base is None or base is not before:
            changes: Sequence[Moved | None] = self._unknown
            self._elsewhere, self._earlier, self._oldest = base, None, None
        else:
            changes = self._since
            if now is not base:
                self._oldest, self._earlier = self._earlier, base
        self._base, self._since = now, [*self._unmoved]
        return now, changes
