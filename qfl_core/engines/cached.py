"""Engines that encode samples once, store them, and evaluate many weight vectors on them.

A stored sample is a row of real numbers (or a state). Where P(1 | x, theta) is a linear function of this row, one
matrix product ``rows @ observables.T`` gives the probabilities of all samples for all thetas.

Why the bits do not depend on the batch: at the edge of a matrix product, BLAS may add the terms in another order. A
probability could then depend on the other samples of the batch. To prevent this, the number of samples is padded to a
multiple of 8 and the number of thetas to a multiple of 4, because BLAS was observed to use one order for such shapes.
:func:`blas_is_position_free` tests this once per process and row width; where the test fails, a slower product with a
fixed order is used instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Protocol

import numpy as np

from qfl_core.engines.base import Engine, Generators, check_weights, sample
from qfl_core.engines.qnn import QNN

PAD_SAMPLES = 8
PAD_THETAS = 4


@dataclass(frozen=True, eq=False)
class Encoded:
    """n samples in the form in which an engine stores them.

    Engines that have the same ``owner`` can use each other's encodings; an engine with shots and an exact engine of
    the same class for the same QNN do.

    Attributes
    ----------
    rows : (padded n, width), one row per sample; zeros fill the last rows.
    num_samples : n.
    owner : what identifies the engine that made the encoding.
    pad : the number of rows is a multiple of it.
    """

    rows: np.ndarray = field(repr=False)
    num_samples: int
    owner: tuple = field(repr=False)
    pad: int = PAD_SAMPLES

    def __len__(self) -> int:
        return self.num_samples

    def take(self, indices: np.ndarray) -> Encoded:
        """Return the samples at the positions ``indices``, without encoding them again."""
        indices = np.asarray(indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a vector of integers, got {indices.dtype} {indices.shape}")
        if len(indices) and (indices.min() < 0 or indices.max() >= self.num_samples):
            low, high = indices.min(), indices.max()
            raise ValueError(f"indices must lie in [0, {self.num_samples}), got {low} to {high}")
        rows = np.zeros((padded(len(indices), self.pad), *self.rows.shape[1:]), dtype=self.rows.dtype)
        np.take(self.rows, indices, axis=0, out=rows[: len(indices)])
        return Encoded(rows, len(indices), self.owner, self.pad)


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
        """Return one array ``(S, n_i)`` per client, see :meth:`Engine.probabilities_ragged`.

        The observables of all clients are computed together. Each client then has its own matrix product, of its own
        samples and its own observables; the other clients cannot change its bits, because they do not change its shape.
        """
        weights, sources = self.check_ragged(encoded, weights, rngs)
        owner = self._owner()
        for e in encoded:
            check_encoded(e, owner)
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
        return [sample(p, self.shots, rng) for p, rng in zip(exact, sources, strict=True)]

    def _check_size(self, samples: int, size: int) -> None:
        """Refuse an encoding of ``size`` bytes that is larger than ``memory``."""
        if size > self.memory:
            raise ValueError(
                f"encoding {samples} samples needs {size:,} bytes, more than memory={self.memory:,}; "
                "encode fewer samples per call, or give the engine more memory"
            )


def check_encoded(encoded: object, owner: tuple) -> None:
    """Refuse samples that were not encoded by the engine whose key is ``owner``, or by one that has the same key."""
    if not isinstance(encoded, Encoded):
        raise ValueError(f"encoded must come from this engine's encode(X), got {type(encoded).__name__}")
    if encoded.owner != owner:
        raise ValueError("encoded comes from another model or engine; expected the result of this engine's encode(X)")


def product(encoded: Encoded, G: np.ndarray) -> np.ndarray:
    """Return ``(B, n)``, the product of every row of ``G : (B, width)`` with every stored sample."""
    full = np.zeros((padded(len(G), PAD_THETAS), G.shape[1]))
    full[: len(G)] = G
    return _padded_product(encoded, full, len(G))


def _padded_product(encoded: Encoded, full: np.ndarray, count: int) -> np.ndarray:
    """Return :func:`product` for the first ``count`` rows of ``full``, whose number of rows is padded already."""
    if blas_is_position_free(full.shape[1]):
        return (encoded.rows @ full.T)[: encoded.num_samples, :count].T
    return np.einsum("nk,bk->bn", encoded.rows, full)[:count, : encoded.num_samples]


def padded(count: int, multiple: int) -> int:
    """Return ``count``, rounded up to the next multiple of ``multiple``."""
    return -(-count // multiple) * multiple


@lru_cache(maxsize=64)
def blas_is_position_free(width: int) -> bool:
    """Return whether an entry of ``(n, width) @ (width, B)`` has the same bits at every position (n, B padded)."""
    parts = ((8, 4), (56, 4), (504, 4), (1032, 8), (1024, 20), (48, 24))
    return _bits_agree(width, 1032, 24, parts)


@lru_cache(maxsize=64)
def tiles_are_position_free(width: int, columns: int, tile: int) -> bool:
    """Return whether an entry of ``(n, width) @ (width, columns)`` has the same bits for every n.

    n is a multiple of ``tile``.
    """
    return _bits_agree(width, 4 * tile, columns, ((tile, columns), (2 * tile, columns), (3 * tile, columns)))


def _bits_agree(width: int, rows: int, columns: int, parts: Sequence[tuple[int, int]]) -> bool:
    """Return whether products of the sizes ``parts`` have the bits of the product ``(rows, width) @ (width, columns)``.

    Each part is computed at the first and at the last position in the whole product.
    """
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


def thread_limit(threads: int | None) -> Callable[[], AbstractContextManager[object]]:
    """Return a function that opens a context in which BLAS uses at most ``threads`` threads; None changes nothing."""
    if threads is None:
        return nullcontext
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads must be an integer >= 1 or None, got {threads!r}")
    return partial(_limited, threads)


class _ThreadController(Protocol):
    """The part of threadpoolctl's ``ThreadpoolController`` that is used here."""

    def limit(self, *, limits: int, user_api: str) -> AbstractContextManager[object]:
        """Open a context in which the libraries of ``user_api`` use at most ``limits`` threads."""


def _limited(threads: int) -> AbstractContextManager[object]:
    return _blas().limit(limits=threads, user_api="blas")


@lru_cache(maxsize=1)
def _blas() -> _ThreadController:
    """Return the BLAS controller of this process.

    It is kept, because the search for the libraries is slow. It is not part of the engine, because an engine may be
    sent to another process.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
