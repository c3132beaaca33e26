"""The federations that a controller is trained on: the package's datasets, scikit-learn's, and generated ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data import load_splits
from qfl_core.data.splits import DataSource, Split, Splits

#: Draws so many rows with so many features: features (n, f) and labels (n,).
Rows = Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]


def wine(rng: np.random.Generator, count: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's 178 wines, the first cultivar against the others."""
    from sklearn.datasets import load_wine  # here, because scikit-learn takes seconds to import

    X, y = load_wine(return_X_y=True)
    return X, (y == 0).astype(int)


def digits(rng: np.random.Generator, count: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's 1,797 small pictures of digits, those above 4 against the others."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, (y > 4).astype(int)


def clusters(rng: np.random.Generator, count: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two classes of two normal clusters each; how far apart and how rare class 1 is differ from draw to draw."""
    distance, share = rng.uniform(1.0, 3.0), rng.choice([0.5, 0.3, 0.1])
    y = (rng.permutation(count) < share * count).astype(int)
    centres = distance * rng.normal(size=(2, 2, features))
    return centres[y, rng.integers(0, 2, count)] + rng.normal(size=(count, features)), y


@dataclass(frozen=True)
class Family:
    """Federations whose data are alike; ``data`` is what leave-one-dataset-out leaves out together.

    ``track`` is one of the profile's; a family without one draws its ``rows``, with 2 to ``most_features`` features,
    and has ``settings`` of its own.
    """

    name: str
    data: str
    track: str | None = None
    rows: Rows | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    most_features: int = 6


_SMALL = {"train_size": 300, "val_size": 150, "test_size": 20}
FAMILIES = (
    Family("genome", "genome", track="genome"),
    Family("genome-clean", "genome", track="genome-clean"),
    Family("baf", "baf", track="baf"),
    Family("baf-clean", "baf", track="baf-clean"),
    Family("breast-cancer", "breast-cancer", track="breast-cancer"),
    Family("wine", "wine", rows=wine, settings={"train_size": 100, "val_size": 60, "test_size": 18}),
    Family("digits", "digits", rows=digits, settings=_SMALL),
    Family("clusters-zz", "clusters", rows=clusters, settings=_SMALL),
    Family("clusters-z", "clusters", rows=clusters, settings=_SMALL | {"feature_map": "z", "feature_map_reps": 1}),
    # With 4 features, noise makes a federation ten times as slow; with 5, a single one takes minutes.
    Family("clusters-noisy", "clusters", rows=clusters, settings=_SMALL | {"engine": "density"}, most_features=4),
)


@dataclass(frozen=True)
class Task:
    """One federation to judge a controller on: its family, and a seed that decides everything else."""

    family: Family
    seed: int

    def config(self, profile: Profile, rounds: int) -> ExperimentConfig:
        """Return the experiment: number of clients, skew, shots, iterations and loss are drawn by the seed."""
        rng = stream(self.seed, f"metatrain-settings-{self.family.name}")
        drawn: dict[str, Any] = {
            "clients": int(rng.choice([4, 6, 10])),
            "skew_ratio": float(rng.choice([0.6, 0.8, 0.9])),
            "shots": int(rng.choice([256, 1024, 4096])),
            "spsa_iterations": int(rng.choice([5, 10])),
            "loss": str(rng.choice(["cross_entropy", "squared_error"])),
        }
        features = int(rng.integers(2, self.family.most_features + 1))
        fixed: dict[str, Any] = {
            **{"seed": self.seed, "rounds": rounds, "method": "duqfl-prox", "source": "stand-in"},
            **{"controller_features": "standardised", "outer_period": 0, "delta_bounds": (1e-3, 1.0)},
        }
        if self.family.track:
            return profile.config(self.family.track, **drawn | fixed)
        # The rows are handed in, so the name of the dataset decides no number.
        made: dict[str, Any] = {"dataset": "breast-cancer", "features": features, "chunk": 30, "client_val": "skewed"}
        return ExperimentConfig(**made | drawn | fixed | dict(self.family.settings))

    def splits(self, config: ExperimentConfig) -> Splits:
        """Return the data of the experiment, encoded as the package's own datasets are."""
        if self.family.rows is None:
            return load_splits(config)
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        from qfl_core.data.preprocess import angle_scaler, component_analysis, stratified_parts

        sizes = (config.train_size, config.val_size, config.test_size)
        X, y = self.family.rows(stream(self.seed, f"metatrain-rows-{self.family.name}"), sum(sizes), config.features)
        parts = stratified_parts(y, sizes, self.seed, "metatrain-parts")
        encoder = make_pipeline(StandardScaler(), component_analysis(config), angle_scaler(config)).fit(X[parts[0]])
        train, val, test = (Split(encoder.transform(X[rows]), y[rows], rows) for rows in parts)
        digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
        return Splits(train, val, test, DataSource(self.family.name, "bundled", "drawn", digest, "no file is needed"))


def tasks_of(families: Sequence[Family], seed: int, generation: int, count: int) -> list[Task]:
    """Return the federations of one generation: the families in turn, each time with a seed of its own.

    The seeds are far above those of figures and studies.
    """
    first = generation * count
    return [Task(families[(first + i) % len(families)], 1_000_000 * (seed + 1) + first + i) for i in range(count)]
