"""How numbers become text: the few formats that tables, figures and messages share."""

from __future__ import annotations

import math

#: The text of a number that is not known (NaN).
MISSING = "–"


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
    return f"{value:{'+' if signed else ''}.{digits}f}"


def significant(value: float, digits: int = 4, *, missing: str = MISSING) -> str:
    """Return a number with at most this many significant digits: ``0.3333``, ``12``; NaN gives ``missing``."""
    return missing if math.isnan(value) else f"{value:.{digits}g}"


def count(value: float, *, missing: str = MISSING) -> str:
    """Return a number without decimals, its thousands set apart: ``12,345``; NaN gives ``missing``."""
    return missing if math.isnan(value) else f"{value:,.0f}"


def interval(mean: float, low: float, high: float, digits: int = 3, *, signed: bool = False) -> str:
    """Return a mean with the ends of its interval: ``0.62 [0.59, 0.65]`` for two digits."""
    middle, lower, upper = (number(value, digits, signed=signed) for value in (mean, low, high))
    return f"{middle} [{lower}, {upper}]"


def span(low: float, high: float, digits: int = 3) -> str:
    """Return the two ends of a range with significant digits: ``[0, 3.14]``."""
    return f"[{significant(low, digits)}, {significant(high, digits)}]"


def plus_minus(mean: float, half: float, digits: int = 3, *, signed: bool = False, missing: str = MISSING) -> str:
    """Return a mean with half the width of its interval: ``0.62 ± 0.03`` for two digits."""
    return f"{number(mean, digits, signed=signed, missing=missing)} ± {number(half, digits, missing=missing)}"
