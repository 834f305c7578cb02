"""The index list: the kernel's source on numba's simulator and on a GPU against its twin, and a list worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.serving import list_kernel
from kvgpu.serving.list_kernel import LIST, LIST_ARRAYS, LISTERS, list_twin
from tests.simulator import said_on_simulator

Bytes = npt.NDArray[np.uint8]
CASES, SIMULATED_LISTERS = 8, 4
READ, WRITTEN = 3, 2
"""Memories of a launch."""


def a_launch(seed: int) -> tuple[list[Bytes], tuple[int, ...]]:
    """Memories and numbers of a launch; a table of something else comes first."""
    rng = np.random.default_rng(seed)
    rows, selects, blocks = int(rng.integers(1, 5)), int(rng.integers(1, 20)), int(rng.integers(1, 20))
    units, tokens = int(rng.choice([1, 2, 4])), 4
    width, cells = selects + blocks * units, rows * blocks
    lengths = rng.integers(0, blocks * tokens + 1, rows) * (rng.random(rows) < 0.8)
    table = rng.integers(0, 90, (2, rows, blocks))
    counts = np.stack([rng.integers(0, lengths // tokens + 1) for _ in range(2)])
    levels = rng.choice([0, 0, 1, -1], (2, rows, blocks), p=[0.4, 0.3, 0.2, 0.1])
    table[levels < 0] = -1
    fetched = rng.integers(-1, 90 * units, (rows, selects))
    fetched[rng.random((rows, selects)) < 0.3] = fetched[0, 0]
    tables = [_bytes(table, np.int32), _bytes(counts, np.int32), _bytes(levels, np.int8)]
    tables.append(np.zeros(-sum(map(len, tables)) % 4, np.uint8))
    memories = [np.concatenate(tables), _bytes(fetched, np.int32), _bytes(lengths, np.int32)]
    memories += [np.full(4 * rows * width, 0xDD, np.uint8), np.full(4 * rows, 0xDD, np.uint8)]
    table_first, counts_first, levels_first = cells, 2 * cells + rows, 4 * (2 * cells + 2 * rows) + cells
    return memories, (rows, selects, blocks, units, tokens, width, table_first, counts_first, levels_first)


def _bytes(array: npt.NDArray[Any], kind: Any) -> Bytes:
    return np.ascontiguousarray(array.astype(kind)).view(np.uint8).reshape(-1)


def by_twin(memories: list[Bytes], numbers: tuple[int, ...]) -> list[Bytes]:
    """What is written."""
    written = [part.copy() for part in memories[READ:]]
    list_twin(*memories[:READ], *written, *numbers)
    return written


def compare_all() -> int:
    """Run the kernel's source on numba's CUDA simulator against the twin; how many launches were equal."""
    from numba import cuda

    list_kernel.LISTERS = SIMULATED_LISTERS
    jit: Any = cuda.jit
    source = jit(LIST.cuda_source)
    for seed in range(CASES):
        memories, numbers = a_launch(seed)
        written = [part.copy() for part in memories[READ:]]
        source[numbers[0], SIMULATED_LISTERS](*memories[:READ], *written, *numbers)
        for mine, wanted in zip(written, by_twin(memories, numbers), strict=True):
            assert np.array_equal(mine, wanted), f"twin and kernel differ: {seed}"
    return CASES


def test_kernel_source_equals_twin() -> None:
    assert said_on_simulator(__file__) == [str(CASES)]


@pytest.mark.cuda
def test_kernel_on_a_gpu_equals_twin() -> None:
    if reason := why_no_gpu():
        pytest.skip(reason)
    device = open_device("cuda")
    stream = device.stream("list")
    device.prepare(LIST, LIST_ARRAYS)
    for seed in range(5 * CASES):
        parts, numbers = a_launch(seed)
        memories = [device.allocate("pinned", part.size, "of the test") for part in parts]
        for memory, part in zip(memories, parts, strict=True):
            memory.host_array()[: part.size] = part
        device.launch(stream, LIST, numbers[0], LISTERS, (*memories, *numbers), lambda: (), "the kernel")
        device.settle()
        for memory, wanted in zip(memories[READ:], by_twin(parts, numbers), strict=True):
            assert memory.read_now(0, wanted.size) == wanted.tobytes(), f"launch {seed}"
        for memory in memories:
            memory.free()
    device.close()


def test_a_list_by_hand() -> None:
    # Two units a page of four tokens. Block 0 is fetched, 1 is behind a gap on the host, 2 and the end of 3 are on the GPU.
    tables = np.concatenate([_bytes(np.array([70, 71, 5, 6, 1]), np.int32), _bytes(np.array([1, 1, 0, 0]), np.int8)])
    fetched, lengths = _bytes(np.array([9, -1, 9, 8]), np.int32), _bytes(np.array([15]), np.int32)
    written = [np.zeros(4 * 12, np.uint8), np.zeros(4, np.uint8)]
    list_twin(tables, fetched, lengths, *written, 1, 4, 4, 2, 4, 12, 0, 4, 20)
    assert written[0].view(np.int32)[:6].tolist() == [9, 8, 10, 11, 12, 13]
    assert written[1].view(np.int32).tolist() == [2 + 2 + 4 + 3]


if __name__ == "__main__":
    print(compare_all())
