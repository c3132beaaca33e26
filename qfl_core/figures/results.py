"""Figures of training: curves over rounds with intervals over seeds, and what the controller did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from qfl_core.analysis import intervals
from qfl_core.figures.style import METHOD_COLOURS, footer, legend_below
from qfl_core.methods import METHODS

#: The four panels of the paper's comparison figures.
FEDERATED = {
    "global_accuracy": "Global accuracy",
    "client_test_accuracy": "Mean client test accuracy",
    "train_test_gap": "Train-test gap",
    "fairness_gap": "Client fairness gap",
}
#: The paper's two figures of imbalance-aware metrics.
CLASSIFICATION_1 = {"recall": "Recall", "precision": "Precision", "f1": "F1", "specificity": "Specificity"}
CLASSIFICATION_2 = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC", "mcc": "MCC"}


def curve(axis: Axes, rounds: pd.DataFrame, metric: str, method: str, **line) -> None:
    """Draw one method's mean over seeds with its 95 % interval."""
    found = intervals(rounds[rounds["method"] == method], metric, ["round"])
    style = {"color": METHOD_COLOURS[method], "label": METHODS[method].label} | line
    low, high = (-1, 1) if metric.endswith("gap") or metric == "mcc" else (0, 1)
    band = found["low"].clip(low, high), found["high"].clip(low, high)  # few seeds: the band may pass what is possible
    axis.plot(found["round"], found["mean"], marker="o", markersize=2.5, **style)
    axis.fill_between(found["round"], *band, color=style["color"], alpha=0.15, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def federated_metrics(
    rounds: pd.DataFrame,
    methods: Sequence[str],
    facts: tuple[str, ...],
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Draw global accuracy, mean client test accuracy, train-test gap and fairness gap over rounds.

    ``references`` are horizontal lines in the accuracy panels, e.g. ``{"majority class": 0.989}``.
    """
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.1))
    for axis, (metric, title) in zip(axes, FEDERATED.items(), strict=True):
        for method in methods:
            curve(axis, rounds, metric, method)
        if metric.endswith("accuracy"):
            _references(axis, references or {})
        axis.set(title=title, xlabel="round", ylabel="lower is better" if metric.endswith("gap") else "accuracy")
    legend_below(figure, axes[0], columns=len(methods) + len(references or {}))
    footer(figure, *facts)
    return figure


def _references(axis: Axes, references: Mapping[str, float]) -> None:
    for (name, value), dashes in zip(references.items(), ("--", ":", "-."), strict=False):
        axis.axhline(value, color="0.35", linestyle=dashes, linewidth=1, label=name)


def classification_curves(
    metrics: pd.DataFrame, methods: Sequence[str], panels: Mapping[str, str], facts: tuple[str, ...]
) -> Figure:
    """Draw classification metrics over rounds, test solid and validation dashed.

    ``metrics`` is the tidy ``classification_metrics`` table of the runs.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(3.25 * len(panels), 3.1))
    for axis, (metric, title) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for method in methods:
            for part, dashes in (("test", "-"), ("val", "--")):
                label = f"{METHODS[method].label}, {part}"
                curve(axis, metrics[metrics["part"] == part], metric, method, linestyle=dashes, label=label)
        axis.set(title=title, xlabel="round")
    legend_below(figure, figure.axes[0], columns=2 * len(methods))
    footer(figure, *facts)
    return figure


def controller_behaviour(trace: pd.DataFrame, facts: tuple[str, ...]) -> Figure:
    """Draw eta, delta and the loss reduction over rounds, one line an unfold, and how often each unfold is uploaded."""
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.1))
    trace = trace.assign(reduction=trace["loss_before"] - trace["loss_after"])
    titles = {"eta": "Learning rate η", "delta": "Perturbation δ", "reduction": "Loss reduction ΔL"}
    for axis, (column, title) in zip(axes, titles.items(), strict=False):
        sns.lineplot(
            trace, x="round", y=column, hue="unfold", palette="viridis", errorbar=None, ax=axis, legend=axis is axes[0]
        )
        axis.set(title=title, ylabel="")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[2].axhline(0, color="0.4", linewidth=0.8)
    unfold_shares(axes[3], trace)
    axes[3].set_title("Uploaded unfold k*")
    legend_below(figure, axes[0], columns=8)
    figure.legends[0].set_title("unfold")
    footer(figure, *facts)
    return figure


def unfold_shares(axis: Axes, trace: pd.DataFrame) -> None:
    """Draw the share of client uploads that each unfold provides."""
    uploads = trace[trace["is_selected"]]
    share = uploads["unfold"].value_counts(normalize=True).reindex(sorted(trace["unfold"].unique()), fill_value=0)
    axis.bar(share.index.astype(str), share, color=METHOD_COLOURS["duqfl-prox"])
    axis.set(xlabel="unfold", ylabel="share of uploads")


def controller_heatmaps(trace: pd.DataFrame, facts: tuple[str, ...]) -> Figure:
    """Draw mean eta and delta of every client and unfold."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    for axis, column, title in zip(axes, ("eta", "delta"), ("Learning rate η", "Perturbation δ"), strict=True):
        mean = trace.pivot_table(index="client", columns="unfold", values=column)
        sns.heatmap(mean, ax=axis, cmap="viridis", annot=True, fmt=".4f", annot_kws={"fontsize": 7}, linewidths=0.5)
        axis.set_title(title)
    footer(figure, *facts)
    return figure


def loss_shift_trace(trace: pd.DataFrame, facts: tuple[str, ...]) -> Figure:
    """Draw how far clients move an unfold over rounds, and loss reduction against eta and delta."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    moved = trace.groupby(["seed", "round"], as_index=False)["displacement"].mean()
    found = intervals(moved, "displacement", ["round"])
    colour = METHOD_COLOURS["duqfl-prox"]
    axes[0].plot(found["round"], found["mean"], marker="o", markersize=2.5, color=colour)
    axes[0].fill_between(found["round"], found["low"], found["high"], color=colour, alpha=0.15, linewidth=0)
    axes[0].set(title="Parameter shift over rounds", xlabel="round", ylabel="displacement of an unfold")
    reduction = trace["loss_before"] - trace["loss_after"]
    points = axes[1].scatter(trace["eta"], reduction, c=trace["delta"], s=5, alpha=0.5, cmap="viridis", rasterized=True)
    axes[1].axhline(0, color="0.4", linewidth=0.8)
    share = (reduction > 0).mean()
    axes[1].set(title=f"{share:.0%} of unfolds reduce the loss", xlabel="learning rate η", ylabel="loss reduction ΔL")
    figure.colorbar(points, ax=axes[1], label="perturbation δ")
    footer(figure, *facts)
    return figure


def unfold_level_behaviour(trace: pd.DataFrame, facts: tuple[str, ...]) -> Figure:
    """Draw eta, delta and loss reduction by unfold, each divided by its largest mean, and the uploaded unfolds."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    trace = trace.assign(reduction=trace["loss_before"] - trace["loss_after"])
    means = trace.groupby("unfold")[["eta", "delta", "reduction"]].mean()
    for column, label, marker in zip(means, ("η", "δ", "loss reduction ΔL"), "osD", strict=True):
        axes[0].plot(means.index, means[column] / means[column].abs().max(), marker=marker, label=label)
    axes[0].axhline(0, color="0.4", linewidth=0.8)
    axes[0].set(title="Normalised η, δ and loss reduction", xlabel="unfold", ylabel="share of the largest")
    axes[0].set_xticks(means.index)
    unfold_shares(axes[1], trace)
    axes[1].set_title("Selected unfold")
    legend_below(figure, axes[0], columns=3)
    footer(figure, *facts)
    return figure
