"""Many arrays into one, cut into planes of bits, by threads of the system beside the interpreter where that is worth it."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from functools import cache, reduce
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
"""Elements that are loaded and stored at a time."""
ALIGNED = 16
"""Bytes to whose multiples threads write."""
UNKNOWN = -(1 << 31)
"""The elements of a part differ, or nobody looked."""

Array = npt.NDArray[Any]


def prepare(part: Array, planes: Sequence[Array], nbytes: int) -> None:
    """Compile what gathers of so many bytes, of parts such as ``part``, into such planes will need, so that none waits for it."""
    if nbytes >= THREADS_FROM:
        _copier(8 * part.itemsize, _bits(planes))


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
    bounds = [0, *cuts.tolist(), len(parts)]
    told = same.ctypes.data + same.itemsize * np.arange(len(parts))
    columns = [lengths.astype(np.int64), told, np.fromiter(map(_address, parts), np.int64, len(parts)), *targets]
    copier = _copier(8 * itemsize, _bits(planes))
    threads = [
        _Thread(copier, np.concatenate(([end - first], *(column[first:end] for column in columns))), parts)
        for first, end in itertools.pairwise(bounds)
    ]

    def wait() -> npt.NDArray[np.int32]:
        for thread in threads:
            thread.join()
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


class _Thread:
    """A thread of the system that copies and ends.

    A thread of Python would need the interpreter's lock to begin and to end, which the caller, busy with the next rows, holds.
    """

    def __init__(self, copier: Any, work: npt.NDArray[np.int64], keep: object) -> None:
        """Start it. ``copier``, ``work``: see ``_copier``. ``keep``: the sources."""
        self._work, self._keep = work, keep
        self._thread = ctypes.c_void_p()
        library, attributes = _system()
        self._started = library.pthread_create(ctypes.byref(self._thread), attributes, copier.address, work.ctypes.data) == 0
        if not self._started:  # there are too many threads
            copier.ctypes(work.ctypes.data)

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
def _copier(part: int, planes: tuple[int, ...]) -> Any:
    """The body of such a thread, a C function. ``part``, ``planes``: bits of an element.

    It is given int64 words: a number ``n``, then ``n`` lengths, ``n`` addresses of where to tell what all elements have in the
    last plane, if it is the same, ``n`` of sources, and for each plane ``n`` of targets, multiples of ``ALIGNED``.

    Its stores go past the caches: the CPU does not read what it writes here, and need not fetch what it overwrites.
    """
    import numba  # here: only large tables pay for it
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    function: Any = cgutils.get_or_insert_function
    variable: Any = cgutils.alloca_once_value
    word = ir.IntType(64)

    def pointer(builder: Any, address: Any, index: Any, kind: Any) -> Any:
        size = kind.count * kind.element.width // 8 if isinstance(kind, ir.VectorType) else kind.width // 8
        return builder.inttoptr(builder.add(address, builder.mul(index, word(size))), kind.as_pointer())

    def vector(width: int, many: int) -> Any:
        return ir.VectorType(ir.IntType(width), many)

    def cut(builder: Any, source: Any, targets: Sequence[Any], index: Any, many: int) -> Any:
        # ``many`` elements, from the ``index``-th such group on. The last plane of them.
        whole = plane = builder.load(pointer(builder, source, index, vector(part, many)), align=part // 8)
        below = 0
        for width, target in zip(planes, targets, strict=True):
            plane = builder.lshr(whole, ir.Constant(whole.type, [below] * many)) if below else whole
            if width < part:
                plane = builder.trunc(plane, vector(width, many))
            below += width
            if many == 1:
                builder.store(plane, pointer(builder, target, index, plane.type), align=width // 8)
            else:
                # What is narrowed as it is stored would go through the caches, so narrow first.
                as_doubles = ir.VectorType(ir.DoubleType(), width * many // 64)
                name = f"llvm.arithmetic.fence.v{as_doubles.count}f64"
                fence = function(builder.module, ir.FunctionType(as_doubles, (as_doubles,)), name)
                fenced = builder.call(fence, (builder.bitcast(plane, as_doubles),))
                at = builder.bitcast(pointer(builder, target, index, plane.type), as_doubles.as_pointer())
                store = builder.store(fenced, at, align=ALIGNED)
                store.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))
        return plane

    @intrinsic
    def stream(typing_context: Any, work: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base = builder.ptrtoint(args[0], word)
            parts = builder.load(pointer(builder, base, word(0), word))

            def column(place: int) -> Any:
                index = builder.add(builder.add(args[1], builder.mul(parts, word(place))), word(1))
                return builder.load(pointer(builder, base, index, word))

            length, told, source, *targets = (column(place) for place in range(3 + len(planes)))
            units = builder.udiv(length, word(UNIT))
            # Bits that any and that all elements have in the last plane, lane by lane.
            none = ir.Constant(vector(planes[-1], UNIT), [0] * UNIT)
            some, every = (variable(builder, value) for value in (none, builder.not_(none)))

            def look(plane: Any) -> None:
                if plane.type.count < UNIT:
                    plane = builder.shuffle_vector(plane, plane, ir.Constant(vector(32, UNIT), [0] * UNIT))
                builder.store(builder.or_(builder.load(some), plane), some)
                builder.store(builder.and_(builder.load(every), plane), every)

            with cgutils.for_range(builder, units, intp=word) as loop:
                look(cut(builder, source, targets, loop.index, UNIT))
            with cgutils.for_range_slice(builder, builder.mul(units, word(UNIT)), length, word(1), word) as (index, _):
                look(cut(builder, source, targets, index, 1))
            builder.fence("seq_cst")  # such stores are ordered by nothing else
            lanes = [[builder.extract_element(builder.load(of), ir.IntType(32)(n)) for n in range(UNIT)] for of in (some, every)]
            any_of, all_of = reduce(builder.or_, lanes[0]), reduce(builder.and_, lanes[1])
            with builder.if_then(builder.icmp_signed("==", any_of, all_of)):
                value = any_of if planes[-1] == 32 else builder.sext(any_of, ir.IntType(32))
                builder.store(value, builder.inttoptr(told, ir.IntType(32).as_pointer()))
            return context.get_dummy_value()

        return signature(types.none, types.voidptr, types.int64), generate

    carray: Any = numba.carray  # type: ignore[attr-defined]
    move: Any = stream

    def copy(work: Any) -> Any:
        for number in range(carray(work, (1,), np.int64)[0]):
            move(work, number)
        return work

    return numba.cfunc(types.voidptr(types.voidptr))(copy)
