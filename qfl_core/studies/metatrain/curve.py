"""How good a controller is on one federation: the mean of its validation curve. Test rows are never looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.server import State, federated_round
from qfl_core.base.streams import stream
from qfl_core.config import load_profile
from qfl_core.runs.prepare import make_federation
from qfl_core.studies.metatrain.tasks import Task


def curve_means(task: Task, controllers: Sequence[np.ndarray], profile: str, rounds: int) -> list[float]:
    """Return one number per controller (2, 7): the mean over rounds of the class-balanced validation log loss.

    All controllers train the same federation with the same random numbers. One whose weights overflow gets infinity.
    """
    config = task.config(load_profile(profile), rounds)
    federation = make_federation(config, task.splits(config))
    with np.errstate(all="ignore"):
        return [curve_mean(federation, phi) for phi in controllers]


def curve_mean(federation: Federation, phi: np.ndarray | None = None) -> float:
    """Return the mean of one federation's validation curve; without ``phi``, with the rates of its config."""
    state = State.initial(federation)
    state = state if phi is None else replace(state, phi={"controller": phi})
    split, losses = federation.splits["val"], []
    for t in range(federation.config.rounds):
        # A purpose other than "round": the test rows of the clients are not measured.
        state = federated_round(federation, state, purpose="metatrain").state
        rng = stream(federation.config.seed, "metatrain-curve-shots", t)
        p = federation.model.split_probabilities(split, state.theta, rng)
        losses.append(balanced(cross_entropy(p, split.y, federation.model.margin), split.y))
    mean = float(np.mean(losses))
    return mean if np.isfinite(mean) else float("inf")


def balanced(values: np.ndarray, y: np.ndarray) -> float:
    """Return the mean over the two classes of the mean value (n,) of each."""
    return float(np.mean([values[y == label].mean() for label in np.unique(y)]))
