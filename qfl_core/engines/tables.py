"""Functions of a measured probability as tables over counts.

A probability that was estimated from shots is count / shots. A table of a loss therefore holds all values that can
occur, so that compiled code needs no logarithm, and a loss of a user's own is as fast as the built-in ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qfl_core.engines.base import Elementwise

#: A table has at most so many counts; with more shots, values are computed sample by sample.
MAX_TABLE = 2**20


class Tables:
    """Keeps the tables of the functions that it was asked for.

    Parameters
    ----------
    shots : the number of measurements per probability.
    """

    def __init__(self, shots: int) -> None:
        self.shots = shots
        # The functions are kept too, because an id may be used again when its object is gone.
        self._kept: dict[tuple[float | int, ...], tuple[Sequence[Elementwise], np.ndarray | None]] = {}

    def __reduce__(self) -> tuple[type[Tables], tuple[int]]:
        """Send the number of shots to another process: ids mean nothing there."""
        return Tables, (self.shots,)

    def of(self, functions: Sequence[Elementwise], margin: float) -> np.ndarray | None:
        """Return the tables ``(F, 2, shots + 1)``, or None where one of the functions has none."""
        key = (margin, *(id(function) for function in functions))
        if key not in self._kept:
            found = [count_table(function, self.shots, margin) for function in functions]
            missing = any(table is None for table in found)
            self._kept[key] = (
                tuple(functions),
                None if missing else np.array(found).reshape(len(found), 2, -1 if found else 1),
            )
        return self._kept[key][1]


def count_table(function: Elementwise, shots: int, margin: float) -> np.ndarray | None:
    """Return the values of a function at every label and count, ``(2, shots + 1)``.

    None where the table would be too large, or where the function turns out not to work elementwise.
    """
    if shots > MAX_TABLE:
        return None
    p = np.arange(shots + 1) / shots
    # Some of the values in another order: a function that looks at the other samples of a batch gives itself away.
    some = np.random.Generator(np.random.PCG64(shots)).permutation(shots + 1)[: shots // 2 + 1]
    y = some % 2
    try:
        with np.errstate(all="ignore"):
            table = np.array([function(p, np.full(shots + 1, label), margin) for label in (0, 1)], dtype=float)
            found = function(np.stack([p[some], p[some[::-1]]]), y, margin)
    except Exception:  # the function cannot be asked for values that do not occur
        return None
    if table.shape != (2, shots + 1) or np.shape(found) != (2, len(some)):
        return None
    expected = np.stack([table[y, some], table[y, some[::-1]]])
    return table if np.array_equal(found, expected, equal_nan=True) else None
