"""Sums of steps as whole numbers, because masks are added and taken away modulo 2^64 without a rounding error.

A step is rounded to multiples of 2^-32 (2.3e-10 radians, far below what 1,024 shots can tell), times how often it
counts. Whole numbers add up to the same sum in any order, so a simulation and a network give the same bits.
"""

from __future__ import annotations

import numpy as np

from qfl_core.base.errors import DataError

#: Binary digits behind the point.
BITS = 32
#: No entry of a step may be longer, in radians. With :data:`MOST`, no sum leaves the range of 64-bit numbers.
LONGEST = 1024.0
#: The most that all multiplicities of a round may add up to.
MOST = 2**20


def to_integers(steps: np.ndarray, multiplicities: np.ndarray) -> np.ndarray:
    """Return multiplicity_i * round(step_i * 2^32), (clients, P) of int64.

    Raises
    ------
    DataError
        When an entry of a step is not finite or longer than :data:`LONGEST`, or the multiplicities are too many.
    """
    if not (np.abs(steps) <= LONGEST).all():
        raise DataError(f"a step that is not finite, or longer than {LONGEST:g} in one weight, cannot be masked")
    if multiplicities.sum() > MOST:
        raise DataError(f"{multiplicities.sum():,} samples in one round, masked uploads allow {MOST:,}")
    return np.rint(steps * 2.0**BITS).astype(np.int64) * multiplicities[:, None]


def mean_of_sum(total: np.ndarray, count: int) -> np.ndarray:
    """Return the mean step (P,) of a sum (P,) whose multiplicities add up to ``count``.

    Raises
    ------
    DataError
        When no steps add up to this sum: then a mask was left in it.
    """
    mean: np.ndarray = total.astype(float) / count / 2.0**BITS
    if not (np.abs(mean) <= LONGEST).all():
        raise DataError("the sum of the masked uploads is no sum of steps: a mask was not taken away")
    return mean
