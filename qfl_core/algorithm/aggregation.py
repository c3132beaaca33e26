"""Who took part in a round, and how much each upload counts in the new global model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qfl_core.base.errors import DataError


@dataclass(frozen=True, eq=False)
class Attendance:
    """Who took part in round t; arrays are (clients,): ``sizes`` n_i, ``val_sizes``, ``heterogeneity``.

    ``absent`` lists the participants left out, each with the reason.
    """

    t: int
    clients: np.ndarray
    sizes: np.ndarray
    val_sizes: np.ndarray
    heterogeneity: np.ndarray
    absent: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Aggregation:
    """A rule ``weights(attendance, logits) -> w`` (clients,), w_i >= 0 with sum 1.

    A ``learned`` rule has a number a_i for each of the N clients: ``logits`` (N,), 0 at the start, refined by the outer
    SPSA together with the controller. Other rules get an empty array.
    """

    weights: Callable[[Attendance, np.ndarray], np.ndarray]
    learned: bool = False

    def start(self, clients: int) -> np.ndarray:
        """Return the logits before round 0."""
        return np.zeros(clients if self.learned else 0)

    def __call__(self, attendance: Attendance, logits: np.ndarray | None = None) -> np.ndarray:
        """Return w (clients,); weights that are no weights are refused. Without ``logits``, those of the start."""
        if logits is None:
            logits = self.start(int(attendance.clients.max()) + 1)
        w = np.asarray(self.weights(attendance, logits), dtype=float)
        expected = attendance.sizes.shape
        if w.shape != expected or not (w >= 0).all() or not abs(w.sum() - 1) < 1e-9:
            name = getattr(self.weights, "__name__", self.weights)
            raise DataError(f"{name} gave the weights {w.tolist()}: expected {expected[0]} of at least 0 with sum 1")
        return w


def sample_size(attendance: Attendance, logits: np.ndarray) -> np.ndarray:
    """Return w_i = n_i / sum of n, Eq. (sample size weight)."""
    return attendance.sizes / attendance.sizes.sum()


def learned(attendance: Attendance, logits: np.ndarray) -> np.ndarray:
    """Return the learnable coefficients Theta_i of Eq. (app classical duw), kept non-negative with sum 1.

        Theta_i = n_i exp(a_i) / sum_j n_j exp(a_j)

    with the sum over the round's clients; a = 0 is FedAvg, to the bit.
    """
    a = logits[attendance.clients]
    scaled = attendance.sizes * np.exp(a - a.max())
    return scaled / scaled.sum()


SAMPLE_SIZE = Aggregation(sample_size)
LEARNED = Aggregation(learned, learned=True)
