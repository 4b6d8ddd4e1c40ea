"""Prefetch memory in a loop over rows whose next address only the program knows.

The counts of a hundred thousand containers do not fit into a processor's cache. A loop that waits for each of
them takes twice as long as one that prefetches that of a later row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

PREFETCH_ROWS = 24
"""Rows to prefetch ahead: far enough for memory to answer, near enough for the cache to hold."""
WRITE, KEEP, DATA = 1, 3, 1


def _prefetch(_typing: Any, array: Any, page: Any, place: Any) -> Any:  # noqa: ARG001 - their types do not matter
    """Announce a write to `array[page, place]` of a contiguous array of two dimensions. No bounds are
    checked.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = builder.extract_value(held.shape, 1)
        index = builder.add(builder.mul(arguments[1], width), arguments[2])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(held.data, [index]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [address, word(WRITE), word(KEEP), word(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


prefetch: Any = intrinsic(_prefetch)
