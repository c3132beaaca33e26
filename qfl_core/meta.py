"""Algorithm 3: outer SPSA refinement of the shared controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qfl_core.federation import Federation
from qfl_core.server import Broadcast, RoundResult, federated_round
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


def virtual_rounds(federation: Federation, phi: np.ndarray, t: int) -> tuple[np.ndarray, list[Broadcast]]:
    """Return the direction Delta of round t's outer step, like phi, and both virtual rounds' broadcasts (lines 1, 2).

    Both draw the same random numbers, so that their difference is phi's doing.
    """
    rng = stream(federation.config.seed, "outer-direction", t)
    direction = 1.0 - 2.0 * rng.integers(0, 2, phi.shape)
    radius = federation.config.outer_perturbation
    return direction, [Broadcast(phi + sign * radius * direction, purpose="virtual") for sign in (1, -1)]


def refine_controller(
    federation: Federation,
    theta: np.ndarray,
    phi: np.ndarray,
    t: int,
    results: Sequence[RoundResult] | None = None,
) -> OuterStep:
    """Refine phi on two virtual rounds from theta (P,), the model that round t started from (Algorithm 3).

    They draw from streams of their own and change nothing but phi. ``results`` are the virtual rounds where they were
    run already, together with the real one.
    """
    config = federation.config
    direction, sent = virtual_rounds(federation, phi, t)
    if results is None:
        results = [federated_round(federation, theta, b.phi, t, purpose=b.purpose) for b in sent]
    losses = iter(result.meta.total for result in results)
    step = outer_spsa(phi, lambda _: next(losses), direction, config.outer_learning_rate, config.outer_perturbation)
    circuits = sum(count for result in results for count in result.local.circuits.values())
    return replace(step, circuits=circuits)
