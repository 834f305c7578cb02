"""The index list of attention over selected history: by row, the fetched entries, then the pages that are on the GPU anyhow.

A list has the form of a batch's tables (``page_table``, ``num_blocks`` 0, ``page_level`` 0: all is on the GPU), so that the
kernel which reads these reads it, too. Its entries are units (R15.11): a slot times the units of a page, plus the position.
A fetched entry that is there twice counts once. Own pages are those at and beyond ``num_blocks`` that ``page_level`` has on the
GPU: what is still written to, and history that another request keeps there. All entries are full but the last. History without a
page becomes -1.
"""

from __future__ import annotations

from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Kernel
from kvgpu.fetch.words import running_sums

cuda: Any = numba.cuda

LISTERS = 256
"""Threads that share a row."""
ON_GPU, ON_HOST = 0, 1

Bytes = npt.NDArray[np.uint8]


def _list_cuda(
    tables: Any,
    result: Any,
    lengths: Any,
    listed: Any,
    listed_lengths: Any,
    rows: int,
    selects: int,
    blocks: int,
    units: int,
    tokens_per_block: int,
    width: int,
    table_first: int,
    counts_first: int,
    levels_first: int,
) -> None:
    row = cuda.blockIdx.x
    mine = cuda.threadIdx.x
    sums = cuda.shared.array(LISTERS, np.int32)
    words = tables.view(np.int32)
    fetched = result.view(np.int32)
    out = listed.view(np.int32)
    length = lengths.view(np.int32)[row]
    used = (length + tokens_per_block - 1) // tokens_per_block
    count = words[counts_first + row]
    base = row * width
    entries = 0
    for start in range(0, selects, LISTERS):
        at = start + mine
        flag = 0
        entry = -1
        if at < selects and length > 0:
            entry = fetched[row * selects + at]
            if entry >= 0:
                flag = 1
                for before in range(at):
                    if fetched[row * selects + before] == entry:
                        flag = 0
        sums[mine] = flag
        running_sums(sums, mine, LISTERS)
        if flag == 1:
            out[base + entries + sums[mine] - 1] = entry
        entries += sums[LISTERS - 1]
        cuda.syncthreads()
    for start in range(count, used, LISTERS):
        block = start + mine
        flag = 0
        slot = -1
        if block < used:
            level = int(tables[levels_first + row * blocks + block])
            if level != ON_HOST:
                flag = 1
                if level == ON_GPU:
                    slot = words[table_first + row * blocks + block]
        sums[mine] = flag
        running_sums(sums, mine, LISTERS)
        if flag == 1:
            first = base + entries + (sums[mine] - 1) * units
            for unit in range(units):
                out[first + unit] = slot * units + unit if slot >= 0 else -1
        entries += sums[LISTERS - 1] * units
        cuda.syncthreads()
    if mine == 0:
        tokens = entries * (tokens_per_block // units)
        if used > count and int(tables[levels_first + row * blocks + used - 1]) != ON_HOST:
            tokens -= used * tokens_per_block - length
        listed_lengths.view(np.int32)[row] = tokens


def list_twin(
    tables: Bytes,
    result: Bytes,
    lengths: Bytes,
    listed: Bytes,
    listed_lengths: Bytes,
    rows: int,
    selects: int,
    blocks: int,
    units: int,
    tokens_per_block: int,
    width: int,
    table_first: int,
    counts_first: int,
    levels_first: int,
) -> None:
    """The kernel's work on host arrays."""
    words, out = tables.view(np.int32), listed.view(np.int32)
    fetched = result.view(np.int32)[: rows * selects].reshape(rows, selects)
    for row, length in enumerate(lengths.view(np.int32)[:rows].tolist()):
        count, used = int(words[counts_first + row]), -(-length // tokens_per_block)
        levels = tables[levels_first + row * blocks :][:used].copy()
        levels[:count] = ON_HOST
        own = np.where(levels == ON_GPU, words[table_first + row * blocks :][:used], -1)[levels != ON_HOST]
        own = np.where(own[:, None] < 0, -1, own[:, None] * units + np.arange(units)).reshape(-1)
        entries = [entry for entry in dict.fromkeys(fetched[row].tolist()) if entry >= 0] if length else []
        entries += own.tolist()
        out[row * width :][: len(entries)] = entries
        partial = used * tokens_per_block - length if used and levels[-1] != ON_HOST else 0
        listed_lengths.view(np.int32)[row] = len(entries) * (tokens_per_block // units) - partial


LIST = Kernel("list_fetched", _list_cuda, list_twin)
"""Launched with a block of ``LISTERS`` threads for each row."""
LIST_ARRAYS = 5 * (True,) + 9 * (False,)
"""Which arguments are memory."""
