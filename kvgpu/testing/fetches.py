"""The named breaks of fetches: what is reserved, hit, evicted, copied and counted (section 15)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.fetch import kernel
from kvgpu.fetch.caches import GroupCaches
from kvgpu.fetch.rows import FetchRows
from kvgpu.operations import commit, growth, lifecycle, plain_step
from kvgpu.operations.fetching import Fetches
from kvgpu.operations.inside import Inside
from kvgpu.operations.journal import Journal
from kvgpu.operations.reserving import give_back, lacking
from kvgpu.operations.table_reads import TableReads
from kvgpu.storage.fences import EMPTY
from kvgpu.testing.patches import Break, during, instead, on, within


def _no_readers(old: Any) -> Any:
    def take_over_readers(self: Any, pool: Any, slots: Any) -> Any:
        old(self, pool, slots)
        return np.full(len(slots), EMPTY, dtype=np.int32)

    return take_over_readers


def _forgetful(old: Any) -> Any:
    def give_back(*args: Any) -> None:
        with on(Journal.take_over_readers, _no_readers)():
            old(*args)

    return give_back


def _members(old: Any) -> Any:
    return lambda self: list(self._published_members)


def _half(old: Any) -> Any:
    return lambda core, request, history: {group: count - (count > 1) for group, count in old(core, request, history).items()}


def _counted_as_others(old: Any) -> Any:
    return lambda self, since_reset: {**old(self, since_reset), "fetch_bytes": 0}


def _never_reset(old: Any) -> Any:
    return lambda self: None


def _blind(at: int) -> Any:
    """Of what decides the order of a fetch, one thing is not looked at."""

    def without(old: Any) -> Any:
        def state(*args: Any) -> Any:
            found = list(old(*args))
            found[at] = 0
            return tuple(found)

        return state

    return without


FETCHES: tuple[Break, ...] = (
    ("a decode entry reserves nothing", "R15.2", within(growth, lacking, instead({}))),
    ("a resume in decode reserves nothing", "R15.2", within(lifecycle, lacking, instead({}))),
    ("the plain decode step reserves nothing", "R15.2", within(plain_step, lacking, instead({}))),
    ("a slot too few is reserved", "R15.2", within(growth, lacking, _half)),
    ("what is reserved is kept for good", "R15.2", within(commit, give_back, instead(None))),
    (
        "reserved slots are given back without the reads recorded on them",
        "R15.2",
        within(commit, give_back, _forgetful),
    ),
    ("record_read does not cover what was fetched", "R15.7", on(Inside.note_fetched_reads, instead(None))),
    ("a fetch holds up no later use of host slots", "R15.7", during(Batch.run_fetch, TableReads.note, instead(None))),
    ("a fetch on another stream is taken for ordered", "R15.7", on(Fetches._state, _blind(0))),
    ("a fetch after a publication is taken for ordered", "R15.7", on(Fetches._state, _blind(1))),
    ("a fetch of rows with newer versions is taken for ordered", "R15.8", on(Fetches._state, _blind(2))),
    ("a fetch after recorded reads is taken for ordered", "R15.7", on(Fetches._state, _blind(3))),
    ("rows that are not as published are served", "R15.8", on(Batch.served, _members)),
    ("the device is not told which rows are served", "R15.8", on(FetchRows.refresh, instead(None))),
    (
        "a block at the count is fetched",
        "R15.4",
        on(kernel.named, lambda old: lambda selected, countable: old(selected, countable + (countable > 0))),
    ),
    (
        "the most recent block is evicted",
        "R15.4",
        on(kernel.placed, lambda old: lambda others, free, misses: old(others[::-1], free, misses)),
    ),
    (
        "a block is evicted though an entry is free",
        "R15.4",
        on(kernel.placed, lambda old: lambda others, free, misses: old(others, free[1:] if others else free, misses)),
    ),
    (
        "misses are more recent than hits",
        "R15.5",
        on(kernel.recent, lambda old: lambda hits, misses, others: old(misses, hits, others)),
    ),
    (
        "hits stay where they were in the order",
        "R15.5",
        on(kernel.recent, lambda old: lambda hits, misses, others: old([], misses, [*hits, *others])),
    ),
    ("the bytes of fetches are not counted", "R15.10", on(GroupCaches.counts, _counted_as_others)),
    ("a reset leaves the counters of fetches", "R15.10", on(GroupCaches.reset, _never_reset)),
    (
        "a unit is taken from the beginning of its page",
        "R15.11",
        on(kernel.unit_start, instead(0)),
    ),
)
