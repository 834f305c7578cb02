"""16-byte loads and stores inside a CUDA kernel: numba compiles no access wider than 8 bytes by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing import templates
from numba.extending import intrinsic

signature: Any = templates.signature
UniTuple: Any = types.UniTuple
I64 = ir.IntType(64)


def _address(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.add(builder.ptrtoint(data, I64), offset)


@intrinsic
def load16(typing_context: Any, source: Any, offset: Any) -> Any:
    """The 16 bytes of a uint8 array at ``offset``, as two uint64; the address is a multiple of 16. For kernels only."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _address(context, builder, sig.args[0], args[0], args[1])
        kind = ir.FunctionType(ir.LiteralStructType([I64, I64]), [I64])
        # Side effects keep loads in the order of the source, so that several are under way before the first store.
        pair = builder.asm(kind, "ld.global.v2.u64 {$0, $1}, [$2];", "=l,=l,l", [at], side_effect=True)
        both = ir.Constant(ir.ArrayType(I64, 2), ir.Undefined)
        for half in range(2):
            both = builder.insert_value(both, builder.extract_value(pair, half), half)
        return both

    return signature(UniTuple(types.uint64, 2), source, types.int64), generate


@intrinsic
def store16(typing_context: Any, target: Any, offset: Any, words: Any) -> Any:
    """Put what ``load16`` gave into a uint8 array at ``offset``; the address is a multiple of 16. For kernels only."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to = _address(context, builder, sig.args[0], args[0], args[1])
        kind = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
        low, high = (builder.extract_value(args[2], half) for half in range(2))
        builder.asm(kind, "st.global.v2.u64 [$0], {$1, $2};", "l,l,l,~{memory}", [to, low, high], side_effect=True)
        return context.get_dummy_value()

    return signature(types.none, target, types.int64, words), generate
