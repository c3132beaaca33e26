"""Task losses of a probability, safe at 0 and 1.

With finite shots, an outcome that was never seen in n shots counts as half a shot: P(y) is held at or above 1 / 2n
before a logarithm is taken. Exact probabilities are held at or above 1e-12.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.engines.base import Elementwise as Elementwise

EXACT_MARGIN = 1e-12


@dataclass(frozen=True)
class Loss:
    """A loss per sample and its derivative in p; without ``slope`` only SPSA can minimise it."""

    value: Elementwise
    slope: Elementwise | None = None


def cross_entropy(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return -log P(y), elementwise: ``p`` (..., n) is P(class 1), ``y`` (n,) in {0, 1}."""
    return -np.log(np.maximum(np.where(y == 1, p, 1.0 - p), margin))


def cross_entropy_slope(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return the derivative of :func:`cross_entropy` in p, elementwise, bounded by the same margin."""
    return np.where(y == 1, -1.0 / np.maximum(p, margin), 1.0 / np.maximum(1.0 - p, margin))


def squared_error(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return (P(class 1) - y)^2, elementwise; the margin is not needed."""
    return (p - y) ** 2


def squared_error_slope(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return the derivative of :func:`squared_error` in p, elementwise."""
    return 2.0 * (p - y)


def correct(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return 1 where the more probable class is the label, else 0, elementwise; its mean is the accuracy."""
    return ((p >= 0.5) == (y == 1)).astype(float)


def hit(p: np.ndarray, y: np.ndarray, margin: float) -> np.ndarray:
    """Return 1 where a sample of class 1 is called class 1, else 0, elementwise."""
    return ((p >= 0.5) & (y == 1)).astype(float)


CROSS_ENTROPY = Loss(cross_entropy, cross_entropy_slope)
SQUARED_ERROR = Loss(squared_error, squared_error_slope)


def margin_of(shots: int | None) -> float:
    """Return the margin for probabilities estimated from ``shots`` measurements (None: exact)."""
    return EXACT_MARGIN if shots is None else 0.5 / shots
