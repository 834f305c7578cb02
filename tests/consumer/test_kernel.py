"""The consumer's kernel and its NumPy twin compute the same, up to the order of float32 sums."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.serving.consumer_kernels import ATTEND, LANES
from tests.simulator import said_on_simulator

CASES = [
    # tokens per block (or unit), units of a page, key dim, value dim, lengths by row
    (4, 1, 8, 6, (0, 1, 31, 32, 33)),
    (1, 1, 3, 5, (7, 70)),
    (16, 1, 4, 40, (100, 3)),
    (2, 4, 5, 3, (67, 12)),
]


def a_launch(case: int) -> tuple[list[npt.NDArray[np.uint8]], tuple[int, ...], npt.NDArray[np.float64]]:
    """Memories and numbers of a launch over random pages, and dense attention over them, float64."""
    size, units, key_dim, value_dim, lengths = CASES[case]
    rng = np.random.default_rng(case)
    rows, slots = len(lengths), 80
    blocks = -(-max(lengths) // size) + 1
    key, value = size * units * key_dim, size * units * value_dim
    # On the GPU keys and values in pools of their own, on the host page by page, both with something else before them.
    numbers_at = ((5, key + 2, 7 + slots * (key + 2), value), (3, key + value + 1, 3 + key, key + value + 1))
    pools = [rng.standard_normal(slots * (key + value + 4) + 16).astype(np.float32) for _ in range(2)]
    table = np.full((rows, blocks), -1, np.int32)
    level = np.full((rows, blocks), -1, np.int8)
    counts = np.zeros(rows, np.int32)
    queries = rng.standard_normal((rows, key_dim)).astype(np.float32)
    wanted = np.zeros((rows, value_dim))
    for row, length in enumerate(lengths):
        used = -(-length // size)
        level[row, :used] = rng.integers(0, 2, used)
        table[row, :used] = rng.permutation(slots * units)[:used]
        counts[row] = rng.integers(0, used + 1)
        level[row, : counts[row]] = 1
        keys, values = [], []
        for block in range(used):
            kf, ks, vf, vs = numbers_at[level[row, block]]
            pool, (slot, unit) = pools[level[row, block]], divmod(table[row, block], units)
            keys.append(pool[kf + slot * ks :][:key].reshape(units, size, key_dim)[unit])
            values.append(pool[vf + slot * vs :][:value].reshape(units, size, value_dim)[unit])
        if length:
            scores = np.concatenate(keys)[:length].astype(np.float64) @ queries[row].astype(np.float64) / np.sqrt(key_dim)
            weights = np.exp(scores - scores.max())
            wanted[row] = weights @ np.concatenate(values)[:length] / weights.sum()
    # What page_level says of the first num_blocks entries is not to be read.
    for row in range(rows):
        level[row, : counts[row]] = rng.integers(-1, 2, counts[row])
    tables = np.concatenate([table.reshape(-1).view(np.uint8), counts.view(np.uint8), level.reshape(-1).view(np.uint8)])
    tables = np.concatenate([tables, np.zeros(-len(tables) % 4, np.uint8)])
    cells = rows * blocks
    numbers = (rows, blocks, size, key_dim, value_dim, units, 0, cells, 4 * (cells + rows), *numbers_at[0], *numbers_at[1])
    memories = [tables, *(pool.view(np.uint8) for pool in pools), queries.reshape(-1).view(np.uint8)]
    memories += [np.array(lengths, np.int32).view(np.uint8), np.full(4 * rows * value_dim, 0xDD, np.uint8)]
    return memories, numbers, wanted


def error(output: npt.NDArray[np.uint8], wanted: npt.NDArray[np.float64]) -> float:
    """The largest error, relative to the largest number."""
    return float(np.abs(output.view(np.float32).reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())


def compare_all() -> int:
    """Run the kernel's source on numba's CUDA simulator against the twin and dense attention; how many cases were equal."""
    from numba import cuda

    jit: Any = cuda.jit
    source = jit(ATTEND.cuda_source)
    for case in range(len(CASES)):
        memories, numbers, wanted = a_launch(case)
        by_twin, by_source = memories[-1].copy(), memories[-1].copy()
        ATTEND.twin(*memories[:-1], by_twin, *numbers)
        source[numbers[0], LANES](*memories[:-1], by_source, *numbers)
        assert error(by_twin, wanted) < 1e-5, f"twin, case {case}: {error(by_twin, wanted)}"
        assert error(by_source, wanted) < 1e-5, f"kernel, case {case}: {error(by_source, wanted)}"
        apart = error(by_source, by_twin.view(np.float32).reshape(wanted.shape).astype(np.float64))
        assert apart < 1e-6, f"kernel and twin, case {case}: {apart}"
    return len(CASES)


def test_kernel_source_equals_twin_and_dense_attention() -> None:
    assert said_on_simulator(__file__) == [str(len(CASES))]


def test_history_without_a_page_is_nan() -> None:
    memories, numbers, _ = a_launch(1)
    memories[0].view(np.int32)[numbers[1] * 1 + 50] = -1
    ATTEND.twin(*memories, *numbers)
    output = memories[-1].view(np.float32).reshape(2, -1)
    assert not np.isnan(output[0]).any()
    assert np.isnan(output[1]).all()


if __name__ == "__main__":
    print(compare_all())
