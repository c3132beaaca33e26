"""The chance that at least half of the shots show class 1: all that an accuracy has to know about a measurement.

A sample is classified by the side of one half on which its frequency falls. With n shots and X from Binomial(n, p), the
class is 1 with probability

    S(p) = P(X / n >= 1/2) = 1/2 + a * integral_0^d (1 - 4 x^2)^r dx + [n even] a (1 - 4 d^2)^(r + 1) / (4 (r + 1)),
    d = p - 1/2,    r = (n - 1) // 2,    a = (2r + 1) binom(2r, r) / 4^r.

One uniform number u per sample therefore draws the class, "1 if u < S(p)", and no binomial draw is needed. This module
tabulates S as cubic polynomials on a grid. It uses additions, multiplications, divisions and square roots only, in a
fixed order, so that every processor computes the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

#: Cells of the grid.
CELLS = 2048
#: With more shots there is no table: the rounding error of (1 - 4 d^2)^r grows with r.
MAX_MAJORITY = 2**20
#: Farther from one half than so many standard deviations of a frequency, S is 0 or 1 to 1e-16.
_DEVIATIONS = 8.5


@dataclass(frozen=True, eq=False)
class Majority:
    """S(p) for one number of shots, with an error below 1e-11.

    Attributes
    ----------
    cells : (CELLS + 2, 4), the polynomials' coefficients in the position t in [0, 1] inside a cell, the constant first;
        the first cell is 0 and the last one 1.
    low, scale : p lies in the cell number ``(p - low) * scale + 1``, rounded down and held between 0 and CELLS + 1.
    """

    cells: np.ndarray
    low: float
    scale: float

    def __call__(self, p: np.ndarray) -> np.ndarray:
        """Return S(p), elementwise, for p in [0, 1]; rounding may have led 1e-16 outside."""
        x = np.minimum(np.maximum((p - self.low) * self.scale + 1.0, 0.0), CELLS + 1.0)
        i = x.astype(np.int64)
        t, c = x - i, self.cells
        result: np.ndarray = c[i, 0] + t * (c[i, 1] + t * (c[i, 2] + t * c[i, 3]))
        return result


@lru_cache(maxsize=8)
def majority(shots: int) -> Majority | None:
    """Return the table for a number of shots, or None where there are too many of them."""
    if shots > MAX_MAJORITY:
        return None
    r, half = (shots - 1) // 2, CELLS // 2
    reach = min(0.5, 0.5 * _DEVIATIONS / float(np.sqrt(shots)))
    h = reach / half
    d = h * np.arange(half + 1)
    steps = np.arange(1, r + 1)
    a = (2 * r + 1) * float(np.multiply.accumulate(np.append(1.0, (2 * steps - 1) / (2 * steps)))[-1])
    density = a * _power(1.0 - 4.0 * d * d, r)
    middle = a * _power(1.0 - 4.0 * (d[:-1] + 0.5 * h) ** 2, r)
    inside = np.append(0.0, np.cumsum(h / 6 * (density[:-1] + 4.0 * middle + density[1:])))  # Simpson's rule
    value = np.append(0.5 - inside[:0:-1], 0.5 + inside)
    slope = np.append(density[:0:-1], density)
    if shots % 2 == 0:
        d = np.append(-d[:0:-1], d)
        value += slope * (1.0 - 4.0 * d * d) / (4 * (r + 1))
        slope *= 1.0 - 2.0 * d
    value[0], value[-1] = 0.0, 1.0
    rise, left, right = np.diff(value), h * slope[:-1], h * slope[1:]
    inner = np.stack([value[:-1], left, 3.0 * rise - (2.0 * left + right), (left + right) - 2.0 * rise], axis=1)
    cells = np.concatenate([np.zeros((1, 4)), inner, np.eye(1, 4)])
    return Majority(cells, 0.5 - reach, 1.0 / h)


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """Return ``base ** exponent`` by squaring, because the bits of a library's power depend on the processor."""
    result, square = np.ones_like(base), base
    while exponent:
        if exponent % 2:
            result = result * square
        square, exponent = square * square, exponent // 2
    return result
