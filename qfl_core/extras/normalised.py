"""An outer optimiser with steps of a known length: it learns the two base rates from short, cheap virtual rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qfl_core.algorithm.client import Broadcast
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Memory
from qfl_core.algorithm.server import Phi, State, Trainer
from qfl_core.base.errors import ConfigError
from qfl_core.config import ExperimentConfig


@dataclass(frozen=True)
class NormalisedDescent:
    """Steepest descent on the constants of log eta and log delta, with steps of a known length.

    Refinement n = 0, 1, ... tries four controllers: each of the two constants higher by c and lower by c. With the two
    slopes s = (L+ - L-) / (2 c), and v, the mean of |s|^2 that forgets half at every step,

        (phi_eta, phi_delta) <- (phi_eta, phi_delta) - a / (n + 1)^0.602 * s / sqrt(v),

    where a = ``outer_learning_rate`` and c = ``outer_perturbation``. Because |s| / sqrt(v) is about 1, the length of a
    step is known, whatever the size of the loss: the first one multiplies or divides a rate by up to e^a. No step leads
    a constant out of the bounds of the rates, because beyond them a slope is 0. A controller that starts outside, as a
    pretrained one may because its other entries lower the rates, may stay where it is.

    L is the mean proximal loss at the end of local training, over ``clients`` clients that take turns. Clients measure
    it anyway, and it sees the rates far more clearly than the loss of the aggregated model does (docs/controller.md).
    After ``refinements`` steps the controller stays as it is and costs nothing.
    """

    clients: int = 2
    refinements: int = 5
    forgetting: float = 0.5
    decay: float = 0.602

    def probes(self, start: State, config: ExperimentConfig) -> Sequence[Phi]:
        """Return four controllers: eta higher, eta lower, delta higher, delta lower."""
        if set(start.phi) != {"controller"}:
            learnt = ", ".join(start.phi)
            raise ConfigError(f"outer_optimizer='normalised' learns the controller alone, but this method has {learnt}")
        if self._taken(start) >= self.refinements:
            return []
        c = config.outer_perturbation
        return [_moved(start.phi, np.array(step)) for step in ((c, 0.0), (-c, 0.0), (0.0, c), (0.0, -c))]

    def measure(self, federation: Federation, start: State, trainer: Trainer) -> tuple[float, int]:
        """Return the mean proximal loss after local training of a few clients, and their circuits."""
        everyone = federation.participants(start.t)
        first = self.clients * self._taken(start)
        ids = np.unique(everyone[np.arange(first, first + self.clients) % len(everyone)])
        remembered = federation.method.optimizer.begin(start.memory, ids)
        sent = Broadcast(start.t, start.theta, start.phi["controller"], "virtual", remembered, ids)
        local = trainer.train(federation, sent)
        return float(local.trace["loss_after"][:, -1].mean()), sum(local.circuits.values())

    def update(self, start: State, losses: np.ndarray, config: ExperimentConfig) -> tuple[Phi, Memory, float]:
        """Return phi after a step of length a / (n + 1)^0.602, what is remembered, and |s|."""
        taken = self._taken(start)
        slopes = (losses[0::2] - losses[1::2]) / (2 * config.outer_perturbation)
        seen = {name: float(start.outer.get(name, 0.0)) for name in ("square", "weight")}
        square = self.forgetting * seen["square"] + (1 - self.forgetting) * float((slopes**2).sum())
        weight = self.forgetting * seen["weight"] + (1 - self.forgetting)
        length = config.outer_learning_rate / (taken + 1) ** self.decay
        scaled = slopes / np.sqrt(square / weight) if square > 0 else np.zeros(2)
        phi = _inside(_moved(start.phi, -length * scaled), start.phi, config)
        memory = {"taken": taken + 1, "square": square, "weight": weight}
        norm = float(np.sqrt((slopes**2).sum()))
        return phi, {name: np.array(float(value)) for name, value in memory.items()}, norm

    def _taken(self, start: State) -> int:
        """Return n, the number of refinements before this one."""
        return int(start.outer.get("taken", 0))


def _moved(phi: Phi, step: np.ndarray) -> Phi:
    """Return phi with ``step`` (2,) added to its constants."""
    controller = phi["controller"].copy()
    controller[:, 0] += step
    return {"controller": controller}


def _inside(phi: Phi, before: Phi, config: ExperimentConfig) -> Phi:
    """Return phi with its constants inside the bounds of the rates, widened to where they were before the step."""
    controller, old = phi["controller"].copy(), before["controller"][:, 0]
    low, high = np.log([config.eta_bounds, config.delta_bounds]).T
    controller[:, 0] = np.clip(controller[:, 0], np.minimum(low, old), np.maximum(high, old))
    return {"controller": controller}


NORMALISED = NormalisedDescent()
