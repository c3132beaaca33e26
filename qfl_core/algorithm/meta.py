"""Algorithm 3: outer SPSA refinement of the shared controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.optimizers import rademacher
from qfl_core.algorithm.server import IN_PROCESS, Phi, State, Trainer, federated_round
from qfl_core.base.streams import stream


@dataclass(frozen=True, eq=False)
class OuterStep:
    """An outer update: the new ``phi``, both perturbed meta-losses, the gradient's norm, and circuits spent.

    ``gradient_norm`` is that of the paper's controller alone.
    """

    phi: Phi
    loss_plus: float
    loss_minus: float
    gradient_norm: float
    circuits: int


def is_due(federation: Federation, t: int) -> bool:
    """Tell whether the controller is refined after round t: every m rounds, if there is one and a round follows."""
    period, done = federation.config.outer_period, t + 1
    return federation.method.controller and period > 0 and done % period == 0 and done < federation.config.rounds


def refine_controller(federation: Federation, start: State, trainer: Trainer = IN_PROCESS) -> OuterStep:
    """Refine phi on two virtual rounds from theta^(t), the model that round t started from (Algorithm 3).

    Both virtual rounds use the same random numbers, so the difference of their losses measures the perturbation alone.
    They draw from streams of their own and change nothing but phi.
    """
    config = federation.config
    direction = outer_direction(start.phi, config.seed, start.t)  # line 1
    phi_plus = moved(start.phi, config.outer_perturbation, direction)  # line 2
    phi_minus = moved(start.phi, -config.outer_perturbation, direction)
    plus = federated_round(federation, replace(start, phi=phi_plus), trainer, "virtual")  # line 3
    minus = federated_round(federation, replace(start, phi=phi_minus), trainer, "virtual")  # line 4
    gradient = outer_gradient(plus.meta.total, minus.meta.total, config.outer_perturbation, direction)  # line 5
    return OuterStep(
        phi=moved(start.phi, -config.outer_learning_rate, gradient),  # line 6
        loss_plus=plus.meta.total,
        loss_minus=minus.meta.total,
        gradient_norm=float(np.sqrt((gradient["controller"] ** 2).sum())),
        circuits=sum(plus.local.circuits.values()) + sum(minus.local.circuits.values()),
    )


def outer_direction(phi: Phi, seed: int, t: int) -> dict[str, np.ndarray]:
    """Draw Delta_phi: -1 and +1 for every entry of phi, from a named stream per array (Algorithm 3, line 1)."""
    purpose = {name: "outer-direction" if name == "controller" else f"outer-direction-{name}" for name in phi}
    return {name: rademacher(stream(seed, purpose[name], t), values.shape) for name, values in phi.items()}


def outer_gradient(
    loss_plus: float, loss_minus: float, radius: float, direction: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return (L+ - L-) / (2 c_out) * Delta^-1; Delta^-1 is Delta, because its entries are -1 and +1."""
    slope = (loss_plus - loss_minus) / (2 * radius)
    return {name: slope * values for name, values in direction.items()}


def moved(phi: Phi, step: float, direction: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return phi + step * direction, array by array."""
    return {name: values + step * direction[name] for name, values in phi.items()}
