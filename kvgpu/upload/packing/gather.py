"""Many arrays into one, cut into planes of bits, by threads of the system beside the interpreter where that is worth it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvgpu.upload.packing.native_threads import Threads
from kvgpu.upload.packing.plane_copy import ALIGNED, plane_copier

THREADS_FROM = 1 << 20
"""Bytes from which a thread pays."""
PIECE = 1 << 20
"""Bytes that are worth a thread of their own."""
MAX_THREADS = 16
"""Of one call; calls overlap."""
UNKNOWN = -(1 << 31)
"""The elements of a part differ, or nobody looked."""

Array = npt.NDArray[Any]


class Sources(NamedTuple):
    """Contiguous arrays of one type: where each begins, and the arrays, which are asked for only where there are few.

    Whatever it holds keeps them alive. To look at each of many arrays takes longer than to have threads copy them.
    """

    dtype: npt.DTypeLike
    addresses: npt.NDArray[np.int64]
    arrays: Callable[[], Sequence[Array]]


def prepare(dtype: npt.DTypeLike, planes: Sequence[Array], nbytes: int) -> None:
    """Compile what gathers of so many bytes, of such elements into such planes, will need, so that none waits for it."""
    if nbytes >= THREADS_FROM:
        plane_copier(8 * np.dtype(dtype).itemsize, _bits(planes))


def gather(
    sources: Sources, lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], planes: Sequence[Array]
) -> Callable[[], npt.NDArray[np.int32]]:
    """Copy the first ``lengths[n]`` elements of each of the arrays to ``starts[n]``; the starts ascend.

    Of each element, the first of ``planes`` gets the lowest bits, the next the bits above these; what is left is dropped.

    Threads may be at work still. Returns a function that waits for them, which must be called: nothing that is named here may
    change, and no plane be freed, before that. It returns, for each array, what all its elements have in the last plane (of less
    than 32 bits), or ``UNKNOWN``.
    """
    parts = len(lengths)
    same = np.full(parts, UNKNOWN, np.int32)
    itemsize = np.dtype(sources.dtype).itemsize
    targets = [plane.ctypes.data + starts.astype(np.int64) * plane.itemsize for plane in planes]
    aligned = not any((at % ALIGNED).any() for at in targets)
    if (nbytes := int(lengths.sum(dtype=np.int64)) * itemsize) < THREADS_FROM or not aligned:
        _gather_here(sources.arrays(), lengths, starts, planes)
        return lambda: same
    # Cut between arrays, as evenly as their lengths allow.
    pieces = max(1, min(MAX_THREADS, os.cpu_count() or 1, nbytes // PIECE))
    cuts = np.searchsorted(starts, np.linspace(starts[0], starts[-1] + lengths[-1], pieces + 1)[1:-1])
    bounds = (parts, pieces, 0, *cuts.tolist(), parts)
    told = same.ctypes.data + same.itemsize * np.arange(parts)
    copier = plane_copier(8 * itemsize, _bits(planes))
    threads = Threads(copier, pieces, (bounds, lengths, told, sources.addresses, *targets), sources)

    def wait() -> npt.NDArray[np.int32]:
        threads.join()
        return same

    return wait


def _gather_here(
    arrays: Sequence[Array], lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], planes: Sequence[Array]
) -> None:
    below = 0
    for plane in planes:
        first, step = below // plane.itemsize, arrays[0].itemsize // plane.itemsize
        below += plane.itemsize
        for array, length, start in zip(arrays, lengths.tolist(), starts.tolist(), strict=True):
            plane[start : start + length] = array.view(plane.dtype)[first::step][:length]


def _bits(planes: Sequence[Array]) -> tuple[int, ...]:
    return tuple(8 * plane.itemsize for plane in planes)
