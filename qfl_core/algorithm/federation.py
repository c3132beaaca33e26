"""What stays fixed during a run: data, encodings, engine, method; and what a round draws from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qfl_core.algorithm.losses import LOSSES, cross_entropy, margin_of
from qfl_core.algorithm.methods import Method, method_named
from qfl_core.base.errors import ConfigError
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import Splits, load_splits
from qfl_core.data.partition import Partition, make_partition
from qfl_core.engines import Engine, make_engine
from qfl_core.engines.qnn import QNN


@dataclass(frozen=True, eq=False)
class Samples:
    """Encoded samples of several clients side by side: ``encoded[i]`` and labels ``y`` (total,), cut at ``offsets``."""

    encoded: list
    y: np.ndarray
    offsets: np.ndarray

    @cached_property
    def sizes(self) -> np.ndarray:
        """Samples of each client, (clients,)."""
        return np.diff(self.offsets, append=len(self.y))

    def means(self, values: np.ndarray) -> np.ndarray:
        """Average ``values`` (S, total) over each client's samples: (clients, S)."""
        return (np.add.reduceat(values, self.offsets, axis=1) / self.sizes).T


@dataclass(frozen=True, eq=False)
class Batch:
    """All clients that take part in round t, as one batch; arrays are (clients,)."""

    t: int
    clients: np.ndarray
    train: Samples
    val: Samples
    test: Samples
    data_fraction: np.ndarray
    heterogeneity: np.ndarray


def make_qnn(config: ExperimentConfig) -> QNN:
    """Build the config's circuit."""
    return QNN(
        config.features,
        feature_map_reps=config.feature_map_reps,
        ansatz_reps=config.ansatz_reps,
        feature_map=config.feature_map,
        ansatz=config.ansatz,
    )


@dataclass(frozen=True, eq=False)
class Federation:
    """Data, model and engine of one run. Built once by :meth:`create`, then only read.

    ``clients`` trains and scores the clients, see :class:`qfl_core.algorithm.server.Clients`; None trains them in this process.
    """

    config: ExperimentConfig
    method: Method
    splits: Splits
    partition: Partition
    engine: Engine
    encoded: dict
    clients: Any = None

    @classmethod
    def create(cls, config: ExperimentConfig, splits: Splits | None = None, method: Method | None = None) -> Federation:
        """Load and share the data, build the model, and encode every sample once."""
        splits = load_splits(config) if splits is None else splits
        partition = make_partition(splits, config)
        engine = make_engine(config.engine, make_qnn(config), shots=config.shots)
        encoded = {name: engine.encode(part.X) for name, part in splits.parts.items()}
        return cls(config, method or method_named(config.method), splits, partition, engine, encoded)

    @cached_property
    def exact_engine(self) -> Engine:
        """The same model without shots, for exact gradients; it shares the engine's encodings."""
        engine = make_engine(self.config.engine, self.engine.qnn)
        if not hasattr(engine, "gradient"):
            raise ConfigError(f"engine={self.config.engine!r} has no exact gradients: adam-qfl needs 'statevector'")
        return engine

    @property
    def num_weights(self) -> int:
        """Number of trainable weights P."""
        return self.engine.qnn.num_weights

    @property
    def margin(self) -> float:
        """Margin that keeps logarithms finite, see :mod:`qfl_core.algorithm.losses`."""
        return margin_of(self.config.shots)

    @property
    def mu(self) -> float:
        """The proximal coefficient in force: 0 for methods without the term."""
        return self.config.mu if self.method.proximal else 0.0

    @property
    def evaluations(self) -> int:
        """Loss evaluations of local training a client and round: two for each SPSA iteration, in all methods."""
        return 2 * self.config.unfolds * self.config.spsa_iterations

    @property
    def adam_steps(self) -> int:
        """Adam's steps in the same budget, at least one: a step takes P(class 1) itself and 2 P shifted circuits."""
        return max(1, self.evaluations // (2 * self.num_weights + 1))

    def initial_theta(self) -> np.ndarray:
        """Return theta (P,) of round 0, uniform in +- ``initial_range``."""
        rng = stream(self.config.seed, "initial-weights")
        return rng.uniform(-self.config.initial_range, self.config.initial_range, self.num_weights)

    def participants(self, t: int) -> np.ndarray:
        """Return S(t), the clients of round t in increasing order."""
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
        rows = [self.partition.train[t][i] for i in self.participants(t)]
        return sum(len(r) for r in rows), sum(int(self.splits.train.y[r].sum()) for r in rows)

    def size(self, t: int, client: int) -> int:
        """Return n_i, the training samples of a client in round t."""
        return len(self.partition.train[t][client])

    def batch(self, t: int, clients: np.ndarray | None = None) -> Batch:
        """Return the round's batch, or the part of it that the given clients hold.

        Fractions and label mixes refer to all participants of the round, so one client alone gets the same numbers.
        """
        chosen = self.participants(t) if clients is None else np.asarray(clients)
        held = self.partition.round(t)
        y = self.splits.train.y
        total, positives = self.census(t)
        mix = np.array([y[held[i].train].mean() for i in chosen])
        return Batch(
            t=t,
            clients=chosen,
            train=self._samples("train", [held[i].train for i in chosen]),
            val=self._samples("train", [held[i].val for i in chosen]),
            test=self._samples("test", [held[i].test for i in chosen]),
            data_fraction=np.array([len(held[i].train) / total for i in chosen]),
            # Total variation distance between two label distributions of two classes.
            heterogeneity=np.abs(mix - positives / total),
        )

    def _samples(self, part: str, rows: list[np.ndarray]) -> Samples:
        source, labels = self.encoded[part], self.splits.parts[part].y
        whole = len(labels)
        # The shared test set is stored once, not once a client.
        encoded = [source if len(r) == whole and np.array_equal(r, np.arange(whole)) else source.take(r) for r in rows]
        sizes = np.array([len(r) for r in rows])
        return Samples(encoded, labels[np.concatenate(rows)], np.concatenate([[0], np.cumsum(sizes)[:-1]]))

    def generators(self, purpose: str, t: int, clients: np.ndarray) -> list[np.random.Generator]:
        """Return one named stream a client."""
        return [stream(self.config.seed, purpose, t, int(i)) for i in clients]

    def probabilities(self, samples: Samples, theta: np.ndarray, rngs: list | None) -> np.ndarray:
        """Return P(class 1), (S, total), of every client's samples under its own weights theta (clients, S, P)."""
        drawn = rngs if self.config.shots is not None else None
        return np.concatenate(self.engine.probabilities_ragged(samples.encoded, theta, drawn), axis=1)

    def task_losses(self, samples: Samples, p: np.ndarray) -> np.ndarray:
        """Return the mean task loss L_i (clients, S) of probabilities (S, total): Eq. (local loss)."""
        return samples.means(LOSSES[self.config.loss][0](p, samples.y, self.margin))

    def val_losses(self, samples: Samples, p: np.ndarray) -> np.ndarray:
        """Return the mean log loss (clients, S); validation uses it whatever the training loss is."""
        return samples.means(cross_entropy(p, samples.y, self.margin))

    def accuracies(self, samples: Samples, p: np.ndarray) -> np.ndarray:
        """Return the accuracies (clients, S) of probabilities (S, total)."""
        return samples.means(((p >= 0.5) == (samples.y == 1)).astype(float))
