"""Algorithm 3: outer SPSA refinement of the shared controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qfl_core.federation import Federation
from qfl_core.server import federated_round
from qfl_core.streams import stream


@dataclass(frozen=True, eq=False)
class OuterStep:
    """An outer update: the new controller phi, both perturbed meta-losses, the gradient's norm, circuits spent."""

    phi: np.ndarray
    loss_plus: float
    loss_minus: float
    gradient_norm: float
    circuits: int = 0


def is_due(federation: Federation, t: int) -> bool:
    """Tell whether the controller is refined after round t: every m rounds, for methods that have one."""
    period = federation.config.outer_period
    return federation.method.controller and period > 0 and (t + 1) % period == 0


def outer_spsa(
    phi: np.ndarray, meta: Callable[[np.ndarray], float], direction: np.ndarray, rate: float, radius: float
) -> OuterStep:
    """Take one outer SPSA step on phi, any shape, along a Rademacher direction (Algorithm 3, lines 2 to 6).

    g = (L+ - L-) / (2 c_out) * Delta^-1, and Delta^-1 = Delta for entries of -1 and +1.
    """
    loss_plus = meta(phi + radius * direction)
    loss_minus = meta(phi - radius * direction)
    gradient = (loss_plus - loss_minus) / (2 * radius) * direction
    return OuterStep(phi - rate * gradient, loss_plus, loss_minus, float(np.sqrt((gradient**2).sum())))


def refine_controller(federation: Federation, theta: np.ndarray, phi: np.ndarray, t: int) -> OuterStep:
    """Refine phi on two virtual rounds from theta (P,), the model that round t started from (Algorithm 3).

    Both virtual rounds draw the same random numbers, so that their difference is phi's doing; they draw from streams of
    their own and change nothing but phi.
    """
    config = federation.config
    rng = stream(config.seed, "outer-direction", t)
    direction = 1.0 - 2.0 * rng.integers(0, 2, phi.shape)  # line 1
    circuits = 0

    def meta(candidate: np.ndarray) -> float:
        nonlocal circuits
        virtual = federated_round(federation, theta, candidate, t, purpose="virtual")
        circuits += sum(virtual.local.circuits.values())
        return virtual.meta.total

    step = outer_spsa(phi, meta, direction, config.outer_learning_rate, config.outer_perturbation)
    return OuterStep(step.phi, step.loss_plus, step.loss_minus, step.gradient_norm, circuits)
