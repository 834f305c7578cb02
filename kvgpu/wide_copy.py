"""A 16-byte copy inside a CUDA kernel: numba compiles no access wider than 8 bytes by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.typing import templates
from numba.extending import intrinsic

signature: Any = templates.signature

_COPY = """{
    .reg .b64 low, high;
    ld.global.v2.u64 {low, high}, [$1];
    st.global.v2.u64 [$0], {low, high};
}"""


@intrinsic
def copy16(typing_context: Any, target: Any, target_offset: Any, source: Any, source_offset: Any) -> Any:
    """Copy 16 bytes between uint8 arrays; both addresses are multiples of 16. For kernels only."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def address(array_type: Any, array: Any, offset: Any) -> Any:
            data = context.make_array(array_type)(context, builder, array).data
            return builder.add(builder.ptrtoint(data, ir.IntType(64)), offset)

        to = address(sig.args[0], args[0], args[1])
        at = address(sig.args[2], args[2], args[3])
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64), ir.IntType(64)])
        builder.asm(kind, _COPY, "l,l,~{memory}", [to, at], side_effect=True)
        return context.get_dummy_value()

    return signature(types.none, target, types.int64, source, types.int64), generate
