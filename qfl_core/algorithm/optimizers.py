"""Local optimisers: the SPSA block of Algorithm 1; for the baselines the library's SPSA, batched, and Adam."""

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
    count = block.iterations * block.theta.shape[1]
    drawn = np.array([rng.integers(0, 2, count) for rng in block.rngs])
    return 1.0 - 2.0 * drawn.reshape(len(block.rngs), block.iterations, block.theta.shape[1])


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
    eta, delta : learning rate and perturbation, (clients,), or (clients, iterations) if they change.
    directions : (clients, iterations, P) of -1 and +1.
    shift : (clients, P), added to every estimate; the paper's methods have none.
    """
    etas, deltas = (np.broadcast_to(r.reshape(len(theta), -1), directions.shape[:2]) for r in (eta, delta))
    descend = getattr(loss, "descend", None)  # compiled code does the same to the bit, where there is some
    if descend and (end := descend(theta, etas, deltas, directions, shift)) is not None:
        return end
    for eta, delta, direction in zip(etas.T, deltas.T, directions.swapaxes(0, 1), strict=True):
        probe = delta[:, None] * direction
        pair = loss(np.stack([theta + probe, theta - probe], axis=1))
        slope = (pair[:, 0] - pair[:, 1]) / (2 * delta)
        gradient = slope[:, None] * direction
        theta = theta - eta[:, None] * (gradient if shift is None else gradient + shift)
    return theta


@dataclass(frozen=True)
class Spsa(LocalOptimizer):
    """SPSA with the controller's rates: every unfold is one block of iterations, or all of them together are one."""

    unfolded: bool = True

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Move every client by ``block.iterations`` SPSA iterations on its proximal objective."""
        theta = spsa_block(block.theta, objective, block.eta, block.delta, block_directions(block))
        return BlockResult(theta, block.eta, block.delta, {"train": 2 * block.iterations}), state


@dataclass(frozen=True)
class LibrarySpsa(LocalOptimizer):
    """Qiskit's default SPSA: it calibrates its own rates, so the controller's are not used.

    ``setting`` names the config field that asks for the fixed rates of the paper's table of settings instead.
    """

    setting: str
    unfolded = False

    def configured(self, config: ExperimentConfig) -> LocalOptimizer:
        """Return plain SPSA with the config's learning rate and perturbation, where they are to be fixed."""
        return Spsa(unfolded=False) if getattr(config, self.setting) == "fixed" else self

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Minimise every client's objective with the iterations of all unfolds."""
        seeds = [int(rng.integers(2**31)) for rng in block.rngs]
        theta, a = calibrated_spsa(block.theta, objective, block.iterations, seeds)
        # The library also scores the point that it returns: one evaluation for monitoring.
        spent = {"train": 2 * block.iterations, "calibration": CALIBRATION, "monitor": 1}
        return BlockResult(theta, a, np.full(len(theta), SPSA_C), spent), state


@dataclass(frozen=True)
class Adam(LocalOptimizer):
    """Adam on exact gradients, as in Qiskit, with a learning rate that validation chose before round 0.

    A round takes ``steps`` steps; 0 means as many as the circuits of the SPSA methods allow, at least one. If ``kept``,
    a client goes on with its moments of the round before; otherwise they start at 0 in every round.
    """

    steps: int = 0
    kept: bool = False
    unfolded = False

    def configured(self, config: ExperimentConfig) -> LocalOptimizer:
        """Return the optimiser with the config's steps and moments."""
        return Adam(config.adam_steps, config.adam_moments == "kept")

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return a rate per client, which is a number once :meth:`candidates` were compared, and the moments."""
        moments = {name: np.zeros((clients, num_weights)) for name in ("first", "second")}
        return {"rate": np.full(clients, np.nan)} | (moments | {"taken": np.zeros(clients)} if self.kept else {})

    def candidates(self, config: ExperimentConfig, num_weights: int) -> Sequence[Memory]:
        """Return the config's ``adam_rates``, each for all clients."""
        start = self.init(config.clients, num_weights)
        return [dict(start) | {"rate": np.full(config.clients, rate)} for rate in config.adam_rates]

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Move client after client along exact gradients of its proximal objective."""
        per_step = 2 * block.theta.shape[1] + 1  # P(class 1) itself, and two shifted circuits per weight
        steps = self.steps or max(1, 2 * block.iterations // per_step)
        ends, after = np.empty_like(block.theta), {name: values.copy() for name, values in state.items()}
        for i, (start, rate) in enumerate(zip(block.theta, state["rate"], strict=True)):
            known = (state["first"][i], state["second"][i], int(state["taken"][i])) if self.kept else None
            ends[i], reached = adam(start, objective.of_client(i).gradient, steps, rate, known)
            if self.kept:
                after["first"][i], after["second"][i], after["taken"][i] = reached
        return BlockResult(ends, state["rate"], np.full(len(ends), np.nan), {"train": per_step * steps}), after


#: First and second moment, (P,) each, and how many steps made them.
Moments = tuple[np.ndarray, np.ndarray, int]


def adam(
    theta: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    steps: int,
    rate: float,
    moments: Moments | None = None,
) -> tuple[np.ndarray, Moments]:
    """Take Adam steps from theta (P,) with the constants of Qiskit's ADAM, and return the moments reached.

        m <- 0.9 m + 0.1 g,   v <- 0.99 v + 0.01 g^2,   theta <- theta - rate_t m / (sqrt(v) + 1e-8)

    with rate_t = rate sqrt(1 - 0.99^t) / (1 - 0.9^t). The library's ADAM forgets its moments at every call.
    """
    m, v, taken = moments or (np.zeros_like(theta), np.zeros_like(theta), 0)
    for t in range(taken + 1, taken + steps + 1):
        g = gradient(theta)
        m = 0.9 * m + (1 - 0.9) * g
        v = 0.99 * v + (1 - 0.99) * g * g
        theta = theta - rate * np.sqrt(1 - 0.99**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return theta, (m, v, taken + steps)


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
    k = range(1, iterations + 1)
    etas = a[:, None] / np.array([i**0.602 for i in k])
    deltas = np.tile([SPSA_C / i**0.101 for i in k], (len(theta), 1))
    theta = spsa_block(theta, loss, etas, deltas, directions[:, pairs:])
    loss(theta[:, None])  # the library scores the point that it returns: counted, and drawn from the client's stream
    return theta, a
