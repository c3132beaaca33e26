"""Local optimisers: the batched SPSA block of Algorithm 1, and the library's SPSA and ADAM for the baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: Losses of many weight vectors: (clients, S, P) -> (clients, S).
BatchLoss = Callable[[np.ndarray], np.ndarray]

#: Evaluations that the library's SPSA spends on its calibration (25 pairs).
CALIBRATION = 50


def spsa_block(
    theta: np.ndarray, loss: BatchLoss, eta: np.ndarray, delta: np.ndarray, directions: np.ndarray
) -> np.ndarray:
    """Run several SPSA iterations for all clients at once: the update U_SPSA of Eq. (unfolded local update).

    Each iteration estimates the gradient along one random direction d,

        g = (L(theta + delta d) - L(theta - delta d)) / (2 delta) * d,    theta <- theta - eta g.

    Parameters
    ----------
    theta : (clients, P).
    loss : evaluates both signs of all clients in one call.
    eta, delta : (clients,) learning rate and perturbation, constant within the block.
    directions : (clients, iterations, P) of -1 and +1.
    """
    for direction in directions.swapaxes(0, 1):
        shift = delta[:, None] * direction
        pair = loss(np.stack([theta + shift, theta - shift], axis=1))
        slope = (pair[:, 0] - pair[:, 1]) / (2 * delta)
        theta = theta - eta[:, None] * (slope[:, None] * direction)
    return theta


@dataclass(frozen=True, eq=False)
class LibraryResult:
    """What a library optimiser found: ``theta`` (P,), its first learning rate and perturbation (NaN if it has none)."""

    theta: np.ndarray
    eta: float
    delta: float


def library_spsa(
    theta: np.ndarray, loss: Callable[[np.ndarray], np.ndarray], iterations: int, seed: int
) -> LibraryResult:
    """Minimise with qiskit-machine-learning's SPSA and its own calibration.

    Parameters
    ----------
    theta : (P,) start.
    loss : losses (m,) of weight vectors (m, P).
    seed : of the library's global generator, set here so that a client's run does not depend on others.
    """
    from qiskit_machine_learning.optimizers import SPSA
    from qiskit_machine_learning.utils import algorithm_globals

    algorithm_globals.random_seed = seed

    def values(points: np.ndarray) -> list[float] | float:
        found = loss(np.atleast_2d(points))
        return float(found[0]) if np.ndim(points) == 1 else [float(v) for v in found]

    # minimize() would calibrate in the same way; doing it here makes the calibrated rates visible.
    rate, perturbation = SPSA.calibrate(values, theta, max_evals_grouped=CALIBRATION)
    optimizer = SPSA(maxiter=iterations, learning_rate=rate, perturbation=perturbation)
    optimizer.set_max_evals_grouped(2)
    result = optimizer.minimize(values, theta)
    return LibraryResult(np.asarray(result.x), next(rate()), next(perturbation()))


def library_adam(
    theta: np.ndarray,
    loss: Callable[[np.ndarray], np.ndarray],
    gradient: Callable[[np.ndarray], np.ndarray],
    steps: int,
    learning_rate: float,
) -> LibraryResult:
    """Minimise with qiskit-machine-learning's ADAM on the exact gradient: ``theta`` (P,), ``gradient`` (P,) -> (P,)."""
    from qiskit_machine_learning.optimizers import ADAM

    optimizer = ADAM(maxiter=steps, lr=float(learning_rate), tol=0.0)
    result = optimizer.minimize(lambda x: float(loss(x[None])[0]), theta, jac=gradient)
    return LibraryResult(np.asarray(result.x), float(learning_rate), np.nan)
