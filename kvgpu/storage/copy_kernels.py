"""The page copy kernel: one launch for any number of pages, between any two memories that the device can address.

Its descriptor, int64 words in pinned memory: for each segment of a page ``source base, source stride, target base, target
stride, bytes``; then for each page ``source slot, target slot``. A segment is one pool: its bytes of page ``i`` lie at
``base + slot * stride`` on either side. 16 bytes are moved at a time where everything is a multiple of 16 (addresses of
memories are), else 8, else 1.
"""

from __future__ import annotations

from typing import Any

import numba.cuda
import numpy as np
import numpy.typing as npt

from kvgpu.config import PoolGroup
from kvgpu.device.api import Kernel
from kvgpu.storage import wide_copy

cuda: Any = numba.cuda
load16: Any = wide_copy.load16
store16: Any = wide_copy.store16

THREADS = 512
"""Threads of a block of the copy kernel."""
MAX_BLOCKS = 16
"""Blocks at most: copies must not take the GPU from the model, and more are no faster over PCIe."""
CHUNK = 4096
"""Bytes that a warp moves at a time: eight accesses of 16 bytes a thread, all loads before the first store."""
BYTES_PER_BLOCK = 64 * 1024
"""A block for each so many bytes, up to ``MAX_BLOCKS``."""
SEGMENT_WORDS = 5
PAIR_WORDS = 2

Bytes = npt.NDArray[np.uint8]
Slots = npt.NDArray[np.int32]


def _copy_pages_cuda(source: Any, target: Any, descriptor: Any, pages: Any, segments: Any) -> None:
    words = descriptor.view(np.int64)
    thread = cuda.grid(1)
    threads = cuda.gridsize(1)
    pairs = SEGMENT_WORDS * segments
    for segment in range(segments):
        first = SEGMENT_WORDS * segment
        source_base = words[first]
        source_stride = words[first + 1]
        target_base = words[first + 2]
        target_stride = words[first + 3]
        size = words[first + 4]
        odd = source_base | source_stride | target_base | target_stride | size
        if odd & 15 == 0:
            lane = (thread & 31) << 4
            chunks = (size + CHUNK - 1) // CHUNK
            for chunk in range(thread >> 5, pages * chunks, threads >> 5):
                page = chunk // chunks
                inside = (chunk - page * chunks) * CHUNK
                pair = pairs + PAIR_WORDS * page
                to = target_base + words[pair + 1] * target_stride + inside + lane
                at = source_base + words[pair] * source_stride + inside + lane
                if inside + CHUNK <= size:
                    one, two, three, four = (
                        load16(source, at),
                        load16(source, at + 512),
                        load16(source, at + 1024),
                        load16(source, at + 1536),
                    )
                    five, six, seven, eight = (
                        load16(source, at + 2048),
                        load16(source, at + 2560),
                        load16(source, at + 3072),
                        load16(source, at + 3584),
                    )
                    store16(target, to, one)
                    store16(target, to + 512, two)
                    store16(target, to + 1024, three)
                    store16(target, to + 1536, four)
                    store16(target, to + 2048, five)
                    store16(target, to + 2560, six)
                    store16(target, to + 3072, seven)
                    store16(target, to + 3584, eight)
                else:
                    for step in range(0, size - inside - lane, 512):
                        store16(target, to + step, load16(source, at + step))
        elif odd & 7 == 0:
            source_words = source.view(np.int64)
            target_words = target.view(np.int64)
            units = size >> 3
            for unit in range(thread, pages * units, threads):
                page = unit // units
                inside = unit - page * units
                pair = pairs + PAIR_WORDS * page
                target_words[((target_base + words[pair + 1] * target_stride) >> 3) + inside] = source_words[
                    ((source_base + words[pair] * source_stride) >> 3) + inside
                ]
        else:
            for unit in range(thread, pages * size, threads):
                page = unit // size
                inside = unit - page * size
                pair = pairs + PAIR_WORDS * page
                target[target_base + words[pair + 1] * target_stride + inside] = source[
                    source_base + words[pair] * source_stride + inside
                ]


def _strided(memory: Bytes, base: int, stride: int, size: int) -> Bytes:
    """The segments of all slots: uint8 ``[slots, size]``, a view."""
    rest = memory[base:]
    return np.lib.stride_tricks.as_strided(rest, ((len(rest) - size) // stride + 1, size), (stride, 1))


def copy_pages_twin(source: Bytes, target: Bytes, descriptor: Bytes, pages: int, segments: int) -> None:
    """The kernel's work on host arrays."""
    words = descriptor.view(np.int64)
    pairs = words[SEGMENT_WORDS * segments :][: PAIR_WORDS * pages].reshape(pages, PAIR_WORDS)
    for source_base, source_stride, target_base, target_stride, size in words[: SEGMENT_WORDS * segments].reshape(-1, 5).tolist():
        _strided(target, target_base, target_stride, size)[pairs[:, 1]] = _strided(source, source_base, source_stride, size)[
            pairs[:, 0]
        ]


COPY_PAGES = Kernel("copy_pages", _copy_pages_cuda, copy_pages_twin)
"""Arguments: source memory, target memory, descriptor memory, number of pages, number of segments."""
COPY_PAGES_ARRAYS = (True, True, True, False, False)
"""Which arguments of ``COPY_PAGES`` are memory."""


def blocks_for(nbytes: int) -> int:
    """How many blocks a copy of ``nbytes`` bytes gets."""
    return max(1, min(MAX_BLOCKS, -(-nbytes // BYTES_PER_BLOCK)))


def _side(spec: PoolGroup | None, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(base, stride) of each segment: a pool each, or, in a memory of whole pages, one after the other."""
    if spec is not None and len(spec.pools) == len(sizes):
        return list(spec.pools)
    bases = [sum(sizes[:nth]) for nth in range(len(sizes))]
    return [(base, sum(sizes)) for base in bases]


def segment_words(source: PoolGroup | None, target: PoolGroup | None) -> npt.NDArray[np.int64]:
    """The segments between two pool groups, int64 ``[segments, 5]``. ``None``: whole pages, one after the other."""
    known = [spec for spec in (source, target) if spec is not None]
    sizes = max((tuple(size for _, size in spec.pools) for spec in known), key=len)
    rows = [(*one, *other, size) for one, other, size in zip(_side(source, sizes), _side(target, sizes), sizes, strict=True)]
    return np.array(rows, dtype=np.int64)


def descriptor_bytes(pages: int, segments: int) -> int:
    """The size of a descriptor."""
    return 8 * (SEGMENT_WORDS * segments + PAIR_WORDS * pages)


def fill_descriptor(
    words: npt.NDArray[np.int64], segments: npt.NDArray[np.int64], source_slots: Slots, target_slots: Slots
) -> None:
    """Write a descriptor into ``words`` (at least ``descriptor_bytes``)."""
    header = segments.size
    end = header + PAIR_WORDS * len(source_slots)
    words[:header] = segments.reshape(-1)
    words[header:end:PAIR_WORDS] = source_slots
    words[header + 1 : end : PAIR_WORDS] = target_slots
