"""A consumer of published tables: attention over history on the GPU and on the host, found through the tables alone.

It shows that what is published is enough: the launch gets the memory of the tables and of the two pools, and no slot, length of
a table or level from the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Access, Graph, Memory, Stream
from kvgpu.errors import InvalidArgument
from kvgpu.manager import Manager
from kvgpu.serving.consumer_kernels import ATTEND, LANES, MAX_DIM
from kvgpu.serving.executor import Turn

Float32 = npt.NDArray[np.float32]
WORD = 4

_numbers = itertools.count()


class SparseAttention:
    """Attention of one query for each row of a batch over the row's history, in one sparse layer.

    The layer has a buffer of keys and one of values, float32 ``[tokens_per_block, dim]`` each. ``key_dim``, ``value_dim``: what
    their sizes give.
    """

    def __init__(self, manager: Manager, batch: Batch, layer: str, keys: str = "key", values: str = "value") -> None:
        """``keys``, ``values``: the roles of the buffers.

        Raises ``OutOfRange`` for a buffer that is not there, ``InvalidArgument`` for a layer that is not sparse, a batch without
        ``page_level``, and for sizes that are no vectors of float32 of at most ``MAX_DIM`` values.
        """
        self._manager, self._batch, self._device = manager, batch, manager.device
        layout = manager.layout
        group, key_buffer = layout.buffer(layer, keys)
        _, value_buffer = layout.buffer(layer, values)
        if not group.sparse:
            raise InvalidArgument(f"layer {layer!r} is not sparse: its history never leaves the GPU, use dense offsets (R11.3)")
        if not batch.levels:
            raise InvalidArgument(
                f"batch {batch.name!r} has no page_level, without which a gap cannot be read: levels=True (R8.5)"
            )
        dims = []
        for buffer in (key_buffer, value_buffer):
            dim, rest = divmod(buffer.nbytes, WORD * layout.tokens_per_block)
            if rest or not 0 < dim <= MAX_DIM:
                raise InvalidArgument(
                    f"buffer {layer}.{buffer.role} of {buffer.nbytes} bytes is no float32 "
                    f"[{layout.tokens_per_block}, 1 to {MAX_DIM}]"
                )
            dims.append(dim)
        self.key_dim, self.value_dim = dims
        self._group = group.number
        self._table_number = batch.groups.index(group.number)
        self._uid = next(_numbers)
        rows = batch.rows
        self._queries = self._memory("queries", rows * self.key_dim)
        self._lengths = self._memory("lengths", rows)
        self._output = self._memory("output", rows * self.value_dim)
        self._pools = tuple(manager.pool_memory(level, group.pool_groups[level]) for level in (0, 1))
        spots = [part // WORD for level in (0, 1) for role in (keys, values) for part in layout.spot(layer, role, level)]
        tables, cells = batch.tables.layout, rows * batch.blocks
        self._numbers = (
            rows,
            batch.blocks,
            layout.tokens_per_block,
            self.key_dim,
            self.value_dim,
            self._table_number * cells,
            tables.counts_offset // WORD + self._table_number * rows,
            tables.levels_offset + self._table_number * cells,
            *spots,
        )
        self._graph: Graph | None = None
        self._device.prepare(ATTEND, [True] * 6 + [False] * len(self._numbers))

    def set_inputs(self, queries: Float32, lengths: Sequence[int]) -> None:
        """What the next launch or replay reads: float32 ``[rows, key_dim]``, and the tokens of history of each row.

        The one before must have run: ``Device.sync`` first.
        """
        self._device.host_access(self._inputs_written, "the CPU sets the inputs of the consumer")
        self._queries.host_array().view(np.float32)[: queries.size] = queries.reshape(-1)
        self._lengths.host_array().view(np.int32)[: len(lengths)] = lengths

    def result(self) -> Float32:
        """float32 ``[rows, value_dim]`` of the last launch or replay, which must have run; zero where the history is empty."""
        rows, dim = self._batch.rows, self.value_dim
        self._device.host_access(lambda: (Access(self._resource("output"), write=False),), "the CPU reads the consumer's result")
        return self._output.host_array().view(np.float32)[: rows * dim].reshape(rows, dim).copy()

    def __call__(self, turn: Turn) -> None:
        """Run as the consumer of an iteration (R11.1): the executor orders it and records its reads."""
        self.submit(turn.stream)

    def run(self, stream: Stream) -> None:
        """Wait for the publication, read, record the reads (R8.7, R7.7). Replays the graph once there is one."""
        with self._manager.exclusive():
            self._batch.wait_ready(stream)
            if self._graph is None:
                self.submit(stream)
            else:
                self._graph.launch(stream, "consumer: replay of attention over the history")
            self._batch.record_read(stream)

    def capture(self, stream: Stream) -> None:
        """Capture the launch in a graph, which ``run`` replays from now on: addresses never change (R8.1, R8.8)."""
        with self._manager.exclusive():
            self._manager.begin_capture(stream)
            try:
                self.submit(stream)
            finally:
                self._graph = self._manager.end_capture(stream)

    def submit(self, stream: Stream) -> None:
        """Submit the kernel, without any ordering. Between the publication and the record of reads, or in a capture."""
        self._device.launch(
            stream,
            ATTEND,
            self._batch.rows,
            LANES,
            (self._batch.tables.storage.memory, *self._pools, self._queries, self._lengths, self._output, *self._numbers),
            self._accesses,
            "consumer: attention over the history",
        )

    def close(self) -> None:
        """Give its own memory back. Idempotent."""
        for memory in (self._queries, self._lengths, self._output):
            memory.free()

    def _memory(self, what: str, words: int) -> Memory:
        return self._device.allocate("pinned", WORD * words, f"{what} of consumer {self._uid}")

    def _resource(self, what: str) -> tuple[str, int]:
        return (f"consumer {what}", self._uid)

    def _inputs_written(self) -> tuple[Access, ...]:
        return (Access(self._resource("inputs"), write=True),)

    def _accesses(self) -> tuple[Access, ...]:
        """What it touches now, for the ordering check: the tables, and the slots that they name for the history."""
        layout = self._manager.layout
        groups = layout.groups[self._group].pool_groups
        found = [
            Access(self._resource("inputs"), write=False),
            Access(self._resource("output"), write=True),
            *self._batch.tables.read_accesses(),
        ]
        lengths = self._lengths.host_array().view(np.int32)
        for row in range(self._batch.rows):
            shown = self._batch.row_entries(row)
            if shown is not None:
                slots, levels, _ = shown.group(self._table_number)
                used = -(-int(lengths[row]) // layout.tokens_per_block)
                for level in (0, 1):
                    found += self._manager.slot_reads(level, groups[level], slots[:used][levels[:used] == level])
        return tuple(found)
