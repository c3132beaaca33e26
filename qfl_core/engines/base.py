"""What all engines share: their interface, the checks of their inputs, and the drawing of shots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from qfl_core.base.errors import NotFiniteError
from qfl_core.engines.qnn import QNN

MAX_SHOTS = 2**63 - 1  # NumPy's binomial accepts no larger number
#: One generator for all draws, one generator per weight vector, or None where nothing is drawn.
Generators = np.random.Generator | Sequence[np.random.Generator] | None

#: ``(p, y, margin) -> values``, elementwise: ``p`` (..., n) is P(class 1), ``y`` (n,) the labels 0 and 1.
Elementwise = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


class EncodedSamples(Protocol):
    """Samples in the form in which an engine stores them."""

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> Self:
        """Return the samples at the positions ``indices``, without encoding them again."""


#: The form in which one engine stores its samples.
Encoding = TypeVar("Encoding", bound=EncodedSamples)


class Engine(ABC, Generic[Encoding]):
    """Computes P(class 1) of a :class:`QNN` for encoded samples and one or many weight vectors.

    Attributes
    ----------
    qnn : the model.
    shots : the number of measurements per probability, or None for exact probabilities.
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

    @abstractmethod
    def encode(self, X: np.ndarray) -> Encoding:
        """Return the samples ``X : (n, num_features)``, given as angles, in the form that the engine stores."""

    @abstractmethod
    def probabilities(self, encoded: Encoding, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1), ``(n,)`` for ``weights : (P,)`` and ``(B, n)`` for ``weights : (B, P)``."""

    def probabilities_ragged(
        self, encoded: Sequence[Encoding], weights: np.ndarray, rngs: Sequence[np.random.Generator] | None = None
    ) -> list[np.ndarray]:
        """Return P(class 1) for many clients, each with its own number of samples and its own weights.

        Parameters
        ----------
        encoded : one encoded dataset per client; client i has n_i samples.
        weights : (clients, S, P), S weight vectors per client, such as the two signs of SPSA.
        rngs : one generator per client. An engine with shots needs them; because each client has its own, its
            draws do not depend on the other clients.

        Returns
        -------
        One array ``(S, n_i)`` per client.
        """
        weights, sources = self.check_ragged(encoded, weights, rngs)
        return [self.probabilities(e, w, g) for e, w, g in zip(encoded, weights, sources, strict=True)]

    def check_ragged(
        self, encoded: Sequence[Encoding], weights: np.ndarray, rngs: Sequence[np.random.Generator] | None
    ) -> tuple[np.ndarray, Sequence[np.random.Generator | None]]:
        """Check the arguments; return the weights ``(clients, S, P)`` and per client one generator or None."""
        weights = check_weights(weights, self.qnn.num_weights, ndim=(3,))
        if not isinstance(encoded, Sequence):
            got = type(encoded).__name__
            raise ValueError(f"encoded must be a list of encoded datasets, one per client, got {got}")
        if len(encoded) != len(weights):
            raise ValueError(f"weights are for {len(weights)} clients, expected {len(encoded)} as in encoded")
        if rngs is None:
            return weights, [None] * len(encoded)
        if isinstance(rngs, np.random.Generator) or len(rngs) != len(encoded):
            raise ValueError(f"rngs must hold one generator for each of the {len(encoded)} clients")
        return weights, rngs

    def describe(self) -> dict[str, Any]:
        """Return what a run's record says about the engine."""
        return {"engine": self.name, "kind": self.kind, "shots": self.shots}


@dataclass(frozen=True, eq=False)
class Drawing:
    """Samples of several clients, and what is asked about their measurement.

    Attributes
    ----------
    encoded : one encoded dataset per client.
    labels : (total,), the labels 0 and 1 of all samples, client after client.
    rngs : one generator per client.
    functions : F functions of probability and label, such as a loss.
    margin : what they are given as third argument.
    """

    encoded: Sequence[Any]
    labels: np.ndarray
    rngs: Sequence[np.random.Generator]
    functions: Sequence[Elementwise]
    margin: float


@dataclass(frozen=True, eq=False)
class Descent:
    """SPSA iterations of several clients on L(theta) + (mu / 2) |theta - anchor|^2.

    Attributes
    ----------
    theta : (clients, P), the start.
    anchor, mu : (P,) and the proximal coefficient.
    eta, delta : (clients, iterations), learning rates and perturbations.
    directions : (clients, iterations, P) of -1 and +1.
    shift : (clients, P), added to every gradient estimate, or None.
    """

    theta: np.ndarray
    anchor: np.ndarray
    mu: float
    eta: np.ndarray
    delta: np.ndarray
    directions: np.ndarray
    shift: np.ndarray | None


@runtime_checkable
class CompiledEngine(Protocol):
    """An engine with shots that has faster ways than drawing counts and averaging them in NumPy.

    Each method returns None where its way is not open, for example because no compiled code is available.
    """

    def means(self, asked: Drawing, weights: np.ndarray) -> np.ndarray | None:
        """Return the functions' means over each client's samples, (F, clients, S), for weights (clients, S, P)."""

    def accuracies(self, asked: Drawing, weights: np.ndarray) -> np.ndarray | None:
        """Return the shares of samples whose drawn class is the label, and of those that are also of class 1.

        The result is (2, clients, S), for weights (clients, S, P).
        """

    def descend(self, asked: Drawing, descent: Descent) -> np.ndarray | None:
        """Return where the clients end, (clients, P); the first function is the loss."""


@runtime_checkable
class DifferentiableEngine(Protocol):
    """An engine that can also compute the derivatives of its exact probabilities.

    ``encoded`` has the type that the engine's own ``encode`` returns.
    """

    name: str

    def exact(self) -> DifferentiableEngine:
        """Return the same engine without shots; both share their encodings."""

    def probabilities(self, encoded: Any, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1), see :meth:`Engine.probabilities`."""

    def gradient(self, encoded: Any, weights: np.ndarray) -> np.ndarray:
        """Return dP(class 1) / d weights, ``(n, P)`` for ``weights : (P,)``."""


def check_shots(shots: int | None) -> int | None:
    """Return ``shots`` as an int >= 1, or None, which means exact values; raise ValueError for anything else."""
    if shots is None:
        return None
    if isinstance(shots, bool) or not isinstance(shots, int | np.integer) or shots < 1:
        raise ValueError(f"shots must be an integer >= 1 or None (exact), got {shots!r}")
    if shots > MAX_SHOTS:
        raise ValueError(f"shots must be at most {MAX_SHOTS}, got {shots!r}")
    return int(shots)


def check_features(X: np.ndarray, num_features: int) -> np.ndarray:
    """Return ``X`` as an array of finite float64 with shape ``(n, num_features)``, or raise ValueError."""
    array = _real_array("X", X)
    if array.ndim != 2 or array.shape[1] != num_features:
        raise ValueError(f"X must have shape (n, {num_features}), got {array.shape}")
    return array


def check_weights(weights: np.ndarray, num_weights: int, ndim: tuple[int, ...] = (1, 2)) -> np.ndarray:
    """Return ``weights`` as finite float64 whose last axis has ``num_weights`` entries, or raise ValueError.

    ``ndim`` lists the allowed numbers of axes.
    """
    array = _real_array("weights", weights)
    if np.ndim(weights) not in ndim or array.shape[-1] != num_weights:
        lead = {1: f"({num_weights},)", 2: f"(B, {num_weights})", 3: f"(clients, S, {num_weights})"}
        expected = " or ".join(lead[n] for n in ndim)
        raise ValueError(f"weights must have shape {expected}, got {np.shape(weights)}")
    return array


def _real_array(name: str, values: ArrayLike) -> np.ndarray:
    """Return ``values`` as an array of finite float64; ``name`` is what an error message calls them."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be real numbers, got dtype {array.dtype}")
    array = np.ascontiguousarray(array, dtype=float)
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise NotFiniteError(f"{name} must be finite angles, got {array[where]} at index {where}")
    return array


def sample(p: np.ndarray, shots: int, rng: Generators) -> np.ndarray:
    """Return the fraction of ``shots`` measurements that have odd parity: a draw from Binomial(shots, p) / shots.

    Parameters
    ----------
    p : (n,) or (B, n) exact probabilities. They may lie 1e-16 outside [0, 1] because of rounding.
    shots : the number of measurements per probability.
    rng : one generator, which draws all values row by row, or B generators, one per row.
    """
    many = check_generators(rng, shots, p.shape)
    p = np.minimum(np.maximum(p, 0.0), 1.0)  # np.clip takes longer than the draws of a small client
    if isinstance(rng, np.random.Generator):
        return rng.binomial(shots, p) / shots
    return np.array([g.binomial(shots, row) / shots for g, row in zip(many, p, strict=True)])


def check_generators(rng: Generators, shots: int, shape: tuple[int, ...]) -> Sequence[np.random.Generator]:
    """Return the generators that draw values of the given shape, one of all or one per row; refuse anything else."""
    if rng is None:
        raise ValueError(f"shots={shots} draws at random: expected rng to be a numpy Generator, got None")
    if isinstance(rng, np.random.Generator):
        return [rng]
    many = isinstance(rng, Sequence) and all(isinstance(g, np.random.Generator) for g in rng)
    if not many or len(shape) != 2 or len(rng) != shape[0]:
        got = f"{len(rng)} generators" if many else type(rng).__name__
        raise ValueError(f"rng must be a Generator, or a list with one for each row of p {shape}, got {got}")
    return rng
