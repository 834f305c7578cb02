"""Many arrays into one, with several threads where that is worth it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

PARALLEL_FROM = 16 << 20
"""Bytes from which threads pay: one core copies less than the memory can give."""
MAX_THREADS = 8


def prepare(nbytes: int) -> None:
    """Compile what a gather of so many bytes will need, so that the first publication need not wait for it."""
    if nbytes >= PARALLEL_FROM:
        _copier()
        _threads()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="kvgpu gather")


@cache
def _copier() -> Any:
    """``copy(targets, sources, sizes)``: bytes between addresses, all int64, without the interpreter's lock.

    NumPy's own copies hold that lock, and so would make the threads take turns.
    """
    import numba  # here: only large tables pay for it
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    raw_memcpy: Any = cgutils.raw_memcpy

    @intrinsic
    def memcpy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at = (builder.inttoptr(address, ir.IntType(8).as_pointer()) for address in args[:2])
            raw_memcpy(builder, to, at, args[2], 1)
            return context.get_dummy_value()

        return signature(types.none, types.int64, types.int64, types.int64), generate

    move: Any = memcpy

    def copy(targets: Any, sources: Any, sizes: Any) -> None:
        for number in range(len(targets)):
            move(targets[number], sources[number], sizes[number])

    return numba.njit("void(int64[::1], int64[::1], int64[::1])", nogil=True)(copy)


def gather(
    parts: Sequence[npt.NDArray[Any]], lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], out: npt.NDArray[Any]
) -> Callable[[], object]:
    """Copy the first ``lengths[n]`` elements of each of ``parts``, contiguous, to ``out[starts[n]:]``; the starts ascend.

    Threads may be at work still. Returns a function that waits for them: nothing that is named here may change before that.
    """
    if out.nbytes < PARALLEL_FROM:
        for part, length, start in zip(parts, lengths.tolist(), starts.tolist(), strict=True):
            out[start : start + length] = part[:length]
        return _nothing
    # Cut at whole parts, as evenly as their lengths allow.
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    cuts = np.searchsorted(starts, np.linspace(0, len(out), threads + 1)[1:-1])
    bounds = [0, *cuts.tolist(), len(parts)]
    sources = np.fromiter(map(_address, parts), np.int64, len(parts))
    sizes = lengths.astype(np.int64) * out.itemsize
    targets = out.ctypes.data + starts.astype(np.int64) * out.itemsize
    copy = _copier()

    def piece(first: int, end: int) -> None:
        copy(targets[first:end], sources[first:end], sizes[first:end])

    pieces = [_threads().submit(piece, *cut) for cut in itertools.pairwise(bounds)]
    return lambda: [one.result() for one in pieces]


def _nothing() -> None:
    pass


def _address(part: Any) -> int:
    # A third of the time of ``part.ctypes.data``.
    return addressof(c_char.from_buffer(part)) if part.size else 0
