"""Local optimisers: the SPSA block of Algorithm 1; for the baselines the library's SPSA, batched, and its ADAM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.algorithm.hooks import Block, BlockResult, LocalOptimizer, Memory
from qfl_core.config import ExperimentConfig

if TYPE_CHECKING:
    from qfl_core.algorithm.client import Objective

#: Losses of many weight vectors: (clients, S, P) -> (clients, S).
BatchLoss = Callable[[np.ndarray], np.ndarray]

#: Evaluations that the library's SPSA spends on its calibration (25 pairs).
CALIBRATION = 50
#: Its perturbation in the first iteration, and in the calibration.
SPSA_C = 0.2


def rademacher(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw -1 and +1 with equal probability."""
    return 1.0 - 2.0 * rng.integers(0, 2, shape)


def block_directions(block: Block) -> np.ndarray:
    """Draw the directions of a block, (clients, iterations, P), from each client's own generator."""
    shape = (block.iterations, block.theta.shape[1])
    return np.array([rademacher(rng, shape) for rng in block.rngs])


def spsa_block(
    theta: np.ndarray,
    loss: BatchLoss,
    eta: np.ndarray,
    delta: np.ndarray,
    directions: np.ndarray,
    shift: np.ndarray | None = None,
) -> np.ndarray:
    """Run several SPSA iterations for all clients at once: the update U_SPSA of Eq. (unfolded local update).

    Each iteration estimates the gradient along one random direction d,

        g = (L(theta + delta d) - L(theta - delta d)) / (2 delta) * d,    theta <- theta - eta (g + shift).

    Parameters
    ----------
    theta : (clients, P).
    loss : evaluates both signs of all clients in one call.
    eta, delta : (clients,) learning rate and perturbation, constant within the block.
    directions : (clients, iterations, P) of -1 and +1.
    shift : (clients, P), added to every estimate; the paper's methods have none.
    """
    for direction in directions.swapaxes(0, 1):
        probe = delta[:, None] * direction
        pair = loss(np.stack([theta + probe, theta - probe], axis=1))
        slope = (pair[:, 0] - pair[:, 1]) / (2 * delta)
        gradient = slope[:, None] * direction
        theta = theta - eta[:, None] * (gradient if shift is None else gradient + shift)
    return theta


@dataclass(frozen=True)
class Spsa(LocalOptimizer):
    """SPSA with the controller's rates: every unfold is one block of iterations."""

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Move every client by ``block.iterations`` SPSA iterations on its proximal objective."""
        theta = spsa_block(block.theta, objective, block.eta, block.delta, block_directions(block))
        return BlockResult(theta, block.eta, block.delta, {"train": 2 * block.iterations}), state


@dataclass(frozen=True)
class LibrarySpsa(LocalOptimizer):
    """Qiskit's default SPSA: it calibrates its own rates, so the controller's are not used."""

    unfolded = False

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Minimise every client's objective with the iterations of all unfolds."""
        seeds = [int(rng.integers(2**31)) for rng in block.rngs]
        theta, a = calibrated_spsa(block.theta, objective, block.iterations, seeds)
        # The library also scores the point that it returns: one evaluation for monitoring.
        spent = {"train": 2 * block.iterations, "calibration": CALIBRATION, "monitor": 1}
        return BlockResult(theta, a, np.full(len(theta), SPSA_C), spent), state


@dataclass(frozen=True)
class LibraryAdam(LocalOptimizer):
    """Qiskit's ADAM on exact gradients, with a learning rate that validation chose before round 0.

    It takes as many steps as the circuits of the SPSA methods allow, at least one.
    """

    unfolded = False

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return a rate per client; it is a number once :meth:`candidates` were compared."""
        return {"rate": np.full(clients, np.nan)}

    def begin(self, memory: Memory, client_ids: np.ndarray) -> Memory:
        """Return the rates of these clients."""
        return {"rate": memory["rate"][client_ids]}

    def candidates(self, config: ExperimentConfig) -> Sequence[Memory]:
        """Return the config's ``adam_rates``, each for all clients."""
        return [{"rate": np.full(config.clients, rate)} for rate in config.adam_rates]

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Minimise client after client: the library's optimiser takes one vector at a time."""
        num_weights = block.theta.shape[1]
        per_step = 2 * num_weights + 1  # P(class 1) itself, and two shifted circuits per weight
        steps = max(1, 2 * block.iterations // per_step)
        ends = []
        for i, (start, rate) in enumerate(zip(block.theta, state["rate"], strict=True)):
            alone = objective.of_client(i)
            ends.append(library_adam(start, alone.at_points, alone.gradient, steps, rate))
        spent = {"train": per_step * steps, "monitor": 1}
        return BlockResult(np.array(ends), state["rate"], np.full(len(ends), np.nan), spent), state


def calibrated_spsa(
    theta: np.ndarray, loss: BatchLoss, iterations: int, seeds: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise as qiskit-machine-learning's SPSA does by default, all clients at once and to the same bits.

    The library calibrates a on 25 pairs of points so that the first step has the magnitude 2 pi / 10 on average, then
    takes a_k = a / k^0.602 and c_k = 0.2 / k^0.101 in iteration k = 1, 2, ...

    Parameters
    ----------
    theta : (clients, P) start.
    seeds : one per client: what the library's own generator would be seeded with.

    Returns
    -------
    The clients' ends (clients, P), and a (clients,).
    """
    pairs, dim = CALIBRATION // 2, theta.shape[1]
    draws = [np.random.default_rng(seed).binomial(1, 0.5, (pairs + iterations, dim)) for seed in seeds]
    directions = 1.0 - 2.0 * np.array(draws)
    probe = SPSA_C * directions[:, :pairs]
    around = theta[:, None, None] + np.stack([probe, -probe], axis=2)
    losses = loss(around.reshape(len(theta), CALIBRATION, dim)).reshape(len(theta), pairs, 2)
    magnitude = np.zeros(len(theta))
    for slope in np.abs((losses[..., 0] - losses[..., 1]) / (2 * SPSA_C)).T:  # in the library's order of adding
        magnitude = magnitude + slope
    a = 2 * np.pi / 10 / (magnitude / pairs)
    for k in range(1, iterations + 1):
        step = directions[:, pairs + k - 1, None]
        theta = spsa_block(theta, loss, a / k**0.602, np.full(len(theta), SPSA_C / k**0.101), step)
    loss(theta[:, None])  # the library scores the point that it returns: counted, and drawn from the client's stream
    return theta, a


def library_adam(
    theta: np.ndarray,
    loss: Callable[[np.ndarray], np.ndarray],
    gradient: Callable[[np.ndarray], np.ndarray],
    steps: int,
    learning_rate: float,
) -> np.ndarray:
    """Minimise with qiskit-machine-learning's ADAM on the exact gradient: ``theta`` (P,), ``gradient`` (P,) -> (P,)."""
    from qiskit_machine_learning.optimizers import ADAM

    optimizer = ADAM(maxiter=steps, lr=float(learning_rate), tol=0.0)
    result = optimizer.minimize(lambda x: float(loss(x[None])[0]), theta, jac=gradient)
    return np.asarray(result.x)
