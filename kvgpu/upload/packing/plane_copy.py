"""Copies the elements of arrays into planes of bits: the lowest bits of each into one array, those above into the next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

from kvgpu.upload.packing.native_threads import thread_body

UNIT = 16
"""Elements that are loaded and stored at a time."""
ALIGNED = 16
"""Bytes to whose multiples parts are copied."""


@cache
def plane_copier(part: int, planes: tuple[int, ...]) -> Any:
    """The body of threads that copy. ``part``, ``planes``: bits of an element.

    Their int64 words: how many parts there are, ``n``, and how many pieces, ``p``; ``p + 1`` bounds of the parts of each piece;
    ``n`` lengths; ``n`` addresses of where to tell what all elements of a part have in the last plane, int32, if it is the same;
    ``n`` of sources; for each plane ``n`` of targets, multiples of ``ALIGNED``.

    Stores go past the caches: the CPU does not read what it writes here, and need not fetch what it overwrites.
    """
    from llvmlite import ir  # type: ignore[import-untyped]  # here: only large tables pay for it
    from numba import types
    from numba.core import cgutils
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    function: Any = cgutils.get_or_insert_function
    variable: Any = cgutils.alloca_once_value
    word, int32 = ir.IntType(64), ir.IntType(32)

    def vector(width: int, many: int) -> Any:
        return ir.VectorType(ir.IntType(width), many)

    def pointer(builder: Any, address: Any, index: Any, kind: Any) -> Any:
        size = kind.count * kind.element.width // 8 if isinstance(kind, ir.VectorType) else kind.width // 8
        return builder.inttoptr(builder.add(address, builder.mul(index, word(size))), kind.as_pointer())

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
                store.set_metadata("nontemporal", builder.module.add_metadata([int32(1)]))
        return plane

    def copy(builder: Any, length: Any, told: Any, source: Any, targets: Sequence[Any]) -> None:
        units = builder.udiv(length, word(UNIT))
        # Bits that any and that all elements have in the last plane, lane by lane.
        none = ir.Constant(vector(planes[-1], UNIT), [0] * UNIT)
        some, every = (variable(builder, value) for value in (none, builder.not_(none)))
        builder.store(none, some)
        builder.store(builder.not_(none), every)

        def look(plane: Any) -> None:
            if plane.type.count < UNIT:
                plane = builder.shuffle_vector(plane, plane, ir.Constant(vector(32, UNIT), [0] * UNIT))
            builder.store(builder.or_(builder.load(some), plane), some)
            builder.store(builder.and_(builder.load(every), plane), every)

        with cgutils.for_range(builder, units, intp=word) as loop:
            look(cut(builder, source, targets, loop.index, UNIT))
        with cgutils.for_range_slice(builder, builder.mul(units, word(UNIT)), length, word(1), word) as (index, _):
            look(cut(builder, source, targets, index, 1))
        lanes = [[builder.extract_element(builder.load(of), int32(lane)) for lane in range(UNIT)] for of in (some, every)]
        any_of, all_of = reduce(builder.or_, lanes[0]), reduce(builder.and_, lanes[1])
        with builder.if_then(builder.icmp_signed("==", any_of, all_of)):
            value = any_of if planes[-1] == 32 else builder.sext(any_of, int32)
            builder.store(value, builder.inttoptr(told, int32.as_pointer()))

    @intrinsic
    def copy_piece(typing_context: Any, words: Any, piece: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            base, number = args

            def at(*offsets: Any) -> Any:
                return builder.load(pointer(builder, base, reduce(builder.add, offsets), word))

            parts, pieces = at(word(0)), at(word(1))
            first, end = at(word(2), number), at(word(3), number)
            with cgutils.for_range_slice(builder, first, end, word(1), word) as (index, _):
                columns = [at(word(3), pieces, builder.mul(parts, word(column)), index) for column in range(3 + len(planes))]
                length, told, source, *targets = columns
                copy(builder, length, told, source, targets)
            builder.fence("seq_cst")  # such stores are ordered by nothing else
            return context.get_dummy_value()

        return signature(types.none, types.int64, types.int64), generate

    return thread_body(copy_piece)
