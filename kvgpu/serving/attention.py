"""What consumers of published tables have in common: queries, lengths and the result of one attention layer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Access, Graph, Memory, Stream
from kvgpu.errors import InvalidArgument
from kvgpu.manager import Manager
from kvgpu.serving.consumer_kernels import MAX_DIM
from kvgpu.serving.executor import Turn

Float32 = npt.NDArray[np.float32]
WORD = 4

_numbers = itertools.count()


class Attention:
    """Attention of one query for each row of a batch, in one sparse layer.

    The layer has a buffer of keys and one of values, float32 ``[tokens_per_block, dim]`` each. ``key_dim``, ``value_dim``: what
    their sizes give.
    """

    def __init__(self, manager: Manager, batch: Batch, layer: str, keys: str, values: str) -> None:
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
        self._group = group
        self._table_number = batch.groups.index(group.number)
        self._uid = next(_numbers)
        self._queries = self._memory("pinned", "queries", batch.rows * self.key_dim)
        self._lengths = self._memory("pinned", "lengths", batch.rows)
        self._output = self._memory("pinned", "output", batch.rows * self.value_dim)
        self._pools = tuple(manager.pool_memory(level, group.pool_groups[level]) for level in (0, 1))
        self._spots = [[part // WORD for role in (keys, values) for part in layout.spot(layer, role, level)] for level in (0, 1)]
        tables, cells = batch.tables.layout, batch.rows * batch.blocks
        self._tables_at = (
            self._table_number * cells,
            tables.counts_offset // WORD + self._table_number * batch.rows,
            tables.levels_offset + self._table_number * cells,
        )
        self._graph: Graph | None = None

    def set_inputs(self, queries: Float32, lengths: Sequence[int]) -> None:
        """What the next launch or replay reads: float32 ``[rows, key_dim]``, and the tokens of history of each row.

        The one before must have run: ``Device.sync`` first.
        """
        self._device.host_access(self._inputs_written, "the CPU sets the inputs of the consumer")
        self._queries.host_array().view(np.float32)[: queries.size] = queries.reshape(-1)
        self._lengths.host_array().view(np.int32)[: len(lengths)] = lengths

    def result(self) -> Float32:
        """float32 ``[rows, value_dim]`` of the last launch or replay, which must have run; zero where there is no history."""
        rows, dim = self._batch.rows, self.value_dim
        self._device.host_access(lambda: (Access(self._resource("output"), write=False),), "the CPU reads the consumer's result")
        return self._output.host_array().view(np.float32)[: rows * dim].reshape(rows, dim).copy()

    def __call__(self, turn: Turn) -> None:
        """Run as the consumer of an iteration (R11.1): the executor orders it and records its reads."""
        self.submit(turn.stream)

    def submit(self, stream: Stream) -> None:
        """Submit the work, without any ordering of its own."""
        raise NotImplementedError

    def capture(self, stream: Stream) -> None:
        """Capture the work in a graph, which ``run`` replays from now on: addresses never change (R8.1, R8.8, R15.8)."""
        with self._manager.exclusive():
            self._manager.begin_capture(stream)
            try:
                self.submit(stream)
            finally:
                self._graph = self._manager.end_capture(stream)

    def close(self) -> None:
        """Give its own memory back. Idempotent."""
        for memory in (self._queries, self._lengths, self._output):
            memory.free()

    def _memory(self, kind: str, what: str, words: int) -> Memory:
        return self._device.allocate(kind, WORD * words, f"{what} of consumer {self._uid}")

    def _resource(self, what: str) -> tuple[str, int]:
        return (f"consumer {what}", self._uid)

    def _inputs_written(self) -> tuple[Access, ...]:
        return (Access(self._resource("inputs"), write=True),)

    def _blocks_in_use(self, row: int) -> int:
        return -(-int(self._lengths.host_array().view(np.int32)[row]) // self._manager.layout.tokens_per_block)
