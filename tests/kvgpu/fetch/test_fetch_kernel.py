"""The fetch kernel: its source on numba's simulator and on a GPU against its twin, over selections that follow each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.device.api import Kernel
from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.fetch import kernel as kernels
from kvgpu.fetch import moving
from kvgpu.fetch.kernel import ANY, FETCH_ARRAYS, QUICK, THREADS, fetch_twin, kernel_for
from kvgpu.fetch.quick import quick_source_of
from kvgpu.fetch.words import HEAD, PLANES, SEGMENT_WORDS
from tests.simulator import load16, said_on_simulator, store16

Bytes = npt.NDArray[np.uint8]
SIMULATED_THREADS = 32
SIMULATED, ON_GPU = 1, 60
"""Stories, by their seed."""
CALLS = 6
"""Fetches of a story."""
SIZES = (16, 24, 5, 4096 + 2048 + 48, 2048)
"""Bytes of a unit of a buffer: wide, by words, by bytes, with chunks of a warp and a rest."""


@dataclass
class Story:
    """Two rows, two layers and two buffers of a layer; ``arguments`` of each call. The first four arrays are written to."""

    written: tuple[Bytes, ...]
    host: Bytes
    tables: Bytes
    rows: Bytes
    segments: Bytes
    calls: list[tuple[Bytes, tuple[int, ...]]]

    def run(self, launch: Callable[..., None], written: tuple[Bytes, ...], call: int) -> None:
        """One fetch: ``launch`` gets the kernel's arguments."""
        gpu, state, result, counters = written
        selected, numbers = self.calls[call]
        launch(self.host, gpu, self.tables, self.rows, state, selected, result, counters, self.segments, *numbers)


def story(seed: int, most: int = 8, reserves: int = 4) -> Story:
    """Selections that drift, repeat, and name what there is not; reservations of any size.

    ``most``: numbers that are selected at most, ``reserves``: slots. With more than the usual, most stories have as many.
    """
    rng = np.random.default_rng(seed)
    large = reserves > 4
    units = int(rng.choice([1, 2, 4]))
    reserve = int(rng.integers(reserves - 3 if large else 1, reserves + 1))
    rows, layers, buffers, host_slots = 2, 2, 2, 8
    blocks, slots = max(10, 2 * reserve), 3 * reserve
    upper = min(reserve * units, most)
    selects = int(rng.integers(upper // 2 if large else 1, upper + 1))
    sizes = rng.choice(SIZES[:3] if large else SIZES, buffers)
    page = int(layers * units * sizes.sum())
    table = rng.integers(0, host_slots, rows * blocks + rows).astype(np.int32)
    table[rows * blocks :] = rng.integers(0 if rng.random() < 0.2 else blocks // 2, blocks, rows)
    heads = np.zeros((rows, HEAD + reserve), np.int32)
    order = rng.permutation(slots)
    for row in range(rows):
        held = int(rng.integers(-(-selects // units), reserve + 1))
        heads[row, :HEAD] = row + 1 if rng.random() < 0.9 else 0, held
        heads[row, HEAD : HEAD + held] = order[row * reserve : row * reserve + held]
    words = np.zeros((layers, buffers, SEGMENT_WORDS), np.int64)
    offset = 0
    for layer in range(layers):
        for buffer, size in enumerate(sizes.tolist()):
            words[layer, buffer] = offset, page, offset, page, size
            offset += size * units
    calls = []
    before = rng.integers(0, blocks * units, (rows, selects))
    for _ in range(CALLS):
        fresh = rng.integers(-2, blocks * units, (rows, selects))
        before = np.where(rng.random((rows, selects)) < 0.5, before, fresh)
        numbers = (rows, selects, HEAD + reserve, units, blocks, 0, rows * blocks, slots * units, layers)
        calls.append((_bytes(before.astype(np.int32)), (*numbers, int(rng.random() < 0.2), buffers)))
    written = (
        np.zeros(page * slots + 16, np.uint8),
        np.zeros(4 * PLANES * layers * slots * units, np.uint8),
        np.zeros(8 * rows * selects, np.uint8),
        np.zeros(16 * layers, np.uint8),
    )
    host = rng.integers(0, 256, page * host_slots + 16).astype(np.uint8)
    return Story(written, host, _bytes(table), _bytes(heads), _bytes(words), calls)


def _bytes(array: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def by_twin(one: Story) -> Iterator[tuple[Bytes, ...]]:
    """What is there after each call; of the state, what counts."""
    written = tuple(part.copy() for part in one.written)
    for call in range(CALLS):
        one.run(fetch_twin, written, call)
        yield counting(written)


def counting(written: tuple[Bytes, ...]) -> tuple[Bytes, ...]:
    """Without the planes of scratch."""
    gpu, state, result, counters = written
    return gpu, state[: len(state) * 3 // PLANES].copy(), result, counters


def compare_all() -> int:
    """Run the kernels' sources on numba's CUDA simulator against the twin; how many fetches were equal.

    The kernel for any rows gets stories with more entries and numbers than a block has threads, too.
    """
    from numba import cuda

    moving.load16, moving.store16 = load16, store16  # the simulator knows no inline PTX
    kernels.THREADS = threads = SIMULATED_THREADS
    quick, anything = cuda.jit(quick_source_of(64, threads)), cuda.jit(kernels.source_of(64))
    compared = 0
    for seed in range(SIMULATED):
        pairs = [(quick, story(seed)), (anything, story(seed)), (anything, story(seed, 40, 12)), (quick, story(seed, 32, 8))]
        for source, one in pairs:
            written = tuple(part.copy() for part in one.written)
            for call, wanted in enumerate(by_twin(one)):
                one.run(source[2, threads], written, call)
                for name, two, theirs in zip(("gpu", "state", "result", "counters"), counting(written), wanted, strict=True):
                    assert np.array_equal(two, theirs), f"twin and kernel differ: story {seed}, call {call}, {name}"
                compared += 1
    return compared


def test_kernel_source_equals_twin() -> None:
    assert said_on_simulator(__file__) == [str(4 * SIMULATED * CALLS)]


@pytest.mark.parametrize("sizes", [(8, 4), (40, 12), (32, 8)])
def test_stories_evict_some_of_what_nobody_names(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, placed = [], kernels.placed

    def watched(others: list[int], free: list[int], misses: int) -> tuple[list[int], list[int]]:
        chosen.append(0 < misses - len(free) < len(others))
        return placed(others, free, misses)

    monkeypatch.setattr(kernels, "placed", watched)
    for seed in range(10):
        list(by_twin(story(seed, *sizes)))
    assert sum(chosen) > len(chosen) / 16


def test_there_is_a_kernel_for_any_rows() -> None:
    assert kernel_for(16, 48) is QUICK[0] and kernel_for(65, THREADS) is QUICK[1]
    assert kernel_for(16, THREADS + 1) is ANY[0] and kernel_for(2048, 2048) is ANY[2]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        *((kernel, (8, 4)) for kernel in (*QUICK, *ANY)),
        (QUICK[0], (60, 100)),
        (QUICK[1], (500, 120)),
        (ANY[0], (60, 600)),
        (ANY[2], (1200, 600)),
    ],
    ids=lambda one: one.name if isinstance(one, Kernel) else "-".join(map(str, one)),
)
def test_kernel_on_a_gpu_equals_twin(kernel: Kernel, sizes: tuple[int, int]) -> None:
    if reason := why_no_gpu():
        pytest.skip(reason)
    device = open_device("cuda")
    stream = device.stream("kernel")
    device.prepare(kernel, FETCH_ARRAYS)
    memories: list[Any] = []

    def put(part: Bytes, kind: str) -> Any:
        pinned = device.allocate("pinned", part.size, "of the test")
        pinned.host_array()[: part.size] = part
        memories.append(pinned)
        if kind == "pinned":
            return pinned
        there = device.allocate("device", part.size, "of the test")
        memories.append(there)
        device.upload(stream, pinned, 0, there, 0, part.size, lambda: (), "arrange")
        return there

    for seed in range(ON_GPU if sizes[1] == 4 else ON_GPU // 10):
        one = story(seed, *sizes)
        written = [put(part, "device") for part in one.written]
        host, tables = put(one.host, "pinned"), put(one.tables, "device")
        rows, segments = put(one.rows, "device"), put(one.segments, "device")
        for call, wanted in enumerate(by_twin(one)):
            selected, numbers = one.calls[call]
            gpu, state, result, counters = written
            args = (host, gpu, tables, rows, state, put(selected, "device"), result, counters, segments, *numbers)
            device.launch(stream, kernel, 2, THREADS, args, lambda: (), "the kernel")
            device.settle()
            for name, memory, theirs in zip(("gpu", "state", "result", "counters"), written, wanted, strict=True):
                assert memory.read_now(0, theirs.size) == theirs.tobytes(), f"story {seed}, call {call}, {name}"
        while memories:
            memories.pop().free()
    device.close()


def test_twin_evicts_the_least_recent_that_is_not_named() -> None:
    assert kernels.placed([7, 5, 3], [], 2) == ([7], [3, 5])
    assert kernels.placed([7, 5], [9], 2) == ([7], [9, 5])
    assert kernels.recent([1], [2], [3]) == [1, 2, 3]
    assert kernels.named([4, -1, 4, 0, 5], 5) == [4, 0]


if __name__ == "__main__":
    print(compare_all())
