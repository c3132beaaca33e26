"""The exact engine: it compiles the circuits to NumPy, stores the encoded samples and takes many thetas per call.

Let A(theta) be the rows of U(theta) that belong to basis states of odd parity. Then, with d = 2^q amplitudes,

    P(1 | x, theta) = |A(theta) psi(x)|^2 = <psi| G |psi>,    G = A^dag A = (1 - M) / 2.

There are three strategies; the number of qubits decides which one is fast:

- ``products``: the engine stores the d(d+1)/2 real products c_ij Re(psi_i^* psi_j) of each state (and the imaginary
  parts if U is complex). One matrix product with the entries of G then gives all samples for all thetas.
- ``unitary``: the engine stores the states and multiplies them by A(theta), with one matrix product per theta.
- ``gates``: the engine stores the states and applies the ansatz to them, block by block.

A probability depends, to the last bit, on its own sample and its own theta only, and not on the rest of the batch. The
reasons: kernels.py builds states and A(theta) by products of fixed shape; ``products`` pads its arrays as blas.py
explains; ``unitary`` multiplies whole tiles of samples (one tile per product where BLAS fails the test in blas.py);
``gates`` treats each sample separately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qfl_core.engines.base import check_features, check_weights
from qfl_core.engines.blas import PAD_THETAS, product, tiles_are_position_free
from qfl_core.engines.cached import CachedEngine
from qfl_core.engines.compile import compile_circuit
from qfl_core.engines.encoded import PAD_SAMPLES, Encoded, check_encoded, padded
from qfl_core.engines.kernels import Kernel
from qfl_core.engines.ordered import RyCircuit
from qfl_core.engines.qnn import QNN, odd_parity

STRATEGIES = ("products", "unitary", "gates")
MAX_PRODUCTS_QUBITS = 6
MAX_UNITARY_QUBITS = 10
TILE = 64  # samples per tile of the strategy "unitary"
THETAS_AT_ONCE = 4096


class StatevectorEngine(CachedEngine):
    """Computes exact probabilities; with ``shots``, draws from their binomial distribution.

    Parameters
    ----------
    qnn : the model.
    shots : the number of measurements per probability; None asks for exact probabilities.
    strategy : ``"products"``, ``"unitary"``, ``"gates"``, or ``"auto"``, which chooses by the number of qubits.
    memory : bytes that the encodings and the intermediate arrays may each use; larger work is cut into chunks.
    threads : BLAS threads inside this engine's calls; None keeps the setting of the process.
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
        super().__init__(qnn, shots, memory, threads)
        if strategy not in ("auto", *STRATEGIES):
            raise ValueError(f"unknown strategy {strategy!r}; expected 'auto' or one of {STRATEGIES}")
        self.kind = "exact" if shots is None else "shots"
        n = qnn.num_qubits
        # Per amplitude: the state before and after a step, the indices of a permutation, and one byte per angle.
        need = (64 + sum(bool(i.operation.params) for i in qnn.circuit.data)) * 2**n
        if need > memory:
            raise ValueError(f"{n} qubits need at least {need:,} bytes, more than memory={memory:,}")
        self.strategy = strategy if strategy != "auto" else _choose(n)
        if self.strategy != "gates":
            # A(theta) and the rows it starts from; for products also G and the indices of its upper triangle.
            need = 4**n * (32 if self.strategy == "unitary" else 64)
            if need > memory:
                raise ValueError(
                    f"strategy={self.strategy!r} with {n} qubits needs at least {need:,} bytes, more than "
                    f"memory={memory:,}; choose strategy='gates' or give the engine more memory"
                )
        self._encoder = Kernel(compile_circuit(qnn.feature_map, qnn.input_parameters, True))
        self._ansatz = Kernel(compile_circuit(qnn.ansatz, qnn.weight_parameters))
        self._odd = np.flatnonzero(odd_parity(n))
        d = 2**n
        self._thetas_at_once = max(1, min(THETAS_AT_ONCE, memory // (16 * d * d * self._ansatz.dtype.itemsize)))
        if self.strategy == "products":
            self._i, self._j = np.triu_indices(d)
            self._upper = self._i * d + self._j
            self._off_diagonal = self._i != self._j
            ry = RyCircuit.of(self._ansatz, self._odd)
            self._ry = ry if self._ansatz.program.angles.is_identity else None
        if self.strategy != "gates":
            self._odd_identity = np.zeros((1, len(self._odd), d), dtype=self._ansatz.dtype)
            self._odd_identity[0, np.arange(len(self._odd)), self._odd] = 1
            self._odd_walk = self._ansatz.identity_rows(self._odd)

    def exact(self) -> StatevectorEngine:
        """Return the same engine without shots; both share their encodings."""
        return StatevectorEngine(self.qnn, strategy=self.strategy, memory=self.memory, threads=self.threads)

    def encode(self, X: np.ndarray) -> Encoded:
        """Return the samples ``X : (n, num_features)``, given as angles, in the form that the strategy stores."""
        X = check_features(X, self.qnn.num_features)
        width, dtype, pad = self._layout()
        count = padded(len(X), pad)
        self._check_size(len(X), count * width * dtype.itemsize)
        rows = np.zeros((count, width), dtype=dtype)
        chunk = max(1, self.memory // (8 * 16 * max(self._encoder.dim, width)))
        with self._limit():
            for i in range(0, len(X), chunk):
                part = X[i : i + chunk]
                rows[i : i + len(part)] = self._stored(self._states(part))
        return Encoded(rows, len(X), self._owner(), pad)

    def _states(self, X: np.ndarray) -> np.ndarray:
        """Return the states psi(x), ``(n, d)``."""
        start = np.zeros((1, 1, self._encoder.dim), dtype=self._encoder.dtype)
        start[..., 0] = 1
        return self._encoder.forward(start, self._encoder.program.angles.evaluate(X))[:, 0]

    def _owner(self) -> tuple:
        return self.name, self.qnn, self.strategy

    def _layout(self) -> tuple[int, np.dtype, int]:
        """Return the width of a stored row, its type, and the multiple to which the number of rows is padded."""
        d = self._encoder.dim
        if self.strategy == "products":
            width = d * (d + 1) // 2 if self._ansatz.program.is_real else d * d
            return width, np.dtype(float), PAD_SAMPLES
        if self.strategy == "unitary":
            return 2 * d, np.dtype(float), TILE
        return d, np.dtype(complex), 1

    def _stored(self, psi: np.ndarray) -> np.ndarray:
        """Return the rows ``(n, width)`` that the strategy stores for the states ``psi : (n, d)``."""
        if self.strategy == "gates":
            return psi
        if self.strategy == "unitary":
            return np.concatenate([psi.real, psi.imag], axis=1)
        w = psi[:, self._i].conj() * psi[:, self._j]
        w[:, self._off_diagonal] *= 2
        if self._ansatz.program.is_real:
            return w.real
        # Re(w G) = Re w Re G - Im w Im G; the diagonal has no imaginary part.
        return np.concatenate([w.real, -w.imag[:, self._off_diagonal]], axis=1)

    def gradient(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        """Return dP(class 1) / d weights by the parameter-shift rule; the result is exact also if the engine has shots.

        Every rotation angle a_k has dP/da_k = (P(a_k + pi/2) - P(a_k - pi/2)) / 2. The chain rule leads from the angles
        to the weights, so a weight may appear in several gates and inside any differentiable expression.

        Returns
        -------
        (n, P) for ``weights : (P,)``, (B, n, P) for ``weights : (B, P)``.
        """
        check_encoded(encoded, self._owner())
        weights = check_weights(weights, self.qnn.num_weights)
        theta = np.atleast_2d(weights)
        functions = self._ansatz.program.angles
        angles = functions.evaluate(theta)
        count = angles.shape[1]
        shift = (np.pi / 2) * np.eye(count)
        out = np.empty((len(theta), len(encoded), self.qnn.num_weights))
        jacobian = None if functions.is_identity else functions.jacobian(theta)
        with self._limit():
            for b, a in enumerate(angles):
                p = self._from_angles(encoded, np.concatenate([a + shift, a - shift]))
                slope = 0.5 * (p[:count] - p[count:]).T
                out[b] = slope if jacobian is None else np.einsum("nk,kp->np", slope, jacobian[b])
        return out[0] if weights.ndim == 1 else out

    def pullback(self, encoded: Encoded, weights: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
        """Return sum_n cotangent_n dP_n / d weights, (P,), for ``weights : (P,)`` and ``cotangent : (n,)``.

        With the strategy ``products``, P_n is a linear function of its stored row. The weighted rows are therefore
        summed first, and the derivatives with respect to all weights need only one pass over the samples.
        """
        check_encoded(encoded, self._owner())
        weights = check_weights(weights, self.qnn.num_weights)
        functions = self._ansatz.program.angles
        if self.strategy != "products" or not functions.is_identity:
            return cotangent @ self.gradient(encoded, weights)
        angles = functions.evaluate(weights[None])[0]
        shift = (np.pi / 2) * np.eye(len(angles))
        with self._limit():
            row = cotangent @ encoded.rows[: len(encoded)]
            up, down = self._entries(angles + shift), self._entries(angles - shift)
            return 0.5 * (up - down) @ row

    def _exact(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        return self._from_angles(encoded, self._ansatz.program.angles.evaluate(weights))

    def _from_angles(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        """Return the probabilities ``(B, n)`` for the angles ``(B, K)`` of the ansatz's gates, chunk by chunk."""
        evaluate = {"products": self._products, "unitary": self._tiles, "gates": self._walk}[self.strategy]
        step = self._thetas_at_once
        if len(angles) <= step:
            return evaluate(encoded, angles)
        return np.concatenate([evaluate(encoded, angles[i : i + step]) for i in range(0, len(angles), step)])

    def _observables(self, weights: np.ndarray) -> np.ndarray | None:
        if self.strategy != "products" or len(weights) > self._thetas_at_once:
            return None
        return self._entries(self._ansatz.program.angles.evaluate(weights))

    def _circuit(self) -> RyCircuit | None:
        return self._ry if self.strategy == "products" else None

    def _ordered_observables(self, weights: np.ndarray) -> np.ndarray | None:
        circuit = self._circuit()
        return self._observables(weights) if circuit is None else circuit.observables(weights)

    def _odd_rows(self, angles: np.ndarray) -> np.ndarray:
        """Return A(theta), ``(B, d/2, d)``: the rows of U(theta) that belong to odd parity."""
        if self._odd_walk is not None:
            return self._odd_walk(angles)
        rows = self._ansatz.reverse(self._odd_identity, angles)
        return rows if len(rows) == len(angles) else np.broadcast_to(rows, (len(angles), *rows.shape[1:]))

    def _entries(self, angles: np.ndarray) -> np.ndarray:
        """Return the entries of G = A^dag A by which the stored products are multiplied, ``(B, width)``."""
        A = self._odd_rows(angles)
        G = np.matmul((A.conj() if A.dtype.kind == "c" else A).swapaxes(1, 2), A)
        G = G.reshape(len(G), G.shape[1] ** 2).take(self._upper, axis=1)
        if G.dtype.kind != "c":
            return G
        return np.concatenate([G.real, G.imag[:, self._off_diagonal]], axis=1)

    def _products(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        return product(encoded, self._entries(angles))

    def _tiles(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        """Return |A psi|^2, ``(B, n)``, in real arithmetic, tile by tile; A is padded as blas.py explains."""
        A = self._odd_rows(angles)
        out = np.empty((len(A), len(encoded)))
        d = A.shape[2]
        pad = np.zeros((padded(A.shape[1], PAD_THETAS) - A.shape[1], d))
        for b, rows in enumerate(A):
            matrix = np.concatenate([rows.real, pad])
            if rows.dtype.kind == "c":
                im = np.concatenate([rows.imag, pad])
                # This matrix maps psi, stored as (re, im), to A psi as (re, im).
                matrix = np.block([[matrix, -im], [im, matrix]])
            width = matrix.shape[1]
            tile = TILE * encoded.rows.shape[1] // width
            free = tiles_are_position_free(width, len(matrix), tile)
            chunk = TILE * max(1, self.memory // (64 * tile * len(matrix))) if free else TILE
            for i in range(0, len(encoded), chunk):
                part = encoded.rows[i : i + chunk]
                p = ((part.reshape(-1, width) @ matrix.T) ** 2).reshape(len(part), -1).sum(axis=1)
                out[b, i : i + chunk] = p[: len(encoded) - i]
        return out

    def _walk(self, encoded: Encoded, angles: np.ndarray) -> np.ndarray:
        """Return P(odd parity) of U(theta) psi, ``(B, n)``, one theta after the other."""
        out = np.empty((len(angles), len(encoded)))
        chunk = max(1, self.memory // (8 * 16 * self._ansatz.dim))
        for b in range(len(angles)):
            for i in range(0, len(encoded), chunk):
                psi = self._ansatz.forward(encoded.rows[i : i + chunk, None], angles[b : b + 1])[:, 0]
                odd = psi[:, self._odd]
                out[b, i : i + chunk] = (odd.real**2 + odd.imag**2).sum(axis=1)
        return out

    def describe(self) -> dict[str, Any]:
        """Return the name, kind, shots, inner loop, threads and strategy."""
        return super().describe() | {"strategy": self.strategy}


def _choose(num_qubits: int) -> str:
    """Return the strategy that is fastest for this number of qubits."""
    if num_qubits <= MAX_PRODUCTS_QUBITS:
        return "products"
    return "unitary" if num_qubits <= MAX_UNITARY_QUBITS else "gates"
