"""Where a method can differ from the paper's: an aggregation, optimisers of the server, the clients, the controller.

A hook is a small object of pure functions with a state of its own. The algorithms carry that state from round to round
and never look inside, so a new method needs no change here. EXTENDING.md shows each hook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import ConfigError, DataError
from qfl_core.config import ExperimentConfig

if TYPE_CHECKING:
    from qfl_core.algorithm.client import Objective
    from qfl_core.algorithm.federation import Federation
    from qfl_core.algorithm.methods import Method
    from qfl_core.algorithm.server import State, Trainer

#: Arrays by name: what a hook remembers.
Memory = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Block:
    """What a local optimiser is given for one block of training, for all clients at once.

    ``theta`` (clients, P) is the start, ``eta`` and ``delta`` (clients,) are the controller's rates, ``iterations`` is
    the number of SPSA iterations that the block may take (two loss evaluations each), and ``rngs`` holds one generator
    per client for the optimiser's own random numbers.
    """

    theta: np.ndarray
    eta: np.ndarray
    delta: np.ndarray
    iterations: int
    rngs: Sequence[np.random.Generator]


@dataclass(frozen=True, eq=False)
class BlockResult:
    """Where a block ended, ``theta`` (clients, P), and the rates it used, ``eta`` and ``delta`` (clients,).

    ``evaluations`` counts circuits per sample by purpose: ``train``, ``calibration``, ``monitor``.
    """

    theta: np.ndarray
    eta: np.ndarray
    delta: np.ndarray
    evaluations: Mapping[str, int]


class LocalOptimizer:
    """U of Algorithm 1, line 9. A subclass needs :meth:`update` only; the others serve one that remembers.

    ``unfolded`` tells whether local training is cut into K blocks with the controller's rates. Otherwise it is one
    block with the iterations of all K.
    """

    unfolded: bool = True

    def configured(self, config: ExperimentConfig) -> LocalOptimizer:
        """Return the optimiser that the config's settings ask for; this one, where it has none."""
        return self

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return what is remembered before round 0, of all N clients together."""
        return {}

    def begin(self, memory: Memory, client_ids: np.ndarray) -> Memory:
        """Return what the clients of a round start with: arrays whose first axis is the clients."""
        return {name: values[client_ids] for name, values in memory.items()}

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Train one block; return where it ended, and the clients' state after it."""
        raise NotImplementedError

    def end(self, memory: Memory, client_ids: np.ndarray, state: Memory) -> Memory:
        """Return what is remembered after a round of these clients, from their state at its end."""
        after = {name: values.copy() for name, values in memory.items()}
        for name, values in after.items():
            values[client_ids] = state[name]
        return after

    def candidates(self, config: ExperimentConfig, num_weights: int) -> Sequence[Memory]:
        """Return the memories to choose from before round 0, by validation; none for an optimiser without tuning."""
        return ()

    def check(self, method: Method) -> None:
        """Raise a ConfigError where the optimiser does not go together with the other switches of a method."""


class ServerOptimizer(Protocol):
    """What the server makes of the average; without one, the average is the new model, as in the paper."""

    def init(self, num_weights: int) -> Memory:
        """Return the state before round 0."""

    def update(self, theta: np.ndarray, average: np.ndarray, state: Memory) -> tuple[np.ndarray, Memory]:
        """Return the new global model (P,) from the old one and the clients' average, and the new state."""


class OuterOptimizer(Protocol):
    """How Algorithm 3 refines phi; ``state.outer`` is what it remembers, empty before the first refinement."""

    def probes(self, start: State, config: ExperimentConfig) -> Sequence[Memory]:
        """Return the controllers that virtual rounds try, phi by phi (lines 1 and 2); none skips the refinement."""

    def measure(self, federation: Federation, start: State, trainer: Trainer) -> tuple[float, int]:
        """Return the loss that judges the controller ``start.phi``, and the circuits that it took (lines 3 and 4)."""

    def update(self, start: State, losses: np.ndarray, config: ExperimentConfig) -> tuple[Memory, Memory, float]:
        """Return the new phi, the new memory, and the norm of the gradient estimate (lines 5 and 6)."""


def checked(who: str, theta: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return what a hook returned as weights; another shape than the expected one is refused."""
    theta = np.asarray(theta, dtype=float)
    if theta.shape != shape:
        raise DataError(f"{who} returned weights of shape {theta.shape}, expected {shape}")
    return theta


#: ``(uploads, weights) -> theta``: (clients, P) and (clients,) become (P,).
Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


def weighted_sum(uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_i w_i theta_i (P,) of uploads (clients, P), Eq. (fedavg)."""
    # Added client by client: the sum does not depend on how a matrix product would order it.
    total = weights[0] * uploads[0]
    for weight, upload in zip(weights[1:], uploads[1:], strict=True):
        total = total + weight * upload
    return total


def nothing(clients: int) -> Memory:
    """Return no parameters."""
    return {}


@dataclass(frozen=True)
class Aggregation:
    """How uploads become one model: ``weights(attendance, learned)`` gives w (clients,), w_i >= 0 with sum 1.

    ``init(N)`` names arrays that the outer SPSA refines together with the controller; the rule gets them as
    ``learned``. ``combine(uploads, w)`` is the weighted sum unless a rule brings its own.
    """

    weights: Callable[[Attendance, Memory], np.ndarray]
    init: Callable[[int], Memory] = nothing
    combine: Combine = weighted_sum

    def __post_init__(self) -> None:
        for name in ("weights", "init", "combine"):
            if not callable(getattr(self, name)):
                raise ConfigError(f"aggregation: {name}={getattr(self, name)!r}, expected a function")

    def __call__(self, attendance: Attendance, learned: Memory) -> np.ndarray:
        """Return w (clients,); a rule whose values are negative or do not sum to 1 is refused."""
        w = np.asarray(self.weights(attendance, learned), dtype=float)
        expected = attendance.sizes.shape
        if w.shape != expected or not (w >= 0).all() or not abs(w.sum() - 1) < 1e-9:
            name = getattr(self.weights, "__name__", self.weights)
            raise DataError(f"{name} gave the weights {w.tolist()}: expected {expected[0]} of at least 0 with sum 1")
        return w


def sample_size(attendance: Attendance, learned: Memory) -> np.ndarray:
    """Return w_i = n_i / sum of n, Eq. (sample size weight)."""
    return attendance.sizes / attendance.sizes.sum()


SAMPLE_SIZE = Aggregation(sample_size)
