"""The scatter kernel and its NumPy twin write the same bytes."""

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu import publish_kernels
from kvgpu.publish_kernels import SCATTER, THREADS, TURNS, UNIT, TableLayout, packed_size, padded, scatter_shape, sections

CASES = [
    (1, 1, 3, False),
    (3, 2, 5, True),
    (2, 1, UNIT * TURNS * THREADS * 2 + 5, True),
    (6, 3, 17, False),
    (3, 3, 16, True),
    (2, 2, 2 * UNIT * THREADS, False),
]
"""Groups, rows, blocks, levels."""


def a_publication(
    seed: int, layout: TableLayout, share: float
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], tuple[int, ...], tuple[int, int]]:
    """Random packed bytes, tables with old contents, the kernel's numbers, and its launch shape.

    ``share``: how many of the rows and groups write a few blocks alone.
    """
    rng = np.random.default_rng(seed)
    dirty = np.sort(rng.choice(layout.rows, rng.integers(1, layout.rows + 1), replace=False))
    lengths = rng.integers(0, layout.blocks + 1, dirty.size * layout.groups)
    few = rng.random(lengths.size) < share
    lengths[few] //= 2
    room = padded(np.where(few, 2 * lengths, lengths))
    entries = int(room.sum())
    staging = np.full(packed_size(lengths.size, entries, layout.levels), 0xDD, np.uint8)
    packed = sections(staging, lengths.size, entries, layout.levels)
    packed.heads[:, 0] = np.repeat(dirty, layout.groups)
    packed.heads[:, 1] = np.cumsum(room) - room
    packed.heads[:, 2] = np.where(few, ~lengths, lengths)
    packed.heads[:, 3] = rng.integers(0, 100, lengths.size)
    packed.entries[:] = rng.integers(-1, 1000, entries)
    for start, changes in zip(packed.heads[few, 1], lengths[few], strict=True):
        packed.entries[start : start + 2 * changes : 2] = rng.choice(layout.blocks, changes, replace=False)
    packed.levels[:] = rng.integers(-1, 3, packed.levels.size)
    tables = rng.integers(0, 256, layout.nbytes).astype(np.uint8)
    blocks, chunks = scatter_shape(layout, dirty.size, int(lengths.max(initial=1)) if few.all() else 0)
    numbers = (
        lengths.size,
        layout.groups,
        layout.rows,
        layout.blocks,
        entries,
        layout.counts_offset,
        layout.levels_offset,
        int(layout.levels),
        chunks,
    )
    return staging, tables, numbers, (blocks, THREADS)


def _load16(source: Any, offset: int) -> tuple[Any, Any]:
    assert offset % 16 == 0
    low, high = source[offset : offset + 16].view(np.uint64)
    return low, high


def _store16(target: Any, offset: int, words: tuple[Any, Any]) -> None:
    assert offset % 16 == 0
    target[offset : offset + 16].view(np.uint64)[:] = words


def compare_all() -> int:
    """Run the kernel's source on numba's CUDA simulator against the twin; how many publications were equal."""
    from numba import cuda

    # The simulator knows no inline PTX.
    publish_kernels.load16, publish_kernels.store16 = _load16, _store16
    source = cuda.jit(SCATTER.cuda_source)
    compared = 0
    for seed, (share, (groups, rows, blocks, levels)) in enumerate(itertools.product((0, 0.5, 1), CASES)):
        staging, tables, numbers, shape = a_publication(seed, TableLayout(groups, rows, blocks, levels), share)
        before, by_twin, by_source = tables.copy(), tables.copy(), tables.copy()
        SCATTER.twin(staging, by_twin, *numbers)
        source[shape](staging, by_source, *numbers)
        assert np.array_equal(by_twin, by_source), f"twin and kernel differ for {groups, rows, blocks, levels}, seed {seed}"
        assert share or not np.array_equal(by_twin, before)
        compared += 1
    return compared


def test_kernel_source_equals_twin() -> None:
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(3 * len(CASES))]


def test_twin_writes_what_it_was_given_and_nothing_else() -> None:
    layout = TableLayout(groups=2, rows=3, blocks=4, levels=True)
    tables = np.zeros(layout.nbytes, np.uint8)
    layout.fill_empty(tables)
    staging = np.zeros(packed_size(2, 8, levels=True), np.uint8)
    packed = sections(staging, pairs=2, entries=8, levels=True)
    packed.heads[:] = (1, 0, 3, 2), (1, 4, 2, 0)
    packed.entries[:] = 7, 8, 9, 99, 4, -1, 99, 99
    packed.levels[:] = 1, 1, 0, 9, 0, -1, 9, 9
    blocks, chunks = scatter_shape(layout, 1, 0)
    SCATTER.twin(staging, tables, 2, 2, 3, 4, 8, layout.counts_offset, layout.levels_offset, 1, chunks)
    assert blocks == 2
    empty = [-1] * 4
    assert layout.page_table(tables).tolist() == [[empty, [7, 8, 9, -1], empty], [empty, [4, -1, -1, -1], empty]]
    assert layout.page_level(tables).tolist() == [[empty, [1, 1, 0, -1], empty], [empty, [0, -1, -1, -1], empty]]
    assert layout.num_blocks(tables).tolist() == [[0, 2, 0], [0, 0, 0]]

    # Only one block of the first group, and no block of the other.
    packed = sections(staging, pairs=2, entries=4, levels=True)
    packed.heads[:] = (1, 0, ~1, 3), (1, 4, ~0, 1)
    packed.entries[:] = 2, 5, 99, 99
    packed.levels[:] = 0, 9, 9, 9
    SCATTER.twin(staging, tables, 2, 2, 3, 4, 4, layout.counts_offset, layout.levels_offset, 1, chunks)
    assert layout.page_table(tables).tolist() == [[empty, [7, 8, 5, -1], empty], [empty, [4, -1, -1, -1], empty]]
    assert layout.page_level(tables).tolist() == [[empty, [1, 1, 0, -1], empty], [empty, [0, -1, -1, -1], empty]]
    assert layout.num_blocks(tables).tolist() == [[0, 3, 0], [0, 1, 0]]


if __name__ == "__main__":
    print(compare_all())
