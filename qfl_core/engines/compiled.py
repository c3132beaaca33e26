"""The inner loop of training as compiled code: observables, products, draws, losses and SPSA steps.

The functions repeat, operation by operation, what :mod:`qfl_core.engines.ordered` and the algorithms do in NumPy, so
both give the same bits. Nothing here adds in an order that depends on the processor: there is no ``fastmath``, and
loops are vectorised over samples or matrix entries, never over the terms of a sum. All functions run in one thread,
because sweeps use one process per core.

Import this module through :func:`qfl_core.engines.inner_loop.compiled_code` only: importing it loads numba and compiles
two functions, or reads them from numba's cache.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.random.distributions import random_binomial
from numba.np.random.generator_core import next_double

from qfl_core.engines.ordered import COSINE, HALF_PI_HIGH, HALF_PI_LOW, MAX_ANGLE, SINE, TAU, TWO_OVER_PI
from qfl_core.engines.vectors import LANES, column_products, rotate

#: Samples whose sums are computed together: 136 rows of a tile fit into the second-level cache.
TILE = 256
_inner = njit(nogil=True, error_model="numpy")


@intrinsic
def _bit_generator(typing: Any, address: Any) -> Any:
    """Return numba's view of the bit generator whose ``bitgen_t`` is at an address.

    numba can unbox a ``Generator`` argument, but that takes about 30 microseconds per generator and call.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = cgutils.create_struct_proxy(types.npy_bitgen)(context, builder)
        word = context.get_value_type(types.uintp)
        fields = builder.inttoptr(arguments[0], ir.PointerType(word))

        def field(k: int) -> Any:
            return builder.load(builder.gep(fields, [ir.Constant(ir.IntType(32), k)]))

        # struct bitgen_t { void *state; next_uint64; next_uint32; next_double; next_raw } of NumPy's C interface.
        view.state_address = view.state = field(0)
        view.fnptr_next_uint64, view.fnptr_next_uint32, view.fnptr_next_double = field(1), field(2), field(3)
        view.bit_generator = arguments[0]
        return view._getvalue()

    return types.npy_bitgen(types.uintp), codegen


def addresses(rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Return where the ``bitgen_t`` of each generator is; the caller keeps the generators alive."""
    return np.array([_pointer(rng.bit_generator.capsule, b"BitGenerator") for rng in rngs], dtype=np.uintp)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_size_t
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@_inner
def _polynomial(z, c):  # type: ignore[no-untyped-def]
    return c[0] + z * (c[1] + z * (c[2] + z * (c[3] + z * (c[4] + z * c[5]))))


@_inner
def _sincos(angles, sine, cosine):  # type: ignore[no-untyped-def]
    """Fill in the sine and cosine of half of each angle, see :func:`qfl_core.engines.ordered.sincos`."""
    for i in range(len(angles)):
        x = 0.5 * angles[i]
        sine[i] = np.fmod(x, TAU) if abs(x) > MAX_ANGLE else x
    for i in range(len(angles)):  # without calls, so that it is vectorised
        x = sine[i]
        k = np.rint(x * TWO_OVER_PI)
        r = (x - k * HALF_PI_HIGH) - k * HALF_PI_LOW
        z = r * r
        a = r + (r * z) * _polynomial(z, SINE)
        b = (1.0 - 0.5 * z) + (z * z) * _polynomial(z, COSINE)
        quarter = np.int32(k) & np.int32(3)
        swapped = (quarter & np.int32(1)) == 1
        s = b if swapped else a
        c = a if swapped else b
        sine[i] = -s if quarter >= 2 else s
        cosine[i] = -c if ((quarter + np.int32(1)) & np.int32(2)) == 2 else c


@_inner
def _observables(theta, circuit, scratch, out):  # type: ignore[no-untyped-def]
    """Fill in the observables of one theta, see :meth:`qfl_core.engines.ordered.RyCircuit.observables`.

    ``scratch : (2 d d/2 + 2 P,)`` holds what is needed on the way.
    """
    angles, pairs, columns, odd = circuit
    d, half, weights = len(columns), len(odd), len(theta)
    size = d * half
    A, rows = scratch[:size], scratch[size : 2 * size]
    sine, cosine = scratch[2 * size : 2 * size + weights], scratch[2 * size + weights : 2 * size + 2 * weights]
    _sincos(theta, sine, cosine)
    for j in range(size):
        A[j] = 0.0
    for r in range(half):
        A[odd[r] * half + r] = 1.0
    whole = half % LANES == 0  # from four qubits on
    for k in range(len(angles)):
        s, c = sine[angles[k]], cosine[angles[k]]
        for m in range(half):
            low, high = pairs[k, m, 0] * half, pairs[k, m, 1] * half
            if whole:
                for r in range(0, half, LANES):
                    rotate(A, low + r, high + r, s, c)
            else:
                for r in range(half):
                    a, b = A[low + r], A[high + r]
                    A[low + r] = a * c + b * s
                    A[high + r] = b * c - a * s
    for j in range(d):
        for r in range(half):
            rows[r * d + j] = A[columns[j] * half + r]
    first = d * (d + 1) // 2
    for i in range(d - 1, -1, -1):
        first -= d - i  # row i of the triangle begins here
        if whole:
            # The first vector may begin before column i. What it writes there belongs to earlier rows, which follow.
            for j in range(i - i % LANES, d, LANES):
                column_products(rows, half, d, i, j, out, first + j - i)
        else:
            for j in range(i, d):
                total = 0.0
                for r in range(half):
                    total += rows[r * d + i] * rows[r * d + j]
                out[first + j - i] = total


@_inner
def _scratch(circuit, weights):  # type: ignore[no-untyped-def]
    """Return what :func:`_observables` needs for a number of weights."""
    return np.empty(2 * len(circuit[2]) * len(circuit[3]) + 2 * weights)


@_inner
def _gather(rows, indices, columns):  # type: ignore[no-untyped-def]
    """Fill ``columns : (width, n)`` with the rows at ``indices``."""
    for i in range(len(indices)):
        row = rows[indices[i]]
        for k in range(len(row)):
            columns[k, i] = row[k]


@_inner
def _product(columns, observables, out):  # type: ignore[no-untyped-def]
    """Fill ``out : (S, n)`` with probabilities; the terms of an entry are added from the first to the last."""
    n, count = columns.shape[1], len(observables)
    spare = np.empty(TILE)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        for s in range(0, count, 2):  # two thetas share the loads of the samples
            if s + 1 < count:
                _pair(
                    columns, start, stop, observables[s], observables[s + 1], out[s, start:stop], out[s + 1, start:stop]
                )
            else:
                _pair(columns, start, stop, observables[s], observables[s], out[s, start:stop], spare)


@_inner
def _pair(columns, start, stop, g, h, p, q):  # type: ignore[no-untyped-def]
    """Fill ``p`` and ``q`` with the probabilities of two observables ``g`` and ``h : (width,)``, for some columns."""
    width, n = len(columns), stop - start
    for i in range(n):
        p[i] = q[i] = 0.0
    k = 0
    while k + 4 <= width:  # four terms per pass, so that the sums are loaded and stored less often
        x0, x1 = columns[k, start:stop], columns[k + 1, start:stop]
        x2, x3 = columns[k + 2, start:stop], columns[k + 3, start:stop]
        g0, g1, g2, g3 = g[k], g[k + 1], g[k + 2], g[k + 3]
        h0, h1, h2, h3 = h[k], h[k + 1], h[k + 2], h[k + 3]
        for i in range(n):
            a, b, c, d = x0[i], x1[i], x2[i], x3[i]
            p[i] = (((p[i] + a * g0) + b * g1) + c * g2) + d * g3
            q[i] = (((q[i] + a * h0) + b * h1) + c * h2) + d * h3
        k += 4
    while k < width:
        x0, g0, h0 = columns[k, start:stop], g[k], h[k]
        for i in range(n):
            a = x0[i]
            p[i] += a * g0
            q[i] += a * h0
        k += 1
    for i in range(n):
        p[i] = min(max(p[i], 0.0), 1.0)
        q[i] = min(max(q[i], 0.0), 1.0)


@_inner
def _draw(source, shots, p, counts):  # type: ignore[no-untyped-def]
    """Fill ``counts`` with draws from Binomial(shots, p); the generator gives what NumPy's ``binomial`` would."""
    for i in range(len(p)):
        counts[i] = random_binomial(source, shots, p[i])


@_inner
def _mean(table, labels, counts):  # type: ignore[no-untyped-def]
    """Return the mean of ``table[label, count]`` over the samples, added from the first to the last."""
    total = 0.0
    for i in range(len(counts)):
        total += table[labels[i], counts[i]]
    return total / len(counts)


@_inner
def _accuracy(source, sides, p, labels):  # type: ignore[no-untyped-def]
    """Draw the class of each sample; return the shares of right ones and of hits, as the engine's ``accuracies``."""
    cells, low, scale = sides
    last, right, hits = float(len(cells) - 1), 0, 0
    for i in range(len(p)):
        x = min(max((p[i] - low) * scale + 1.0, 0.0), last)
        cell = cells[int(x)]
        t = x - int(x)
        chance = cell[0] + t * (cell[1] + t * (cell[2] + t * cell[3]))
        called, label = next_double(source) < chance, labels[i] == 1
        right += called == label
        hits += called and label
    return right / len(p), hits / len(p)


@_inner
def _longest(offsets):  # type: ignore[no-untyped-def]
    """Return the largest number of samples of a client."""
    n = 0
    for c in range(len(offsets) - 1):
        n = max(n, offsets[c + 1] - offsets[c])
    return n


@_inner
def _columns(samples, c, scratch):  # type: ignore[no-untyped-def]
    """Return the samples of client c as columns, ``(width, n)``; they are gathered into ``scratch`` if need be."""
    rows, whole, indices, offsets = samples
    if len(whole):
        return whole
    width, n = rows.shape[1], offsets[c + 1] - offsets[c]
    columns = scratch[: width * n].reshape(width, n)
    _gather(rows, indices[offsets[c] : offsets[c + 1]], columns)
    return columns


def _evaluate_for(stamp: int) -> Callable[..., None]:
    """Return the function behind :func:`evaluate`; numba's cache keeps it under its code, its types and the stamp."""

    def evaluate(samples, thetas, circuit, observables, shots, sources, labels, tables, sides, means, drawn):  # type: ignore[no-untyped-def]
        rows, whole, _, offsets = samples
        clients, signs, width, longest = means.shape[1], means.shape[2], rows.shape[1], _longest(offsets)
        d = len(circuit[2])
        walk, G = _scratch(circuit, thetas.shape[2]), np.empty((signs, width))
        p = np.empty(signs * longest)
        scratch = np.empty(0 if len(whole) else width * longest)
        counts = np.empty(longest, np.int64)
        if stamp < 0:
            return
        for c in range(clients):
            first, n = offsets[c], offsets[c + 1] - offsets[c]
            for s in range(signs):
                if d:
                    _observables(thetas[c, s], circuit, walk, G[s])
                else:
                    for w in range(width):
                        G[s, w] = observables[c, s, w]
            q = p[: signs * n].reshape(signs, n)
            _product(_columns(samples, c, scratch), G, q)
            source = _bit_generator(sources[c])
            y, k = labels[first : first + n], counts[:n]
            if len(sides[0]):
                for s in range(signs):
                    means[0, c, s], means[1, c, s] = _accuracy(source, sides, q[s], y)
                continue
            for s in range(signs):
                _draw(source, shots, q[s], k)
                if drawn.size > 0:
                    for i in range(n):
                        drawn[s, first + i] = k[i] / shots
                for f in range(len(tables)):
                    means[f, c, s] = _mean(tables[f], y, k)

    return evaluate


def _descend_for(stamp: int) -> Callable[..., bool]:
    """Return the function behind :func:`descend`; numba's cache keeps it under its code, its types and the stamp."""

    def descend(samples, theta, circuit, shots, sources, labels, table, anchor, half_mu, rates, directions, shift):  # type: ignore[no-untyped-def]
        rows, whole, _, offsets = samples
        etas, deltas = rates
        width, longest = rows.shape[1], _longest(offsets)
        clients, iterations, weights = directions.shape
        walk, G, p, loss = _scratch(circuit, weights), np.empty((2, width)), np.empty(2 * longest), np.empty(2)
        point = np.empty((2, weights))
        scratch = np.empty(0 if len(whole) else width * longest)
        counts = np.empty(longest, np.int64)
        for c in range(clients):
            first, n = offsets[c], offsets[c + 1] - offsets[c]
            y, k = labels[first : first + n], counts[:n]
            columns = _columns(samples, c, scratch)
            q = p[: 2 * n].reshape(2, n)
            source = _bit_generator(sources[c])
            here = theta[c]
            for j in range(iterations):
                eta, delta, direction = etas[c, j], deltas[c, j], directions[c, j]
                for w in range(weights):
                    probe = delta * direction[w]
                    point[0, w], point[1, w] = here[w] + probe, here[w] - probe
                    if not (np.isfinite(point[0, w]) and np.isfinite(point[1, w])):
                        return stamp < 0
                for s in range(2):
                    _observables(point[s], circuit, walk, G[s])
                _product(columns, G, q)
                for s in range(2):
                    distance = 0.0
                    for w in range(weights):
                        step = point[s, w] - anchor[w]
                        distance += step * step
                    _draw(source, shots, q[s], k)
                    loss[s] = _mean(table, y, k) + half_mu * distance
                slope = (loss[0] - loss[1]) / (2 * delta)
                for w in range(weights):
                    gradient = slope * direction[w]
                    if len(shift):
                        gradient += shift[c, w]
                    here[w] -= eta * gradient
        return True

    return descend


def _compiled(function: Callable[..., Any], signature: Any) -> Callable[..., Any]:
    """Compile a function for one signature, or read it from numba's cache.

    A cache that cannot be read or written must not stop a run: the function is then compiled in memory.
    """
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(signature, cache=True, **options)(function)
    except Exception:
        return njit(signature, **options)(function)


_real = types.float64
_vector, _matrix, _cube = _real[::1], _real[:, ::1], _real[:, :, ::1]
_integers = types.int64[::1]
_samples = types.Tuple((_matrix, _matrix, _integers, _integers))
_circuit = types.Tuple((_integers, types.int64[:, :, ::1], _integers, _integers))
_sources = types.uintp[::1]
_sides = types.Tuple((_matrix, _real, _real))
# What the machine code depends on beside its own source: NumPy decides the algorithm of the binomial draws.
_stamp = zlib.crc32(repr((np.__version__, SINE, COSINE)).encode())

evaluate = _compiled(
    _evaluate_for(_stamp),
    types.void(_samples, _cube, _circuit, _cube, types.int64, _sources, _integers, _cube, _sides, _cube, _matrix),
)
descend = _compiled(
    _descend_for(_stamp),
    types.boolean(
        _samples,
        _matrix,
        _circuit,
        types.int64,
        _sources,
        _integers,
        _matrix,
        _vector,
        _real,
        types.UniTuple(_matrix, 2),
        _cube,
        _matrix,
    ),
)
