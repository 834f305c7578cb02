"""A consumer of fetches: attention over the selected history and a request's own pages, all of it on the GPU (section 15).

Four submissions, one after the other on the stream of the model, and the host reads nothing back: the selection goes up, a fetch,
the index list of what is on the GPU now, attention over that list. Captured in a graph they are one launch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvgpu.batch.batch import Batch
from kvgpu.device.api import Access, Stream
from kvgpu.manager import Manager
from kvgpu.serving.attention import WORD, Attention
from kvgpu.serving.consumer_kernels import ATTEND, LANES
from kvgpu.serving.list_kernel import LIST, LIST_ARRAYS, LISTERS

Int32 = npt.NDArray[np.int32]


class FetchedAttention(Attention):
    """Attention of one query for each row over the history that is selected of it, and over its pages on the GPU.

    Those are the blocks at and beyond ``num_blocks`` that ``page_level`` has on the GPU: the one that is still written to, and
    what another request keeps there. ``selects``: numbers of blocks, or units (R15.11), that a row selects at most.
    """

    def __init__(self, manager: Manager, batch: Batch, layer: str, keys: str = "key", values: str = "value") -> None:
        """As ``Attention``; ``InvalidArgument`` also for a layer whose group reserves nothing (R15.1)."""
        super().__init__(manager, batch, layer, keys, values)
        self.fetch = batch.fetch(layer)
        self.selects = self.fetch.selects
        group, tokens, rows = self._group, manager.layout.tokens_per_block, batch.rows
        width = self.selects + batch.blocks * group.units
        cells = rows * width
        self._selection = self._memory("pinned", "selection", rows * self.selects)
        # In the form of tables; the counts and the levels behind the list stay 0.
        self._listed = self._memory("device", "index list", cells + rows + -(-cells // WORD))
        self._listed_lengths = self._memory("device", "listed lengths", rows)
        self._listing = (rows, self.selects, batch.blocks, group.units, tokens, width, *self._tables_at)
        spots = 2 * self._spots[0]  # nothing is read of the host: its part is that of the GPU once more
        sizes = (rows, width, tokens // group.units, self.key_dim, self.value_dim, group.units)
        self._numbers = (*sizes, 0, cells, WORD * (cells + rows), *spots)
        self._device.prepare(LIST, LIST_ARRAYS)
        self._device.prepare(ATTEND, [True] * 6 + [False] * len(self._numbers))

    def select(self, selection: Int32) -> None:
        """What the next launch or replay fetches: int32 ``[rows, selects]``, -1 for none. As ``set_inputs``."""
        self._device.host_access(self._inputs_written, "the CPU sets the selection of the consumer")
        self._selection.host_array().view(np.int32)[: selection.size] = selection.reshape(-1)

    def run(self, stream: Stream) -> None:
        """Fetch, read, record the reads (R15.7). Replays the graph once there is one."""
        with self._manager.exclusive():
            if self._graph is None:
                self.submit(stream)
            else:
                with self._batch.replaying(stream, [self.fetch]):
                    self._graph.launch(stream, "consumer: replay of a fetch and attention over what it fetched")
            self._batch.record_read(stream)

    def submit(self, stream: Stream) -> None:
        """Submit the work, or capture it; the fetch sees to the order (R15.7). The batch is published."""
        self._device.upload(
            stream,
            self._selection,
            0,
            self.fetch.selected,
            0,
            self.fetch.nbytes,
            self._selecting,
            "consumer: the selection",
        )
        self.fetch.run(stream)
        tables = self._batch.tables.storage.memory
        args = (tables, self.fetch.result, self._lengths, self._listed, self._listed_lengths, *self._listing)
        self._device.launch(stream, LIST, self._batch.rows, LISTERS, args, self._listing_accesses, "consumer: the index list")
        gpu = self._pools[0]
        memories = (self._listed, gpu, gpu, self._queries, self._listed_lengths, self._output)
        site = "consumer: attention over what was fetched"
        self._device.launch(stream, ATTEND, self._batch.rows, LANES, (*memories, *self._numbers), self._accesses, site)

    def close(self) -> None:
        """Give its own memory back. Idempotent."""
        super().close()
        for memory in (self._selection, self._listed, self._listed_lengths):
            memory.free()

    def _selecting(self) -> Sequence[Access]:
        return (Access(self._resource("inputs"), write=False), Access(self.fetch.resource("selected"), write=True))

    def _listing_accesses(self) -> Sequence[Access]:
        return (
            *self._batch.tables.read_accesses(),
            Access(self.fetch.resource("fetched"), write=False),
            Access(self._resource("inputs"), write=False),
            Access(self._resource("list"), write=True),
        )

    def _accesses(self) -> Sequence[Access]:
        """What attention touches now, for the ordering check: reserved slots, and the pages on the GPU."""
        found = [
            Access(self._resource("inputs"), write=False),
            Access(self._resource("list"), write=False),
            Access(self._resource("output"), write=True),
        ]
        pool_group = self._group.pool_groups[0]
        for row, held in enumerate(self.fetch.fetches.served):
            used, shown = self._blocks_in_use(row), self._batch.row_entries(row)
            if not used or shown is None:
                continue
            slots, levels, count = shown.group(self._table_number)
            own = slots[count:used][levels[count:used] == 0]
            found += self._manager.slot_reads(0, pool_group, own if held is None else np.concatenate([own, held.slots]))
        return found
