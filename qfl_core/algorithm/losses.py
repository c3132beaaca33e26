"""Task losses of a probability, safe at 0 and 1.

Rule for finite shots: an outcome that was never seen in n shots counts as half a shot, so P(y) is held at or above
1 / 2n before a logarithm is taken. Exact probabilities are held at or above 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

EXACT_MARGIN = 1e-12


def cross_entropy(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return -log P(y), elementwise: ``p`` (..., n) is P(class 1), ``y`` (n,) in {0, 1}."""
    return -np.log(np.maximum(np.where(y == 1, p, 1.0 - p), margin))


def squared_error(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return (P(class 1) - y)^2, elementwise; needs no margin."""
    return (p - y) ** 2


def cross_entropy_slope(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return d cross_entropy / dp, elementwise, bounded by the same margin."""
    return np.where(y == 1, -1.0 / np.maximum(p, margin), 1.0 / np.maximum(1.0 - p, margin))


def squared_error_slope(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return d squared_error / dp, elementwise."""
    return 2.0 * (p - y)


Elementwise = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
#: A loss and its derivative by name.
LOSSES: dict[str, tuple[Elementwise, Elementwise]] = {
    "cross_entropy": (cross_entropy, cross_entropy_slope),
    "squared_error": (squared_error, squared_error_slope),
}


def margin_of(shots: int | None) -> float:
    """Return the margin for probabilities estimated from ``shots`` measurements (None: exact)."""
    return EXACT_MARGIN if shots is None else 0.5 / shots
