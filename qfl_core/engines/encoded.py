"""Encoded samples, as engines store them and as compiled code reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from qfl_core.engines.base import Drawing

#: BLAS adds the terms of a product in one order if the number of samples is a multiple of it.
PAD_SAMPLES = 8
#: So many samples are kept by :class:`Arrangements`: those of training, validation, test and fairness of a round.
KEPT = 4
#: What :func:`flat` returns.
Flat = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Encoded:
    """n samples in the form in which an engine stores them.

    Engines that have the same ``owner`` can use each other's encodings; an engine with shots and an exact engine of
    the same class for the same QNN do. Samples that were taken from others refer to their rows and copy nothing.

    Attributes
    ----------
    base : (padded, width), one row per stored sample; zeros fill the last rows.
    num_samples : n.
    owner : what identifies the engine that made the encoding.
    pad : the number of rows is a multiple of it.
    indices : (n,), the rows of ``base`` that belong to these samples; None takes the first n.
    """

    base: np.ndarray = field(repr=False)
    num_samples: int
    owner: tuple = field(repr=False)
    pad: int = PAD_SAMPLES
    indices: np.ndarray | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.num_samples

    def take(self, indices: np.ndarray) -> Encoded:
        """Return the samples at the positions ``indices``, without encoding or copying them."""
        indices = np.asarray(indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ValueError(f"indices must be a vector of integers, got {indices.dtype} {indices.shape}")
        if len(indices) and (indices.min() < 0 or indices.max() >= self.num_samples):
            low, high = indices.min(), indices.max()
            raise ValueError(f"indices must lie in [0, {self.num_samples}), got {low} to {high}")
        rows = indices.astype(np.int64) if self.indices is None else self.indices[indices]
        return Encoded(self.base, len(rows), self.owner, self.pad, rows)

    @property
    def rows(self) -> np.ndarray:
        """The samples' rows, ``(padded n, width)``; zeros fill the last ones."""
        if self.indices is None:
            return self.base
        rows = np.zeros((padded(len(self), self.pad), *self.base.shape[1:]), dtype=self.base.dtype)
        np.take(self.base, self.indices, axis=0, out=rows[: len(self)])
        return rows

    @cached_property
    def columns(self) -> np.ndarray:
        """The samples as columns, ``(width, n)``: a second copy of a whole split, for the compiled code."""
        return np.ascontiguousarray(self.rows[: len(self)].T)


def padded(count: int, multiple: int) -> int:
    """Return ``count``, rounded up to the next multiple of ``multiple``."""
    return -(-count // multiple) * multiple


def check_encoded(encoded: object, owner: tuple) -> None:
    """Refuse samples that were not encoded by the engine whose key is ``owner``, or by one that has the same key."""
    if not isinstance(encoded, Encoded):
        raise ValueError(f"encoded must come from this engine's encode(X), got {type(encoded).__name__}")
    if encoded.owner != owner:
        raise ValueError("encoded comes from another model or engine; expected the result of this engine's encode(X)")


def flat(encoded: Sequence[Encoded]) -> Flat:
    """Return the samples of several clients as compiled code reads them.

    Returns
    -------
    The stored rows; the samples as columns if all clients hold one whole split, else nothing; the clients' rows, client
    after client; and where each client begins and the last one ends.
    """
    first = encoded[0]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    if first.indices is None and all(e is first for e in encoded):
        return first.base, first.columns, np.empty(0, dtype=np.int64), offsets
    if any(e.base is not first.base for e in encoded):
        return np.concatenate([e.rows[: len(e)] for e in encoded]), _NO_COLUMNS, np.arange(offsets[-1]), offsets
    indices = [np.arange(len(e)) if e.indices is None else e.indices for e in encoded]
    return first.base, _NO_COLUMNS, np.concatenate(indices), offsets


_NO_COLUMNS = np.empty((0, 0))


def check_labels(labels: np.ndarray) -> np.ndarray:
    """Return labels as compiled code reads them; anything but 0 and 1 is refused, because it would be an address."""
    if len(labels) and not (labels.min() >= 0 and labels.max() <= 1):
        raise ValueError(f"labels must be 0 or 1, got {labels.min()} to {labels.max()}")
    return np.array(labels, dtype=np.int64)  # a copy, so that nobody can change it after this check


def writable(array: np.ndarray) -> np.ndarray:
    """Return an array of float64 as compiled code reads it; a view that cannot be written to is copied."""
    return np.require(array, float, ["C", "W"])


class Arrangements:
    """Keeps the last samples in the form that compiled code reads, because training asks for the same ones many times.

    Samples are recognised by the identity of their tuple and of their labels; neither is changed in place. Samples in a
    list are not kept, because a list may be changed.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Sequence[Encoded], np.ndarray, tuple[Flat, np.ndarray]]] = []

    def __reduce__(self) -> tuple[type[Arrangements], tuple[()]]:
        """Send nothing to another process: the samples are other objects there."""
        return Arrangements, ()

    def of(self, asked: Drawing) -> tuple[Flat, np.ndarray]:
        """Return :func:`flat` of the samples, and their labels as compiled code reads them."""
        for encoded, labels, found in self._kept:
            if encoded is asked.encoded and labels is asked.labels:
                return found
        found = flat(asked.encoded), check_labels(asked.labels)
        if isinstance(asked.encoded, tuple):
            self._kept = [(asked.encoded, asked.labels, found), *self._kept[: KEPT - 1]]
        return found
