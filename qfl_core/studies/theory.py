"""The paper's theory points that need a computation of their own: the proximal gradient and the outer estimate.

Both run on a small federation with exact probabilities, in seconds, from named random streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.meta import moved, outer_gradient
from qfl_core.algorithm.optimizers import rademacher
from qfl_core.algorithm.server import Phi, State, federated_round
from qfl_core.analysis.measures import Theory
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.runs.prepare import make_federation

#: The leak-free genome task of the offline generator, made small; mu is large enough to matter in the gradient.
SMALL = ExperimentConfig(
    dataset="genome",
    encoding="kmer",
    source="stand-in",
    method="duqfl-prox",
    clients=4,
    rounds=4,
    chunk=20,
    unfolds=3,
    spsa_iterations=4,
    train_size=400,
    val_size=100,
    test_size=100,
    mu=0.1,
    shots=None,
)
#: The round whose controller is looked at: in round 0 the feature t / T is 0 and its weights have no slope.
ROUND = 1


def check_theory(seeds: int = 10, draws: int = 16) -> Theory:
    """Compute what the theory points need, over this many federations and outer draws."""
    splits = load_splits(SMALL)
    federations = [make_federation(SMALL.replace(seed=seed), splits) for seed in range(seeds)]
    errors = [proximal_gradient_error(federation) for federation in federations]
    return Theory(max(errors), tuple(outer_descent(federation, draws) for federation in federations))


def central_difference(function: Callable[[np.ndarray], float], at: np.ndarray, step: float) -> np.ndarray:
    """Return the gradient of a scalar function at a point of any shape, by central differences."""
    gradient = np.zeros(at.size)
    for j in range(at.size):
        moved = np.zeros(at.size)
        moved[j] = step
        shift = moved.reshape(at.shape)
        gradient[j] = (function(at + shift) - function(at - shift)) / (2 * step)
    return gradient.reshape(at.shape)


def proximal_gradient_error(federation: Federation, step: float = 1e-5) -> float:
    """Return how far grad L + mu (theta - theta_t) is from the slope of L + (mu / 2) |theta - theta_t|^2.

    The largest absolute difference of a component over all clients of a round, relative to the largest component; theta
    is a random point, theta_t the initial weights. Eq. (prox gradient).
    """
    anchor = federation.initial_theta()
    theta = stream(federation.config.seed, "theory-theta").uniform(-np.pi, np.pi, anchor.shape)
    batch = federation.batch(ROUND)
    rngs = federation.generators("theory", ROUND, batch.client_ids)  # not used: probabilities are exact
    whole = Objective(federation.model, batch.train, anchor, federation.mu, rngs)
    errors = []
    for i in range(len(batch.client_ids)):
        alone = whole.of_client(i)
        measured = central_difference(partial(_value, alone), theta, step)
        errors.append(np.abs(alone.gradient(theta) - measured).max() / np.abs(measured).max())
    return float(max(errors))


def _value(objective: Objective, theta: np.ndarray) -> float:
    """Return the objective of one client at one point."""
    return float(objective(theta[None, None])[0, 0])


def outer_descent(federation: Federation, draws: int = 16, step: float = 1e-3) -> float:
    """Return the cosine between the mean outer SPSA estimate and the meta-loss's gradient in phi.

    Above 0, a step against the estimate goes downhill. The gradient is a central difference with a small step; the
    estimate uses the method's own radius c_out and ``draws`` Rademacher directions (Algorithm 3).
    """
    config = federation.config
    start, radius = replace(State.initial(federation), t=ROUND), config.outer_perturbation
    phi = start.phi["controller"]

    def meta(phi: Phi) -> float:
        return federated_round(federation, replace(start, phi=phi), purpose="virtual").meta.total

    def estimate(drawn: np.ndarray) -> np.ndarray:
        direction = {"controller": drawn}
        plus, minus = (meta(moved(start.phi, sign * radius, direction)) for sign in (1, -1))
        step = moved(start.phi, -1.0, outer_gradient(plus, minus, radius, direction))
        return phi - step["controller"]  # a step of rate 1 moves phi by minus the estimate

    gradient = central_difference(lambda values: meta({"controller": values}), phi, step)
    directions = rademacher(stream(config.seed, "theory-directions"), (draws, *phi.shape))
    mean = np.mean([estimate(drawn) for drawn in directions], axis=0)
    return float((mean * gradient).sum() / np.sqrt((mean**2).sum() * (gradient**2).sum()))
