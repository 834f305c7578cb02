"""The named breaks of batches and publications (section 8) that are no fences."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.requests.entries_tracker import UNCHANGED, EntriesTracker
from kvgpu.testing.patches import Break, instead, on
from kvgpu.upload.packing.packer import Packer


def _no_levels(shown: Any) -> Any:
    return shown._replace(levels=np.full_like(shown.levels, -1))


def _without_levels(old: Any) -> Any:
    def add(self: Any, numbers: Any, rows: Any, changes: Any) -> None:
        blank = [one._replace(groups=[_no_levels(shown) for shown in one.groups]) for one in rows.entries]
        old(self, numbers, rows._replace(entries=blank), changes)

    return add


def _member_is_believed(old: Any) -> Any:
    return lambda self, before: old(self, self._base)


def _not_held(old: Any) -> Any:
    return lambda self, number, indices, levels: (indices, levels)


def _reused_too_early(old: Any) -> Any:
    def show(self: Any, *args: Any) -> Any:
        shown = old(self, *args)
        self._oldest, self._earlier = self._earlier, None
        return shown

    return show


def _left_rows_forgotten(old: Any) -> Any:
    def show(self: Any, *args: Any) -> Any:
        shown = old(self, *args)
        self._elsewhere = None
        return shown

    return show


def _never_acknowledged(old: Any) -> Any:
    def upload(self: Any, stream: Any, rows: Any) -> None:
        before = [(member, member.acknowledged) for member in self._members if member is not None]
        old(self, stream, rows)
        for member, version in before:
            member.acknowledged = version

    return upload


def _first_row_published(old: Any) -> Any:
    return lambda self, stream, rows: old(self, stream, rows[:1])


def _last_free_row(old: Any) -> Any:
    def row_for(self: Any, request: Any, row: int | None) -> int:
        free = [number for number, member in enumerate(self._members) if member is None]
        return int(old(self, request, free[-1] if row is None and free else row))

    return row_for


def _members_alone(old: Any) -> Any:
    def dirty_rows(self: Any) -> Any:
        return tuple(row for row in old(self) if self._written[row] < 0 or self._members[row] is None)

    return dirty_rows


TABLE_GUARDS: tuple[Break, ...] = (
    ("R8.1 the levels are not written", "R8.1", on(Packer.add, _without_levels)),
    ("R8.2 the row of a closed member stays", "R8.2", on(Batch.member_closed, instead(None))),
    ("R8.2 the last free row is taken", "R8.2", on(Batch._row_for, _last_free_row)),
    (
        "R8.3 a newer version makes no row dirty",
        "R8.3",
        on(Batch._dirty_rows, _members_alone),
    ),
    ("R8.4 the first dirty row alone is published", "R8.4", on(Batch._upload, _first_row_published)),
    ("R8.4 a row is taken for what its member showed last", "R8.4", on(EntriesTracker.show, _member_is_believed)),
    ("R8.4 a moved page is not written again", "R8.4", on(EntriesTracker.blocks_changed, instead(None))),
    ("R8.4 a row whose request changed otherwise is not written again", "R8.4", on(EntriesTracker._compare, instead(UNCHANGED))),
    ("R8.6 entries are reused before others are published", "R8.6", on(EntriesTracker.show, _reused_too_early)),
    ("R8.4 published entries change with the request", "R8.4", on(EntriesTracker.to_change, _not_held)),
    ("R7.7 the entries of a row that its request has left are reused", "R7.7", on(EntriesTracker.show, _left_rows_forgotten)),
    ("R8.4 a publication acknowledges nothing", "R8.4", on(Batch._upload, _never_acknowledged)),
)
