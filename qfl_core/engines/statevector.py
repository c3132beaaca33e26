"""The exact engine: circuits compiled to NumPy, encodings cached, many weight vectors at once.

With the rows A(theta) of U(theta) whose basis states have odd parity, P(1 | x, theta) = |A(theta) psi(x)|^2
= <psi| G |psi> with G = A^dag A = (1 - M) / 2. Three strategies, by size:

- ``products``: the d(d+1)/2 real products c_ij Re(psi_i^* psi_j) of a state (and as many imaginary ones if U is
  complex) are stored once; all samples against all thetas are then one matrix product with the entries of G.
- ``unitary``: stored states against A(theta), one matrix product a theta.
- ``gates``: stored states through the ansatz, block by block.

Bits. A probability is a function of its sample and its theta only, whatever else is in the call: states and
matrices are built by products of fixed shape (kernels.py); ``products`` pads thetas and samples to multiples of
8, where BLAS was seen to add in one order, and is checked at start (:func:`blas_is_position_free`), with a slower
product of fixed order to fall back on; ``unitary`` multiplies tiles of a fixed shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from qfl_core.engines.base import Engine, Generators, check_features, check_weights, sample
from qfl_core.engines.compile import compile_circuit
from qfl_core.engines.kernels import Kernel
from qfl_core.qnn import QNN, odd_parity

STRATEGIES = ("products", "unitary", "gates")
MAX_PRODUCTS_QUBITS = 6
MAX_UNITARY_QUBITS = 10
PAD_THETAS = 4
PAD_SAMPLES = 8
TILE = 64


@dataclass(frozen=True, eq=False)
class Encoded:
    """Samples as an engine stores them; ``rows`` is padded with zeros to ``(padded n, width)``."""

    rows: np.ndarray
    num_samples: int
    owner: object = field(repr=False)
    pad: int = PAD_SAMPLES

    def __len__(self) -> int:
        return self.num_samples

    def take(self, indices: np.ndarray) -> Encoded:
        """Return the samples ``indices``, without encoding them again."""
        indices = np.asarray(indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a vector of integers, got {indices.dtype} {indices.shape}")
        if len(indices) and (indices.min() < 0 or indices.max() >= self.num_samples):
            raise ValueError(
                f"indices must lie in [0, {self.num_samples}), got {indices.min()}..{indices.max()}"
            )
        rows = np.zeros((_padded(len(indices), self.pad), self.rows.shape[1]), dtype=self.rows.dtype)
        np.take(self.rows, indices, axis=0, out=rows[: len(indices)])
        return Encoded(rows, len(indices), self.owner, self.pad)


class StatevectorEngine(Engine):
    """Exact probabilities, or draws from their binomial law with ``shots``.

    Parameters
    ----------
    qnn : the model.
    shots : None for exact values.
    strategy : ``"auto"`` (by number of qubits), ``"products"``, ``"unitary"`` or ``"gates"``.
    memory : bytes that encodings and intermediate arrays may each use; work is cut into chunks below it.
    threads : BLAS threads inside this engine's calls; None leaves the process's own setting.
    """

    name = "statevector"

    def __init__(
        self,
        qnn: QNN,
        shots: int | None = None,
        *,
        strategy: str = "auto",
        memory: int = 2**30,
        threads: int | None = None,
    ) -> None:
        super().__init__(qnn, shots)
        if strategy not in ("auto", *STRATEGIES):
            raise ValueError(f"unknown strategy {strategy!r}; expected 'auto' or one of {STRATEGIES}")
        if memory < 2**20:
            raise ValueError(f"memory must be at least 2**20 bytes, got {memory!r}")
        self.kind = "exact" if shots is None else "shots"
        self.memory = int(memory)
        n = qnn.num_qubits
        # A state, its successor and the index vectors of a permutation.
        if 64 * 2**n > memory:
            raise ValueError(f"{n} qubits need {64 * 2**n:,} bytes a state, more than memory={memory:,}")
        self.strategy = strategy if strategy != "auto" else self._choose(n)
        self._encoder = Kernel(compile_circuit(qnn.feature_map, qnn.input_parameters))
        self._ansatz = Kernel(compile_circuit(qnn.ansatz, qnn.weight_parameters))
        self._odd = np.flatnonzero(odd_parity(n))
        self._upper = np.triu_indices(2**n) if self.strategy == "products" else None
        if self._upper is not None:
            self._flat_upper = self._upper[0] * 2**n + self._upper[1]
        self._limit = _thread_limit(threads)
        self.threads = threads

    @staticmethod
    def _choose(num_qubits: int) -> str:
        if num_qubits <= MAX_PRODUCTS_QUBITS:
            return "products"
        return "unitary" if num_qubits <= MAX_UNITARY_QUBITS else "gates"

    # --- encoding -----------------------------------------------------------------------------------------------

    def encode(self, X: np.ndarray) -> Encoded:
        """Return the states of ``X : (n, num_features)`` in the strategy's form."""
        X = check_features(X, self.qnn.num_features)
        d = 2**self.qnn.num_qubits
        width, dtype, pad = self._layout()
        size = _padded(len(X), pad) * width * dtype.itemsize
        if size > self.memory:
            raise ValueError(
                f"encoding {len(X)} samples with strategy {self.strategy!r} needs {size:,} bytes, more than "
                f"memory={self.memory:,}; encode fewer at a time or raise memory"
            )
        rows = np.zeros((_padded(len(X), pad), width), dtype=dtype)
        chunk = max(1, self.memory // (8 * 16 * max(d, width)))
        with self._limit():
            for i in range(0, len(X), chunk):
                psi = self._states(X[i : i + chunk])
                rows[i : i + len(psi)] = self._stored(psi)
        return Encoded(rows, len(X), self, pad)

    def _states(self, X: np.ndarray) -> np.ndarray:
        start = np.zeros((1, 1, self._encoder.dim), dtype=self._encoder.dtype)
        start[..., 0] = 1
        psi = self._encoder.forward(start, self._encoder.program.angles.evaluate(X))[:, 0]
        return np.broadcast_to(psi, (len(X), psi.shape[1]))

    def _layout(self) -> tuple[int, np.dtype, int]:
        """Return the width, type and padding of a stored row."""
        d = 2**self.qnn.num_qubits
        real = self._ansatz.program.is_real
        if self.strategy == "products":
            return (d * (d + 1) // 2 if real else d * d), np.dtype(float), PAD_SAMPLES
        if self.strategy == "unitary":
            return 2 * d, np.dtype(float), TILE
        return d, np.dtype(complex), 1

    def _stored(self, psi: np.ndarray) -> np.ndarray:
        if self.strategy == "gates":
            return psi
        if self.strategy == "unitary":
            return np.concatenate([psi.real, psi.imag], axis=1)
        i, j = self._upper
        w = psi[:, i].conj() * psi[:, j] * np.where(i == j, 1.0, 2.0)
        if self._ansatz.program.is_real:
            return w.real
        # Re(w G) = Re w Re G - Im w Im G; the diagonal has no imaginary part.
        return np.concatenate([w.real, -w.imag[:, i != j]], axis=1)

    # --- evaluation ---------------------------------------------------------------------------------------------

    def probabilities(self, encoded: Encoded, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return P(class 1) for each sample and weight vector.

        Parameters
        ----------
        encoded : n samples from this engine's :meth:`encode`.
        weights : (P,) or (B, P).
        rng : with shots, a generator for all draws, or B generators, one a weight vector.

        Returns
        -------
        (n,) or (B, n): exact values, or fractions of ``shots``.
        """
        self._check_encoded(encoded)
        weights = check_weights(weights, self.qnn.num_weights)
        angles = self._ansatz.program.angles.evaluate(np.atleast_2d(weights))
        with self._limit():
            p = self._exact(encoded, angles)
        p = p.reshape(weights.shape[:-1] + p.shape[1:]) if weights.ndim == 1 else p
        return p if self.shots is None else sample(p, self.shots, rng)

    def probabilities_ragged(
        self,
        encoded: Sequence[Encoded],
        weights: np.ndarray,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> list[np.ndarray]:
        """Return a list of ``(S, n_i)``, as :meth:`Engine.probabilities_ragged`; all thetas are built at once."""
        weights, rngs = self.check_ragged(encoded, weights, rngs)
        for e in encoded:
            self._check_encoded(e)
        clients, signs, count = weights.shape
        angles = self._ansatz.program.angles.evaluate(weights.reshape(-1, count))
        with self._limit():
            if self.strategy == "products" and self._thetas_at_once() >= len(angles):
                g = self._observables(angles).reshape(clients, signs, -1)
                exact = [self._product(e, g[i]) for i, e in enumerate(encoded)]
            else:
                split = angles.reshape(clients, signs, -1)
                exact = [self._exact(e, split[i]) for i, e in enumerate(encoded)]
        if self.shots is None:
            return exact
        return [sample(p, self.shots, rng) for p, rng in zip(exact, rngs, strict=True)]

    def gradient(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        """Return dP(class 1)/d weights, exact (shots are not used), by the parameter-shift rule.

        Every rotation angle a_k has dP/da_k = (P(a_k + pi/2) - P(a_k - pi/2)) / 2; weights follow by the chain rule,
        so a weight may appear in several gates, with any differentiable expression.

        Returns
        -------
        (n, P) for ``weights : (P,)``, (B, n, P) for ``weights : (B, P)``.
        """
        self._check_encoded(encoded)
        weights = check_weights(weights, self.qnn.num_weights)
        program = self._ansatz.program
        theta = np.atleast_2d(weights)
        angles = program.angles.evaluate(theta)
        count = angles.shape[1]
        shift = (np.pi / 2) * np.eye(count)
        out = np.empty((len(theta), len(encoded), self.qnn.num_weights))
        jacobian = None if program.angles.is_identity else program.angles.jacobian(theta)
        with self._limit():
            for b, a in enumerate(angles):
                p = self._exact(encoded, np.concatenate([a + shift, a - shift]))
                slope = 0.5 * (p[:count] - p[count:]).T
                out[b] = slope if jacobian is None else np.einsum("nk,kp->np", slope, jacobian[b])
        return out[0] if weights.ndim == 1 else out

    def _exact(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        """Return the exact probabilities ``(B, n)`` for ``angles : (B, K)``."""
        out = np.empty((len(angles), len(encoded)))
        step = self._thetas_at_once()
        if self.strategy == "products" and len(angles) <= step:
            return self._product(encoded, self._observables(angles))
        for i in range(0, len(angles), step):
            part = angles[i : i + step]
            if self.strategy == "products":
                out[i : i + step] = self._product(encoded, self._observables(part))
            elif self.strategy == "unitary":
                out[i : i + step] = self._tiles(encoded, self._odd_rows(part))
            else:
                out[i : i + step] = self._walk(encoded, part)
        return out

    def _thetas_at_once(self) -> int:
        d = 2**self.qnn.num_qubits
        per_theta = 4 * d * d * self._ansatz.dtype.itemsize
        return max(1, min(4096, (self.memory // 4) // per_theta))

    def _odd_rows(self, angles: np.ndarray) -> np.ndarray:
        """Return A(theta), the rows of U(theta) with odd parity, ``(B, d/2, d)``."""
        start = np.zeros((1, len(self._odd), self._ansatz.dim), dtype=self._ansatz.dtype)
        start[0, np.arange(len(self._odd)), self._odd] = 1
        return np.broadcast_to(self._ansatz.reverse(start, angles), (len(angles), *start.shape[1:]))

    def _observables(self, angles: np.ndarray) -> np.ndarray:
        """Return the entries of G = A^dag A that multiply the stored products, ``(B, width)``."""
        A = self._odd_rows(angles)
        G = np.matmul(A.conj().swapaxes(1, 2) if A.dtype.kind == "c" else A.swapaxes(1, 2), A)
        G = G.reshape(len(G), G.shape[1] ** 2).take(self._flat_upper, axis=1)
        if G.dtype.kind != "c":
            return G
        return np.concatenate([G.real, G.imag[:, self._upper[0] != self._upper[1]]], axis=1)

    def _product(self, encoded: Encoded, G: np.ndarray) -> np.ndarray:
        padded = np.zeros((_padded(len(G), PAD_THETAS), G.shape[1]))
        padded[: len(G)] = G
        if blas_is_position_free(G.shape[1]):
            return (encoded.rows @ padded.T)[: len(encoded), : len(G)].T
        return np.einsum("nk,bk->bn", encoded.rows, padded)[: len(G), : len(encoded)]

    def _tiles(self, encoded: Encoded, A: np.ndarray) -> np.ndarray:
        """Return |A psi|^2 in real arithmetic, tile by tile; A is padded so that BLAS meets no odd edge."""
        out = np.empty((len(A), len(encoded)))
        d = A.shape[2]
        pad = np.zeros((_padded(A.shape[1], PAD_THETAS) - A.shape[1], d))
        for b, rows in enumerate(A):
            re = np.concatenate([rows.real, pad])
            if rows.dtype.kind == "c":
                im = np.concatenate([rows.imag, pad])
                # (re, im) of A psi, for psi stored as (re, im).
                matrix = np.block([[re, -im], [im, re]])
                tiles = encoded.rows.reshape(-1, TILE, 2 * d)
            else:
                matrix = re
                tiles = encoded.rows.reshape(-1, 2 * TILE, d)
            for t, tile in enumerate(tiles):
                p = ((tile @ matrix.T) ** 2).reshape(TILE, -1).sum(axis=1)
                stop = min((t + 1) * TILE, len(encoded))
                out[b, t * TILE : stop] = p[: stop - t * TILE]
        return out

    def _walk(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        out = np.empty((len(angles), len(encoded)))
        chunk = max(1, self.memory // (8 * 16 * self._ansatz.dim))
        for b in range(len(angles)):
            for i in range(0, len(encoded), chunk):
                psi = self._ansatz.forward(encoded.rows[i : i + chunk, None], angles[b : b + 1])[:, 0]
                odd = psi[:, self._odd]
                out[b, i : i + chunk] = (odd.real**2 + odd.imag**2).sum(axis=1)
        return out

    def _check_encoded(self, encoded: Encoded) -> None:
        if not isinstance(encoded, Encoded):
            raise ValueError(f"encoded must come from engine.encode(X), got {type(encoded).__name__}")
        if encoded.owner is not self:
            raise ValueError("encoded comes from another engine; expected this engine's encode(X)")

    def describe(self) -> dict:
        """Return name, kind, shots, strategy and threads."""
        return super().describe() | {"strategy": self.strategy, "threads": self.threads}


def _padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _thread_limit(threads: int | None):
    if threads is None:
        return nullcontext
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be an integer >= 1 or None, got {threads!r}")
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    return lambda: controller.limit(limits=threads, user_api="blas")


@lru_cache(maxsize=64)
def blas_is_position_free(width: int) -> bool:
    """Whether ``(n, width) @ (width, B)`` gives the same bits at any position for the padded shapes used here."""
    rng = np.random.Generator(np.random.PCG64(width))
    F = rng.normal(size=(1032, width))
    G = rng.normal(size=(24, width))
    whole = F @ G.T
    for rows, thetas in ((8, 4), (56, 4), (504, 4), (1032, 8), (1024, 20), (48, 24)):
        for i in {0, 1032 - rows}:
            for j in {0, 24 - thetas}:
                part = F[i : i + rows] @ G[j : j + thetas].T
                if not np.array_equal(part, whole[i : i + rows, j : j + thetas]):
                    return False
    return True
