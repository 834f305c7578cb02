"""Device reads of users: of pages and of tables, and graphs of table reads (R7.7, R8.7, R8.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kvgpu.batch.batch import Batch
from kvgpu.batch.export import ExportedArray
from kvgpu.batch.fetch import Fetch
from kvgpu.device import api
from kvgpu.device.api import Access, Device, Event, Memory, Position, Stream
from kvgpu.errors import LogicError

Rows = tuple[tuple[int, ...], ...]


class PageBytes(Protocol):
    """The result of a page read, once it has run."""

    def payload(self) -> bytes:
        """The bytes of the page, pools in the order of R1.6."""
        ...


@dataclass(frozen=True, slots=True)
class TableResult:
    """Where a table read puts what it reads: pinned memory of its own."""

    memory: Memory
    shape: tuple[int, ...]
    number: int

    @property
    def resource(self) -> tuple[str, int]:
        """How the ordering check names the memory."""
        return ("read", self.number)

    def entries(self) -> Rows:
        """The rows, once the read has run."""
        array = self.memory.host_array()[: 4 * self.shape[0] * self.shape[1]].view(np.int32).reshape(self.shape)
        return tuple(tuple(row) for row in array.tolist())


@dataclass(frozen=True, slots=True)
class Read:
    """A labelled read. ``position``: where it stood when it was submitted."""

    position: Position
    page: PageBytes | None = None
    table: TableResult | None = None


@dataclass(slots=True)
class CapturedRead:
    """A table read inside a graph. Each replay copies its result away, so replays of one graph follow each other."""

    batch: Batch
    table: ExportedArray
    result: TableResult
    copied: Event | None = None


@dataclass(slots=True)
class Graph:
    """A captured graph and the table reads in it, in order; the fetches, with their labels."""

    graph: api.Graph
    number: int
    reads: list[CapturedRead] = field(default_factory=list)
    fetches: list[tuple[str, Fetch]] = field(default_factory=list)


class Reader:
    """Makes table reads, directly and in graphs."""

    def __init__(self, device: Device) -> None:
        """Nothing read yet."""
        self._device = device
        self._made = 0
        self._capturing: list[CapturedRead] = []

    def read_table(self, batch: Batch, group: int, stream: Stream, capturing: bool) -> Read | None:
        """Read a page table through its exported array.

        In a capture on ``stream`` the read becomes part of the graph, and gives nothing until a replay (R8.8).
        """
        table = batch.page_table(group)
        table.check()
        # A captured result is copied on by the replay, and a GPU would copy from host to host at once, behind no stream.
        result = self._result(table, "device" if capturing else "pinned")
        if capturing:
            self._capturing.append(CapturedRead(batch, table, result))
        else:
            table.order(stream)
        self._device.upload(
            stream,
            table.memory,
            table.offset,
            result.memory,
            0,
            table.nbytes,
            lambda: (Access(result.resource, write=True), *batch.tables.read_accesses()),
            "read_table: a user's read of a page table",
        )
        return None if capturing else Read(self._device.position(stream), table=result)

    def end_capture(self, graph: api.Graph) -> Graph:
        """The graph that was captured, with the reads in it."""
        reads, self._capturing = self._capturing, []
        self._made += 1
        return Graph(graph, self._made, reads)

    def replay(self, graph: Graph, stream: Stream, launch: Callable[[], None]) -> Read:
        """Submit a replay: its reads see what was last published (R8.8). The result is that of its last table read.

        ``launch``: submits the graph.
        """
        for read in graph.reads:
            self._device.wait(stream, read.batch.tables.upload, "R8.8 replay: the last publication of a table it reads")
            if read.copied is not None:
                self._device.wait(stream, read.copied, "R8.8 replay: the result of the replay before has been copied")
        launch()
        if not graph.reads:
            return Read(self._device.position(stream))
        last = graph.reads[-1]
        kept = self._result(last.table, "pinned")
        self._device.upload(
            stream,
            last.result.memory,
            0,
            kept.memory,
            0,
            last.table.nbytes,
            lambda: (Access(last.result.resource, write=False), Access(kept.resource, write=True)),
            "replay: its result is kept",
        )
        last.copied = self._device.record(stream, "R8.8 replay: its result has been copied")
        return Read(self._device.position(stream), table=kept)

    def _result(self, table: ExportedArray, kind: str) -> TableResult:
        if len(table.shape) != 2:
            raise LogicError(f"a table of shape {table.shape} is no page table")
        self._made += 1
        memory = self._device.allocate(kind, table.nbytes, f"table read {self._made}")
        return TableResult(memory, table.shape, self._made)
