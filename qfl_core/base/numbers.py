"""How numbers become text: the few formats that tables, figures and messages share.

The last digits of a computed number differ between machines, because processors and libraries add numbers in different
orders. All formats here drop these digits first. A tie such as 0.0625 is then rounded in the same direction everywhere,
and tables and figures are the same files on every machine.
"""

from __future__ import annotations

import math

#: The text of a number that is not known (NaN).
MISSING = "–"
#: Significant digits of a number that do not depend on the machine.
_RELIABLE = 9
#: Numbers closer to 0 than this are 0 with an error of rounding.
_NOISE = 1e-9


def rounded(value: float, digits: int = 6) -> float:
    """Return a number as a table writes it: with so many significant digits, and whole where it is large.

    A number closer to 0 than 1e-9 becomes 0.

    Examples
    --------
    >>> rounded(0.010800000000000004), rounded(1234567.8), rounded(-4e-17)
    (0.0108, 1234568.0, 0.0)
    """
    if abs(value) < _NOISE:
        return 0.0
    if not abs(value) < 10**digits:  # large, infinite or not known
        return float(f"{round(value, 6):.0f}")
    return float(f"{_reliable(value):.{digits}g}")


def _reliable(value: float) -> float:
    return float(f"{value:.{_RELIABLE}g}")


def number(value: float, digits: int = 3, *, signed: bool = False, missing: str = MISSING) -> str:
    """Return a number with a fixed count of decimals: ``0.620``; NaN gives ``missing``.

    Parameters
    ----------
    value : the number.
    digits : how many decimals are shown.
    signed : write the sign of positive numbers too, as differences need it: ``+0.620``.
    missing : the text for NaN.
    """
    if math.isnan(value):
        return missing
    value = 0.0 if abs(value) < _NOISE else _reliable(value)
    return f"{value:{'+' if signed else ''}.{digits}f}"


def significant(value: float, digits: int = 4, *, missing: str = MISSING) -> str:
    """Return a number with at most this many significant digits: ``0.3333``, ``12``; NaN gives ``missing``."""
    return missing if math.isnan(value) else f"{_reliable(value):.{digits}g}"


def count(value: float, *, missing: str = MISSING) -> str:
    """Return a number without decimals, its thousands set apart: ``12,345``; NaN gives ``missing``."""
    return missing if math.isnan(value) else f"{round(value, 6):,.0f}"


def counted(value: int, noun: str) -> str:
    """Return a count with its noun: ``1 seed``, ``20 seeds``."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def interval(mean: float, low: float, high: float, digits: int = 3, *, signed: bool = False) -> str:
    """Return a mean with the ends of its interval: ``0.62 [0.59, 0.65]`` for two digits."""
    middle, lower, upper = (number(value, digits, signed=signed) for value in (mean, low, high))
    return f"{middle} [{lower}, {upper}]"


def span(low: float, high: float, digits: int = 3) -> str:
    """Return the two ends of a range with significant digits: ``[0, 3.14]``."""
    return f"[{significant(low, digits)}, {significant(high, digits)}]"


def plus_minus(mean: float, half: float, digits: int = 3, *, signed: bool = False, missing: str = MISSING) -> str:
    """Return a mean with half the width of its interval: ``0.62 ± 0.03`` for two digits; no width, no ``±``."""
    middle = number(mean, digits, signed=signed, missing=missing)
    return middle if math.isnan(half) else f"{middle} ± {number(half, digits)}"
