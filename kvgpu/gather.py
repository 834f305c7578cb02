"""Many arrays into one, copied by threads of the system beside the interpreter where that is worth it."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

THREADS_FROM = 1 << 20
"""Bytes from which a thread pays."""
PIECE = 2 << 20
"""Bytes that are worth a thread of their own."""
MAX_THREADS = 8
"""Of one call; calls overlap."""
STACK = 256 << 10
"""Bytes of stack of a thread: with little, it is made in a third of the time."""
UNIT = 16
"""Bytes that are stored at a time."""


def prepare(nbytes: int) -> None:
    """Compile what a gather of so many bytes will need, so that the first publication need not wait for it."""
    if nbytes >= THREADS_FROM:
        _copier()


def gather(
    parts: Sequence[npt.NDArray[Any]], lengths: npt.NDArray[np.int32], starts: npt.NDArray[np.int32], out: npt.NDArray[Any]
) -> Callable[[], None]:
    """Copy the first ``lengths[n]`` elements of each of ``parts``, contiguous, to ``out[starts[n]:]``; the starts ascend.

    Threads may be at work still. Returns a function that waits for them, which must be called: nothing that is named here may
    change, and ``out`` not be freed, before that.
    """
    sizes = lengths.astype(np.int64) * out.itemsize
    targets = out.ctypes.data + starts.astype(np.int64) * out.itemsize
    if (nbytes := int(sizes.sum())) < THREADS_FROM or (targets % UNIT).any():
        for part, length, start in zip(parts, lengths.tolist(), starts.tolist(), strict=True):
            out[start : start + length] = part[:length]
        return _nothing
    # Cut at whole parts, as evenly as their lengths allow.
    pieces = max(1, min(MAX_THREADS, os.cpu_count() or 1, nbytes // PIECE))
    cuts = np.searchsorted(targets, np.linspace(targets[0], targets[-1] + sizes[-1], pieces + 1)[1:-1])
    bounds = [0, *cuts.tolist(), len(parts)]
    sources = np.fromiter(map(_address, parts), np.int64, len(parts))
    threads = [
        _Thread(np.concatenate(([end - first], targets[first:end], sources[first:end], sizes[first:end])), parts)
        for first, end in itertools.pairwise(bounds)
    ]

    def wait() -> None:
        for thread in threads:
            thread.join()

    return wait


def _nothing() -> None:
    pass


def _address(part: Any) -> int:
    # A third of the time of ``part.ctypes.data``.
    return ctypes.addressof(ctypes.c_char.from_buffer(part)) if part.size else 0


class _Thread:
    """A thread of the system that copies and ends.

    A thread of Python would need the interpreter's lock to begin and to end, which the caller, busy with the next rows, holds.
    """

    def __init__(self, work: npt.NDArray[np.int64], keep: object) -> None:
        """Start it. ``work``: a number ``n``, then ``n`` targets, ``n`` sources, ``n`` sizes in bytes. ``keep``: the sources."""
        self._work, self._keep = work, keep
        self._thread = ctypes.c_void_p()
        library, attributes = _system()
        self._started = library.pthread_create(ctypes.byref(self._thread), attributes, _copier().address, work.ctypes.data) == 0
        if not self._started:  # there are too many threads
            _copier().ctypes(work.ctypes.data)

    def join(self) -> None:
        """Wait until it has copied. Idempotent."""
        if self._started:
            _system()[0].pthread_join(self._thread, None)
            self._started = False


@cache
def _system() -> tuple[Any, Any]:
    """The system's library, and the attributes of a thread."""
    library = ctypes.CDLL(None)
    library.pthread_create.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    library.pthread_join.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    attributes = ctypes.create_string_buffer(256)  # more than any system's
    library.pthread_attr_init(attributes)
    library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(STACK))
    return library, attributes


@cache
def _copier() -> Any:
    """The body of such a thread, a C function.

    Its stores go past the caches: the CPU does not read what it writes here, and need not fetch what it overwrites. The targets
    are multiples of ``UNIT``.
    """
    import numba  # here: only large tables pay for it
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    raw_memcpy: Any = cgutils.raw_memcpy
    carray: Any = numba.carray  # type: ignore[attr-defined]
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

    def copy(work: Any) -> Any:
        count = carray(work, (1,), np.int64)[0]
        words = carray(work, (1 + 3 * count,), np.int64)
        for number in range(1, 1 + count):
            move(words[number], words[number + count], words[number + 2 * count])
        return work

    return numba.cfunc(types.voidptr(types.voidptr))(copy)
