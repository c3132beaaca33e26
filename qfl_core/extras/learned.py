"""Learned aggregation weights, refined by the outer SPSA together with the controller."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qfl_core.algorithm.hooks import Aggregation, Memory
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.samples import Attendance


def zeros(clients: int) -> Memory:
    """Return a_i = 0 for each of the N clients."""
    return {"weights": np.zeros(clients)}


def learned_weights(attendance: Attendance, learned: Memory) -> np.ndarray:
    """Return the learnable coefficients Theta_i of Eq. (app classical duw), kept non-negative with sum 1.

        Theta_i = n_i exp(a_i) / sum_j n_j exp(a_j)

    with the sum over the round's clients; a = 0 is FedAvg, to the bit.
    """
    a = learned["weights"][attendance.client_ids]
    scaled = attendance.sizes * np.exp(a - a.max())
    return scaled / scaled.sum()


#: What the paper's appendix names as a future extension; with a = 0 it is DUQFL-Prox.
DUQFL_LEARNED = replace(
    METHODS["duqfl-prox"],
    label="DUQFL-learned",
    role="aggregation weights learned jointly with the controller",
    aggregation=Aggregation(learned_weights, init=zeros),
)
