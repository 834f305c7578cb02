"""How the fetch kernels move what was missed from the host's memory to the GPU's."""

from __future__ import annotations

from typing import Any

import numba.cuda
import numpy as np

from kvgpu.fetch.words import SEGMENT_WORDS
from kvgpu.storage import wide_copy

cuda: Any = numba.cuda
load16: Any = wide_copy.load16
store16: Any = wide_copy.store16

CHUNK = 4096
"""Bytes that a warp moves at a time: eight accesses of 16 bytes a thread, all loads before the first store."""
HALF = 2048
"""What is less than that, but as much as this, begins with four of them."""


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def move_piece(host: Any, gpu: Any, source: int, target: int, size: int, odd: int, lane: int) -> None:
    """Move ``size`` bytes, at most ``CHUNK``; all threads of a warp call it. ``odd``: what has to be even for wide accesses."""
    if odd & 15 == 0:
        at = source + (lane << 4)
        to = target + (lane << 4)
        done = 0
        if size == CHUNK:
            a, b, c, d = load16(host, at), load16(host, at + 512), load16(host, at + 1024), load16(host, at + 1536)
            e, f, g, h = load16(host, at + 2048), load16(host, at + 2560), load16(host, at + 3072), load16(host, at + 3584)
            store16(gpu, to, a)
            store16(gpu, to + 512, b)
            store16(gpu, to + 1024, c)
            store16(gpu, to + 1536, d)
            store16(gpu, to + 2048, e)
            store16(gpu, to + 2560, f)
            store16(gpu, to + 3072, g)
            store16(gpu, to + 3584, h)
            done = CHUNK
        elif size >= HALF:
            a, b, c, d = load16(host, at), load16(host, at + 512), load16(host, at + 1024), load16(host, at + 1536)
            store16(gpu, to, a)
            store16(gpu, to + 512, b)
            store16(gpu, to + 1024, c)
            store16(gpu, to + 1536, d)
            done = HALF
        for step in range(done, size - (lane << 4), 512):
            store16(gpu, to + step, load16(host, at + step))
    elif odd & 7 == 0:
        host_words = host.view(np.int64)
        gpu_words = gpu.view(np.int64)
        for offset in range(8 * lane, size, 256):
            gpu_words[(target + offset) >> 3] = host_words[(source + offset) >> 3]
    else:
        for offset in range(lane, size, 32):
            gpu[target + offset] = host[source + offset]


@cuda.jit(device=True)  # type: ignore[untyped-decorator]
def move_misses(
    host: Any,
    gpu: Any,
    table: Any,
    row_at: int,
    segments: Any,
    first_buffer: int,
    buffers: int,
    number: Any,
    entry: Any,
    missed: Any,
    misses: int,
    units: int,
    mine: int,
    threads: int,
) -> None:
    """Move the units of all misses of a row; its warps share the pieces. ``row_at``: where the row begins in ``table``.

    ``missed``: which of ``number``, to go into ``entry``. ``mine``: the thread, of so many.
    """
    words = segments.view(np.int64)
    for buffer in range(first_buffer, first_buffer + buffers):
        first_word = SEGMENT_WORDS * buffer
        source_base = words[first_word]
        source_stride = words[first_word + 1]
        target_base = words[first_word + 2]
        target_stride = words[first_word + 3]
        size = words[first_word + 4]
        odd = source_base | source_stride | target_base | target_stride | size
        chunks = (size + CHUNK - 1) // CHUNK
        for piece in range(mine >> 5, misses * chunks, threads >> 5):
            miss = piece // chunks
            inside = (piece - miss * chunks) * CHUNK
            at = missed[miss]
            one = number[at]
            raw = entry[at]
            slot = table[row_at + one // units]
            source = source_base + slot * source_stride + (one % units) * size + inside
            target = target_base + (raw // units) * target_stride + (raw % units) * size + inside
            left = size - inside
            if left > CHUNK:
                left = CHUNK
            move_piece(host, gpu, source, target, left, odd, mine & 31)
