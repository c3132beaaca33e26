"""SCAFFOLD's control variates under unfolded SPSA (Karimireddy et al., ICML 2020, Algorithm 1, option II)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.hooks import Memory
from qfl_core.algorithm.methods import METHODS
from qfl_core.extras.corrected import CorrectedSpsa


@dataclass(frozen=True)
class Scaffold:
    """Every client remembers c_i, its mean gradient when it last took part; c is the mean of all c_i.

    A local step becomes theta <- theta - eta (g - c_i + c). With K unfolds of J iterations and a rate eta_k that
    differs from unfold to unfold, their option II reads

        c_i+ = c_i - c + (theta_t - theta_{i,K}) / (J sum_k eta_k),

    which is the mean of the estimates g weighted by their rates, over all unfolds and not only those up to the uploaded
    one. The server's step c <- c + (|S| / N) mean of (c_i+ - c_i) keeps c equal to the mean of all c_i when they start
    at 0; taken as that mean it gathers no rounding error, and c - c_i is 0 to the bit for a single client.
    """

    def init(self, clients: int, num_weights: int) -> Memory:
        """Return c_i = 0: variates (N, P)."""
        return {"variates": np.zeros((clients, num_weights))}

    def shift(self, memory: Memory) -> np.ndarray:
        """Return c - c_i (N, P)."""
        return memory["variates"].mean(axis=0) - memory["variates"]

    def update(self, memory: Memory, client_ids: np.ndarray, pull: np.ndarray) -> Memory:
        """Return the variates after a round of these clients (S,); the others keep theirs. ``pull`` is (S, P)."""
        variates = memory["variates"].copy()
        variates[client_ids] = pull - self.shift(memory)[client_ids]
        return {"variates": variates}


#: Control variates instead of a penalty or a projection; without them it is DUQFL-best.
SCAFFOLD_QFL = replace(
    METHODS["duqfl-best"],
    label="SCAFFOLD-QFL",
    role="control variates against drift",
    optimizer=CorrectedSpsa(Scaffold()),
)
