"""Vectors of eight numbers for :mod:`qfl_core.engines.compiled`: what LLVM does not find by itself in short loops.

Every lane does the multiplications and additions of a loop over single numbers, in the same order, so a vector has the
bits of that loop on every processor; LLVM splits the vectors where registers are shorter. Callers guarantee that the
eight numbers from each index on are inside the array: nothing is checked here.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Numbers per vector.
LANES = 8
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_ALIGNMENT = 8  # bytes: arrays of float64 have no more


@intrinsic
def rotate(typing: Any, array: Any, i: Any, j: Any, sine: Any, cosine: Any) -> Any:
    """Replace a = array[i : i + 8] and b = array[j : j + 8] by a cosine + b sine and b cosine - a sine."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature, arguments, 0)
        x, y = _place(builder, data, arguments[1]), _place(builder, data, arguments[2])
        a, b = builder.load(x, align=_ALIGNMENT), builder.load(y, align=_ALIGNMENT)
        s, c = _repeated(builder, arguments[3]), _repeated(builder, arguments[4])
        builder.store(builder.fadd(builder.fmul(a, c), builder.fmul(b, s)), x, align=_ALIGNMENT)
        builder.store(builder.fsub(builder.fmul(b, c), builder.fmul(a, s)), y, align=_ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, i, j, sine, cosine), codegen


@intrinsic
def column_products(typing: Any, rows: Any, count: Any, width: Any, i: Any, j: Any, out: Any, k: Any) -> Any:
    """Fill out[k : k + 8] with sum_r rows[r, i] rows[r, j : j + 8], added from the first to the last of ``count`` rows.

    ``rows`` is the flat array of ``count`` rows of ``width`` numbers.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, width, i, j, _, k = arguments
        rows, out = (_data(context, builder, signature, arguments, n) for n in (0, 5))
        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * LANES))
        with cgutils.for_range(builder, count) as loop:
            first = builder.mul(loop.index, width)
            factor = builder.load(builder.gep(rows, [builder.add(first, i)]))
            vector = builder.load(_place(builder, rows, builder.add(first, j)), align=_ALIGNMENT)
            term = builder.fmul(_repeated(builder, factor), vector)
            builder.store(builder.fadd(builder.load(total), term), total)
        builder.store(builder.load(total), _place(builder, out, k), align=_ALIGNMENT)
        return context.get_dummy_value()

    return types.void(rows, count, width, i, j, out, k), codegen


def _data(context: Any, builder: Any, signature: Any, arguments: Any, n: int) -> Any:
    """Return where the numbers of the n-th argument, an array, begin."""
    return context.make_array(signature.args[n])(context, builder, arguments[n]).data


def _place(builder: Any, data: Any, index: Any) -> Any:
    """Return where the vector begins whose first number has an index."""
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _repeated(builder: Any, number: Any) -> Any:
    """Return a vector with the same number in every lane."""
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, nothing, lanes)
