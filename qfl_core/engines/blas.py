"""Matrix products by BLAS whose bits do not depend on the batch, and the number of its threads.

At the edge of a matrix product, BLAS may add the terms in another order. A probability could then depend on the other
samples of the batch. To prevent this, the number of samples is padded to a multiple of 8 and the number of thetas to a
multiple of 4, because BLAS was observed to use one order for such shapes. :func:`blas_is_position_free` tests this once
per process and row width; where the test fails, a slower product with a fixed order is used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Protocol

import numpy as np

from qfl_core.engines.encoded import Encoded, padded

PAD_THETAS = 4


def product(encoded: Encoded, G: np.ndarray) -> np.ndarray:
    """Return ``(B, n)``, the product of every row of ``G : (B, width)`` with every stored sample."""
    full = np.zeros((padded(len(G), PAD_THETAS), G.shape[1]))
    full[: len(G)] = G
    return padded_product(encoded, full, len(G))


def padded_product(encoded: Encoded, full: np.ndarray, count: int) -> np.ndarray:
    """Return :func:`product` for the first ``count`` rows of ``full``, whose number of rows is padded already."""
    if blas_is_position_free(full.shape[1]):
        return (encoded.rows @ full.T)[: encoded.num_samples, :count].T
    return np.einsum("nk,bk->bn", encoded.rows, full)[:count, : encoded.num_samples]


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
