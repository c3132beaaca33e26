"""The clean track: an encoding chosen on validation, references, and what reaching them costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.differences import ABSENT, HIGHER, LOWER, UNDECIDED
from qfl_core.analysis.inference import intervals, student_half
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.summary import interval_texts
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.base.numbers import count, number
from qfl_core.base.paths import results_dir
from qfl_core.config import Profile
from qfl_core.data import data_source
from qfl_core.runs.study import Study
from qfl_core.runs.sweep import grid
from qfl_core.studies.pooled import pooled_scores

POOLED = "pooled QNN"
#: The share of the reference's score that counts as reaching it.
SHARE = 0.95


@dataclass(frozen=True, eq=False)
class EncodingSearch:
    """Validation ROC-AUC of the pooled QNN for every combination of ``choices``, best first.

    Columns of ``table``: the choices; ``mean``, ``low`` and ``high`` (95 % over seeds); ``seeds``; ``behind``, the
    difference from the best; ``tied``, whether chance over seeds explains that difference; ``preferred``, which marks
    the first tied one in the order of the choices; and ``verdict``, which compares with the best of the others:
    ``lower`` or ``higher`` where that is shown, ``absent`` where being behind by the margin of 0.02 or more is
    excluded, else ``undecided``.
    """

    choices: tuple[str, ...]
    table: pd.DataFrame
    facts: tuple[str, ...]


def encoding_search(
    settings: Profile, track: str, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> EncodingSearch:
    """Train the pooled QNN with every encoding and compare them on the validation part; the test part is not used.

    ``section`` holds ``seeds`` and ``choices``: for each setting the values to try, the simpler ones first. ``train``
    False reads saved models alone.
    """
    folder = folder or results_dir(settings.name)
    choices, seeds = dict(section["choices"]), list(section["seeds"])
    configs = grid(settings.config(track), **choices, seed=seeds)
    scores = pooled_scores(configs, folder, train=train)
    scores = scores[scores["part"] == "val"].assign(place=lambda rows: rows["config"] // len(seeds))
    found = intervals(scores, "roc_auc", ["place"])
    wide = scores.pivot(index="seed", columns="place", values="roc_auc")
    found["behind"] = found["mean"] - found["mean"].max()
    half = _margin(wide.to_numpy())
    found["tied"] = found["behind"] >= -half
    found["preferred"] = found.index == found["tied"].idxmax()
    found["verdict"] = _verdicts(found["mean"].to_numpy(), half)
    for name in reversed(choices):
        found.insert(0, name, [getattr(configs[place * len(seeds)], name) for place in found["place"]])
    table = found.drop(columns="place").sort_values("mean", ascending=False, kind="stable", ignore_index=True)
    source = f"data: {data_source(configs[0]).kind}"
    facts = (source, "engine: statevector (exact), pooled data", f"{len(seeds)} seeds", f"profile {settings.name}")
    return EncodingSearch(tuple(choices), table, facts)


def _margin(scores: np.ndarray) -> float:
    """Return how far a column of ``scores`` (seeds, columns) may be from the best column by chance.

    The residuals of an additive model (seed + column) estimate one variance for all columns. Because the margin is the
    same for all, no column is tied while a better one is not. All comparisons with the best hold together at 95 %
    (Bonferroni).
    """
    seeds, columns = scores.shape
    free = (seeds - 1) * (columns - 1)
    if free == 0:
        return np.inf
    residuals = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    error = np.sqrt(2 / seeds * (residuals**2).sum() / free)
    return float(student_half(error, free, confidence=1 - 0.05 / (columns - 1)))


def _verdicts(means: np.ndarray, half: float) -> list[str]:
    """Return how each mean compares with the best of the others; ``half`` comes from :func:`_margin`.

    Intervals of mean - best of the others hold together although the best is known only from the data: they are
    Hsu's multiple comparisons with the best.
    """
    found = []
    for place, mean in enumerate(means):
        others = np.delete(means, place)
        ahead = mean - others.max() if len(others) else 0.0
        shown = {LOWER: ahead + half < 0, HIGHER: ahead - half > 0, ABSENT: ahead - half > -of_metric("roc_auc")}
        found.append(next((verdict for verdict, is_shown in shown.items() if is_shown), UNDECIDED))
    return found


@dataclass(frozen=True, eq=False)
class CleanStudy:
    """A study on a clean track with its references; ``metric`` names the score that has to reach the reference."""

    study: Study
    metric: str
    references: pd.DataFrame

    def reference(self, model: str = "logistic regression", metric: str | None = None) -> pd.Series:
        """Return a reference's score for each seed."""
        rows = self.references[self.references["model"] == model]
        return rows.set_index("seed")[metric or self.metric]

    def means(self, metric: str) -> dict[str, float]:
        """Return each reference's mean over seeds."""
        means = self.references.groupby("model", sort=False)[metric].mean()
        return {str(model): float(mean) for model, mean in means.items()}

    @property
    def reached(self) -> pd.DataFrame:
        """The first round in which a run scores 95 % of the reference, and all circuit executions up to that round.

        One row per method and seed; NaN where a run never does. The reference is the logistic regression that the same
        seed trains on the same angles. Circuits of training, calibration, monitoring, selection and tuning count. The
        untrained model has no rows, because it spends nothing to reach anything.
        """
        rounds = with_executions(self.study.rounds)
        rounds = rounds[rounds["method"] != UNTRAINED]
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
        last["model"] = last["method"].map({name: method_named(name).label for name in self.study.methods})
        columns = {}
        for metric in ("accuracy", "balanced_accuracy", "roc_auc", "fairness_gap"):
            rows = pd.concat([last, self.references]) if metric != "fairness_gap" else last
            found = intervals(rows, metric, ["model"]).set_index("model")
            columns[metric.replace("_", " ")] = interval_texts(found, digits=3)
        for name, values in self._cost().items():
            columns[name] = values
        order = columns["accuracy"].index
        return pd.DataFrame(columns).loc[order].fillna("")

    def _cost(self) -> dict[str, pd.Series]:
        reached = self.reached
        reached["model"] = reached["method"].map({name: method_named(name).label for name in self.study.methods})
        groups = reached.groupby("model", sort=False)
        share = groups["round"].agg(lambda r: f"{r.notna().sum()}/{len(r)}")
        # A run that never reaches the goal counts as infinitely late: the median says what half of the seeds need.
        median = reached.fillna(np.inf).groupby("model", sort=False)[["round", "executions"]].median()
        return {
            "seeds at 95 %": share,
            "rounds to 95 %": median["round"].map(lambda value: number(value, 0)).replace("inf", "never"),
            "executions to 95 %": median["executions"].map(count).replace("inf", "never"),
        }


def with_executions(rounds: pd.DataFrame) -> pd.DataFrame:
    """Add ``executions``: all circuits that a run spent up to each round."""
    spent = rounds.filter(like="circuits_").sum(axis=1)
    return rounds.assign(executions=spent.groupby([rounds["method"], rounds["seed"]]).cumsum())


def clean_study(study: Study, metric: str, *, train: bool = True) -> CleanStudy:
    """Add logistic regression, gradient boosting and the pooled QNN, on the study's own splits, as references.

    ``metric`` (``accuracy`` or ``roc_auc``) decides when a run has reached the reference. ``train`` False reads saved
    pooled models alone.
    """
    configs = list({run.config.seed: run.config for run in study.runs}.values())
    pooled = pooled_scores(configs, study.folder, train=train)
    pooled = pooled[pooled["part"] == "test"].assign(model=POOLED)
    classical = study.reference_scores
    classical = classical[classical["model"] != "majority class"]
    columns = ["model", "seed", "accuracy", "balanced_accuracy", "roc_auc"]
    return CleanStudy(study, metric, pd.concat([classical[columns], pooled[columns]], ignore_index=True))
