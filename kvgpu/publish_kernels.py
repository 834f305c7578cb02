"""Publication on the device: one packed upload in mapped staging memory, one kernel that scatters it (R8.4).

The packed form of ``n`` dirty rows of ``groups`` groups, in staging memory, all sections of int32 but the last:

* ``rows[n]``: the row numbers;
* ``starts[n * groups]``: where the entries of (dirty row, group) begin in ``entries``;
* ``lengths[n * groups]``: how many there are; blocks behind them get BAD (R1.9);
* ``counts[n * groups]``: the eligible counts, for ``num_blocks`` (R8.5);
* ``entries[total]``: slot numbers;
* ``levels[total]``, int8, only with ``page_level``.

The tables of all groups lie in one range of device memory, see :class:`TableLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Kernel

cuda: Any = numba.cuda

THREADS = 256
"""Threads of a block of the scatter kernel."""
ENTRIES_PER_THREAD = 8
"""Entries that one thread writes: several loads over the bus in flight at once."""
ALIGN = 256
"""Bytes to which each section of the tables is aligned."""
BAD = -1
"""The unused index and the level of no page (R1.9, R8.1)."""


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where the tables of a batch lie in its device memory (R8.1); all offsets and sizes in bytes.

    First ``page_table[groups, rows, blocks]`` int32, then ``num_blocks[groups, rows]`` int32, then, if ``levels``,
    ``page_level[groups, rows, blocks]`` int8.
    """

    groups: int
    rows: int
    blocks: int
    levels: bool

    @property
    def counts_offset(self) -> int:
        """Where ``num_blocks`` begins."""
        return _aligned(4 * self.groups * self.rows * self.blocks)

    @property
    def levels_offset(self) -> int:
        """Where ``page_level`` begins (and ends, without levels)."""
        return self.counts_offset + _aligned(4 * self.groups * self.rows)

    @property
    def nbytes(self) -> int:
        """The size of all tables."""
        return self.levels_offset + (_aligned(self.groups * self.rows * self.blocks) if self.levels else 0)

    @property
    def staging_nbytes(self) -> int:
        """The size of a staging buffer that holds a publication of every row."""
        return packed_size(self.rows * self.groups, self.rows, self.groups * self.rows * self.blocks, self.levels)

    def page_table(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        """The view ``[groups, rows, blocks]`` of the page tables in an array over all bytes."""
        size = 4 * self.groups * self.rows * self.blocks
        return memory[:size].view(np.int32).reshape(self.groups, self.rows, self.blocks)

    def num_blocks(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
        """The view ``[groups, rows]`` of the counts."""
        return memory[self.counts_offset :][: 4 * self.groups * self.rows].view(np.int32).reshape(self.groups, self.rows)

    def page_level(self, memory: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
        """The view ``[groups, rows, blocks]`` of the levels; only with ``levels``."""
        size = self.groups * self.rows * self.blocks
        return memory[self.levels_offset :][:size].view(np.int8).reshape(self.groups, self.rows, self.blocks)

    def fill_empty(self, memory: npt.NDArray[np.uint8]) -> None:
        """Write what the tables hold before the first publication: -1, 0, -1 (R8.1)."""
        self.page_table(memory).fill(BAD)
        self.num_blocks(memory).fill(0)
        if self.levels:
            self.page_level(memory).fill(BAD)


def packed_size(pairs: int, rows: int, entries: int, levels: bool) -> int:
    """The bytes of a packed publication, up to a multiple of ``ALIGN``; ``pairs`` is dirty rows times groups."""
    return _aligned(4 * (rows + 3 * pairs + entries) + (entries if levels else 0))


@dataclass(frozen=True, slots=True)
class Packed:
    """The sections of a packed publication, as views of its staging memory (shapes: see the module's text)."""

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int8]


def sections(staging: npt.NDArray[np.uint8], rows: int, groups: int, entries: int, levels: bool) -> Packed:
    """The sections for ``rows`` dirty rows and ``entries`` entries, over ``staging`` (uint8, large enough)."""
    words = staging.view(np.int32)
    pairs = rows * groups
    first = rows + 3 * pairs
    return Packed(
        rows=words[:rows],
        starts=words[rows : rows + pairs],
        lengths=words[rows + pairs : rows + 2 * pairs],
        counts=words[rows + 2 * pairs : first],
        entries=words[first : first + entries],
        levels=staging[4 * (first + entries) :][: entries if levels else 0].view(np.int8),
    )


def _scatter(
    staging: Any,
    tables: Any,
    dirty: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    # ``chunks`` blocks of threads share one (dirty row, group); neighbouring threads take neighbouring blocks.
    pair = cuda.blockIdx.x // chunks
    chunk = cuda.blockIdx.x % chunks
    pairs = dirty * groups
    words = staging.view(np.int32)
    table = tables.view(np.int32)
    row = words[pair // groups]
    group = pair % groups
    start = words[dirty + pair]
    length = words[dirty + pairs + pair]
    first = dirty + 3 * pairs + start
    out = (group * rows + row) * blocks
    if chunk == 0 and cuda.threadIdx.x == 0:
        table[counts_offset // 4 + group * rows + row] = words[dirty + 2 * pairs + pair]
    bytes_in = 4 * (dirty + 3 * pairs + entries) + start
    mine = chunk * ENTRIES_PER_THREAD * cuda.blockDim.x + cuda.threadIdx.x
    # All loads come before the first store: as far as the compiler knows a store could change what is loaded next.
    slots = cuda.local.array(ENTRIES_PER_THREAD, np.int32)
    for turn in range(ENTRIES_PER_THREAD):
        block = mine + turn * cuda.blockDim.x
        slots[turn] = words[first + block] if block < length else BAD
    for turn in range(ENTRIES_PER_THREAD):
        block = mine + turn * cuda.blockDim.x
        if block < blocks:
            table[out + block] = slots[turn]
    if levels:
        for turn in range(ENTRIES_PER_THREAD):
            block = mine + turn * cuda.blockDim.x
            # 255 is the byte of the int8 -1.
            slots[turn] = staging[bytes_in + block] if block < length else 255
        for turn in range(ENTRIES_PER_THREAD):
            block = mine + turn * cuda.blockDim.x
            if block < blocks:
                tables[levels_offset + out + block] = slots[turn]


def _scatter_twin(
    staging: npt.NDArray[np.uint8],
    tables: npt.NDArray[np.uint8],
    dirty: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    packed = sections(staging, dirty, groups, entries, bool(levels))
    layout = TableLayout(groups, rows, blocks, bool(levels))
    row_of = np.repeat(packed.rows, groups)
    group_of = np.tile(np.arange(groups), dirty)
    layout.num_blocks(tables)[group_of, row_of] = packed.counts
    pair_of = np.repeat(np.arange(dirty * groups), packed.lengths)
    block_of = np.arange(entries) - packed.starts[pair_of]
    target = group_of[pair_of], row_of[pair_of], block_of
    table = layout.page_table(tables)
    table[:, packed.rows] = BAD
    table[target] = packed.entries
    if levels:
        level = layout.page_level(tables)
        level[:, packed.rows] = BAD
        level[target] = packed.levels


SCATTER = Kernel("publish_scatter", _scatter, _scatter_twin)
"""Arguments: staging, tables (memory), then the numbers of ``_scatter`` in its order."""
SCATTER_ARRAYS = (True, True) + 9 * (False,)
"""Which arguments of ``SCATTER`` are memory."""


def scatter_shape(layout: TableLayout, dirty: int) -> tuple[int, int]:
    """``(blocks of threads, chunks)`` for a scatter of ``dirty`` rows: ``chunks`` thread blocks each (row, group)."""
    chunks = -(-layout.blocks // (THREADS * ENTRIES_PER_THREAD))
    return dirty * layout.groups * chunks, chunks
