"""The seven methods as one table of switches; the paper's table of roles is generated from it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from qfl_core.registry import METHOD_NAMES


@dataclass(frozen=True)
class Method:
    """What a method does in a round. Two methods differ only here.

    ``optimizer`` is ``"spsa"`` (unfolded, Algorithm 1), ``"library-spsa"`` or ``"library-adam"``; ``proximal`` adds the
    penalty (mu / 2) |theta - theta_t|^2; ``projection`` holds each unfold's step inside a ball.
    """

    label: str
    role: str
    optimizer: str
    controller: bool = False
    best_unfold: bool = False
    proximal: bool = False
    projection: bool = False

    @property
    def unfolded(self) -> bool:
        """Whether local training is cut into K blocks."""
        return self.optimizer == "spsa"


METHODS: dict[str, Method] = dict(
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
