"""What rows show of one request, now and before: so that a publication writes no more of a row than has changed (R8.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvgpu.requests.row_entries import FEW, ChangedBlocks, GroupEntries, RequestEntries, group_entries, request_entries
from kvgpu.runs import Int8, Int32
from kvgpu.storage.fences import Point

NONE = np.empty(0, dtype=np.int32)
UNCHANGED = ChangedBlocks(NONE, NONE)


class EntriesTracker:
    """The entries of one request, by number of the table, and what has changed since a row showed them.

    ``_current``: what is up to date; ``_now``: all of it, if nothing is missing. ``_base``: what was shown last, whose arrays
    must not change; ``_since``: how each group differs from that, ``None`` if it is not known. ``_earlier``: what was shown
    before that; a row still shows it if its publication failed. ``_oldest``: what was shown earlier still. No row shows it any
    more, and its arrays are used again: new memory would have to be mapped page by page. ``_elsewhere``: what a row shows that
    the request has left, maybe for ever; its arrays are never used again.
    """

    __slots__ = ("_base", "_current", "_earlier", "_elsewhere", "_now", "_oldest", "_since", "_sparse", "_unchanged", "_unknown")

    def __init__(self, sparse: Sequence[bool]) -> None:
        """Nothing is shown. ``sparse``: of each group, whether its blocks on the host count."""
        self._sparse = tuple(sparse)
        self._unknown, self._unchanged = (None,) * len(self._sparse), (UNCHANGED,) * len(self._sparse)
        self._current: list[GroupEntries | None] = [None] * len(self._sparse)
        self._since: list[ChangedBlocks | None] = [None] * len(self._sparse)
        self._now = None if self._sparse else request_entries(())
        self._base: RequestEntries | None = None
        self._earlier: RequestEntries | None = None
        self._oldest: RequestEntries | None = None
        self._elsewhere: RequestEntries | None = None

    # ---- what the blocks of a group say -----------------------------------------------------------------------------

    def forget(self, number: int) -> None:
        """What the group shows must be put anew."""
        self._current[number] = self._now = None

    def put(self, number: int, indices: Int32, levels: Int8, on_host: int, ready: tuple[Point, ...]) -> None:
        """What the group shows now (see ``GroupEntries``; ``on_host``: of its leading blocks).

        Done early: a publication of many rows has no time.
        """
        like = None if self._oldest is None else self._oldest.groups[number]
        self._current[number] = group_entries(indices, levels, on_host if self._sparse[number] else 0, ready, like)
        every = [one for one in self._current if one is not None]
        if len(every) == len(self._current):
            self._now = request_entries(every)

    def blocks_changed(self, number: int, changed: ChangedBlocks, columns: int) -> None:
        """Some of the ``columns`` blocks of the group differ from what they were."""
        since = self._since[number]
        if since is None or since is UNCHANGED:
            self._since[number] = None if since is None else changed
        else:
            # Where much has changed all is written; and of a request that is published no more this must not grow for ever.
            blocks = np.concatenate([since.blocks, changed.blocks])
            self._since[number] = ChangedBlocks(blocks, None) if FEW * len(blocks) <= columns else None

    def made_anew(self, number: int, indices: Int32, levels: Int8) -> None:
        """The group has new arrays, which may differ from what they were anywhere."""
        self._since[number] = self._compare(number, indices, levels)

    def _compare(self, number: int, indices: Int32, levels: Int8) -> ChangedBlocks | None:
        if self._base is None:
            return None
        base = self._base.groups[number]
        if len(base.indices) != len(indices):
            return None
        differ = np.flatnonzero((base.indices != indices) | (base.levels != levels)).astype(np.int32)
        return ChangedBlocks(differ, None)

    def to_change(self, number: int, indices: Int32, levels: Int8) -> tuple[Int32, Int8]:
        """The group's arrays, or, where a row shows them, others with the same in them."""
        base = self._base
        if base is None or base.groups[number].indices is not indices:
            return indices, levels
        spare = None if self._oldest is None else self._oldest.groups[number]
        if spare is None or len(spare.indices) != len(indices) or not self._free(spare.indices, number):
            return indices.copy(), levels.copy()
        np.copyto(spare.indices, indices)
        np.copyto(spare.levels, levels)
        return spare.indices, spare.levels

    def _free(self, indices: Int32, number: int) -> bool:
        """Whether no row may show these arrays: those that nothing changed are in several generations."""
        kept = (self._base, self._earlier, self._elsewhere)
        return not any(entries is not None and entries.groups[number].indices is indices for entries in kept)

    # ---- what a publication asks ------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether ``show`` may be called: ``missing`` is empty."""
        return self._now is not None

    def missing(self) -> Sequence[int]:
        """The groups that have to be put before ``show``."""
        return [number for number, current in enumerate(self._current) if current is None]

    def show(self, before: RequestEntries | None) -> tuple[RequestEntries, Sequence[ChangedBlocks | None]]:
        """What there is now, for a row that shows ``before``, and how each group differs from that; ``None`` if it is not known.

        The row shows either of the two from now on, and nothing of before that.
        """
        now, base = self._now, self._base
        assert now is not None
        if base is None or base is not before:
            changes: Sequence[ChangedBlocks | None] = self._unknown
            self._elsewhere, self._earlier, self._oldest = base, None, None
        else:
            changes = self._since
            if now is not base:
                self._oldest, self._earlier = self._earlier, base
        self._base, self._since = now, [*self._unchanged]
        return now, changes
