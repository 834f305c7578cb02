"""Publication on the device: one packed upload in mapped staging memory, one kernel that scatters it (R8.4).

The packed form of ``n`` dirty rows of ``groups`` groups, in staging memory:

* ``heads[n * groups, 4]``, int32, for each (dirty row, group): the row number, where its entries begin in ``entries``, how many
  there are (blocks behind them get BAD, R1.9), and the eligible count, for ``num_blocks`` (R8.5). ``~c`` entries instead: only
  ``c`` blocks are written, the others stay as they are;
* ``entries[total]``, int32: slot numbers, or, where few are written, ``c`` times a block and its slot number. Each (dirty row,
  group) begins at a multiple of ``UNIT``, so that they are read 16 bytes at a time; what fills the gaps means nothing;
* ``levels[total]``, int8, only with ``page_level``: the level of each slot number, from the same place on.

The tables of all groups lie in one range of device memory, see :class:`TableLayout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu import wide_copy
from kvgpu.device.api import Kernel

cuda: Any = numba.cuda
load16: Any = wide_copy.load16
store16: Any = wide_copy.store16

THREADS = 256
"""Threads of a block of the scatter kernel."""
UNIT = 4
"""Entries that a thread reads at a time: 16 bytes."""
TURNS = 2
"""Units of one thread: its loads over the bus are in flight together."""
HEAD = 4
"""Words of a head."""
ALIGN = 256
"""Bytes to which each section of the tables is aligned."""
BAD = -1
"""The unused index and the level of no page (R1.9, R8.1)."""
ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
LOW = np.uint64(0xFFFF_FFFF)
HIGH = np.uint64(0xFFFF_FFFF_0000_0000)
WORD = np.uint64(32)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def padded(entries: npt.NDArray[np.int32] | int) -> Any:
    """Numbers of entries up to the next multiple of ``UNIT``: the room that they take in the packed form."""
    return -(-entries // UNIT) * UNIT


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
        """The size of a staging buffer that holds a publication of every block of every row."""
        return packed_size(self.rows * self.groups, self.groups * self.rows * padded(self.blocks), self.levels)

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


def packed_size(pairs: int, entries: int, levels: bool) -> int:
    """The bytes of a packed publication of ``pairs`` (dirty row, group) and ``entries`` entries, padded."""
    return _aligned(4 * (HEAD * pairs + entries) + (entries if levels else 0))


@dataclass(frozen=True, slots=True)
class Packed:
    """The sections of a packed publication, as views of its staging memory (shapes: see the module's text)."""

    heads: npt.NDArray[np.int32]
    entries: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int8]


def sections(staging: npt.NDArray[np.uint8], pairs: int, entries: int, levels: bool) -> Packed:
    """The sections for ``pairs`` (dirty row, group) and ``entries`` entries, padded, over ``staging`` (uint8, large enough)."""
    words = staging.view(np.int32)
    first = HEAD * pairs
    return Packed(
        heads=words[:first].reshape(pairs, HEAD),
        entries=words[first : first + entries],
        levels=staging[4 * (first + entries) :][: entries if levels else 0].view(np.int8),
    )


def _scatter(
    staging: Any,
    tables: Any,
    pairs: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    # ``chunks`` blocks of threads share one (dirty row, group); neighbouring threads take neighbouring units.
    pair = cuda.blockIdx.x // chunks
    chunk = cuda.blockIdx.x % chunks
    words = staging.view(np.uint32)
    heads = staging.view(np.int32)
    table = tables.view(np.uint32)
    # A small read over the bus costs as much as a large one, so a block of threads reads its head once.
    head = cuda.shared.array(HEAD, np.int32)
    if cuda.threadIdx.x < HEAD:
        head[cuda.threadIdx.x] = heads[HEAD * pair + cuda.threadIdx.x]
    cuda.syncthreads()
    group = pair % groups
    row = head[0]
    start = head[1]
    length = head[2]
    out = (group * rows + row) * blocks
    if chunk == 0 and cuda.threadIdx.x == 0:
        table[counts_offset // 4 + group * rows + row] = head[3]
    if length < 0:
        pair_words = staging.view(np.uint64)
        for change in range(chunk * cuda.blockDim.x + cuda.threadIdx.x, ~length, chunks * cuda.blockDim.x):
            both = pair_words[(HEAD * pairs + start) // 2 + change]
            to = out + np.int64(both & LOW)
            table[to] = both >> WORD
            if levels:
                tables[levels_offset + to] = staging[4 * (HEAD * pairs + entries) + start + change]
        return
    bytes_in = 4 * (HEAD * pairs + start)
    stride = UNIT * cuda.blockDim.x
    mine = chunk * TURNS * stride + UNIT * cuda.threadIdx.x
    # All loads come before the first store, so that they are under way together.
    low = cuda.local.array(TURNS, np.uint64)
    high = cuda.local.array(TURNS, np.uint64)
    for turn in range(TURNS):
        block = mine + turn * stride
        low[turn] = ALL
        high[turn] = ALL
        if block < length:
            unit = load16(staging, bytes_in + 4 * block)
            low[turn] = unit[0]
            high[turn] = unit[1]
    for turn in range(TURNS):
        block = mine + turn * stride
        left = length - block
        # What follows the last entry of a row is BAD.
        if left == 1:
            low[turn] |= HIGH
        if left <= 2:
            high[turn] = ALL
        if left == 3:
            high[turn] |= HIGH
        if blocks % UNIT == 0:
            if block < blocks:
                store16(tables, 4 * (out + block), (low[turn], high[turn]))
        else:
            for place in range(UNIT):
                if block + place < blocks:
                    both = low[turn] if place < 2 else high[turn]
                    table[out + block + place] = both >> WORD if place % 2 else both & LOW
    if levels:
        first = HEAD * pairs + entries + start // UNIT
        for turn in range(TURNS):
            block = mine + turn * stride
            low[turn] = words[first + block // UNIT] if block < length else LOW
        for turn in range(TURNS):
            block = mine + turn * stride
            for place in range(UNIT):
                if block + place < blocks:
                    level = low[turn] >> np.uint64(8 * place) if block + place < length else LOW
                    tables[levels_offset + out + block + place] = level & np.uint64(255)


def _scatter_twin(
    staging: npt.NDArray[np.uint8],
    tables: npt.NDArray[np.uint8],
    pairs: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    packed = sections(staging, pairs, entries, bool(levels))
    layout = TableLayout(groups, rows, blocks, bool(levels))
    row_of, starts, lengths, counts = packed.heads.T
    group_of = np.arange(pairs) % groups
    layout.num_blocks(tables)[group_of, row_of] = counts
    table, level = layout.page_table(tables), layout.page_level(tables) if levels else None
    few = lengths < 0
    for row, group, start, changes in zip(row_of[few], group_of[few], starts[few], ~lengths[few], strict=True):
        blocks_in, slots = packed.entries[start : start + 2 * changes].reshape(-1, 2).T
        table[group, row, blocks_in] = slots
        if level is not None:
            level[group, row, blocks_in] = packed.levels[start : start + changes]
    row_of, group_of, starts, lengths = row_of[~few], group_of[~few], starts[~few], lengths[~few]
    pair_of = np.repeat(np.arange(len(lengths)), lengths)
    block_of = np.arange(pair_of.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = starts[pair_of] + block_of
    target = group_of[pair_of], row_of[pair_of], block_of
    table[group_of, row_of] = BAD
    table[target] = packed.entries[source]
    if level is not None:
        level[group_of, row_of] = BAD
        level[target] = packed.levels[source]


SCATTER = Kernel("publish_scatter", _scatter, _scatter_twin)
"""Arguments: staging, tables (memory), then the numbers of ``_scatter`` in its order."""
SCATTER_ARRAYS = (True, True) + 9 * (False,)
"""Which arguments of ``SCATTER`` are memory."""


def scatter_shape(layout: TableLayout, dirty: int, work: int) -> tuple[int, int]:
    """``(blocks of threads, chunks)`` for a scatter of ``dirty`` rows: ``chunks`` thread blocks each (row, group).

    ``work``: at most so many blocks are written for any of these; 0: whole rows.
    """
    chunks = -(-(work or layout.blocks) // (THREADS * UNIT * TURNS))
    return dirty * layout.groups * chunks, chunks
