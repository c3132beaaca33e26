"""The paper's seven methods as one table of switches, which its table of roles is generated from; and our extras."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pandas as pd

from qfl_core.algorithm.aggregation import LEARNED, SAMPLE_SIZE, Aggregation
from qfl_core.base.display import ShownTable
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import EXTRA_METHODS, METHOD_NAMES, resolve
from qfl_core.extras.scaffold import Scaffold

#: What a correction remembers from round to round: arrays by name.
Memory = dict[str, np.ndarray]


class Correction(Protocol):
    """Changes every local SPSA step to theta <- theta - eta (g + shift_i), and remembers what it needs for that."""

    def start(self, clients: int, num_weights: int) -> Memory:
        """Return the memory before round 0."""

    def shift(self, memory: Memory) -> np.ndarray:
        """Return what is added to every gradient estimate of each client in this round: (N, P)."""

    def update(self, memory: Memory, clients: np.ndarray, pull: np.ndarray) -> Memory:
        """Return the memory after a round.

        ``clients`` (S,) took part, and ``pull`` (S, P) is the mean of g + shift_i over their steps, weighted by eta.
        """


@dataclass(frozen=True)
class Method:
    """What a method does in a round. Two methods differ only here.

    ``optimizer`` is ``"spsa"`` (unfolded, Algorithm 1), ``"library-spsa"`` or ``"library-adam"``; ``proximal`` adds the
    penalty (mu / 2) |theta - theta_t|^2; ``projection`` holds each unfold's step inside a ball; ``aggregation`` weighs
    the uploads; ``correction`` shifts the local gradients by what it remembers of earlier rounds.
    """

    label: str
    role: str
    optimizer: str
    controller: bool = False
    best_unfold: bool = False
    proximal: bool = False
    projection: bool = False
    aggregation: Aggregation = SAMPLE_SIZE
    correction: Correction | None = None

    def __post_init__(self) -> None:
        optimizers = ("spsa", "library-spsa", "library-adam")
        if self.optimizer not in optimizers:
            raise ConfigError(f"{self.label}: optimizer={self.optimizer!r}, expected one of {', '.join(optimizers)}")
        if self.correction and (not self.unfolded or self.projection):
            raise ConfigError(f"{self.label}: a correction needs optimizer='spsa' without projection")
        if self.aggregation.learned and not self.controller:
            raise ConfigError(f"{self.label}: weights are learned together with the controller; it needs one")

    @property
    def unfolded(self) -> bool:
        """Whether local training is cut into K blocks."""
        return self.optimizer == "spsa"


METHODS: dict[str, Method] = ShownTable(
    zip(
        METHOD_NAMES,
        (
            Method("Default-QFL", "the library's SPSA with its own calibration, and FedAvg", "library-spsa"),
            Method("Adam-QFL", "is a generic adaptive optimiser enough?", "library-adam"),
            Method("FedProx-QFL", "drift control without unfolding or controller", "library-spsa", proximal=True),
            Method("DUQFL-last", "is uploading the last unfold enough?", "spsa", controller=True),
            Method("DUQFL-best", "validation-based choice of the unfold", "spsa", controller=True, best_unfold=True),
            Method(
                "DUQFL-drift",
                "explicit limit on each unfold's displacement",
                "spsa",
                controller=True,
                best_unfold=True,
                projection=True,
            ),
            Method(
                "DUQFL-Prox",
                "the full method: controller, best unfold, proximal term",
                "spsa",
                controller=True,
                best_unfold=True,
                proximal=True,
            ),
        ),
        strict=True,
    )
)

#: Control variates instead of a penalty or a projection; without them it is DUQFL-best.
SCAFFOLD_QFL = replace(
    METHODS["duqfl-best"], label="SCAFFOLD-QFL", role="control variates against drift", correction=Scaffold()
)
#: What the paper's appendix names as a future extension; with a = 0 it is DUQFL-Prox.
DUQFL_LEARNED = replace(
    METHODS["duqfl-prox"],
    label="DUQFL-learned",
    role="aggregation weights learned jointly with the controller",
    aggregation=LEARNED,
)


def method_named(name: str) -> Method:
    """Return one of the paper's methods, one of our extras or one that was registered."""
    return METHODS[name] if name in METHODS else resolve(EXTRA_METHODS[name])


def roles_table() -> pd.DataFrame:
    """Return the paper's table of roles, from the switches."""
    mark = {True: "✓", False: "×"}
    rows = [
        {
            "Method": method.label,
            "Deep unfold": mark[method.unfolded],
            "Controller": mark[method.controller],
            "Best unfold": mark[method.best_unfold],
            "Drift control": mark[method.proximal or method.projection],
            "Role": method.role,
        }
        for method in METHODS.values()
    ]
    return pd.DataFrame(rows)
