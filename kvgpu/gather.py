"""Many arrays one behind the other into one, with several threads where that is worth it."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

PARALLEL_FROM = 4 << 20
"""Bytes from which threads pay: one core copies less than the memory can give."""
MAX_THREADS = 8


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="kvgpu gather")


def gather(parts: Sequence[npt.NDArray[Any]], ends: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Copy ``parts``, contiguous, into ``out``. ``ends[n]``: where part ``n`` ends in it; the last end is its length."""
    if out.nbytes < PARALLEL_FROM:
        np.concatenate(parts, out=out)
        return
    # Cut at whole parts, as evenly as their lengths allow.
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    cuts = np.searchsorted(ends, np.linspace(0, len(out), threads + 1)[1:-1], side="right")
    bounds = [0, *cuts.tolist(), len(parts)]
    pieces = [(first, end) for first, end in itertools.pairwise(bounds) if first < end]
    to = (out.ctypes.data + out.itemsize * (ends - [len(part) for part in parts])).tolist()

    def copy(piece: tuple[int, int]) -> None:
        # memmove lets go of the interpreter lock while it copies; NumPy's own copies would make the threads take turns.
        for number in range(*piece):
            part = parts[number]
            ctypes.memmove(to[number], part.__array_interface__["data"][0], part.nbytes)

    list(_threads().map(copy, pieces))
