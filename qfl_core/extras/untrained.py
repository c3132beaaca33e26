"""The untrained model as a method: its numbers are what training has to be better than."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.algorithm.hooks import Block, BlockResult, LocalOptimizer, Memory
from qfl_core.algorithm.methods import Method

if TYPE_CHECKING:
    from qfl_core.algorithm.client import Objective


@dataclass(frozen=True)
class NoTraining(LocalOptimizer):
    """Every client returns the model that it was sent."""

    unfolded = False

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Return the start; no circuit is executed."""
        missing = np.full(len(block.theta), np.nan)
        return BlockResult(block.theta, missing, missing, {}), state


#: The same clients, data and measurements as every other method, and theta^(0) in all rounds.
UNTRAINED = Method("untrained", "what the initial weights score", NoTraining())
