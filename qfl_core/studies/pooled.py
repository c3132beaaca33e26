"""The pooled QNN: the same circuit trained on all clients' data at once, the best that federated training can reach."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.losses import EXACT_MARGIN, Loss
from qfl_core.algorithm.metrics import classification
from qfl_core.algorithm.optimizers import adam
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.base.files import write_text
from qfl_core.base.processes import in_processes
from qfl_core.base.registry import LOSSES, resolve
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import Splits, data_source, load_splits
from qfl_core.engines.statevector import StatevectorEngine
from qfl_core.runs.identity import run_identity
from qfl_core.runs.prepare import make_qnn

#: What the pooled model depends on; all else in a config is about federation.
_POOLED_FIELDS = (
    *("dataset", "encoding", "source", "features", "kmer", "angle_range", "tail_share", "seed", "loss"),
    *("train_size", "val_size", "test_size", "feature_map", "feature_map_reps", "ansatz_reps", "initial_range"),
)


@dataclass(frozen=True)
class Recipe:
    """How the pooled model is trained: Adam's steps and rate on exact gradients, from several random starts."""

    starts: int = 2
    steps: int = 120
    rate: float = 0.1


DEFAULT_RECIPE = Recipe()


def pooled_qnn(
    config: ExperimentConfig, splits: Splits, recipe: Recipe = DEFAULT_RECIPE
) -> dict[str, dict[str, float]]:
    """Train the config's QNN on the whole training part, without clients, and score validation and test exactly.

    Classes weigh equally in the loss. That is the mix that label-skewed chunks have together: half of the clients see
    mostly one label, half the other, whatever the data's own mix is. The start of lowest training loss is kept.

    Returns the metrics of :func:`qfl_core.algorithm.metrics.classification` for ``val`` and ``test``.
    """
    qnn = make_qnn(config)
    engine = StatevectorEngine(qnn)  # the engine with exact gradients
    encoded = {name: engine.encode(part.X) for name, part in splits.parts.items()}
    y = splits.train.y
    weight = 0.5 / np.bincount(y, minlength=2)[y]  # adds up to 1, one half per class
    task: Loss = resolve(LOSSES[config.loss])
    if task.slope is None:
        raise ConfigError(f"loss={config.loss!r} has no derivative: the pooled QNN needs one")
    slope = task.slope

    def loss(points: np.ndarray) -> np.ndarray:
        return task.value(engine.probabilities(encoded["train"], points), y, EXACT_MARGIN) @ weight

    def gradient(theta: np.ndarray) -> np.ndarray:
        p = engine.probabilities(encoded["train"], theta)
        return engine.pullback(encoded["train"], theta, weight * slope(p, y, EXACT_MARGIN))

    ends = []
    for start in range(recipe.starts):
        rng = stream(config.seed, "pooled-weights", start)
        theta = rng.uniform(-config.initial_range, config.initial_range, qnn.num_weights)
        ends.append(adam(theta, gradient, recipe.steps, recipe.rate)[0])
    best = ends[int(np.argmin(loss(np.array(ends))))]
    return {
        part: classification(splits.parts[part].y, engine.probabilities(encoded[part], best))
        for part in ("val", "test")
    }


def pooled_scores(
    configs: Iterable[ExperimentConfig], folder: Path, recipe: Recipe = DEFAULT_RECIPE, *, train: bool = True
) -> pd.DataFrame:
    """Return one row per config and part (``val``, ``test``): its place among the configs, seed, part, metrics.

    Scores are kept in ``pooled/`` of the folder under the digest of config, data, code and recipe. With ``train`` False
    a missing one is a :class:`RunError`, and nothing is trained.
    """
    wanted = [ExperimentConfig(**{name: getattr(c, name) for name in _POOLED_FIELDS}) for c in configs]
    data = {name: data_source(c).sha256 for name, c in {c.dataset: c for c in wanted}.items()}
    paths = [folder / "pooled" / f"{_digest(c, data[c.dataset], recipe)}.csv" for c in wanted]
    missing = {path: c for path, c in zip(paths, wanted, strict=True) if not path.is_file()}
    if missing and not train:
        raise RunError(f"{len(missing)} pooled reference models are not in {folder.name}/pooled: make reproduce")
    # A process that starts has to load the data: not worth it for a few models.
    jobs = -1 if len(missing) > 12 else 1
    list(in_processes(_store_pooled, ((path, c, recipe) for path, c in missing.items()), jobs))
    tables = [
        pd.read_csv(path).assign(config=place, seed=c.seed)
        for place, (path, c) in enumerate(zip(paths, wanted, strict=True))
    ]
    return pd.concat(tables, ignore_index=True)


def _digest(config: ExperimentConfig, data_sha256: str, recipe: Recipe) -> str:
    parts = f"{run_identity(config, data_sha256)} {astuple(recipe)}"
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _store_pooled(path: Path, config: ExperimentConfig, recipe: Recipe) -> None:
    with threadpool_limits(1):
        scores = pooled_qnn(config, load_splits(config), recipe)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame.from_dict(scores, orient="index").rename_axis("part")
    write_text(path, table.to_csv(lineterminator="\n"))
