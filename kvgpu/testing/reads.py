"""The named breaks of recorded reads of tables (R7.7): which slots they concern, from when, and until when."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgpu.operations.table_reads import NOT_NAMED, TableReads
from kvgpu.storage.fences import Fence, FenceTable
from kvgpu.storage.pools import SlotPool
from kvgpu.testing.patches import Break, during, instead, on


def _first_row_only(old: Any) -> Any:
    return lambda self, before, now, changes: old(self, before[:1], now[:1], changes[: len(self._bases)])


def _not_before_the_first(old: Any) -> Any:
    return lambda self, *published: old(self, *published) if self._count else None


def _not_after_the_first(old: Any) -> Any:
    return lambda self, *published: None if self._count else old(self, *published)


def _unknown_is_unchanged(old: Any) -> Any:
    def published(self: Any, before: Any, now: Any, changes: Any) -> None:
        old(self, before, now, changes if not self._count else [(moved or NO_CHANGE) for moved in changes])

    return published


class _NoChange:
    blocks = np.empty(0, dtype=np.int32)


NO_CHANGE = _NoChange()


def _one_entry_each(old: Any) -> Any:
    def published(self: Any, *args: Any) -> None:
        old(self, *args)
        np.minimum(self._entries, 1, out=self._entries)

    return published


def _from_the_beginning(old: Any) -> Any:
    def published(self: Any, *args: Any) -> None:
        named = self._first != NOT_NAMED
        old(self, *args)
        self._first[(self._first != NOT_NAMED) & ~named] = 1

    return published


def _last_stream_alone(old: Any) -> Any:
    def record(self: Any, *args: Any) -> None:
        self._latest.clear()
        old(self, *args)

    return record


def _first_pool_alone(old: Any) -> Any:
    return lambda self, pool, slots: pool is self._pools[0] and old(self, pool, slots)


def _slots_of_the_first_pool(old: Any) -> Any:
    def settle(self: Any, pool: Any, slots: Any) -> Any:
        starts, self._starts = self._starts, dict.fromkeys(self._starts, 0)
        try:
            return old(self, pool, slots)
        finally:
            self._starts = starts

    return settle


def _locked_pages_alone(old: Any) -> Any:
    def record(self: Any, *args: Any) -> None:
        skipped = []
        for pool in self._pools:
            slots = np.flatnonzero(pool.page >= 0).astype(np.int32)
            slots = slots[self._core.pages.locks[pool.page[slots]] == 0]
            self.settle(pool, slots)
            skipped.append(slots + self._starts[pool.key])
        old(self, *args)
        at = np.concatenate(skipped)
        self._first[at[self._first[at] != NOT_NAMED]] = self._count + 1

    return record


def _asked_once(old: Any) -> Any:
    def strangers(self: Any, members: Any) -> Any:
        for uid, (_, named) in self._owners.items():
            if uid in self._core.by_uid:
                self._owners[uid] = (self._core.by_uid[uid].version, named)
        return old(self, members)

    return strangers


def _first_batch_alone(old: Any) -> Any:
    def settle(self: Any, slots: Any) -> Any:
        every, self.table_reads = self.table_reads, self.table_reads[:1]
        try:
            return old(self, slots)
        finally:
            self.table_reads = every

    return settle


def _last_batch_alone(old: Any) -> Any:
    def settle(self: Any, slots: Any) -> Any:
        every, self.table_reads = self.table_reads, self.table_reads[-1:]
        try:
            return old(self, slots)
        finally:
            self.table_reads = every

    return settle


class _AnyStream:
    """Up to which point the work of a stream has run: of whatever stream."""

    def __init__(self, run: dict[str, int]) -> None:
        self._run = run

    def get(self, key: str, default: int) -> int:
        return max(self._run.values(), default=default)

    def __setitem__(self, key: str, number: int) -> None:
        self._run[key] = number


def _across_streams(old: Any) -> Any:
    return lambda self, run=None, held=None: old(self, None if run is None else _AnyStream(run), held)


READS: tuple[Break, ...] = (
    ("R7.7 only the first row's slots are read", "R7.7", on(TableReads.published, _first_row_only)),
    ("R7.7 readers of a page are forgotten while its owner is suspended", "R7.7", on(TableReads.record, _locked_pages_alone)),
    ("R7.7 reads of tables are noted at no slot", "R7.7", on(TableReads.settle, instead(False))),
    ("R7.7 reads of tables are noted in the first pool alone", "R7.7", on(TableReads.settle, _first_pool_alone)),
    ("R7.7 reads of tables are looked up by a slot of another pool", "R7.7", on(TableReads.settle, _slots_of_the_first_pool)),
    ("R7.7 of the reads of tables the last stream's are kept", "R7.7", on(TableReads.record, _last_stream_alone)),
    ("R7.7 the first read finds nothing published", "R7.7", on(TableReads.published, _not_before_the_first)),
    ("R7.7 reads of tables concern what they named at the first", "R7.7", on(TableReads.published, _not_after_the_first)),
    ("R7.7 reads concern slots that the tables name later", "R7.7", on(TableReads.published, _from_the_beginning)),
    ("R7.7 a row that changed anywhere names what it did", "R7.7", on(TableReads.published, _unknown_is_unchanged)),
    ("R7.7 a slot in two rows is forgotten when one names it no more", "R7.7", on(TableReads.published, _one_entry_each)),
    (
        "R7.7 a slot that the tables name no more loses its reads",
        "R7.7",
        during(TableReads.published, TableReads.settle, instead(False)),
    ),
    ("R7.7 the slots of a closed batch lose their reads", "R7.7", during(TableReads.close, TableReads.settle, instead(False))),
    ("R7.7 reads of the first batch alone are noted", "R7.7", on(SlotPool._settle, _first_batch_alone)),
    ("R7.7 reads of the last batch alone are noted", "R7.7", on(SlotPool._settle, _last_batch_alone)),
    ("R7.7 an owner is asked once whether tables name its slots", "R7.7", on(TableReads._strangers, _asked_once)),
    ("R7.7 an owner is not asked again when tables change", "R7.7", on(TableReads._ask_again, instead(None))),
    (
        "R7.2 a slot is taken as if no table had been read",
        "R7.2",
        during(SlotPool._have_passed, SlotPool._settle, instead(False)),
    ),
    (
        "R7.2 reads of tables that have run keep a slot behind",
        "R7.2",
        during(SlotPool._have_passed, FenceTable.refresh, instead(None)),
    ),
    ("R7.2 work of one stream is taken to have run with that of another", "R7.2", on(Fence.passed, _across_streams)),
)
