"""Algorithm 3: outer SPSA refinement of the shared controller, and of learned aggregation weights with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.server import Broadcast, RoundResult, federated_rounds
from qfl_core.base.streams import stream


@dataclass(frozen=True, eq=False)
class OuterStep:
    """An outer update: the new controller phi, both perturbed meta-losses, the gradient's norm, circuits spent.

    ``logits`` (N,) are a learned aggregation's after the update.
    """

    phi: np.ndarray
    loss_plus: float
    loss_minus: float
    gradient_norm: float
    circuits: int = 0
    logits: np.ndarray | None = None


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


def virtual_rounds(
    federation: Federation,
    phi: np.ndarray,
    t: int,
    logits: np.ndarray | None = None,
    shift: np.ndarray | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray], list[Broadcast]]:
    """Return round t's direction Delta, like phi and like the logits, and both virtual rounds' broadcasts (lines 1, 2).

    One pair of rounds perturbs both at once. The two draw the same random numbers, so that their difference is the
    doing of what was perturbed; a correction's ``shift`` is the real round's.
    """
    logits = federation.method.aggregation.start(federation.config.clients) if logits is None else logits
    names = ("outer-direction", "outer-direction-weights")
    rngs = [stream(federation.config.seed, name, t) for name in names]
    for_phi, for_logits = (
        1.0 - 2.0 * rng.integers(0, 2, values.shape) for rng, values in zip(rngs, (phi, logits), strict=True)
    )
    radius = federation.config.outer_perturbation
    sent = [
        Broadcast(
            phi + sign * radius * for_phi, purpose="virtual", shift=shift, logits=logits + sign * radius * for_logits
        )
        for sign in (1, -1)
    ]
    return (for_phi, for_logits), sent


def refine_controller(
    federation: Federation,
    theta: np.ndarray,
    phi: np.ndarray,
    t: int,
    results: Sequence[RoundResult] | None = None,
    logits: np.ndarray | None = None,
) -> OuterStep:
    """Refine phi on two virtual rounds from theta (P,), the model that round t started from (Algorithm 3).

    They draw from streams of their own and change nothing but phi and the ``logits`` (N,) of a learned aggregation.
    ``results`` are the virtual rounds where they were run already, together with the real one.
    """
    config = federation.config
    logits = federation.method.aggregation.start(config.clients) if logits is None else logits
    (for_phi, for_logits), sent = virtual_rounds(federation, phi, t, logits)
    if results is None:
        results = federated_rounds(federation, theta, t, sent)
    plus, minus = (result.meta.total for result in results)

    def step(values: np.ndarray, direction: np.ndarray) -> OuterStep:
        losses = iter((plus, minus))
        return outer_spsa(
            values, lambda _: next(losses), direction, config.outer_learning_rate, config.outer_perturbation
        )

    circuits = sum(count for result in results for count in result.local.circuits.values())
    return replace(step(phi, for_phi), circuits=circuits, logits=step(logits, for_logits).phi)
