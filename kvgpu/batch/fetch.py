"""Fetches of a batch: static arrays for the selection and for what comes of it, and one launch a call (R15.4, R15.8)."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from kvgpu.batch.tables import Tables
from kvgpu.device.api import Access, Arguments, Memory, Stream
from kvgpu.fetch.kernel import THREADS
from kvgpu.operations.fetching import Fetches
from kvgpu.requests.request import Request
from kvgpu.requests.row_entries import RowEntries
from kvgpu.runs import Int32

_numbers = itertools.count()


class FetchingBatch(Protocol):
    """What a fetch knows of the batch that it is of. A batch implements it."""

    name: str
    rows: int
    groups: tuple[int, ...]
    tables: Tables

    def row_entries(self, row: int) -> RowEntries | None:
        """What a row shows."""
        ...

    def run_fetch(self, fetch: Fetch, stream: Stream) -> None:
        """See ``Fetch.run``."""
        ...

    def replaying(self, stream: Stream, fetches: Sequence[Fetch]) -> AbstractContextManager[None]:
        """Frames the replay of a graph with fetches in it."""
        ...

    def served(self) -> Sequence[Request | None]:
        """By row, whom a fetch serves."""
        ...

    def published_members(self) -> Sequence[Request | None]:
        """Who was in each row when it was last published."""
        ...


class Fetch:
    """The fetch of one layer for all rows of a batch. Its arrays stay where they are on the device, so it may be captured.

    ``selected``: int32 ``[rows, selects]``, to be written by whoever selects: numbers of blocks, or of units (R15.11), -1 for
    none. ``result``: int32 ``[2, rows, selects]``: the entries, raw GPU slots (times the units of a page, plus the position), -1
    for none; then what came of each number: 1 a hit, 2 a miss, 0 neither. ``nbytes`` of one of these arrays.
    """

    def __init__(self, batch: FetchingBatch, fetches: Fetches, layer: str) -> None:
        """Allocate the arrays. ``DeviceError`` if there is not enough memory."""
        self._batch, self._fetches = batch, fetches
        self._tables, self._storage = batch.tables, batch.tables.storage
        self._device = self._storage.device
        self._number = next(_numbers)
        self.layer = layer
        self.selects = fetches.group.selected
        self.nbytes = 4 * batch.rows * self.selects
        self.selected: Memory = self._device.allocate("device", self.nbytes, f"selection of {layer} ({self._number})")
        self.result: Memory = self._device.allocate("device", 2 * self.nbytes, f"fetched of {layer} ({self._number})")
        weakref.finalize(self, _give_back, self.selected, self.result)
        self._args = self._arguments()

    @property
    def fetches(self) -> Fetches:
        """Those of the batch in the layer's group."""
        return self._fetches

    @property
    def batch(self) -> FetchingBatch:
        """The batch that it fetches for."""
        return self._batch

    def run(self, stream: Stream) -> None:
        """Fetch what is selected, on ``stream``: what it wrote can be read there afterwards (R15.4, R15.7).

        Whatever writes ``selected`` comes before it on ``stream``. On a stream that the manager has in capture it becomes part of
        the graph, and happens at each replay, which ``Batch.replaying`` frames (R15.8).

        Raises ``LogicError`` (closed, anything unpublished, a capture on another stream).
        """
        self._batch.run_fetch(self, stream)

    def launch(self, stream: Stream) -> None:
        """Submit the kernel; the caller has seen to the order."""
        caches, rows = self._fetches.caches, self._tables.layout.rows
        self._device.launch(stream, caches.kernel, rows, THREADS, self._args, self._accesses, "R15.4 fetch")

    def _arguments(self) -> Arguments:
        batch, caches, layout = self._batch, self._fetches.caches, self._tables.layout
        number = batch.groups.index(caches.group.number)
        host, gpu = self._fetches.memories
        numbers = (
            layout.rows,
            self.selects,
            self._fetches.rows.width,
            caches.group.units,
            layout.blocks,
            number * layout.rows * layout.blocks,
            layout.counts_offset // 4 + number * layout.rows,
            caches.plane,
            len(caches.layers),
            caches.layers.index(self.layer),
            caches.per_layer,
        )
        rows = self._fetches.rows.memory
        memories = (host, gpu, self._storage.memory, rows, caches.state, self.selected, self.result)
        return Arguments((*memories, caches.counters, caches.segments, *numbers))

    def _accesses(self) -> Sequence[Access]:
        return (
            *self._tables.read_accesses(),
            *self._fetches.accesses(self._host_slots()),
            Access(self.resource("selected"), write=False),
            Access(self.resource("fetched"), write=True),
        )

    def resource(self, what: str) -> tuple[str, int]:
        """How the ordering check names ``selected`` and ``fetched``."""
        return (what, self._number)

    def _host_slots(self) -> Iterator[Int32]:
        number = self._batch.groups.index(self._fetches.group.number)
        for row, held in enumerate(self._fetches.served):
            entries = self._batch.row_entries(row)
            if held is not None and entries is not None:
                slots, _, count = entries.group(number)
                yield np.asarray(slots[:count], dtype=np.int32)


def _give_back(*memories: Memory) -> None:
    for memory in memories:
        memory.free()
