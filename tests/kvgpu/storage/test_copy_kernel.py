"""The page copy kernel: its twin against a plain loop, its CUDA form against its twin, segment by segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.config import PoolGroup
from kvgpu.storage import copy_kernels as kernels
from kvgpu.storage.copy_kernels import blocks_for, copy_pages_twin, descriptor_bytes, fill_descriptor, segment_words

Bytes = npt.NDArray[np.uint8]

GPU_SIZES = ((64,), (48, 16), (24, 8), (7, 3), (4096 + 528,), (8192, 32))
"""Pools of a page: multiples of 16, of 8, of nothing; a chunk of a warp and a rest; whole chunks."""


def pools(sizes: tuple[int, ...], slots: int) -> PoolGroup:
    offsets = np.cumsum([0] + [-(-size * slots // 256) * 256 for size in sizes])[:-1]
    return PoolGroup(0, 0, (0,), slots, tuple(zip(offsets.tolist(), sizes, strict=True)), 0)


def host(sizes: tuple[int, ...], slots: int) -> PoolGroup:
    return PoolGroup(1, 0, (0,), slots, ((0, sum(sizes)),), None)


def memory(spec: PoolGroup, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, -(-spec.nbytes // 16) * 16, dtype=np.uint8)


def page(data: Bytes, spec: PoolGroup, sizes: tuple[int, ...], slot: int) -> bytes:
    """A page as a plain loop finds it."""
    if len(spec.pools) == 1:
        return data[slot * sum(sizes) :][: sum(sizes)].tobytes()
    return b"".join(data[offset + slot * size :][:size].tobytes() for offset, size in spec.pools)


def cases() -> list[Any]:
    return [
        pytest.param(sizes, sides, id=f"{'+'.join(map(str, sizes))}-{sides}")
        for sizes in GPU_SIZES
        for sides in ("offload", "onboard", "copy", "host")
    ]


def arrange(sizes: tuple[int, ...], sides: str) -> tuple[PoolGroup, PoolGroup, Bytes, Bytes, Bytes, int, int, Any, Any]:
    gpu, cold = pools(sizes, 9), host(sizes, 9)
    source, target = {"offload": (gpu, cold), "onboard": (cold, gpu), "copy": (gpu, gpu), "host": (cold, cold)}[sides]
    left, right = np.array([3, 0, 8, 5], dtype=np.int32), np.array([1, 8, 2, 0], dtype=np.int32)
    segments = segment_words(source, target)
    descriptor = np.zeros(descriptor_bytes(len(left), len(segments)), dtype=np.uint8)
    fill_descriptor(descriptor.view(np.int64), segments, left, right)
    return source, target, memory(source, 1), memory(target, 2), descriptor, len(left), len(segments), left, right


@pytest.mark.parametrize(("sizes", "sides"), cases())
def test_twin_copies_each_page_and_nothing_else(sizes: tuple[int, ...], sides: str) -> None:
    source, target, from_, to, descriptor, pages, segments, left, right = arrange(sizes, sides)
    before = to.copy()
    copy_pages_twin(from_, to, descriptor, pages, segments)
    moved = dict(zip(right.tolist(), left.tolist(), strict=True))
    for slot in range(target.slots):
        expected = page(from_, source, sizes, moved[slot]) if slot in moved else page(before, target, sizes, slot)
        assert page(to, target, sizes, slot) == expected, f"slot {slot}"


class OneThread:
    """What a kernel sees of CUDA when one thread does all the work of a share of ``threads``."""

    def __init__(self, thread: int, threads: int) -> None:
        self._thread, self._threads = thread, threads

    def grid(self, _: int) -> int:
        return self._thread

    def gridsize(self, _: int) -> int:
        return self._threads


def load16(source: Bytes, offset: int) -> Bytes:
    return source[offset : offset + 16].copy()


def store16(target: Bytes, offset: int, words: Bytes) -> None:
    target[offset : offset + 16] = words


@pytest.mark.parametrize(("sizes", "sides"), cases())
def test_cuda_source_does_what_the_twin_does(sizes: tuple[int, ...], sides: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, from_, to, descriptor, pages, segments, _, _ = arrange(sizes, sides)
    twin = to.copy()
    copy_pages_twin(from_, twin, descriptor, pages, segments)
    monkeypatch.setattr(kernels, "load16", load16)
    monkeypatch.setattr(kernels, "store16", store16)
    for thread in range(64):  # two warps
        monkeypatch.setattr(kernels, "cuda", OneThread(thread, 64))
        kernels.COPY_PAGES.cuda_source(from_, to, descriptor, pages, segments)
    assert (to == twin).all()


def test_a_buffer_of_whole_pages_is_laid_out_like_a_host_page() -> None:
    gpu = pools((48, 16), 5)
    assert segment_words(None, gpu).tolist() == [[0, 64, 0, 48, 48], [48, 64, 256, 16, 16]]


def test_few_blocks() -> None:
    assert [blocks_for(nbytes) for nbytes in (1, 64 * 1024, 64 * 1024 + 1, 1 << 30)] == [1, 1, 2, 16]
