"""Many arrays into one, cut into planes of bits, by threads of the system beside the interpreter where that is worth it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.native_threads import Threads
from kvgpu.plane_copy import ALIGNED, plane_copier

THREADS_FROM = 1 << 20
"""Bytes from which a thread pays."""
PIECE = 2 << 20
"""Bytes that are worth a thread of their own."""
MAX_THREADS = 8
"""Of one call; calls overlap."""
UNKNOWN = -(1 << 31)
"""The elements of a part differ, or nobody looked."""

Array = npt.NDArray[Any]


def prepare(part: Array, planes: Sequence[Array], nbytes: int) -> None:
    """Compile what gathers of so many bytes, of parts such as ``part``, into such planes will need, so that none waits for it."""
    if nbytes >= THREADS_FROM:
        plane_copier(8 * part.itemsize, _bits(planes))


def gather(
    parts: Sequence[Array], lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], planes: Sequence[Array]
) -> Callable[[], npt.NDArray[np.int32]]:
    """Copy the first ``lengths[n]`` elements of each of ``parts``, contiguous, to ``starts[n]``; the starts ascend.

    Of each element, the first of ``planes`` gets the lowest bits, the next the bits above these; what is left is dropped.

    Threads may be at work still. Returns a function that waits for them, which must be called: nothing that is named here may
    change, and no plane be freed, before that. It returns, for each part, what all its elements have in the last plane (of less
    than 32 bits), or ``UNKNOWN``.
    """
    same = np.full(len(parts), UNKNOWN, np.int32)
    itemsize = parts[0].itemsize
    targets = [plane.ctypes.data + starts.astype(np.int64) * plane.itemsize for plane in planes]
    aligned = not any((at % ALIGNED).any() for at in targets)
    if (nbytes := int(lengths.sum(dtype=np.int64)) * itemsize) < THREADS_FROM or not aligned:
        _gather_here(parts, lengths, starts, planes)
        return lambda: same
    # Cut at whole parts, as evenly as their lengths allow.
    pieces = max(1, min(MAX_THREADS, os.cpu_count() or 1, nbytes // PIECE))
    cuts = np.searchsorted(starts, np.linspace(starts[0], starts[-1] + lengths[-1], pieces + 1)[1:-1])
    bounds = (len(parts), pieces, 0, *cuts.tolist(), len(parts))
    told = same.ctypes.data + same.itemsize * np.arange(len(parts))
    sources = np.fromiter(map(_address, parts), np.int64, len(parts))
    copier = plane_copier(8 * itemsize, _bits(planes))
    threads = Threads(copier, pieces, (bounds, lengths, told, sources, *targets), parts)

    def wait() -> npt.NDArray[np.int32]:
        threads.join()
        return same

    return wait


def _gather_here(
    parts: Sequence[Array], lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], planes: Sequence[Array]
) -> None:
    below = 0
    for plane in planes:
        first, step = below // plane.itemsize, parts[0].itemsize // plane.itemsize
        below += plane.itemsize
        for part, length, start in zip(parts, lengths.tolist(), starts.tolist(), strict=True):
            plane[start : start + length] = part.view(plane.dtype)[first::step][:length]


def _bits(planes: Sequence[Array]) -> tuple[int, ...]:
    return tuple(8 * plane.itemsize for plane in planes)


def _address(part: Any) -> int:
    # A third of the time of ``part.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(part)) if part.size else 0
