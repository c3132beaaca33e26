"""What stays fixed during a run: settings, method, model, and who holds which samples; and what a round takes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qfl_core.algorithm.methods import Method
from qfl_core.algorithm.model import Model
from qfl_core.algorithm.samples import Batch, EncodedSplit, Samples
from qfl_core.base.streams import stream, streams
from qfl_core.config import ExperimentConfig


class Schedule(Protocol):
    """Row numbers: ``train[t][i]`` and ``val[t][i]`` of client i in round t, ``test[i]`` in all rounds."""

    @property
    def train(self) -> Sequence[Sequence[np.ndarray]]:
        """Rows of the train split."""

    @property
    def val(self) -> Sequence[Sequence[np.ndarray]]:
        """Rows of the train split that validate."""

    @property
    def test(self) -> Sequence[np.ndarray]:
        """Rows of the test split."""


@dataclass(frozen=True, eq=False)
class Federation:
    """One run's settings, method, model and samples; only read.

    ``splits`` holds the encoded samples by name (train, val, test); a participant far from the others may hold some
    only. ``totals[t]`` is (samples, samples of label 1) of all participants of round t together; None counts them from
    the schedule, which needs every participant's rows.
    """

    config: ExperimentConfig
    method: Method
    model: Model
    splits: Mapping[str, EncodedSplit]
    schedule: Schedule
    totals: Sequence[tuple[int, int]] | None = None

    @property
    def num_weights(self) -> int:
        """Number of trainable weights P."""
        return self.model.num_weights

    @property
    def mu(self) -> float:
        """The proximal coefficient in force: 0 for methods without the term."""
        return self.config.mu if self.method.proximal else 0.0

    @property
    def blocks(self) -> tuple[int, int]:
        """How many blocks local training has, and the SPSA iterations of each: (K, J), or (1, K J) if not unfolded."""
        unfolds, iterations = self.config.unfolds, self.config.spsa_iterations
        return (unfolds, iterations) if self.method.unfolded else (1, unfolds * iterations)

    def initial_theta(self) -> np.ndarray:
        """Return theta (P,) of round 0, uniform in +- ``initial_range``."""
        rng = stream(self.config.seed, "initial-weights")
        return rng.uniform(-self.config.initial_range, self.config.initial_range, self.num_weights)

    def participants(self, t: int) -> np.ndarray:
        """Return S(t), the ids of the clients of round t in increasing order."""
        named = self.config.participation
        if isinstance(named, tuple):
            return np.array(named)
        everyone = np.arange(self.config.clients)
        count = max(1, round(named * len(everyone)))
        if count == len(everyone):
            return everyone
        return np.sort(stream(self.config.seed, "participation", t).choice(everyone, count, replace=False))

    def census(self, t: int) -> tuple[int, int]:
        """Return the training samples of all participants of round t together, and how many have label 1."""
        if self.totals is not None:
            return self.totals[t]
        rows = np.concatenate([self.schedule.train[t][i] for i in self.participants(t)])
        return len(rows), int(self.splits["train"].y[rows].sum())

    def size(self, t: int, client_id: int) -> int:
        """Return n_i, the training samples of a client in round t."""
        return len(self.schedule.train[t][client_id])

    def batch(self, t: int, client_ids: np.ndarray | None = None) -> Batch:
        """Return the batch of all participants of round t, or of the given clients alone.

        Fractions and label mixes refer to all participants of the round, so one client alone gets the same numbers.
        """
        ids = self.participants(t) if client_ids is None else np.asarray(client_ids)
        train = self.schedule.train[t]
        total, positives = self.census(t)
        mix = np.array([self.splits["train"].y[train[i]].mean() for i in ids])
        return Batch(
            t=t,
            client_ids=ids,
            train=Samples.take(self.splits["train"], [train[i] for i in ids]),
            val=self.validation_samples(t, ids),
            test=Samples.take(self.splits["test"], [self.schedule.test[i] for i in ids]),
            data_fraction=np.array([len(train[i]) / total for i in ids]),
            # Total variation distance between two label distributions of two classes.
            heterogeneity=np.abs(mix - positives / total),
        )

    def validation_samples(self, t: int, client_ids: np.ndarray) -> Samples:
        """Return the samples on which these clients validate in round t."""
        return Samples.take(self.splits["train"], [self.schedule.val[t][i] for i in client_ids])

    def generators(self, purpose: str, t: int, client_ids: Iterable[int]) -> list[np.random.Generator]:
        """Return one named random stream per client."""
        return streams(self.config.seed, purpose, t, last=client_ids)
