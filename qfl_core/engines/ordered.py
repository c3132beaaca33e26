"""Sums and products in one fixed order: what the engines with shots compute, in NumPy.

The sums of a BLAS product depend on the processor. Engines with shots therefore use this module, where every result is
a fixed sequence of multiplications and additions of float64, which every processor rounds alike.
:mod:`qfl_core.engines.compiled` repeats the same sequences in compiled code. Both give the same bits, and this module
is the reference: it is used where the compiled code is not available.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.engines.kernels import Kernel

TWO_OVER_PI = 2 / np.pi
# pi / 2 in two parts. The first has 33 bits, so k * HALF_PI_HIGH is exact for every |k| < 2**20.
HALF_PI_HIGH = 1.57079632673412561417e00
HALF_PI_LOW = 6.07710050650619224932e-11
#: Larger angles are first taken modulo 2 pi.
MAX_ANGLE = 2.0**19
TAU = 2 * np.pi
# Coefficients of the polynomials of sine and cosine in [-pi/4, pi/4], from FreeBSD's msun (k_sin.c and k_cos.c).
SINE = (
    -1.66666666666666324348e-01,
    8.33333333332248946124e-03,
    -1.98412698298579493134e-04,
    2.75573137070700676789e-06,
    -2.50507602534068634195e-08,
    1.58969099521155010221e-10,
)
COSINE = (
    4.16666666666666019037e-02,
    -1.38888888888741095749e-03,
    2.48015872894767294178e-05,
    -2.75573143513906633035e-07,
    2.08757232129817482790e-09,
    -1.13596475577881948265e-11,
)

#: Values that :func:`product` may hold at once.
MAX_PRODUCTS = 2**20


def sincos(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sine and cosine with an error of at most 1e-15, by additions and multiplications in a fixed order."""
    x = np.where(np.abs(x) > MAX_ANGLE, np.fmod(x, TAU), x)
    k = np.rint(x * TWO_OVER_PI)
    r = (x - k * HALF_PI_HIGH) - k * HALF_PI_LOW
    z = r * r
    sine = r + (r * z) * _polynomial(z, SINE)
    cosine = (1.0 - 0.5 * z) + (z * z) * _polynomial(z, COSINE)
    quarter = k.astype(np.int32) & 3
    swapped = (quarter & 1) == 1
    s, c = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    return np.where(quarter >= 2, -s, s), np.where((quarter == 1) | (quarter == 2), -c, c)


def _polynomial(z: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """Return c_0 + z (c_1 + z (c_2 + ...))."""
    value = np.full_like(z, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = c + z * value
    return value


@dataclass(frozen=True, eq=False)
class RyCircuit:
    """An ansatz of RY rotations and permutations of the basis states, such as RealAmplitudes.

    It turns A, the rows of the identity that have odd parity, into A U(theta), column pair by column pair. The
    permutations move no numbers: they only decide which columns the next rotation joins.

    Attributes
    ----------
    angles : (rotations,), the number of each rotation's angle, in the order of the walk.
    pairs : (rotations, d/2, 2), the columns that each rotation joins.
    columns : (d,), where the columns of A U(theta) are at the end of the walk.
    odd : (d/2,), the basis states of odd parity.
    """

    angles: np.ndarray
    pairs: np.ndarray
    columns: np.ndarray
    odd: np.ndarray

    @classmethod
    def of(cls, kernel: Kernel, odd: np.ndarray) -> RyCircuit | None:
        """Return the circuit of a kernel, or None where it has other gates."""
        walk = kernel.ry_walk()
        return None if walk is None else cls(*walk, odd)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The four arrays, as compiled code reads them."""
        return self.angles, self.pairs, self.columns, self.odd

    def observables(self, angles: np.ndarray) -> np.ndarray:
        """Return the upper triangle of G = A^T A, ``(B, d (d + 1) / 2)``, for ``angles : (B, K)``."""
        sine, cosine = sincos(0.5 * angles)
        A = np.zeros((len(self.columns), len(self.odd), len(angles)))
        A[self.odd, np.arange(len(self.odd))] = 1.0
        for k, pair in zip(self.angles, self.pairs, strict=True):
            s, c = sine[:, k], cosine[:, k]
            a, b = A[pair[:, 0]], A[pair[:, 1]]
            A[pair[:, 0]] = a * c + b * s
            A[pair[:, 1]] = b * c - a * s
        A = A[self.columns]
        i, j = np.triu_indices(len(A))
        G = A[i, 0] * A[j, 0]
        for r in range(1, len(self.odd)):
            G = G + A[i, r] * A[j, r]
        return np.ascontiguousarray(G.T)


def product(rows: np.ndarray, observables: np.ndarray) -> np.ndarray:
    """Return ``(B, n)``: every row of ``observables : (B, width)`` times every row of ``rows : (n, width)``.

    The terms of an entry are added from the first to the last.
    """
    count = len(observables)
    out = np.empty((count, len(rows)))
    factors = np.ascontiguousarray(observables.T)[:, :, None]
    step = max(1, MAX_PRODUCTS // factors.size)
    for i in range(0, len(rows), step):
        part = rows[i : i + step]
        # NumPy adds along the slow axis of an array term by term. A single column would be added in another order, so
        # there are always two or more.
        terms = np.zeros((rows.shape[1], count, len(part) + 1))
        np.multiply(part.T[:, None], factors, out=terms[:, :, :-1])
        out[:, i : i + step] = np.add.reduce(terms, axis=0)[:, :-1]
    return out
