"""The quantum neural network as the algorithms see it: weights in, losses and accuracies of samples out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qfl_core.algorithm.losses import Loss, correct, hit, margin_of
from qfl_core.algorithm.samples import EncodedSplit, Samples
from qfl_core.base.errors import ConfigError
from qfl_core.engines.base import CompiledEngine, DifferentiableEngine, Drawing, Elementwise, Engine


@dataclass(frozen=True, eq=False)
class Model:
    """An engine that evaluates the circuit, and the task loss that training minimises."""

    engine: Engine
    loss: Loss

    @property
    def num_weights(self) -> int:
        """Number of trainable weights P."""
        return self.engine.num_weights

    @property
    def margin(self) -> float:
        """Margin that keeps logarithms finite, see :mod:`qfl_core.algorithm.losses`."""
        return margin_of(self.engine.shots)

    def probabilities(
        self, samples: Samples, theta: np.ndarray, rngs: Sequence[np.random.Generator] | None
    ) -> np.ndarray:
        """Return P(class 1), (S, total), of each client's samples under its own weights theta (clients, S, P).

        Client i draws its shots from ``rngs[i]``; exact engines do not use them.
        """
        drawn = rngs if self.engine.shots is not None else None
        return np.concatenate(self.engine.probabilities_ragged(samples.encoded, theta, drawn), axis=1)

    def split_probabilities(self, split: EncodedSplit, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return P(class 1), (n,), of a whole split under one weight vector theta (P,)."""
        return self.engine.probabilities(split.encoded, theta, rng)

    def means(
        self, samples: Samples, theta: np.ndarray, rngs: Sequence[np.random.Generator] | None, *functions: Elementwise
    ) -> np.ndarray:
        """Measure each client's samples once and average functions of the result, such as the loss: Eq. (local loss).

        ``theta`` is (clients, S, P), the result (functions, clients, S). Classes alone need no counts of shots.
        """
        asked = Drawing(samples.encoded, samples.y, rngs or (), functions, self.margin)
        classes = (correct, hit)
        shares = self.compiled.accuracies(asked, theta) if self.compiled and set(functions) <= set(classes) else None
        if shares is not None:
            return shares[[classes.index(function) for function in functions]]
        if self.compiled and (found := self.compiled.means(asked, theta)) is not None:
            return found
        p = self.probabilities(samples, theta, rngs)
        return np.array([samples.means(function(p, samples.y, self.margin)) for function in functions])

    @cached_property
    def compiled(self) -> CompiledEngine | None:
        """The engine, if it has shots and faster ways than :meth:`probabilities`."""
        return self.engine if self.engine.shots and isinstance(self.engine, CompiledEngine) else None

    @cached_property
    def exact(self) -> tuple[DifferentiableEngine, Elementwise]:
        """For exact gradients: the circuit without shots, which shares the engine's encodings, and the loss's slope."""
        if self.loss.slope is None:
            raise ConfigError("this loss has no derivative: register it with a slope, or choose an SPSA method")
        if not isinstance(self.engine, DifferentiableEngine):
            raise ConfigError(f"engine={self.engine.name!r} has no exact gradients: adam-qfl needs 'statevector'")
        return self.engine.exact(), self.loss.slope

    def gradient(self, samples: Samples, theta: np.ndarray) -> np.ndarray:
        """Return the exact gradient (P,) of the task loss of one client's samples."""
        (engine, slope), encoded = self.exact, samples.encoded[0]
        weight = slope(engine.probabilities(encoded, theta), samples.y, self.margin) / len(samples.y)
        return weight @ engine.gradient(encoded, theta)
