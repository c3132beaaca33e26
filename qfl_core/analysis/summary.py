"""Summaries over seeds: means with 95 % intervals, final metrics, cost."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from scipy.stats import t as student

from qfl_core.algorithm.methods import METHODS, method_named


def intervals(table: pd.DataFrame, metric: str, by: Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
    """Return mean, low, high and seeds of a metric for each group; rows within a group are seeds.

    The interval is Student's for the mean over seeds; with one seed it is NaN.
    """
    groups = table.dropna(subset=[metric]).groupby(list(by), sort=False)[metric]
    found = groups.agg(["mean", "sem", "count"]).reset_index()
    half = student.ppf((1 + confidence) / 2, found["count"] - 1) * found["sem"]
    found["low"], found["high"] = found["mean"] - half, found["mean"] + half
    return found.rename(columns={"count": "seeds"}).drop(columns="sem")


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


def final_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return each method's metrics in the last round as ``mean ± half interval``, the paper's methods first."""
    last = last_rounds(rounds)
    columns = {}
    for metric, title in FINAL_METRICS.items():
        found = intervals(last, metric, ["method"]).set_index("method")
        half = (found["high"] - found["low"]) / 2
        columns[title] = found["mean"].map("{:.2f}".format) + " ± " + half.map("{:.2f}".format)
    table = pd.DataFrame(columns)
    present = [*(m for m in METHODS if m in table.index), *(m for m in table.index if m not in METHODS)]
    return table.loc[present].rename(index={name: method_named(name).label for name in present}).rename_axis("method")


def cost_table(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return circuit executions by method and purpose: the mean of a round, and what tuning spent before round 1."""
    columns = [name for name in rounds.columns if name.startswith("circuits_") and name != "circuits_tuning"]
    cost = rounds[rounds["round"] > 0].groupby("method", sort=False)[columns].mean()
    cost["tuning (once)"] = rounds[rounds["round"] == 0].groupby("method")["circuits_tuning"].mean()
    cost = cost.round().astype(int)
    return cost.rename(columns=lambda name: name.removeprefix("circuits_"), index=lambda name: method_named(name).label)
