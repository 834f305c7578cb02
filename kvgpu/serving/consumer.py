"""A consumer of published tables: attention over history on the GPU and on the host, found through the tables alone.

It shows that what is published is enough: the launch gets the memory of the tables and of the two pools, and no slot, length of
a table or level from the host.
"""

from __future__ import annotations

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Access, Stream
from kvgpu.manager import Manager
from kvgpu.serving.attention import Attention
from kvgpu.serving.consumer_kernels import ATTEND, LANES


class SparseAttention(Attention):
    """Attention of one query for each row of a batch over the row's history, in one sparse layer: see ``Attention``."""

    def __init__(self, manager: Manager, batch: Batch, layer: str, keys: str = "key", values: str = "value") -> None:
        """As ``Attention``."""
        super().__init__(manager, batch, layer, keys, values)
        tokens = manager.layout.tokens_per_block
        spots = [part for level in self._spots for part in level]
        self._numbers = (batch.rows, batch.blocks, tokens, self.key_dim, self.value_dim, 1, *self._tables_at, *spots)
        self._device.prepare(ATTEND, [True] * 6 + [False] * len(self._numbers))

    def run(self, stream: Stream) -> None:
        """Wait for the publication, read, record the reads (R8.7, R7.7). Replays the graph once there is one."""
        with self._manager.exclusive():
            self._batch.wait_ready(stream)
            if self._graph is None:
                self.submit(stream)
            else:
                self._graph.launch(stream, "consumer: replay of attention over the history")
            self._batch.record_read(stream)

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

    def _accesses(self) -> tuple[Access, ...]:
        """What it touches now, for the ordering check: the tables, and the slots that they name for the history."""
        found = [
            Access(self._resource("inputs"), write=False),
            Access(self._resource("output"), write=True),
            *self._batch.tables.read_accesses(),
        ]
        for row in range(self._batch.rows):
            shown = self._batch.row_entries(row)
            if shown is not None:
                slots, levels, _ = shown.group(self._table_number)
                used = self._blocks_in_use(row)
                for level in (0, 1):
                    named = slots[:used][levels[:used] == level]
                    found += self._manager.slot_reads(level, self._group.pool_groups[level], named)
        return tuple(found)
