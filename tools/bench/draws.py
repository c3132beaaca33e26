"""The random numbers that a run takes, drawn by NumPy and nothing else: the limit that training is compared with.

What counts as the draws of a run:

- one ``Generator.binomial(shots, p)`` per client and evaluation, with the probabilities that this evaluation has. Each
  client has a generator of its own, so a NumPy program cannot draw for several clients in one call. The two signs of an
  SPSA iteration, and all unfolds of a test, are one call;
- one ``Generator.random(shape)`` per client where only classes are measured (clients' test accuracies, fairness).

The signs of the SPSA directions and the creation of the generators are not counted, although a run needs them.
:meth:`Draws.together` is a stricter limit, which no program with a generator per client can reach: all binomials of a
run in a single call.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.base.streams import stream
from qfl_core.engines.base import Drawing
from qfl_core.engines.encoded import Encoded
from qfl_core.engines.qnn import QNN
from qfl_core.engines.statevector import StatevectorEngine
from qfl_core.runs.experiment import train


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers of a run: probabilities of each binomial call, and shapes of each call for uniform numbers."""

    shots: int
    binomials: list[np.ndarray]
    uniforms: list[tuple[int, ...]]

    @property
    def count(self) -> int:
        """How many numbers are drawn."""
        return sum(p.size for p in self.binomials) + sum(int(np.prod(shape)) for shape in self.uniforms)

    def call_by_call(self) -> None:
        """Draw everything, with the calls that the run's own NumPy path makes."""
        rng = stream(0, "bench-draws")
        for p in self.binomials:
            rng.binomial(self.shots, p)
        for shape in self.uniforms:
            rng.random(shape)

    def together(self) -> Draws:
        """Return the same numbers as one binomial call and one call for uniform numbers."""
        uniform = sum(int(np.prod(shape)) for shape in self.uniforms)
        return Draws(self.shots, [np.concatenate([p.ravel() for p in self.binomials])], [(uniform,)])


class Recorder(StatevectorEngine):
    """The engine with shots on its NumPy path, which makes one generator call per client, and keeps each call."""

    def __init__(self, qnn: QNN, shots: int) -> None:
        super().__init__(qnn, shots)
        self.draws = Draws(shots, [], [])
        self._measures_classes = False

    def _code(self) -> None:
        return None

    def accuracies(self, asked: Drawing, weights: np.ndarray) -> np.ndarray | None:
        """Return what the engine would, and keep the shapes of its uniform numbers."""
        self._measures_classes = True
        try:
            return super().accuracies(asked, weights)
        finally:
            self._measures_classes = False

    def _ordered_probabilities(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        p = super()._ordered_probabilities(encoded, weights)
        if self._measures_classes:
            self.draws.uniforms.append(p.shape)
        else:
            self.draws.binomials.append(np.minimum(np.maximum(p, 0.0), 1.0))
        return p


def own_draws(federation: Federation) -> Draws:
    """Run a federation once on the NumPy path and return the random numbers that it takes."""
    engine = federation.model.engine
    if engine.shots is None:
        raise ValueError("an engine without shots draws nothing: expected shots to be a number, got None")
    recorder = Recorder(engine.qnn, engine.shots)
    model = dataclasses.replace(federation.model, engine=recorder)
    deque(train(dataclasses.replace(federation, model=model)), maxlen=0)
    return recorder.draws
