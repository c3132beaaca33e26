"""The clean track: a sound encoding, the QNN trained on pooled data as its ceiling, and what reaching it costs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from qfl_core.analysis import intervals
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data import Splits, load_splits
from qfl_core.engines import make_engine
from qfl_core.errors import RunError
from qfl_core.losses import EXACT_MARGIN, LOSSES
from qfl_core.methods import METHODS
from qfl_core.metrics import classification
from qfl_core.optimizers import library_adam
from qfl_core.paths import results_dir
from qfl_core.qnn import QNN
from qfl_core.records import write_text
from qfl_core.runs import run_identity
from qfl_core.streams import stream
from qfl_core.study import Study
from qfl_core.sweep import grid

POOLED = "pooled QNN"
#: The share of the reference's score that counts as reaching it.
SHARE = 0.95
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

    Returns the metrics of :func:`qfl_core.metrics.classification` for ``val`` and ``test``.
    """
    qnn = QNN(
        config.features,
        feature_map_reps=config.feature_map_reps,
        ansatz_reps=config.ansatz_reps,
        feature_map=config.feature_map,
    )
    engine = make_engine("statevector", qnn)
    encoded = {name: engine.encode(part.X) for name, part in splits.parts.items()}
    y = splits.train.y
    weight = 0.5 / np.bincount(y, minlength=2)[y]  # adds up to 1, one half a class
    value, slope = LOSSES[config.loss]

    def loss(points: np.ndarray) -> np.ndarray:
        return value(engine.probabilities(encoded["train"], points), y, EXACT_MARGIN) @ weight

    def gradient(theta: np.ndarray) -> np.ndarray:
        p = engine.probabilities(encoded["train"], theta)
        return (weight * slope(p, y, EXACT_MARGIN)) @ engine.gradient(encoded["train"], theta)

    ends = []
    for start in range(recipe.starts):
        rng = stream(config.seed, "pooled-weights", start)
        theta = rng.uniform(-config.initial_range, config.initial_range, qnn.num_weights)
        ends.append(library_adam(theta, loss, gradient, recipe.steps, recipe.rate).theta)
    best = ends[int(np.argmin(loss(np.array(ends))))]
    return {
        part: classification(splits.parts[part].y, engine.probabilities(encoded[part], best))
        for part in ("val", "test")
    }


def pooled_scores(
    configs: Iterable[ExperimentConfig], folder: Path, recipe: Recipe = DEFAULT_RECIPE, train: bool = True
) -> pd.DataFrame:
    """Return one row a config and part (``val``, ``test``): its place among the configs, seed, part, metrics.

    Scores are kept in ``pooled/`` of the folder under the digest of config, data, code and recipe. Without ``train``,
    a missing one is a :class:`RunError`.
    """
    wanted = [ExperimentConfig(**{name: getattr(c, name) for name in _POOLED_FIELDS}) for c in configs]
    data = {name: load_splits(c).provenance.sha256 for name, c in {c.dataset: c for c in wanted}.items()}
    paths = [folder / "pooled" / f"{_digest(c, data[c.dataset], recipe)}.csv" for c in wanted]
    missing = {path: c for path, c in zip(paths, wanted, strict=True) if not path.is_file()}
    if missing and not train:
        raise RunError(f"{len(missing)} pooled reference models are not in {folder.name}/pooled: make reproduce")
    # A process that starts has to load the data: not worth it for a few models.
    joblib.Parallel(n_jobs=-1 if len(missing) > 12 else 1)(
        joblib.delayed(_store_pooled)(path, c, recipe) for path, c in missing.items()
    )
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


def encoding_search(
    settings: Profile, track: str, part: Mapping[str, Any], folder: Path | None = None, train: bool = True
) -> pd.DataFrame:
    """Return the validation ROC-AUC of the pooled QNN for every combination of settings, best first.

    ``part`` holds ``seeds`` and ``choices``, the values to try by setting, the simpler ones first. Columns: the
    choices, ``mean``, ``low`` and ``high`` (95 % over seeds), ``seeds``, ``behind`` (paired difference from the best),
    ``tied`` (the 95 % interval of that difference contains 0) and ``preferred``: the first tied one in the order of the
    choices. The test part is not used.
    """
    folder = folder or results_dir(settings.name)
    choices, seeds = dict(part["choices"]), list(part["seeds"])
    configs = grid(settings.config(track), **choices, seed=seeds)
    scores = pooled_scores(configs, folder, train=train)
    scores = scores[scores["part"] == "val"].assign(place=lambda rows: rows["config"] // len(seeds))
    found = intervals(scores, "roc_auc", ["place"])
    wide = scores.pivot(index="seed", columns="place", values="roc_auc")
    behind = wide.sub(wide[found["mean"].idxmax()], axis=0).melt(ignore_index=False, value_name="behind")
    behind = intervals(behind, "behind", ["place"])
    found["behind"], found["tied"] = behind["mean"], behind["high"].fillna(0) >= 0
    found["preferred"] = found.index == found["tied"].idxmax()
    for name in reversed(choices):
        found.insert(0, name, [getattr(configs[place * len(seeds)], name) for place in found["place"]])
    return found.drop(columns="place").sort_values("mean", ascending=False, kind="stable", ignore_index=True)


@dataclass(frozen=True, eq=False)
class CleanStudy:
    """A study on a clean track beside its references; ``metric`` is the score that has to reach the reference's."""

    study: Study
    metric: str
    references: pd.DataFrame

    def reference(self, model: str = "logistic regression", metric: str | None = None) -> pd.Series:
        """Return a reference's score for each seed."""
        rows = self.references[self.references["model"] == model]
        return rows.set_index("seed")[metric or self.metric]

    def means(self, metric: str) -> dict[str, float]:
        """Return each reference's mean over seeds."""
        return self.references.groupby("model", sort=False)[metric].mean().to_dict()

    @property
    def reached(self) -> pd.DataFrame:
        """The first round, and all circuit executions up to it, at which a run scores 95 % of the reference.

        One row a method and seed; NaN where a run never does. The reference is the logistic regression that the same
        seed trains on the same angles, and circuits count training, calibration, monitoring, selection and tuning.
        """
        rounds = with_executions(self.study.rounds)
        goal = SHARE * rounds["seed"].map(self.reference())
        column = "global_accuracy" if self.metric == "accuracy" else f"test_{self.metric}"
        hits = rounds[(rounds[column] >= goal) & (rounds["round"] > 0)]
        first = hits.sort_values("round").groupby(["method", "seed"])[["round", "executions"]].first()
        every = rounds[["method", "seed"]].drop_duplicates()
        return every.join(first, on=["method", "seed"]).reset_index(drop=True)

    def table(self) -> pd.DataFrame:
        """Return methods and references by accuracy, balanced accuracy, ROC-AUC, fairness gap and cost to 95 %."""
        rounds = self.study.rounds
        last = rounds[rounds["round"] == rounds["round"].max()]
        names = {"global_accuracy": "accuracy", "test_balanced_accuracy": "balanced_accuracy"}
        last = last.drop(columns="global_fairness_gap").rename(columns=names | {"test_roc_auc": "roc_auc"})
        last["model"] = last["method"].map({name: METHODS[name].label for name in self.study.methods})
        columns = {}
        for metric in ("accuracy", "balanced_accuracy", "roc_auc", "fairness_gap"):
            rows = pd.concat([last, self.references]) if metric != "fairness_gap" else last
            found = intervals(rows, metric, ["model"]).set_index("model")
            half = ((found["high"] - found["low"]) / 2).map(" ± {:.3f}".format)
            columns[metric.replace("_", " ")] = found["mean"].map("{:.3f}".format) + half
        for name, values in self._cost().items():
            columns[name] = values
        order = columns["accuracy"].index
        return pd.DataFrame(columns).loc[order].fillna("")

    def _cost(self) -> dict[str, pd.Series]:
        reached = self.reached
        reached["model"] = reached["method"].map({name: METHODS[name].label for name in self.study.methods})
        groups = reached.groupby("model", sort=False)
        share = groups["round"].agg(lambda r: f"{r.notna().sum()}/{len(r)}")
        # A run that never arrives counts as infinitely late, so the median says what half of the seeds need.
        median = reached.fillna(np.inf).groupby("model", sort=False)[["round", "executions"]].median()
        return {
            "seeds at 95 %": share,
            "rounds to 95 %": median["round"].map("{:.0f}".format).replace("inf", "never"),
            "executions to 95 %": median["executions"].map("{:,.0f}".format).replace("inf", "never"),
        }


def with_executions(rounds: pd.DataFrame) -> pd.DataFrame:
    """Add ``executions``: all circuits that a run spent up to each round."""
    spent = rounds.filter(like="circuits_").sum(axis=1)
    return rounds.assign(executions=spent.groupby([rounds["method"], rounds["seed"]]).cumsum())


def clean_study(study: Study, metric: str, train: bool = True) -> CleanStudy:
    """Add logistic regression, gradient boosting and the pooled QNN, on the study's own splits, as references.

    ``metric`` (``accuracy`` or ``roc_auc``) decides when a run has reached the reference. Without ``train``, pooled
    models are only read.
    """
    configs = list({run.config.seed: run.config for run in study.runs}.values())
    pooled = pooled_scores(configs, study.folder, train=train)
    pooled = pooled[pooled["part"] == "test"].assign(model=POOLED)
    classical = study.reference_scores
    classical = classical[classical["model"] != "majority class"]
    columns = ["model", "seed", "accuracy", "balanced_accuracy", "roc_auc"]
    return CleanStudy(study, metric, pd.concat([classical[columns], pooled[columns]], ignore_index=True))
