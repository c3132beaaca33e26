"""Two methods on one metric, paired by seed: difference, interval, exact test, effect size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import effect_size, mean_interval, sign_flip_p
from qfl_core.base.errors import AnalysisError, did_you_mean
from qfl_core.base.numbers import interval, number
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.runs import RunResult, tidy

#: Columns that say what a row is, not what was measured.
LABELS = ("dataset", "encoding", "split", "method", "seed", "source", "kind", "run", "round", "part")


@dataclass(frozen=True)
class Comparison:
    """Method ``a`` against ``b``: the mean of a - b over paired seeds, with its interval, test and effect size.

    ``low`` and ``high`` bound the mean; ``interval`` names the kind, see :mod:`qfl_core.analysis.inference`. ``p``
    comes from the two-sided sign-flip test, and ``effect`` is Cohen's d_z. Two sorts of seeds are left out:
    ``unpaired`` seeds have a run of one method only, and ``undefined`` seeds have a value that is not a number.
    """

    metric: str
    a: str
    b: str
    difference: float
    low: float
    high: float
    interval: str
    p: float
    effect: float
    seeds: tuple[int, ...]
    unpaired: tuple[int, ...] = ()
    undefined: tuple[int, ...] = ()
    confidence: float = 0.95

    @property
    def n(self) -> int:
        """Number of paired seeds."""
        return len(self.seeds)

    def __str__(self) -> str:
        return (
            f"{self.metric}: {self.a} - {self.b} = {interval(self.difference, self.low, self.high, 4, signed=True)}, "
            f"p = {number(self.p, 4)}, d_z = {number(self.effect, 2)}, n = {self.n}"
        )


def compare(
    runs: Sequence[RunResult] | pd.DataFrame,
    metric: str,
    a: str,
    b: str,
    *,
    at: int | None = None,
    rng: np.random.Generator | int = 0,
    confidence: float = 0.95,
) -> Comparison:
    """Compare two methods on a metric over the seeds that both have.

    Parameters
    ----------
    runs : runs, or a table such as :func:`qfl_core.load_runs` returns: columns ``method``, ``seed``, the metric, and
        ``round`` where there are several rows per run. Runs are checked for equal settings, data and code; of a table
        only the columns it has can be checked.
    metric : a column, e.g. ``"global_accuracy"`` or ``"test_roc_auc"``.
    a, b : names of methods, of the paper or registered by the user.
    at : the round to compare; the last by default.
    rng : generator of the bootstrap, or a seed that names one.
    """
    table = runs if isinstance(runs, pd.DataFrame) else _checked_table(runs)
    values = paired_values(table, metric, (a, b), at)
    difference = values[a] - values[b]
    used = difference.dropna()
    unpaired = sorted(_seeds(table, a) ^ _seeds(table, b))
    if len(used) < 2:
        raise AnalysisError(
            f"{a} and {b} share {len(used)} seeds with a value of {metric!r}; an interval needs at least 2"
            + (f" (seeds of one method only: {unpaired})" if unpaired else "")
        )
    rng = stream(rng, "compare") if isinstance(rng, int) else rng
    d = used.to_numpy(float)
    low, high, kind = mean_interval(d, rng, confidence)
    return Comparison(
        metric=metric,
        a=a,
        b=b,
        difference=float(d.mean()),
        low=low,
        high=high,
        interval=kind,
        p=sign_flip_p(d, rng),
        effect=effect_size(d),
        seeds=tuple(int(seed) for seed in used.index),
        unpaired=tuple(unpaired),
        undefined=tuple(sorted(set(difference.index) - set(used.index) - set(unpaired))),
        confidence=confidence,
    )


def paired_values(table: pd.DataFrame, metric: str, methods: Sequence[str], at: int | None = None) -> pd.DataFrame:
    """Return the metric in one round, one row per seed and one column per method; NaN where there is no value."""
    _check_table(table, metric, methods)
    rows = table[table["method"].isin(methods)]
    _refuse_mixtures(rows)
    if "round" in rows:
        rows = rows[rows["round"] == _round(rows, at)]
    twice = rows[rows.duplicated(["method", "seed"])]
    if len(twice):
        method, seed = twice.iloc[0][["method", "seed"]]
        raise AnalysisError(f"{method} has more than one row for seed {seed}; keep one run (or one part) per seed")
    return rows.pivot(index="seed", columns="method", values=metric)


def check_comparable(runs: Iterable[RunResult]) -> None:
    """Raise an error if runs differ in more than method and seed: in a setting, the data or the code."""
    seen: dict[str, Any] = {}
    for run in runs:
        facts = {k: v for k, v in run.config.to_dict().items() if k not in ("method", "seed", "source")}
        facts["data source"] = run.environment["data"]["source"]
        facts["data file"] = run.environment["data"]["sha256"][:12]
        facts["splits"] = "handed in" if "splits_sha256" in run.environment["data"] else "of the config"
        facts["code"] = run.environment["code_sha256"][:12]
        for name, value in facts.items():
            if seen.setdefault(name, value) != value:
                raise AnalysisError(
                    f"runs of different {name} cannot be compared: {seen[name]!r} and {value!r}; "
                    "filter them first, e.g. find_runs(results_dir, dataset='baf')"
                )


def _checked_table(runs: Sequence[RunResult]) -> pd.DataFrame:
    runs = list(runs)
    if not runs:
        raise AnalysisError("there are no runs to compare")
    check_comparable(runs)
    return tidy(runs)


def _check_table(table: pd.DataFrame, metric: str, methods: Sequence[str]) -> None:
    for column in ("method", "seed"):
        if column not in table:
            raise AnalysisError(f"a table of runs needs a column {column!r}; this one has {', '.join(table.columns)}")
    metrics = [c for c in table.columns if c not in LABELS and pd.api.types.is_numeric_dtype(table[c])]
    if metric not in metrics:
        raise AnalysisError(f"unknown metric {metric!r}{did_you_mean(metric, metrics)}; metrics: {', '.join(metrics)}")
    known = sorted(table["method"].unique())
    for method in methods:
        if method not in known:
            raise AnalysisError(f"no run of method {method!r}{did_you_mean(method, known)}; runs of {', '.join(known)}")


def _refuse_mixtures(rows: pd.DataFrame) -> None:
    """Raise an error if the rows mix data sources, engine kinds, parts of the data or settings."""
    told = (set(ExperimentConfig.describe()) | {"kind", "part"}) - {"method", "seed"}
    for column in rows.columns.intersection(sorted(told)):
        values = rows[column].dropna().unique()
        if len(values) > 1:
            listed = ", ".join(map(str, values))
            raise AnalysisError(f"rows of different {column} cannot be compared: {listed}; filter the table first")


def _round(rows: pd.DataFrame, at: int | None) -> int:
    last = rows.groupby(["method", "seed"])["round"].max()
    if at is None and last.nunique() > 1:
        counts = ", ".join(map(str, sorted(last.unique())))
        raise AnalysisError(f"runs end in different rounds ({counts}); name the round to compare with at=")
    if at is not None and at not in set(rows["round"]):
        raise AnalysisError(f"no row of round {at}; rounds go from {rows['round'].min()} to {rows['round'].max()}")
    return int(last.iloc[0]) if at is None else at


def _seeds(table: pd.DataFrame, method: str) -> set[int]:
    return {int(seed) for seed in table.loc[table["method"] == method, "seed"]}
