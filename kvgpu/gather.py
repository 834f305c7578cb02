"""Many arrays into one, with several threads where that is worth it."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

PARALLEL_FROM = 4 << 20
"""Bytes from which threads pay: one core copies less than the memory can give."""
PIECE = 2 << 20
"""Bytes that are worth a thread."""
MAX_THREADS = 8
UNIT = 16
"""Bytes that are stored at a time."""


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

    NumPy's own copies hold that lock, and so would make the threads take turns. The stores go past the caches: the CPU does not
    read what it writes here, and need not fetch what it overwrites. The targets are multiples of ``UNIT``.
    """
    import numba  # here: only large tables pay for it
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    raw_memcpy: Any = cgutils.raw_memcpy
    word = ir.IntType(64)
    unit = ir.VectorType(ir.IntType(32), UNIT // 4).as_pointer()

    @intrinsic
    def stream(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            target, source, size = args
            past_caches = builder.module.add_metadata([ir.IntType(32)(1)])
            whole = builder.and_(size, word(-UNIT))
            with cgutils.for_range_slice(builder, word(0), whole, word(UNIT), word) as (offset, _):
                loaded = builder.load(builder.inttoptr(builder.add(source, offset), unit), align=4)
                stored = builder.store(loaded, builder.inttoptr(builder.add(target, offset), unit), align=UNIT)
                stored.set_metadata("nontemporal", past_caches)
            to, at = (builder.inttoptr(builder.add(end, whole), ir.IntType(8).as_pointer()) for end in (target, source))
            raw_memcpy(builder, to, at, builder.sub(size, whole), 1)
            builder.fence("seq_cst")  # such stores are ordered by nothing else
            return context.get_dummy_value()

        return signature(types.none, types.int64, types.int64, types.int64), generate

    move: Any = stream

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
    sizes = lengths.astype(np.int64) * out.itemsize
    targets = out.ctypes.data + starts.astype(np.int64) * out.itemsize
    if (nbytes := int(sizes.sum())) < PARALLEL_FROM or (targets % UNIT).any():
        for part, length, start in zip(parts, lengths.tolist(), starts.tolist(), strict=True):
            out[start : start + length] = part[:length]
        return _nothing
    # Cut at whole parts, as evenly as their lengths allow.
    pieces = max(1, min(MAX_THREADS, os.cpu_count() or 1, nbytes // PIECE))
    cuts = np.searchsorted(targets, np.linspace(targets[0], targets[-1] + sizes[-1], pieces + 1)[1:-1])
    bounds = [0, *cuts.tolist(), len(parts)]
    sources = np.fromiter(map(_address, parts), np.int64, len(parts))
    copy = _copier()

    def piece(first: int, end: int) -> None:
        copy(targets[first:end], sources[first:end], sizes[first:end])

    under_way = [_threads().submit(piece, *cut) for cut in itertools.pairwise(bounds)]
    time.sleep(0)  # they need the interpreter's lock to begin
    return lambda: [one.result() for one in under_way]


def _nothing() -> None:
    pass


def _address(part: Any) -> int:
    # A third of the time of ``part.ctypes.data``.
    return addressof(c_char.from_buffer(part)) if part.size else 0
