"""Publication on the device: one packed upload in mapped staging memory, one kernel that scatters it into the tables (R8.4).

What the staging memory holds: :mod:`kvgpu.upload.packing.form`. Where the tables lie: :mod:`kvgpu.upload.table_layout`.
"""

from __future__ import annotations

from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Kernel
from kvgpu.storage import wide_copy
from kvgpu.upload.packing.form import COUNT, HEAD, LENGTH, MIXED, ROW, SAME, START, UNIT, PackedForm
from kvgpu.upload.table_layout import TableLayout

cuda: Any = numba.cuda
load16: Any = wide_copy.load16
store16: Any = wide_copy.store16

THREADS = 128
"""Threads of a block of the scatter kernel."""
STORED = 4
"""Slot numbers that a thread writes at a time: 16 bytes."""
BAD = -1
"""The unused index and the level of no page (R1.9, R8.1)."""
WORD = np.uint64(0xFFFF_FFFF)
SHORT = np.uint64(0xFFFF)
BYTE = np.uint64(0xFF)
SIGN = np.uint64(0x80)
NEGATIVE = np.uint64(0xFF00)
WORD_BITS = np.uint64(32)


def _scatter(
    staging: Any,
    tables: Any,
    pairs: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    wide: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    # ``chunks`` blocks of threads share one (dirty row, group); neighbouring threads take neighbouring units.
    pair = cuda.blockIdx.x // chunks
    chunk = cuda.blockIdx.x % chunks
    heads = staging.view(np.int32)
    words = staging.view(np.uint64)
    table = tables.view(np.uint32)
    # A small read over the bus costs as much as a large one, so a block of threads reads its head once.
    head = cuda.shared.array(HEAD, np.int32)
    if cuda.threadIdx.x < HEAD:
        head[cuda.threadIdx.x] = heads[HEAD * pair + cuda.threadIdx.x]
    cuda.syncthreads()
    group = pair % groups
    row = head[ROW]
    start = head[START]
    length = head[LENGTH]
    same = head[SAME]
    out = (group * rows + row) * blocks
    if chunk == 0 and cuda.threadIdx.x == 0:
        table[counts_offset // 4 + group * rows + row] = head[COUNT]
    in_low = 4 * HEAD * pairs + 2 * start
    in_high = 4 * HEAD * pairs + 2 * entries + (1 + wide) * start
    in_levels = 4 * HEAD * pairs + (3 + wide) * entries + start
    if length < 0:
        for change in range(chunk * cuda.blockDim.x + cuda.threadIdx.x, ~length, chunks * cuda.blockDim.x):
            both = words[in_low // 8 + change]
            to = out + np.int64(both & WORD)
            table[to] = both >> WORD_BITS
            if levels:
                tables[levels_offset + to] = staging[in_levels + change]
        return
    mine = UNIT * (chunk * cuda.blockDim.x + cuda.threadIdx.x)
    # All loads come before the first store, so that they are under way together.
    low = cuda.local.array(4, np.uint64)
    high = cuda.local.array(4, np.uint64)
    level = cuda.local.array(2, np.uint64)
    if mine < length:
        low[0], low[1] = load16(staging, in_low + 2 * mine)
        low[2], low[3] = load16(staging, in_low + 2 * mine + 16)
        if same == MIXED and wide:
            high[0], high[1] = load16(staging, in_high + 2 * mine)
            high[2], high[3] = load16(staging, in_high + 2 * mine + 16)
        elif same == MIXED:
            high[0], high[2] = load16(staging, in_high + mine)
            high[1] = high[0] >> WORD_BITS
            high[3] = high[2] >> WORD_BITS
        if levels:
            level[0], level[1] = load16(staging, in_levels + mine)
    for quarter in range(UNIT // STORED):
        block = mine + STORED * quarter
        shorts = low[quarter]
        above = high[quarter]
        slots = cuda.local.array(STORED, np.uint64)
        for entry in range(STORED):
            short = (shorts >> np.uint64(16 * entry)) & SHORT
            if same != MIXED:
                upper = np.uint64(same & 0xFFFF)
            elif wide:
                upper = (above >> np.uint64(16 * entry)) & SHORT
            else:
                upper = (above >> np.uint64(8 * entry)) & BYTE
                if upper & SIGN:
                    upper |= NEGATIVE
            # What follows the last entry of a row is BAD.
            slots[entry] = upper << np.uint64(16) | short if block + entry < length else WORD
        if blocks % STORED == 0:
            if block < blocks:
                first = slots[1] << WORD_BITS | slots[0]
                store16(tables, 4 * (out + block), (first, slots[3] << WORD_BITS | slots[2]))
        else:
            for entry in range(STORED):
                if block + entry < blocks:
                    table[out + block + entry] = slots[entry]
        if levels:
            of_four = level[quarter // 2] >> np.uint64(32 * (quarter % 2))
            for entry in range(STORED):
                if block + entry < blocks:
                    one = (of_four >> np.uint64(8 * entry)) & BYTE if block + entry < length else BYTE
                    tables[levels_offset + out + block + entry] = one


def _scatter_twin(
    staging: npt.NDArray[np.uint8],
    tables: npt.NDArray[np.uint8],
    pairs: int,
    groups: int,
    rows: int,
    blocks: int,
    entries: int,
    wide: int,
    counts_offset: int,
    levels_offset: int,
    levels: int,
    chunks: int,
) -> None:
    packed = PackedForm(bool(levels), bool(wide)).sections(staging, pairs, entries)
    layout = TableLayout(groups, rows, blocks, bool(levels))
    row_of, starts, lengths, counts, same, *_ = packed.heads.T
    group_of = np.arange(pairs) % groups
    layout.num_blocks(tables)[group_of, row_of] = counts
    table, level = layout.page_table(tables), layout.page_level(tables) if levels else None
    few = lengths < 0
    for row, group, start, count in zip(row_of[few], group_of[few], starts[few], ~lengths[few], strict=True):
        blocks_in, slots = packed.changes(start, count).T
        table[group, row, blocks_in] = slots
        if level is not None:
            level[group, row, blocks_in] = packed.levels[start : start + count]
    row_of, group_of, starts, lengths, same = (each[~few] for each in (row_of, group_of, starts, lengths, same))
    pair_of = np.repeat(np.arange(len(lengths)), lengths)
    block_of = np.arange(pair_of.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = starts[pair_of] + block_of
    target = group_of[pair_of], row_of[pair_of], block_of
    table[group_of, row_of] = BAD
    high = np.where(same[pair_of] == MIXED, packed.high[source], same[pair_of])
    table[target] = high << 16 | packed.low[source]
    if level is not None:
        level[group_of, row_of] = BAD
        level[target] = packed.levels[source]


SCATTER = Kernel("publish_scatter", _scatter, _scatter_twin)
"""Arguments: staging, tables (memory), then the numbers of ``_scatter`` in its order."""
SCATTER_ARRAYS = (True, True) + 10 * (False,)
"""Which arguments of ``SCATTER`` are memory."""


def scatter_shape(layout: TableLayout, dirty: int, work: int) -> tuple[int, int]:
    """``(blocks of threads, chunks)`` for a scatter of ``dirty`` rows: ``chunks`` thread blocks each (row, group).

    ``work``: at most so many blocks are written for any of these; 0: whole rows.
    """
    chunks = -(-(work or layout.blocks) // (THREADS * UNIT))
    return dirty * layout.groups * chunks, chunks
