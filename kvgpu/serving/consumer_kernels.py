"""Attention of one query a row over the whole history, wherever its pages are: online softmax, float32.

A block of ``LANES`` threads takes a row; thread ``n`` takes tokens ``n``, ``n + LANES``, ... and the threads' partial results are
joined at the end. Keys and values of a block are float32 ``[tokens_per_block, dim]`` in a page. Nothing but the published tables
says where a page is: the first ``num_blocks`` entries of a row name host slots, and the others slots of the level that
``page_level`` names (R8.5). History without a page gives NaN.

Numbers of the launch, after the memories ``tables, gpu, host, queries, lengths, output``; all but the first six in words of 4
bytes (``levels_first``: bytes): ``rows, blocks, tokens_per_block, key_dim, value_dim, units``, then where the group's
``page_table``, ``num_blocks`` and ``page_level`` begin, then for either level where the layer's keys begin and how far the slots
are apart, and the same of its values. With more than one unit a page (R15.11) a block is a unit, and an entry its slot times the
units plus its position in the page.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.device.api import Kernel

cuda: Any = numba.cuda
float32: Any = numba.float32

LANES = 32
"""Threads that share a row."""
MAX_DIM = 128
"""The largest dimension of a value."""
NO_LEVEL = 255
"""The byte of ``page_level`` -1."""

Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]


def _attend_cuda(
    tables: Any,
    gpu: Any,
    host: Any,
    queries: Any,
    lengths: Any,
    output: Any,
    rows: int,
    blocks: int,
    tokens_per_block: int,
    key_dim: int,
    value_dim: int,
    units: int,
    table_first: int,
    counts_first: int,
    levels_first: int,
    gpu_keys: int,
    gpu_keys_stride: int,
    gpu_values: int,
    gpu_values_stride: int,
    host_keys: int,
    host_keys_stride: int,
    host_values: int,
    host_values_stride: int,
) -> None:
    row = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    largest = cuda.shared.array(LANES, float32)
    total = cuda.shared.array(LANES, float32)
    partial = cuda.shared.array((LANES, MAX_DIM), float32)
    words = tables.view(np.int32)
    on_gpu = gpu.view(np.float32)
    on_host = host.view(np.float32)
    query = queries.view(np.float32)
    out = output.view(np.float32)
    length = lengths.view(np.int32)[row]
    fetched = words[counts_first + row]
    scale = np.float32(1.0) / math.sqrt(np.float32(key_dim))

    best = np.float32(-np.inf)
    weight_sum = np.float32(0.0)
    for d in range(value_dim):
        partial[lane, d] = np.float32(0.0)
    for token in range(lane, length, LANES):
        block = token // tokens_per_block
        slot = words[table_first + row * blocks + block]
        page = slot // units
        inside = token + (slot - page * units - block) * tokens_per_block
        level = 1 if block < fetched else int(tables[levels_first + row * blocks + block])
        score = np.float32(0.0)
        if slot < 0 or level > 1:
            score = np.float32(np.nan)
        elif level == 1:
            start = host_keys + page * host_keys_stride + inside * key_dim
            for d in range(key_dim):
                score += query[row * key_dim + d] * on_host[start + d]
        else:
            start = gpu_keys + page * gpu_keys_stride + inside * key_dim
            for d in range(key_dim):
                score += query[row * key_dim + d] * on_gpu[start + d]
        score = score * scale
        if score > best:
            shrink = np.float32(math.exp(best - score))
            best = score
        else:
            shrink = np.float32(1.0)
        weight = math.exp(score - best)
        weight_sum = weight_sum * shrink + weight
        if slot >= 0 and level == 1:
            start = host_values + page * host_values_stride + inside * value_dim
            for d in range(value_dim):
                partial[lane, d] = partial[lane, d] * shrink + weight * on_host[start + d]
        elif slot >= 0 and level == 0:
            start = gpu_values + page * gpu_values_stride + inside * value_dim
            for d in range(value_dim):
                partial[lane, d] = partial[lane, d] * shrink + weight * on_gpu[start + d]
    largest[lane] = best
    total[lane] = weight_sum
    cuda.syncthreads()

    top = np.float32(-np.inf)
    for other in range(LANES):
        top = max(top, largest[other])
    whole = np.float32(0.0)
    for other in range(LANES):
        if other < length:
            whole += total[other] * math.exp(largest[other] - top)
    for d in range(lane, value_dim, LANES):
        joined = np.float32(0.0)
        for other in range(LANES):
            if other < length:
                joined += partial[other, d] * math.exp(largest[other] - top)
        out[row * value_dim + d] = joined / whole if length > 0 else np.float32(0.0)


def attend_twin(
    tables: Bytes,
    gpu: Bytes,
    host: Bytes,
    queries: Bytes,
    lengths: Bytes,
    output: Bytes,
    rows: int,
    blocks: int,
    tokens_per_block: int,
    key_dim: int,
    value_dim: int,
    units: int,
    table_first: int,
    counts_first: int,
    levels_first: int,
    gpu_keys: int,
    gpu_keys_stride: int,
    gpu_values: int,
    gpu_values_stride: int,
    host_keys: int,
    host_keys_stride: int,
    host_values: int,
    host_values_stride: int,
) -> None:
    """The kernel's work on host arrays, its lanes side by side."""
    words = tables.view(np.int32)
    pools = (gpu.view(np.float32), host.view(np.float32))
    keys_at = ((gpu_keys, gpu_keys_stride), (host_keys, host_keys_stride))
    values_at = ((gpu_values, gpu_values_stride), (host_values, host_values_stride))
    out = output.view(np.float32)[: rows * value_dim].reshape(rows, value_dim)
    query_of = queries.view(np.float32)[: rows * key_dim].reshape(rows, key_dim)
    scale = np.float32(1.0) / np.sqrt(np.float32(key_dim))
    for row in range(rows):
        length = int(lengths.view(np.int32)[row])
        used = -(-length // tokens_per_block)
        slots = words[table_first + row * blocks :][:used]
        levels = tables[levels_first + row * blocks :][:used].copy()
        levels[: words[counts_first + row]] = 1
        if not length:
            out[row] = 0
            continue
        if (slots < 0).any() or (levels > 1).any():
            out[row] = np.nan
            continue
        keys = _vectors(pools, keys_at, slots, levels, units, tokens_per_block, key_dim)
        values = _vectors(pools, values_at, slots, levels, units, tokens_per_block, value_dim)
        out[row] = _online(query_of[row], keys[:length], values[:length], scale)


def _vectors(
    pools: tuple[Float32, Float32],
    spots: tuple[tuple[int, int], tuple[int, int]],
    slots: npt.NDArray[np.int32],
    levels: Bytes,
    units: int,
    tokens_per_block: int,
    dim: int,
) -> Float32:
    """The vectors of all tokens of some blocks, float32 ``[blocks * tokens_per_block, dim]``."""
    found = np.empty((len(slots), tokens_per_block * dim), dtype=np.float32)
    for level, (pool, (first, stride)) in enumerate(zip(pools, spots, strict=True)):
        mine = levels == level
        pages, units_in = np.divmod(slots[mine].astype(np.int64), units)
        starts = first + pages * stride + units_in * tokens_per_block * dim
        found[mine] = pool[starts[:, None] + np.arange(tokens_per_block * dim)]
    return found.reshape(-1, dim)


def _online(query: Float32, keys: Float32, values: Float32, scale: np.float32) -> Float32:
    """Online softmax over the tokens, ``LANES`` at a time, then over the lanes."""
    best = np.full(LANES, -np.inf, dtype=np.float32)
    total = np.zeros(LANES, dtype=np.float32)
    partial = np.zeros((LANES, values.shape[1]), dtype=np.float32)
    for first in range(0, len(keys), LANES):
        part = slice(0, min(LANES, len(keys) - first))
        score = (keys[first : first + LANES] @ query) * scale
        larger = np.maximum(best[part], score)
        shrink = np.exp(best[part] - larger)
        weight = np.exp(score - larger)
        best[part] = larger
        total[part] = total[part] * shrink + weight
        partial[part] = partial[part] * shrink[:, None] + weight[:, None] * values[first : first + LANES]
    share = np.exp(best - best.max())
    joined: Float32 = share @ partial / (share @ total)
    return joined


ATTEND = Kernel("attend_history", _attend_cuda, attend_twin)
"""Attention of one query a row; launched with a block of ``LANES`` threads for each row."""
