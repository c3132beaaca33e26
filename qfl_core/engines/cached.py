"""Engines that store their encodings and evaluate many weight vectors against them.

A stored sample is a row of real numbers (or a state), and where P(1 | x, theta) is linear in it, all samples
against all thetas are one matrix product, ``rows @ observables.T``.

Bits. BLAS may add in another order at the edge of a product, so a probability could depend on its neighbours
in a batch. The rule against it: samples are padded to multiples of 8 and thetas to multiples of 4, where the
orders were seen to agree; :func:`blas_is_position_free` checks that once a process and width, and a slower
product of fixed order takes over where it does not hold.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from qfl_core.engines.base import Engine, Generators, check_weights, sample
from qfl_core.engines.qnn import QNN

PAD_SAMPLES = 8
PAD_THETAS = 4


@dataclass(frozen=True, eq=False)
class Encoded:
    """n samples as an engine stores them; ``rows`` is padded with zeros to ``(padded n, width)``.

    Engines of the same kind for the same QNN share encodings: one with shots, say, and an exact one.
    """

    rows: np.ndarray = field(repr=False)
    num_samples: int
    owner: tuple = field(repr=False)
    pad: int = PAD_SAMPLES

    def __len__(self) -> int:
        return self.num_samples

    def take(self, indices: np.ndarray) -> Encoded:
        """Return the samples ``indices``, without encoding them again."""
        indices = np.asarray(indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a vector of integers, got {indices.dtype} {indices.shape}")
        if len(indices) and (indices.min() < 0 or indices.max() >= self.num_samples):
            low, high = indices.min(), indices.max()
            raise ValueError(f"indices must lie in [0, {self.num_samples}), got {low} to {high}")
        rows = np.zeros((padded(len(indices), self.pad), *self.rows.shape[1:]), dtype=self.rows.dtype)
        np.take(self.rows, indices, axis=0, out=rows[: len(indices)])
        return Encoded(rows, len(indices), self.owner, self.pad)


class CachedEngine(Engine):
    """Checks, threads, sampling and the shared call for many clients; subclasses give the exact values."""

    def __init__(self, qnn: QNN, shots: int | None, memory: int, threads: int | None) -> None:
        super().__init__(qnn, shots)
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 2**20:
            raise ValueError(f"memory must be at least 2**20 bytes, got {memory!r}")
        self.memory = memory
        self.threads = threads
        self._limit = thread_limit(threads)

    @abstractmethod
    def _exact(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        """Return the exact probabilities ``(B, n)`` for ``weights : (B, P)``."""

    @abstractmethod
    def _owner(self) -> tuple:
        """Return what makes an encoding this engine's own."""

    def _observables(self, weights: np.ndarray) -> np.ndarray | None:
        """Return ``(B, width)`` to multiply stored rows with, or None where the engine works otherwise."""
        return None

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
        with self._limit():
            p = self._exact(encoded, np.atleast_2d(weights))
        p = p[0] if weights.ndim == 1 else p
        return p if self.shots is None else sample(p, self.shots, rng)

    def probabilities_ragged(
        self,
        encoded: Sequence[Encoded],
        weights: np.ndarray,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> list[np.ndarray]:
        """Return a list of ``(S, n_i)``, see :meth:`Engine.probabilities_ragged`.

        The observables of all clients' thetas are built together; a client's samples then meet its own only,
        in a product whose shape, and so whose bits, the other clients cannot change.
        """
        weights, rngs = self.check_ragged(encoded, weights, rngs)
        for e in encoded:
            self._check_encoded(e)
        clients, signs, count = weights.shape
        with self._limit():
            G = self._observables(weights.reshape(clients * signs, count))
            if G is None:
                exact = [self._exact(e, w) for e, w in zip(encoded, weights, strict=True)]
            else:
                split = np.zeros((clients, padded(signs, PAD_THETAS), G.shape[1]))
                split[:, :signs] = G.reshape(clients, signs, G.shape[1])
                exact = [_padded_product(e, g, signs) for e, g in zip(encoded, split, strict=True)]
        if self.shots is None:
            return exact
        return [sample(p, self.shots, rng) for p, rng in zip(exact, rngs, strict=True)]

    def _check_encoded(self, encoded: Encoded) -> None:
        if not isinstance(encoded, Encoded):
            raise ValueError(f"encoded must come from engine.encode(X), got {type(encoded).__name__}")
        if encoded.owner != self._owner():
            raise ValueError("encoded comes from another model or engine; expected this engine's encode(X)")

    def _check_size(self, samples: int, size: int) -> None:
        if size > self.memory:
            raise ValueError(
                f"encoding {samples} samples needs {size:,} bytes, more than memory={self.memory:,}; "
                "encode fewer at a time or raise memory"
            )


def product(encoded: Encoded, G: np.ndarray) -> np.ndarray:
    """Return ``(B, n)``: every stored row times every row of ``G : (B, width)``."""
    full = np.zeros((padded(len(G), PAD_THETAS), G.shape[1]))
    full[: len(G)] = G
    return _padded_product(encoded, full, len(G))


def _padded_product(encoded: Encoded, full: np.ndarray, count: int) -> np.ndarray:
    if blas_is_position_free(full.shape[1]):
        return (encoded.rows @ full.T)[: encoded.num_samples, :count].T
    return np.einsum("nk,bk->bn", encoded.rows, full)[:count, : encoded.num_samples]


def padded(count: int, multiple: int) -> int:
    """Return ``count`` rounded up to a multiple."""
    return -(-count // multiple) * multiple


@lru_cache(maxsize=64)
def blas_is_position_free(width: int) -> bool:
    """Whether ``(n, width) @ (width, B)`` has the same bits at any position, for padded shapes."""
    parts = ((8, 4), (56, 4), (504, 4), (1032, 8), (1024, 20), (48, 24))
    return _bits_agree(width, 1032, 24, parts)


@lru_cache(maxsize=64)
def tiles_are_position_free(width: int, columns: int, tile: int) -> bool:
    """Whether ``(n, width) @ (width, columns)`` has the same bits for any whole number of tiles of rows."""
    return _bits_agree(width, 4 * tile, columns, ((tile, columns), (2 * tile, columns), (3 * tile, columns)))


def _bits_agree(width: int, rows: int, columns: int, parts: Sequence[tuple[int, int]]) -> bool:
    rng = np.random.Generator(np.random.PCG64(width))
    F = rng.normal(size=(rows, width))
    G = rng.normal(size=(columns, width))
    whole = F @ G.T
    for m, k in parts:
        for i in {0, rows - m}:
            for j in {0, columns - k}:
                if not np.array_equal(F[i : i + m] @ G[j : j + k].T, whole[i : i + m, j : j + k]):
                    return False
    return True


def thread_limit(threads: int | None) -> Callable[[], AbstractContextManager]:
    """Return a maker of contexts in which BLAS uses at most ``threads`` threads; None changes nothing."""
    if threads is None:
        return nullcontext
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be an integer >= 1 or None, got {threads!r}")
    return partial(_limited, threads)


def _limited(threads: int) -> AbstractContextManager:
    return _blas().limit(limits=threads, user_api="blas")


@lru_cache(maxsize=1)
def _blas():
    """Return this process's BLAS controller: looking for libraries is slow, and engines travel between processes."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
