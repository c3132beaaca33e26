"""What every engine shares: the interface, the checks of its inputs, and sampling from the exact law."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from qfl_core.engines.qnn import QNN

MAX_SHOTS = 2**63 - 1  # what numpy's binomial takes
Generators = np.random.Generator | Sequence[np.random.Generator] | None


class EncodedSamples(Protocol):
    """Samples in the form in which an engine stores them."""

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> Self:
        """Return the samples ``indices`` without encoding them again."""


class Engine(ABC):
    """P(class 1) of a :class:`QNN` for encoded samples and one or many weight vectors.

    Attributes
    ----------
    name : the engine's name in :func:`qfl_core.engines.make_engine`.
    kind : what produces the numbers: exact | shots | noisy | fake | hardware.
    """

    name: str
    kind: str

    def __init__(self, qnn: QNN, shots: int | None = None) -> None:
        if not isinstance(qnn, QNN):
            raise ValueError(f"qnn must be a QNN, got {type(qnn).__name__}")
        self.qnn = qnn
        self.shots = check_shots(shots)

    @property
    def num_weights(self) -> int:
        """Number of trainable weights P."""
        return self.qnn.num_weights

    def exact(self) -> Engine:
        """Return an engine of the same class for the same QNN that gives exact probabilities."""
        return type(self)(self.qnn)

    @abstractmethod
    def encode(self, X: np.ndarray) -> Any:
        """Return ``X : (n, num_features)``, in angles, in the form :meth:`probabilities` takes."""

    @abstractmethod
    def probabilities(self, encoded, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1), ``(n,)`` for ``weights : (P,)`` and ``(B, n)`` for ``weights : (B, P)``."""

    def probabilities_ragged(
        self, encoded: Sequence, weights: np.ndarray, rngs: Sequence[np.random.Generator] | None = None
    ) -> list[np.ndarray]:
        """Return P(class 1) for clients with different numbers of samples, each with its own weights.

        Parameters
        ----------
        encoded : one encoded dataset a client, of n_i samples.
        weights : (clients, S, P), S weight vectors a client, such as the two signs of SPSA.
        rngs : one generator a client, needed with shots: a client's draws never depend on the others.

        Returns
        -------
        list of ``(S, n_i)`` arrays.
        """
        weights, rngs = self.check_ragged(encoded, weights, rngs)
        return [self.probabilities(e, w, g) for e, w, g in zip(encoded, weights, rngs, strict=True)]

    def check_ragged(self, encoded, weights, rngs):
        """Return the weights ``(clients, S, P)`` and one generator or None a client, checked."""
        weights = check_weights(weights, self.qnn.num_weights, ndim=(3,))
        if not isinstance(encoded, Sequence):
            raise ValueError(f"encoded must be a list of encoded datasets, one a client, got {type(encoded).__name__}")
        if len(encoded) != len(weights):
            raise ValueError(f"weights are for {len(weights)} clients, expected {len(encoded)} as encoded")
        if rngs is None:
            rngs = [None] * len(encoded)
        elif isinstance(rngs, np.random.Generator) or len(rngs) != len(encoded):
            raise ValueError(f"rngs must hold one generator for each of the {len(encoded)} clients")
        return weights, rngs

    def describe(self) -> dict[str, Any]:
        """Return what identifies the engine in a record."""
        return {"engine": self.name, "kind": self.kind, "shots": self.shots}


@runtime_checkable
class DifferentiableEngine(Protocol):
    """An engine that also knows the derivatives of its exact probabilities."""

    name: str

    def probabilities(self, encoded: Any, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1), see :meth:`Engine.probabilities`."""

    def gradient(self, encoded: Any, weights: np.ndarray) -> np.ndarray:
        """Return dP(class 1) / d weights, ``(n, P)`` for ``weights : (P,)``."""


def check_shots(shots: int | None) -> int | None:
    """Return ``shots`` as an int >= 1, or None for exact values."""
    if shots is None:
        return None
    if isinstance(shots, bool) or not isinstance(shots, int | np.integer) or shots < 1:
        raise ValueError(f"shots must be an integer >= 1 or None (exact), got {shots!r}")
    if shots > MAX_SHOTS:
        raise ValueError(f"shots must be at most {MAX_SHOTS}, got {shots!r}")
    return int(shots)


def check_features(X: np.ndarray, num_features: int) -> np.ndarray:
    """Return ``X`` as finite float64 of shape ``(n, num_features)``."""
    array = _real_array("X", X)
    if array.ndim != 2 or array.shape[1] != num_features:
        raise ValueError(f"X must have shape (n, {num_features}), got {array.shape}")
    return array


def check_weights(weights: np.ndarray, num_weights: int, ndim: tuple[int, ...] = (1, 2)) -> np.ndarray:
    """Return ``weights`` as finite float64 whose last axis has ``num_weights`` entries."""
    array = _real_array("weights", weights)
    if np.ndim(weights) not in ndim or array.shape[-1] != num_weights:
        lead = {1: f"({num_weights},)", 2: f"(B, {num_weights})", 3: f"(clients, S, {num_weights})"}
        expected = " or ".join(lead[n] for n in ndim)
        raise ValueError(f"weights must have shape {expected}, got {np.shape(weights)}")
    return array


def _real_array(name: str, values) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}")
    array = np.ascontiguousarray(array, dtype=float)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite angles, got {array[where]} at index {where}")
    return array


def sample(p: np.ndarray, shots: int, rng: Generators) -> np.ndarray:
    """Return the fraction of ``shots`` measurements with odd parity, drawn from Binomial(shots, p).

    Parameters
    ----------
    p : (n,) or (B, n) exact probabilities; rounding may have left them 1e-16 outside [0, 1].
    rng : one generator for all draws, in C order, or B generators, one a row.
    """
    if rng is None:
        raise ValueError(f"shots={shots} draws at random: expected rng, a numpy Generator")
    p = np.minimum(np.maximum(p, 0.0), 1.0)  # np.clip costs more than a small client's draws
    if isinstance(rng, np.random.Generator):
        return rng.binomial(shots, p) / shots
    many = isinstance(rng, Sequence) and all(isinstance(g, np.random.Generator) for g in rng)
    if not many or p.ndim != 2 or len(rng) != len(p):
        got = len(rng) if many else type(rng).__name__
        raise ValueError(f"rng must be a Generator, or one for each row of {p.shape}, got {got}")
    return np.array([g.binomial(shots, row) / shots for g, row in zip(rng, p, strict=True)])
