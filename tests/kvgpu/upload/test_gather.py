"""Gathering puts the beginning of each array at its place, in planes, and nothing elsewhere, with threads or without."""

import ctypes
import itertools

import numpy as np
import numpy.typing as npt
import pytest

from kvgpu.upload.packing import gather as module
from kvgpu.upload.packing import native_threads
from kvgpu.upload.packing.gather import UNKNOWN, Sources, gather
from kvgpu.upload.packing.native_threads import System
from kvgpu.upload.packing.plane_copy import ALIGNED, UNIT

EAGAIN = 11


@pytest.fixture(params=[None, 0, 1, 3])
def threads_left(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many threads the system has to give; ``None``: enough."""
    real = native_threads._system()
    made = itertools.count()

    @native_threads.CREATE
    def create(*args: int) -> int:
        return native_threads.CREATE(real.create)(*args) if next(made) < request.param else EAGAIN

    if request.param is not None:
        address = ctypes.cast(create, ctypes.c_void_p).value
        assert address is not None
        monkeypatch.setattr(native_threads, "_system", lambda create=create: System(address, real.attributes, real.join))


def aligned(elements: int, dtype: "np.dtype[np.integer]") -> "npt.NDArray[np.integer]":
    """An array of 0x55, aligned as threads need it."""
    memory = np.zeros(elements * dtype.itemsize + ALIGNED, np.uint8)
    plane = memory[-memory.ctypes.data % ALIGNED :][: elements * dtype.itemsize].view(dtype)
    plane.fill(0x55)
    return plane


@pytest.mark.usefixtures("threads_left")
@pytest.mark.parametrize("threshold", [0, 1 << 30])
@pytest.mark.parametrize("cpus", [1, 3, 8])
@pytest.mark.parametrize("apart", [1, UNIT])
@pytest.mark.parametrize("lengths", [[5], [0, 3, 0, 0, 4, 1], [1] * 40, [100, 0, 0, 0], [0, 0, 0, 101], [17, 8, 0, 31]])
@pytest.mark.parametrize("itemsize, kinds", [(1, ("i1",)), (4, ("u2", "i1")), (4, ("u2", "i2")), (4, ("i4",))])
def test_gather(
    itemsize: int,
    kinds: tuple[str, ...],
    lengths: list[int],
    apart: int,
    threshold: int,
    cpus: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "THREADS_FROM", threshold)
    monkeypatch.setattr(module, "PIECE", 32)
    monkeypatch.setattr(module.os, "cpu_count", lambda: cpus)
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 256, itemsize * (n and n + 2)).astype(np.uint8).view(f"i{itemsize}") for n in lengths]
    sizes = [(length // apart + 1) * apart for length in lengths]
    starts = np.cumsum([0, *sizes])[:-1].astype(np.int32)
    planes = [aligned(sum(sizes), np.dtype(kind)) for kind in kinds]
    below_last = 8 * sum(plane.itemsize for plane in planes[:-1])
    for part, n in list(zip(parts, lengths, strict=True))[::2]:
        part[:n] = part[:n] & ((1 << below_last) - 1) | (-3 << below_last)  # all have the same in the last plane

    sources = Sources(parts[0].dtype, np.array([part.ctypes.data for part in parts], np.int64), lambda: parts)
    same = gather(sources, np.array(lengths, np.int32), starts, planes)()

    below = 0
    for plane in planes:
        bits = 8 * plane.itemsize
        for part, start, n, r in zip(parts, starts, lengths, sizes, strict=True):
            expected = [(element >> below) % (1 << bits) for element in part[:n].tolist()]
            assert [element % (1 << bits) for element in plane[start : start + r].tolist()] == expected + [0x55] * (r - n)
        below += bits
    found = [set(planes[-1][start : start + n].tolist()) for start, n in zip(starts, lengths, strict=True)]
    by_threads = threshold == 0 and apart == UNIT
    for values, told in zip(found, same.tolist(), strict=True):
        assert told == (values.pop() if len(values) == 1 else UNKNOWN) or (told == UNKNOWN and not by_threads)
