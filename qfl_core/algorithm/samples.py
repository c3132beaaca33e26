"""What the clients of a round hold, as arrays: encoded samples side by side, and a roll of who took part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qfl_core.engines.base import EncodedSamples


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """One split of the data (train, val or test): its samples as the engine stores them, and labels ``y`` (n,)."""

    encoded: EncodedSamples
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of several clients side by side: ``encoded[i]`` belongs to the i-th client.

    ``y`` (total,) holds all labels, client after client; client i's labels start at ``offsets[i]``.
    """

    encoded: Sequence[EncodedSamples]
    y: np.ndarray
    offsets: np.ndarray

    @classmethod
    def take(cls, split: EncodedSplit, rows: Sequence[np.ndarray]) -> Samples:
        """Take the rows of every client from a split; the whole split is not copied, because clients may share it."""
        whole = np.arange(len(split))
        encoded = tuple(
            split.encoded if len(r) == len(whole) and np.array_equal(r, whole) else split.encoded.take(r) for r in rows
        )
        sizes = np.array([len(r) for r in rows])
        return cls(encoded, split.y[np.concatenate(rows)], np.concatenate([[0], np.cumsum(sizes)[:-1]]))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of samples per client, (clients,)."""
        return np.diff(self.offsets, append=len(self.y))

    def part(self, clients: slice) -> Samples:
        """Return the samples of some neighbouring clients alone."""
        offsets, sizes = self.offsets[clients], self.sizes[clients]
        return Samples(self.encoded[clients], self.y[offsets[0] : offsets[-1] + sizes[-1]], offsets - offsets[0])

    def means(self, values: np.ndarray) -> np.ndarray:
        """Average ``values`` (S, total) over the samples of each client: (clients, S).

        They are added from the first to the last, so that every way to compute the mean gives the same bits.
        """
        client = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.array([np.bincount(client, row) for row in values]).T / self.sizes[:, None]


@dataclass(frozen=True, eq=False)
class Batch:
    """The clients of round t as one batch; arrays are (clients,).

    ``data_fraction`` is n_i / sum of n over all participants of the round; ``heterogeneity`` is the distance between
    the client's label mix and the federation's.
    """

    t: int
    client_ids: np.ndarray
    train: Samples
    val: Samples
    test: Samples
    data_fraction: np.ndarray
    heterogeneity: np.ndarray


@dataclass(frozen=True, eq=False)
class Attendance:
    """Who took part in round t; arrays are (clients,): ``sizes`` n_i, ``val_sizes``, ``heterogeneity``.

    ``absent`` lists the participants that the round had to do without, each with the reason.
    """

    t: int
    client_ids: np.ndarray
    sizes: np.ndarray
    val_sizes: np.ndarray
    heterogeneity: np.ndarray
    absent: tuple[tuple[int, str], ...] = ()
