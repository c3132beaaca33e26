"""Algorithm 3: outer SPSA refinement of the shared controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Memory, OuterOptimizer
from qfl_core.algorithm.optimizers import rademacher
from qfl_core.algorithm.server import IN_PROCESS, Phi, State, Trainer, federated_round
from qfl_core.base.registry import OUTER_OPTIMIZERS, resolve
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig


@dataclass(frozen=True, eq=False)
class OuterStep:
    """An outer update: phi, what the optimiser remembers, the first and last loss, the gradient's norm, circuits."""

    phi: Phi
    memory: Memory
    loss_plus: float
    loss_minus: float
    gradient_norm: float
    circuits: int


def is_due(federation: Federation, t: int) -> bool:
    """Tell whether the controller is refined after round t: every m rounds, if there is one and a round follows."""
    period, done = federation.config.outer_period, t + 1
    return federation.method.controller and period > 0 and done % period == 0 and done < federation.config.rounds


def refine_controller(federation: Federation, start: State, trainer: Trainer = IN_PROCESS) -> OuterStep | None:
    """Refine phi on virtual rounds from theta^(t), the model that round t started from (Algorithm 3).

    All virtual rounds use the same random numbers, so the difference of their losses measures the perturbation alone.
    They draw from streams of their own and change nothing but phi. None means that the optimiser asked for none.
    """
    config = federation.config
    outer: OuterOptimizer = resolve(OUTER_OPTIMIZERS[config.outer_optimizer])
    probes = outer.probes(start, config)  # lines 1 to 2
    if not probes:
        return None
    measured = [outer.measure(federation, replace(start, phi=phi), trainer) for phi in probes]  # lines 3 to 4
    losses = np.array([loss for loss, _ in measured])
    phi, memory, norm = outer.update(start, losses, config)  # lines 5 to 6
    return OuterStep(phi, memory, float(losses[0]), float(losses[-1]), norm, sum(spent for _, spent in measured))


@dataclass(frozen=True)
class OuterSpsa:
    """The paper's outer SPSA: one random direction of all entries, judged by the meta-loss of whole rounds."""

    def probes(self, start: State, config: ExperimentConfig) -> list[Phi]:
        """Return phi + c_out Delta_phi and phi - c_out Delta_phi."""
        direction = outer_direction(start.phi, config.seed, start.t)
        return [moved(start.phi, step, direction) for step in (config.outer_perturbation, -config.outer_perturbation)]

    def measure(self, federation: Federation, start: State, trainer: Trainer) -> tuple[float, int]:
        """Return the meta-loss of a virtual round (Algorithm 2), and the clients' circuits."""
        result = federated_round(federation, start, trainer, "virtual")
        return result.meta.total, sum(result.local.circuits.values())

    def update(self, start: State, losses: np.ndarray, config: ExperimentConfig) -> tuple[Phi, Memory, float]:
        """Return phi - alpha_out g, no memory, and the norm of g, of the paper's controller alone."""
        direction = outer_direction(start.phi, config.seed, start.t)
        gradient = outer_gradient(losses[0], losses[1], config.outer_perturbation, direction)
        norm = float(np.sqrt((gradient["controller"] ** 2).sum()))
        return moved(start.phi, -config.outer_learning_rate, gradient), start.outer, norm


OUTER_SPSA = OuterSpsa()


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
