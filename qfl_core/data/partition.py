"""How clients share the training rows: label-skewed cyclic chunks, Dirichlet ownership, or IID.

Every partition first reserves a share of each label's rows for client validation. A row therefore never serves both
training and validation, however often the cyclic draws repeat a rare row. All draws come from named random streams, so
the rows of a client in a round do not depend on who asks for them, or in which order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.base.errors import DataError
from qfl_core.base.registry import PARTITIONS, resolve
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data.splits import Splits

if TYPE_CHECKING:
    import pandas as pd

DIRICHLET_TRIES = 5000
LABELS = (0, 1)


@dataclass(frozen=True, eq=False)
class ClientData:
    """The rows that one client holds in one round.

    ``train`` (n_i,) and ``val`` (v_i,) are row numbers of ``splits.train``, ``test`` of ``splits.test``. Where a label
    has fewer rows than a chunk needs, a row occurs more than once in the chunk.
    """

    client: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Partition:
    """Which rows each client holds: ``train[t][i]`` and ``val[t][i]`` in round t, ``test[i]`` in all rounds."""

    train: list[list[np.ndarray]]
    val: list[list[np.ndarray]]
    test: list[np.ndarray]

    @property
    def rounds(self) -> int:
        """Number of rounds T."""
        return len(self.train)

    @property
    def clients(self) -> int:
        """Number of clients N."""
        return len(self.test)

    def round(self, t: int) -> list[ClientData]:
        """Return the rows of every client in round t."""
        if not 0 <= t < self.rounds:
            raise IndexError(f"round {t} does not exist: the partition has rounds 0 to {self.rounds - 1}")
        return [ClientData(i, self.train[t][i], self.val[t][i], self.test[i]) for i in range(self.clients)]

    def table(self, splits: Splits) -> pd.DataFrame:
        """Return one row per round and client: samples, distinct rows, label share, validation and test samples."""
        import pandas as pd  # here, because training needs no table

        rows = []
        for t in range(self.rounds):
            for data in self.round(t):
                rows.append(
                    {
                        "round": t,
                        "client": data.client,
                        "samples": len(data.train),
                        "distinct_rows": len(np.unique(data.train)),
                        "share_of_label_1": splits.train.y[data.train].mean(),
                        "val_samples": len(data.val),
                        "test_samples": len(data.test),
                    }
                )
        return pd.DataFrame(rows)


def make_partition(splits: Splits, config: ExperimentConfig) -> Partition:
    """Share ``splits.train`` (and, for ``client_test="split"``, ``splits.test``) among the config's clients."""
    y = splits.train.y
    if config.clients > len(y):
        raise DataError(f"clients={config.clients}, but there are only {len(y)} training rows")
    for label in LABELS:
        if (y == label).sum() < 2:
            raise DataError(f"training rows of class {label}: {(y == label).sum()}, at least 2 are needed")
    pools, reserves = _reserve(y, config)
    train, val = resolve(PARTITIONS[config.split])(pools, reserves, config)
    return Partition(train, val, _test_rows(splits.test.y, config))


Pools = dict[int, np.ndarray]
Schedule = list[list[np.ndarray]]


def _reserve(y: np.ndarray, config: ExperimentConfig) -> tuple[Pools, Pools]:
    """Shuffle each label's rows and set the validation share aside; return (training pools, validation reserves)."""
    pools, reserves = {}, {}
    for label in LABELS:
        rows = stream(config.seed, "pool", label).permutation(np.flatnonzero(y == label))
        cut = min(max(1, round(config.client_val_share * len(rows))), len(rows) - 1)
        reserves[label], pools[label] = rows[:cut], rows[cut:]
    return pools, reserves


def label_skew(pools: Pools, reserves: Pools, config: ExperimentConfig) -> tuple[Schedule, Schedule]:
    """Give even clients mostly label 0 and odd clients mostly label 1, in chunks drawn cyclically from common pools.

    A chunk has ``chunk * (1 + u)`` rows; u is uniform in +-``size_variation`` and drawn anew every round. With each
    chunk comes a validation set of ``client_val_share / (1 - client_val_share)`` times as many rows. Its labels have
    the mix of the data (``client_val="natural"``: the next rows of all reserves, shuffled together once) or the mix of
    the client (``"skewed"``).
    """
    train_cursor, val_cursor = _Cyclic(pools), _Cyclic(reserves)
    natural = _Cyclic({0: stream(config.seed, "reserve-order").permutation(np.concatenate(list(reserves.values())))})
    ratio = config.client_val_share / (1 - config.client_val_share)
    train: Schedule = [[] for _ in range(config.rounds)]
    val: Schedule = [[] for _ in range(config.rounds)]
    for t in range(config.rounds):
        for i in range(config.clients):
            rng = stream(config.seed, "chunk", t, i)
            factor = 1 + config.size_variation * rng.uniform(-1, 1)
            size = max(2, round(config.chunk * factor))
            train[t].append(rng.permutation(train_cursor.take(_mix(size, i % 2, config.skew_ratio))))
            count = max(2, round(ratio * size))
            if config.client_val == "natural":
                val[t].append(natural.take({0: count}))
            else:
                val[t].append(val_cursor.take(_mix(count, i % 2, config.skew_ratio)))
    return train, val


def _mix(size: int, preferred: int, ratio: float) -> dict[int, int]:
    """Return the count of each label in a chunk; both labels occur unless the ratio is 1."""
    main = round(ratio * size)
    main = min(main, size - 1) if ratio < 1 else main
    return {preferred: main, 1 - preferred: size - main}


class _Cyclic:
    """Takes the next rows of each label's pool and starts over at its end."""

    def __init__(self, pools: Pools):
        self.pools = pools
        self.position = dict.fromkeys(pools, 0)

    def take(self, counts: dict[int, int]) -> np.ndarray:
        taken = []
        for label, count in counts.items():
            pool, start = self.pools[label], self.position[label]
            taken.append(pool[np.arange(start, start + count) % len(pool)])
            self.position[label] = (start + count) % len(pool)
        return np.concatenate(taken)


def dirichlet(pools: Pools, reserves: Pools, config: ExperimentConfig) -> tuple[Schedule, Schedule]:
    """Give each client its own rows, class by class, in proportions drawn from Dir(alpha).

    A draw that gives some client fewer than ``min_per_class`` rows of a class is repeated, at most
    :data:`DIRICHLET_TRIES` times.
    """
    rng = stream(config.seed, "dirichlet")
    scarce = min(len(pool) for pool in pools.values())
    if config.min_per_class * config.clients > scarce:
        raise DataError(
            f"min_per_class={config.min_per_class} for clients={config.clients} needs "
            f"{config.min_per_class * config.clients} training rows of each class, one has {scarce}"
        )
    for _ in range(DIRICHLET_TRIES):
        shares = rng.dirichlet(np.full(config.clients, config.dirichlet_alpha), size=len(LABELS))
        counts = [_apportion(share, len(pools[label])) for label, share in zip(LABELS, shares, strict=True)]
        if min(count.min() for count in counts) >= config.min_per_class and np.sum(counts, axis=0).min() > 0:
            break
    else:
        raise DataError(
            f"no Dirichlet draw in {DIRICHLET_TRIES} gave every one of {config.clients} clients at least "
            f"{max(1, config.min_per_class)} row(s): raise dirichlet_alpha={config.dirichlet_alpha:g}, or lower "
            f"clients or min_per_class={config.min_per_class}"
        )
    return _owned(pools, reserves, shares, config)


def iid(pools: Pools, reserves: Pools, config: ExperimentConfig) -> tuple[Schedule, Schedule]:
    """Give each client its own rows: an equal share of every class."""
    shares = np.full((len(LABELS), config.clients), 1 / config.clients)
    return _owned(pools, reserves, shares, config)


def _owned(pools: Pools, reserves: Pools, shares: np.ndarray, config: ExperimentConfig) -> tuple[Schedule, Schedule]:
    """Deal pools and reserves by ``shares`` (labels, clients); every round each client takes its next rows, cyclically.

    The chunk of a client is proportional to the number of rows that it owns, and never larger; the mean is ``chunk``.
    """
    own = _deal(pools, shares, config.clients)
    own_val = _deal(reserves, shares, config.clients)
    total = sum(len(rows) for rows in own)
    train: Schedule = [[] for _ in range(config.rounds)]
    val: Schedule = [[] for _ in range(config.rounds)]
    for i in range(config.clients):
        rows = stream(config.seed, "own-order", i).permutation(own[i])
        if not len(rows):
            raise DataError(f"client {i} of {config.clients} owns no training row: lower clients={config.clients}")
        size = min(len(rows), max(1, round(config.chunk * config.clients * len(rows) / total)))
        # A client that owns too few rows to have a validation row borrows one that no client trains on.
        held = own_val[i] if len(own_val[i]) else reserves[i % 2][[i % len(reserves[i % 2])]]
        for t in range(config.rounds):
            train[t].append(rows[np.arange(t * size, (t + 1) * size) % len(rows)])
            val[t].append(held)
    return train, val


def _deal(pools: Pools, shares: np.ndarray, clients: int) -> list[np.ndarray]:
    """Deal the rows of every label by ``shares`` (labels, clients); return the rows of each client."""
    dealt: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label, share in zip(LABELS, shares, strict=True):
        edges = np.cumsum(_apportion(share, len(pools[label])))[:-1]
        for client, rows in enumerate(np.split(pools[label], edges)):
            dealt[client].append(rows)
    return [np.concatenate(rows) for rows in dealt]


def _apportion(share: np.ndarray, total: int) -> np.ndarray:
    """Round ``share * total`` (clients,) to integers that add up to total; the largest remainders are rounded up."""
    exact = share * total
    counts = np.floor(exact).astype(int)
    left = total - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    return counts


def _test_rows(y: np.ndarray, config: ExperimentConfig) -> list[np.ndarray]:
    """Return every client's test rows: the whole test split, or equal stratified shares of it."""
    if config.client_test == "shared":
        return [np.arange(len(y))] * config.clients
    if config.clients > len(y):
        raise DataError(f"clients={config.clients} cannot split {len(y)} test rows")
    order = np.concatenate(
        [stream(config.seed, "test-part", label).permutation(np.flatnonzero(y == label)) for label in LABELS]
    )
    return [np.sort(order[i :: config.clients]) for i in range(config.clients)]
