"""SPSA with a correction: every gradient estimate g becomes g + shift_i, where the shift remembers earlier rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.hooks import Block, BlockResult, LocalOptimizer, Memory
from qfl_core.algorithm.methods import Method
from qfl_core.algorithm.optimizers import block_directions, spsa_block
from qfl_core.base.errors import ConfigError


class Correction(Protocol):
    """Changes every local SPSA step to theta <- theta - eta (g + shift_i), and remembers what it needs for that."""

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return the memory before round 0."""

    def shift(self, memory: Memory) -> np.ndarray:
        """Return what is added to every gradient estimate of each client in this round: (N, P)."""

    def update(self, memory: Memory, client_ids: np.ndarray, pull: np.ndarray) -> Memory:
        """Return the memory after a round.

        The clients ``client_ids`` (S,) took part, and ``pull`` (S, P) is the mean of g + shift_i over all their steps,
        weighted by eta.
        """


@dataclass(frozen=True)
class CorrectedSpsa(LocalOptimizer):
    """Unfolded SPSA whose steps a correction shifts; the controller's rates are used as they are.

    While a round goes on, the state of a client is its shift (P,), its mean pull (P,) and the sum of its rates.
    """

    correction: Correction

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return the correction's memory before round 0."""
        return self.correction.init(clients, num_weights)

    def begin(self, memory: Memory, client_ids: np.ndarray) -> Memory:
        """Return the shifts of these clients; nobody has moved yet."""
        shift = self.correction.shift(memory)[client_ids]
        return {"shift": shift, "pull": np.zeros_like(shift), "rates": np.zeros(len(shift))}

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Run the block's SPSA iterations with the shift, and keep the mean pull of the round so far."""
        directions = block_directions(block)
        theta = spsa_block(block.theta, objective, block.eta, block.delta, directions, state["shift"])
        rates = state["rates"] + block.eta
        # (theta_t - theta_{i,k}) / (J sum of eta) is the mean of g + shift_i, weighted by eta.
        pull = (objective.anchor - theta) / (block.iterations * rates)[:, None]
        result = BlockResult(theta, block.eta, block.delta, {"train": 2 * block.iterations})
        return result, {"shift": state["shift"], "pull": pull, "rates": rates}

    def end(self, memory: Memory, client_ids: np.ndarray, state: Memory) -> Memory:
        """Return the correction's memory after a round of these clients."""
        return self.correction.update(memory, client_ids, state["pull"])

    def check(self, method: Method) -> None:
        """Refuse a projection, because the mean pull is read from the distance that a client moved."""
        if method.projection:
            raise ConfigError(f"{method.label}: a correction and a projection do not go together")
