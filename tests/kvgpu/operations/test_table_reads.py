"""Reads of tables are kept by what the tables name; that comes to the same as noting each of them at every slot (R7.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from kvgpu.batch.batch import Batch
from kvgpu.manager import Manager
from kvgpu.operations.table_reads import NOT_NAMED, TableReads
from kvgpu.requests.request import Request
from kvgpu.storage.pools import SlotPool
from kvspec.config import Ownership
from tests.kvgpu.operations.calls import CONFIG, Calls


def named(reads: Any, batch: Batch) -> Any:
    """How many entries of the tables name each slot, counted from what the rows last published."""
    counts = np.zeros(len(reads._entries), dtype=np.int32)
    for row in range(batch.rows):
        if (shown := batch.row_entries(row)) is None:
            continue
        for table, group in enumerate(batch.groups):
            slots, levels, _ = shown.group(table)
            for level, number in enumerate(reads._core.layout.groups[group].pool_groups):
                np.add.at(counts, reads._starts[level, number] + slots[levels == level], 1)
    return counts


def has_named(reads: Any, request: Request, counts: Any) -> bool:
    core = reads._core
    pages = np.concatenate([request.locked_pages(group) for group in range(request.group_count)])
    return any(counts[reads._starts[core.key_of(page)] + core.pages.slot[page]] for page in pages.tolist())


class Noted:
    """Every read noted at once at every slot that it concerns, by pool and slot: for each stream the latest."""

    def __init__(self) -> None:
        self.at: dict[tuple[SlotPool, int], dict[str, int]] = {}
        self.settling = 0
        self.records = self.again = 0

    def add(self, pool: SlotPool, slots: Sequence[int], key: str, number: int) -> None:
        for slot in slots:
            here = self.at.setdefault((pool, slot), {})
            here[key] = max(number, here.get(key, 0))

    def check(self, manager: Manager) -> None:
        for level in manager._core.pools:
            for pool in level:
                seen = pool.readers_seen(np.arange(pool.spec.slots, dtype=np.int32)).tolist()
                found = [{point.key: point.number for point in manager.fences[number].points} for number in seen]
                assert found == [self.at.get((pool, slot), {}) for slot in range(pool.spec.slots)]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noted]:
    kept = Noted()
    record, settle = TableReads.record, TableReads.settle
    note_reads, set_readers = SlotPool.note_reads, SlotPool.set_readers

    def recording(self: TableReads, reads: Any, batch: Any) -> None:
        counts = named(self, batch)
        assert (self._entries == counts).all()
        assert ((self._first != NOT_NAMED) == (counts > 0)).all()
        for pool in self._pools:
            here = counts[self._starts[pool.key] : self._starts[pool.key] + pool.spec.slots]
            kept.add(pool, np.flatnonzero(here).tolist(), reads.key, reads.number)
        record(self, reads, batch)
        others = [one for one in self._core.by_uid.values() if one.active and one.batch is not batch]
        expected = [one for one in others if has_named(self, one, counts)]
        assert self._strangers(batch) == expected
        kept.records += 1
        kept.again += self._count > 2 and bool(counts.any())

    def settling(self: TableReads, pool: SlotPool, slots: Any) -> bool:
        kept.settling += 1
        try:
            return settle(self, pool, slots)
        finally:
            kept.settling -= 1

    def noting(self: SlotPool, slots: Any, reads: Any) -> None:
        points = list(reads)
        note_reads(self, slots, points)
        if not kept.settling:
            for point in points:
                kept.add(self, slots.tolist(), point.key, point.number)

    def setting(self: SlotPool, slots: Any, fences: Any) -> None:
        set_readers(self, slots, fences)
        for slot, number in zip(slots.tolist(), np.broadcast_to(fences, slots.shape).tolist(), strict=True):
            kept.at[self, slot] = {point.key: point.number for point in self._fences[number].points}

    for owner, name, new in (
        (TableReads, "record", recording),
        (TableReads, "settle", settling),
        (SlotPool, "note_reads", noting),
        (SlotPool, "set_readers", setting),
    ):
        monkeypatch.setattr(owner, name, new)
    yield kept


@pytest.mark.parametrize("ownership", Ownership)
@pytest.mark.parametrize("seed", range(6))
def test_lazily_noted_reads_are_those_that_were_recorded(seed: int, ownership: Ownership, noted: Noted) -> None:
    calls = Calls(seed, CONFIG.model_copy(update={"ownership": ownership}))
    calls.run(lambda: noted.check(calls.manager))
    assert noted.records >= 30
    assert noted.again >= 5
