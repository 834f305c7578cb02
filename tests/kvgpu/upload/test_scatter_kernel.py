"""The scatter kernel and its NumPy twin write the same bytes."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.upload import scatter_kernels as publish_kernels
from kvgpu.upload.packing.form import CHANGE, MIXED, NARROW_SLOTS, UNIT, PackedForm, padded
from kvgpu.upload.scatter_kernels import BAD, SCATTER, SCATTER_ARRAYS, scatter_shape
from kvgpu.upload.table_layout import TableLayout
from tests.simulator import load16, said_on_simulator, store16

SIMULATED_THREADS = 32
"""Of a block of threads, where each of them is simulated."""


def cases(threads: int) -> list[TableLayout]:
    """Tables of all kinds of row lengths. ``threads``: of a block."""
    share = UNIT * threads  # entries of a block of threads
    return [
        TableLayout(groups=1, rows=1, blocks=3, levels=False),
        TableLayout(groups=3, rows=2, blocks=5, levels=True),
        TableLayout(groups=2, rows=1, blocks=2 * share + 5, levels=True),
        TableLayout(groups=6, rows=3, blocks=17, levels=False),
        TableLayout(groups=3, rows=3, blocks=16, levels=True),
        TableLayout(groups=2, rows=3, blocks=20, levels=True),
        TableLayout(groups=2, rows=2, blocks=share + 4, levels=False),
    ]


def a_publication(
    seed: int, layout: TableLayout, wide: bool, share: float
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], tuple[int, ...], tuple[int, int]]:
    """Random packed bytes, tables with old contents, the kernel's numbers, and its launch shape.

    ``share``: how many of the rows and groups write a few blocks alone.
    """
    rng = np.random.default_rng(seed)
    dirty = np.sort(rng.choice(layout.rows, rng.integers(1, layout.rows + 1), replace=False))
    lengths = rng.integers(0, layout.blocks + 1, dirty.size * layout.groups)
    few = rng.random(lengths.size) < share
    lengths[few] //= CHANGE
    sizes = padded(np.where(few, CHANGE * lengths, lengths))
    entries = int(sizes.sum())
    form = PackedForm(layout.levels, wide)
    staging = np.full(form.nbytes(lengths.size, entries), 0xDD, np.uint8)
    packed = form.sections(staging, lengths.size, entries)
    packed.heads[:, 0] = np.repeat(dirty, layout.groups)
    packed.heads[:, 1] = np.cumsum(sizes) - sizes
    packed.heads[:, 2] = np.where(few, ~lengths, lengths)
    packed.heads[:, 3] = rng.integers(0, 100, lengths.size)
    packed.heads[:, 4] = np.where(rng.random(lengths.size) < 0.5, MIXED, rng.choice((BAD, 0, 1, 127), lengths.size))
    most = (1 << 31) - 1 if wide else NARROW_SLOTS - 1
    slots = rng.choice((BAD, 0, 1, most, *rng.integers(0, most, 3)), entries).astype(np.int32)
    packed.low[:] = slots & 0xFFFF
    packed.high[:] = slots >> 16
    for start, changes in zip(packed.heads[few, 1], lengths[few], strict=True):
        packed.changes(start, changes)[:, 0] = rng.choice(layout.blocks, changes, replace=False)
        packed.changes(start, changes)[:, 1] = slots[start : start + changes]
    packed.levels[:] = rng.integers(-1, 3, packed.levels.size)
    tables = rng.integers(0, 256, layout.nbytes).astype(np.uint8)
    blocks, chunks = scatter_shape(layout, dirty.size, int(lengths.max(initial=1)) if few.all() else 0)
    numbers = (
        lengths.size,
        layout.groups,
        layout.rows,
        layout.blocks,
        entries,
        int(wide),
        layout.counts_offset,
        layout.levels_offset,
        int(layout.levels),
        chunks,
    )
    return staging, tables, numbers, (blocks, publish_kernels.THREADS)


def publications() -> Iterator[tuple[str, npt.NDArray[np.uint8], npt.NDArray[np.uint8], tuple[int, ...], tuple[int, int]]]:
    """One of each kind, and its name."""
    kinds = itertools.product((False, True), (0, 0.5, 1), cases(publish_kernels.THREADS))
    for seed, (wide, share, layout) in enumerate(kinds):
        yield f"wide {wide}, share {share}, {layout}, seed {seed}", *a_publication(seed, layout, wide, share)


def compare_all() -> int:
    """Run the kernel's source on numba's CUDA simulator against the twin; how many publications were equal."""
    from numba import cuda

    # The simulator knows no inline PTX.
    publish_kernels.load16, publish_kernels.store16 = load16, store16
    publish_kernels.THREADS = SIMULATED_THREADS
    source = cuda.jit(SCATTER.cuda_source)
    compared = 0
    for name, staging, tables, numbers, shape in publications():
        before, by_twin, by_source = tables.copy(), tables.copy(), tables.copy()
        SCATTER.twin(staging, by_twin, *numbers)
        source[shape](staging, by_source, *numbers)
        assert np.array_equal(by_twin, by_source), f"twin and kernel differ: {name}"
        assert not np.array_equal(by_twin, before)
        compared += 1
    return compared


def test_kernel_source_equals_twin() -> None:
    assert said_on_simulator(__file__) == [str(6 * len(cases(1)))]


@pytest.mark.cuda
def test_kernel_on_a_gpu_equals_twin() -> None:
    if reason := why_no_gpu():
        pytest.skip(reason)
    device = open_device("cuda")
    stream = device.stream("kernel")
    device.prepare(SCATTER, SCATTER_ARRAYS)
    for name, staging, tables, numbers, (blocks, threads) in publications():
        by_twin = tables.copy()
        SCATTER.twin(staging, by_twin, *numbers)
        packed, old = (device.allocate("pinned", part.size, name) for part in (staging, tables))
        on_gpu = device.allocate("device", tables.size, name)
        packed.host_array()[:] = staging
        old.host_array()[:] = tables
        device.upload(stream, old, 0, on_gpu, 0, tables.size, lambda: (), "tables with old contents")
        device.launch(stream, SCATTER, blocks, threads, (packed, on_gpu, *numbers), lambda: (), "the kernel")
        device.settle()
        assert on_gpu.read_now(0, tables.size) == by_twin.tobytes(), f"twin and kernel differ: {name}"
        for memory in (packed, old, on_gpu):
            memory.free()
    device.close()


def test_twin_writes_what_it_was_given_and_nothing_else() -> None:
    layout = TableLayout(groups=2, rows=3, blocks=4, levels=True)
    tables = np.zeros(layout.nbytes, np.uint8)
    layout.fill_empty(tables)
    form = PackedForm(levels=True, wide=False)
    staging = np.zeros(form.nbytes(2, 32), np.uint8)
    packed = form.sections(staging, pairs=2, entries=32)
    packed.heads[:, :5] = (1, 0, 3, 2, MIXED), (1, 16, 2, 0, 0)
    for section in packed[1:]:
        section.fill(99)
    packed.low[:3], packed.low[16:18] = (7, 0xFFFF, 9), (4, 5)
    packed.high[:3] = 0, -1, 2
    packed.levels[:3], packed.levels[16:18] = (1, -1, 0), (0, 0)
    blocks, chunks = scatter_shape(layout, 1, 0)
    numbers = (2, 2, 3, 4, 32, 0, layout.counts_offset, layout.levels_offset, 1, chunks)
    SCATTER.twin(staging, tables, *numbers)
    assert blocks == 2
    empty = [-1] * 4
    assert layout.page_table(tables).tolist() == [[empty, [7, -1, 0x2_0009, -1], empty], [empty, [4, 5, -1, -1], empty]]
    assert layout.page_level(tables).tolist() == [[empty, [1, -1, 0, -1], empty], [empty, [0, 0, -1, -1], empty]]
    assert layout.num_blocks(tables).tolist() == [[0, 2, 0], [0, 0, 0]]

    # Only one block of the first group, and no block of the other.
    packed.heads[:, :4] = (1, 0, ~1, 3), (1, 16, ~0, 1)
    packed.changes(0, 1)[:] = 2, 5
    packed.levels[:2] = 0, 9
    SCATTER.twin(staging, tables, *numbers)
    assert layout.page_table(tables).tolist() == [[empty, [7, -1, 5, -1], empty], [empty, [4, 5, -1, -1], empty]]
    assert layout.page_level(tables).tolist() == [[empty, [1, -1, 0, -1], empty], [empty, [0, 0, -1, -1], empty]]
    assert layout.num_blocks(tables).tolist() == [[0, 3, 0], [0, 1, 0]]


if __name__ == "__main__":
    print(compare_all())
