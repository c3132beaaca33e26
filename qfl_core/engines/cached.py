"""Engines that encode samples once, store them, and evaluate many weight vectors on them.

A stored sample is a row of real numbers (or a state). Where P(1 | x, theta) is a linear function of this row, one
matrix product ``rows @ observables.T`` gives the probabilities of all samples for all thetas.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

import numpy as np

from qfl_core.base.errors import NotFiniteError
from qfl_core.engines import ordered
from qfl_core.engines.base import Descent, Drawing, Engine, Generators, check_generators, check_weights, sample
from qfl_core.engines.blas import PAD_THETAS, padded_product, thread_limit
from qfl_core.engines.encoded import Arrangements, Encoded, check_encoded, padded, writable
from qfl_core.engines.inner_loop import NO_SIDES, compiled_code, no_circuit, path_name
from qfl_core.engines.majority import majority
from qfl_core.engines.ordered import RyCircuit
from qfl_core.engines.qnn import QNN
from qfl_core.engines.tables import Tables


class CachedEngine(Engine[Encoded]):
    """What the exact and the noisy engine share: checks, threads, shots and the call for many clients.

    A subclass computes the exact probabilities.

    Parameters
    ----------
    qnn : the model.
    shots : the number of measurements per probability; None asks for exact probabilities.
    memory : bytes that the encodings and the intermediate arrays may each use.
    threads : BLAS threads inside this engine's calls; None keeps the setting of the process.
    """

    def __init__(self, qnn: QNN, shots: int | None, memory: int, threads: int | None) -> None:
        super().__init__(qnn, shots)
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 2**20:
            raise ValueError(f"memory must be at least 2**20 bytes, got {memory!r}")
        self.memory = memory
        self.threads = threads
        self._limit = thread_limit(threads)
        self._tables = None if shots is None else Tables(shots)
        self._arrangements = Arrangements()

    @abstractmethod
    def _exact(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        """Return the exact probabilities ``(B, n)`` for ``weights : (B, P)``."""

    @abstractmethod
    def _owner(self) -> tuple:
        """Return a key of everything that decides the encoding; engines with equal keys share their encodings."""

    def _observables(self, weights: np.ndarray) -> np.ndarray | None:
        """Return ``(B, width)``: one vector per theta, whose product with a stored row is the probability.

        None means that the engine does not compute its probabilities in this way.
        """
        return None

    def probabilities(self, encoded: Encoded, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1) for each sample and weight vector.

        Parameters
        ----------
        encoded : n samples from this engine's :meth:`encode`.
        weights : (P,) or (B, P).
        rng : needed with shots: one generator for all draws, or B generators, one per weight vector.

        Returns
        -------
        (n,) or (B, n): exact probabilities, or the fractions of ``shots`` that were measured.
        """
        check_encoded(encoded, self._owner())
        weights = check_weights(weights, self.qnn.num_weights)
        thetas = np.atleast_2d(weights)
        if self.shots is not None:
            rngs = check_generators(rng, self.shots, (*weights.shape[:-1], len(encoded)))
            # One generator draws for all weight vectors, as for one client; B generators as for B clients.
            per_client = thetas.reshape(len(rngs), -1, thetas.shape[1])
            drawn = self._draw([encoded] * len(rngs), per_client, rngs)
            p = np.concatenate(drawn)
        else:
            with self._limit():
                p = self._exact(encoded, thetas)
        return p[0] if weights.ndim == 1 else p

    def probabilities_ragged(
        self,
        encoded: Sequence[Encoded],
        weights: np.ndarray,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> list[np.ndarray]:
        """Return one array ``(S, n_i)`` per client, see :meth:`Engine.probabilities_ragged`.

        The observables of all clients are computed together. Each client then has its own matrix product, of its own
        samples and its own observables; the other clients cannot change its bits, because they do not change its shape.
        """
        weights, sources = self.check_ragged(encoded, weights, rngs)
        owner = self._owner()
        for e in encoded:
            check_encoded(e, owner)
        if self.shots is not None:
            return self._draw(encoded, weights, [check_generator(g, self.shots) for g in sources])
        clients, signs, count = weights.shape
        with self._limit():
            G = self._observables(weights.reshape(clients * signs, count))
            if G is None:
                return [self._exact(e, w) for e, w in zip(encoded, weights, strict=True)]
            split = np.zeros((clients, padded(signs, PAD_THETAS), G.shape[1]))
            split[:, :signs] = G.reshape(clients, signs, G.shape[1])
            return [padded_product(e, g, signs) for e, g in zip(encoded, split, strict=True)]

    def _ordered_observables(self, weights: np.ndarray) -> np.ndarray | None:
        """Return :meth:`_observables` for the engine with shots, with sums in a fixed order where that is possible."""
        return self._observables(weights)

    def _circuit(self) -> RyCircuit | None:
        """Return the ansatz in the form that compiled code can walk through, or None."""
        return None

    def _draw(
        self, encoded: Sequence[Encoded], weights: np.ndarray, rngs: Sequence[np.random.Generator]
    ) -> list[np.ndarray]:
        """Return fractions of shots, one array ``(S, n_i)`` per client, for ``weights : (clients, S, P)``."""
        ends = np.cumsum([len(e) for e in encoded])
        nothing = np.zeros(ends[-1] if len(ends) else 0, dtype=np.int64)
        drawn = np.empty((weights.shape[1], len(nothing)))
        asked = Drawing(encoded, nothing, rngs, (), 0.0)
        if self.means(asked, weights, drawn) is not None:
            return np.split(drawn, ends[:-1], axis=1)
        shots = cast(int, self.shots)
        return [
            sample(self._ordered_probabilities(e, w), shots, rng)
            for e, w, rng in zip(encoded, weights, rngs, strict=True)
        ]

    def _ordered_probabilities(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        """Return the probabilities (S, n) from which an engine with shots draws, for ``weights : (S, P)``."""
        with self._limit():
            G = self._ordered_observables(weights)
            return self._exact(encoded, weights) if G is None else ordered.product(encoded.rows, G)[:, : len(encoded)]

    def means(self, asked: Drawing, weights: np.ndarray, drawn: np.ndarray | None = None) -> np.ndarray | None:
        """Draw for every client and weight vector; return the functions' means, (F, clients, S).

        None where compiled code cannot do it. ``drawn : (S, total)`` receives the fractions, if given.
        """
        tables = self._tables_of(asked)
        return None if tables is None else self._evaluate(asked, weights, tables, NO_SIDES, drawn)

    def accuracies(self, asked: Drawing, weights: np.ndarray) -> np.ndarray | None:
        """Draw which class most shots show, with one uniform number per sample; return shares (2, clients, S).

        The first is that of right classes, the second that of samples of class 1 which are called class 1. None where
        there is no table of :mod:`qfl_core.engines.majority`. The functions of ``asked`` are not used.
        """
        table = None if self.shots is None else majority(self.shots)
        if table is None:
            return None
        weights, _ = self.check_ragged(asked.encoded, weights, asked.rngs)
        nothing = np.empty((2, 0, 0))
        if (found := self._evaluate(asked, weights, nothing, (table.cells, table.low, table.scale))) is not None:
            return found
        out, first = np.empty((2, *weights.shape[:2])), 0
        for i, (e, w, rng) in enumerate(zip(asked.encoded, weights, asked.rngs, strict=True)):
            label = asked.labels[first : first + len(e)] == 1
            chance = table(self._ordered_probabilities(e, w))
            called = rng.random(chance.shape) < chance
            out[:, i] = np.array([np.count_nonzero(kind, axis=1) for kind in (called == label, called & label)]) / len(
                e
            )
            first += len(e)
        return out

    def _evaluate(
        self,
        asked: Drawing,
        weights: np.ndarray,
        tables: np.ndarray,
        sides: tuple[np.ndarray, float, float],
        drawn: np.ndarray | None = None,
    ) -> np.ndarray | None:
        """Run the compiled code of :meth:`means` and :meth:`accuracies`; None where it is not available."""
        code = self._code()
        if code is None or not len(asked.encoded):
            return None
        clients, signs, count = weights.shape
        means = np.empty((len(tables), clients, signs))
        circuit, observables = self._circuit(), np.empty((0, 0, 0))
        if circuit is None:
            with self._limit():
                G = self._ordered_observables(weights.reshape(-1, count))
            if G is None:
                return None
            observables = np.ascontiguousarray(G).reshape(clients, signs, G.shape[1])
        samples, labels = self._arrangements.of(asked)
        code.evaluate(
            samples,
            writable(weights),
            no_circuit() if circuit is None else circuit.arrays,
            observables,
            self.shots,
            code.addresses(asked.rngs),
            labels,
            tables,
            sides,
            means,
            np.empty((0, 0)) if drawn is None else drawn,
        )
        return means

    def descend(self, asked: Drawing, descent: Descent) -> np.ndarray | None:
        """Run the SPSA iterations of all clients in compiled code, or return None where it cannot do it."""
        code, circuit, tables = self._code(), self._circuit(), self._tables_of(asked)
        if code is None or circuit is None or tables is None or not len(asked.encoded):
            return None
        theta = descent.theta.copy()
        shift = np.empty((0, theta.shape[1])) if descent.shift is None else descent.shift
        samples, labels = self._arrangements.of(asked)
        finite = code.descend(
            samples,
            theta,
            circuit.arrays,
            self.shots,
            code.addresses(asked.rngs),
            labels,
            tables[0],
            writable(descent.anchor),
            0.5 * descent.mu,
            (writable(descent.eta), writable(descent.delta)),
            writable(descent.directions),
            writable(shift),
        )
        if not finite:
            raise NotFiniteError("weights must be finite angles, got inf or nan in an SPSA iteration")
        return theta

    def _code(self) -> ModuleType | None:
        return None if self.shots is None else compiled_code()

    def _tables_of(self, asked: Drawing) -> np.ndarray | None:
        return None if self._tables is None else self._tables.of(asked.functions, asked.margin)

    def describe(self) -> dict[str, Any]:
        """Return what a run's record says about the engine; ``compiled`` names what compiled its inner loop."""
        return super().describe() | {"compiled": "no" if self.shots is None else path_name(), "threads": self.threads}

    def _check_size(self, samples: int, size: int) -> None:
        """Refuse an encoding of ``size`` bytes that is larger than ``memory``."""
        if size > self.memory:
            raise ValueError(
                f"encoding {samples} samples needs {size:,} bytes, more than memory={self.memory:,}; "
                "encode fewer samples per call, or give the engine more memory"
            )


def check_generator(rng: np.random.Generator | None, shots: int) -> np.random.Generator:
    """Return the generator of one client, or refuse what is none."""
    return check_generators(rng, shots, (1, 1))[0]
