"""Summaries over seeds: final metrics and cost, one row per method."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.base.numbers import plus_minus

#: Column of a run's rounds -> what tables call it.
FINAL_METRICS = {
    "global_accuracy": "global accuracy",
    "client_test_accuracy": "mean client test accuracy",
    "train_test_gap": "train-test gap",
    "fairness_gap": "client fairness gap",
    "test_balanced_accuracy": "balanced accuracy",
    "test_roc_auc": "ROC-AUC",
}


def last_rounds(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each method's last round."""
    return rounds[rounds["round"] == rounds.groupby("method")["round"].transform("max")]


def interval_texts(found: pd.DataFrame, digits: int) -> pd.Series:
    """Return ``mean ± half interval`` as text, for every row of a table of :func:`intervals`."""
    half = (found["high"] - found["low"]) / 2
    texts = [plus_minus(mean, wide, digits, missing="nan") for mean, wide in zip(found["mean"], half, strict=True)]
    return pd.Series(texts, index=found.index, dtype=object)


def final_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return each method's metrics in the last round as ``mean ± half interval``, the paper's methods first."""
    last = last_rounds(rounds)
    columns = {}
    for metric, title in FINAL_METRICS.items():
        columns[title] = interval_texts(intervals(last, metric, ["method"]).set_index("method"), digits=2)
    table = pd.DataFrame(columns)
    present = [*(m for m in METHODS if m in table.index), *(m for m in table.index if m not in METHODS)]
    return table.loc[present].rename(index={name: method_named(name).label for name in present}).rename_axis("method")


def cost_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return circuit executions by method and purpose: the mean per round, and what tuning spent before round 1.

    The untrained model has no row, because it trains nothing.
    """
    rounds = rounds[rounds["method"] != UNTRAINED]
    columns = [name for name in rounds.columns if name.startswith("circuits_") and name != "circuits_tuning"]
    cost = rounds[rounds["round"] > 0].groupby("method", sort=False)[columns].mean()
    cost["tuning (once)"] = rounds[rounds["round"] == 0].groupby("method")["circuits_tuning"].mean()
    cost = cost.round().astype(int)
    return cost.rename(columns=lambda name: name.removeprefix("circuits_"), index=lambda name: method_named(name).label)


def costs_table(costs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return one row per track and method from each track's :func:`cost_table`; ``per round`` adds up its purposes."""
    table = pd.concat(costs, names=["track"])
    table["per round"] = table.drop(columns="tuning (once)").sum(axis=1)
    return table.reset_index()
