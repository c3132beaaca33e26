"""Checks of settings: each returns the value in its plain type, or raises an error that names value and choices."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from qfl_core.base.errors import ConfigError, did_you_mean, one_line

Check = Callable[[str, Any], Any]
#: The most characters of a wrong value that a message shows.
_SHOWN = 200


def invalid(name: str, value: object, expected: str) -> ConfigError:
    """Return the error that names a setting, its value and what was expected."""
    try:
        shown = one_line(repr(value))
    except Exception:  # Python does not print whole numbers of more than 4,300 digits, and a class may print nothing
        shown = f"a value of type {type(value).__name__}, which cannot be printed"
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    return ConfigError(f"{name}={shown} is not valid: expected {expected}")


def one_of(options: tuple[str, ...] | Callable[[], tuple[str, ...]]) -> Check:
    """Accept one of the names; a function is asked for them when a value is checked, so that tables may grow."""

    def check(name: str, value: Any) -> str:
        allowed = options() if callable(options) else options
        if not isinstance(value, str) or value not in allowed:
            raise invalid(name, value, f"one of {', '.join(allowed)}{did_you_mean(value, allowed)}")
        return value

    return check


def integer(low: int, high: int | None = None) -> Check:
    """Accept whole numbers of a range, not booleans."""

    def check(name: str, value: Any) -> int:
        span = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise invalid(name, value, span)
        converted = int(value)
        if converted < low or (high is not None and converted > high):
            raise invalid(name, value, span)
        return converted

    return check


def number(low: float, high: float = math.inf, *, above: bool = False, below: bool = False) -> Check:
    """Accept finite numbers of a range; ``above`` and ``below`` leave its ends out."""

    def check(name: str, value: Any) -> float:
        span = f"a number in {'(' if above else '['}{low:g}, {high:g}{')' if below or high == math.inf else ']'}"
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                raise invalid(name, value, span) from None
            raise invalid(name, value, f"{span}, not text (YAML reads 1e-2 as text: write 0.01 or 1.0e-2)")
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise invalid(name, value, span)
        try:
            converted = float(value) + 0.0  # -0.0 becomes 0.0: equal configs must have equal digests
        except OverflowError:
            raise invalid(name, value, span) from None
        if not math.isfinite(converted) or converted < low or converted > high:
            raise invalid(name, value, span)
        if (above and converted == low) or (below and converted == high):
            raise invalid(name, value, span)
        return converted

    return check


def optional(inner: Check) -> Check:
    """Accept None, or what ``inner`` accepts."""
    return lambda name, value: None if value is None else inner(name, value)


def interval(least: float, most: float) -> Check:
    """Accept (low, high) with ``least <= low < high <= most``, as a list or tuple."""
    expected = f"two numbers (low, high) with low < high, both in [{least:g}, {most:g}]"

    def check(name: str, value: Any) -> tuple[float, float]:
        if not isinstance(value, (list, tuple)) or len(value) != 2:
            raise invalid(name, value, expected)
        low, high = (number(least, most)(name, v) for v in value)
        if not low < high:
            raise invalid(name, value, expected)
        return low, high

    return check


def rates(most: float) -> Check:
    """Accept a list of 1 to 100 positive numbers, because each is tried by training."""

    def check(name: str, value: Any) -> tuple[float, ...]:
        if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= 100:
            raise invalid(name, value, "a list of 1 to 100 positive numbers")
        return tuple(number(0, most, above=True)(name, v) for v in value)

    return check


def participation(name: str, value: Any) -> float | tuple[int, ...]:
    """Accept a share of clients, or a list of them."""
    try:
        if not isinstance(value, (list, tuple)):
            share: float = number(0, 1, above=True)(name, value)
            return share
        clients = tuple(integer(0)(name, v) for v in value)
    except ConfigError:
        clients = ()
    if not clients or len(set(clients)) != len(clients):
        raise invalid(name, value, "a share in (0, 1] or a list of different clients")
    return tuple(sorted(clients))
