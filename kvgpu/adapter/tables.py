"""Batches as they can be seen: what was published, and the entries on the device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from kvgpu.adapter.order import Orders
from kvgpu.adapter.run import Run
from kvgpu.batch.batch import Batch
from kvspec.observation import BAD, BatchView, TableEntries


def batch_view(run: Run, orders: Orders, batch: Batch) -> BatchView:
    """An open batch as it is observed: rows, what was published, what is on the device now (section 8)."""
    names = [run.names.groups[group] for group in batch.groups]
    return BatchView(
        rows=tuple(None if member is None else member.name for member in batch.members),
        blocks=batch.blocks,
        dirty_rows=batch.dirty_rows(),
        published={name: _published(batch, number) for number, name in enumerate(names)},
        device=_device(batch, names),
        upload=orders.of(batch.tables.upload),
        staging=batch.tables.staging_buffers,
        address={name: _addresses(batch, number) for number, name in enumerate(names)},
    )


def _entries(
    page_table: npt.NDArray[np.int32], num_blocks: npt.NDArray[np.int32], page_level: npt.NDArray[np.int8] | None
) -> TableEntries:
    return TableEntries(
        tuple(tuple(row) for row in page_table.tolist()),
        tuple(num_blocks.tolist()),
        None if page_level is None else tuple(tuple(row) for row in page_level.tolist()),
    )


def _published(batch: Batch, number: int) -> TableEntries:
    """What each row last published, from the host's record."""
    table = np.full((batch.rows, batch.blocks), BAD, dtype=np.int32)
    levels = np.full((batch.rows, batch.blocks), BAD, dtype=np.int8)
    counts = np.zeros(batch.rows, dtype=np.int32)
    for row in range(batch.rows):
        written = batch.row_entries(row)
        if written is not None:
            slots, level, counts[row] = written.group(number)
            table[row, : len(slots)] = slots
            levels[row, : len(level)] = level
    return _entries(table, counts, levels if batch.levels else None)


def _device(batch: Batch, names: list[str]) -> Mapping[str, TableEntries]:
    """The entries in device memory now."""
    layout = batch.tables.layout
    memory = np.frombuffer(batch.tables.storage.memory.read_now(0, layout.nbytes), dtype=np.uint8)
    tables, counts = layout.page_table(memory), layout.num_blocks(memory)
    levels = layout.page_level(memory) if batch.levels else None
    return {
        name: _entries(tables[number], counts[number], None if levels is None else levels[number])
        for number, name in enumerate(names)
    }


def _addresses(batch: Batch, number: int) -> tuple[int, ...]:
    layout, base = batch.tables.layout, batch.tables.storage.memory.address
    table = base + 4 * number * layout.rows * layout.blocks
    counts = base + layout.counts_offset + 4 * number * layout.rows
    levels = base + layout.levels_offset + number * layout.rows * layout.blocks
    return (table, counts, levels) if batch.levels else (table, counts)
