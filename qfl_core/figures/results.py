"""Figures of training: curves over rounds with intervals over seeds, and what the controller did."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.inference import intervals
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import METHOD_COLOURS, method_colour
from qfl_core.runs.study import Study

#: The four panels of the paper's comparison figures: column, title and the paper's label.
FEDERATED = {
    "global_accuracy": ("Global accuracy", "global_accuracy"),
    "client_test_accuracy": ("Mean client test accuracy", "mean_client_test"),
    "train_test_gap": ("Train-test gap", "train_test_gap"),
    "fairness_gap": ("Client fairness gap", "client_fairness_gap"),
}
#: The paper's two figures of imbalance-aware metrics.
CLASSIFICATION_1 = {"recall": "Recall", "precision": "Precision", "f1": "F1", "specificity": "Specificity"}
CLASSIFICATION_2 = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC", "mcc": "MCC"}
_PROX = METHOD_COLOURS["duqfl-prox"]


def curve(axis: Axes, table: pd.DataFrame, metric: str, **line: Any) -> None:
    """Draw the mean over seeds with its 95 % interval, over rounds."""
    found = intervals(table, metric, ["round"])
    low, high = (-1, 1) if metric in ("train_test_gap", "mcc") else (0, 1)
    if metric != "displacement":  # few seeds: the band may pass what is possible
        found["low"], found["high"] = found["low"].clip(low, high), found["high"].clip(low, high)
    axis.plot(found["round"], found["mean"], marker="o", markersize=2.5, **line)
    axis.fill_between(found["round"], found["low"], found["high"], color=line["color"], alpha=0.15, linewidth=0)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round")


def method_curves(axis: Axes, table: pd.DataFrame, metric: str, suffix: str = "") -> None:
    """Draw one curve per method, in the method's colour."""
    for method in table["method"].unique():
        line = {"color": method_colour(method), "label": method_named(method).label + suffix}
        curve(axis, table[table["method"] == method], metric, **line)


def reference_lines(axis: Axes, references: Mapping[str, float]) -> None:
    """Draw what classical models score as horizontal lines."""
    for (name, value), dashes in zip(references.items(), ("--", ":", "-."), strict=False):
        axis.axhline(value, color="0.35", linestyle=dashes, linewidth=1, label=name)


def federated_metrics(study: Study, name: str, prefix: str) -> Sheet:
    """Return global accuracy, mean client test accuracy, train-test gap and fairness gap over rounds.

    The accuracy panels carry the references; ``prefix`` begins the panels' names.
    """
    panels = {
        f"{prefix}_{label}": partial(_federated, study=study, metric=metric, title=title)
        for metric, (title, label) in FEDERATED.items()
    }
    return Sheet(name, panels, study.facts, legend=7)


def _federated(axis: Axes, study: Study, metric: str, title: str, suffix: str = "") -> None:
    method_curves(axis, study.rounds, metric, suffix)
    is_gap = metric.endswith("gap")
    if not is_gap:
        reference_lines(axis, study.references())
    axis.set(title=title, ylabel="lower is better" if is_gap else "accuracy")


def classification_curves(study: Study, name: str, metrics: Mapping[str, str], fairness: bool = False) -> Sheet:
    """Return classification metrics over rounds, test solid and validation dashed; ``fairness`` adds that panel.

    ROC-AUC carries the references.
    """
    table = study.table("classification_metrics")
    panels = {
        "recall" if metric == "recall" else f"{metric}_epochs": partial(
            _classification, study=study, table=table, metric=metric, title=title
        )
        for metric, title in metrics.items()
    }
    if fairness:
        panels["client_fairness_epochs"] = partial(
            _federated, study=study, metric="fairness_gap", title=FEDERATED["fairness_gap"][0], suffix=", test"
        )
    return Sheet(name, panels, study.facts, legend=6)


def _classification(axis: Axes, study: Study, table: pd.DataFrame, metric: str, title: str) -> None:
    for method in study.methods:
        for part, dashes, shown in (("test", "-", "test"), ("val", "--", "validation")):
            mine = table[(table["method"] == method) & (table["part"] == part)]
            label = f"{METHODS[method].label}, {shown}"
            curve(axis, mine, metric, color=METHOD_COLOURS[method], linestyle=dashes, label=label)
    if metric == "roc_auc":
        reference_lines(axis, study.references("roc_auc"))
    axis.set(title=title, ylabel="")


def with_reduction(trace: pd.DataFrame) -> pd.DataFrame:
    """Add the loss reduction of every unfold to a client trace."""
    return trace.assign(reduction=trace["loss_before"] - trace["loss_after"])


def controller_behaviour(study: Study) -> Sheet:
    """Return eta, delta and the loss reduction over rounds, one line per unfold, and which unfold is uploaded."""
    trace = with_reduction(study.table("client_trace"))
    titles = {
        "controller_eta": ("eta", "Learning rate η"),
        "controller_delta": ("delta", "Perturbation δ"),
        "controller_loss_reduction": ("reduction", "Loss reduction ΔL"),
    }
    panels = {
        name: partial(_by_unfold, trace=trace, column=column, title=title) for name, (column, title) in titles.items()
    }
    panels["controller_selected_unfold"] = partial(unfold_shares, trace=trace, title="Uploaded unfold k*")
    return Sheet("controller_behaviour", panels, study.facts, legend=8, legend_title="unfold")


def _by_unfold(axis: Axes, trace: pd.DataFrame, column: str, title: str) -> None:
    sns.lineplot(trace, x="round", y=column, hue="unfold", palette="viridis", errorbar=None, legend="full", ax=axis)
    axis.set(title=title, ylabel="")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if column == "reduction":
        axis.axhline(0, color="0.4", linewidth=0.8)


def unfold_shares(axis: Axes, trace: pd.DataFrame, title: str) -> None:
    """Draw the share of client uploads that each unfold provides."""
    uploads = trace[trace["is_selected"]]
    share = uploads["unfold"].value_counts(normalize=True).reindex(sorted(trace["unfold"].unique()), fill_value=0)
    axis.bar(share.index.astype(str), share, color=_PROX)
    axis.set(title=title, xlabel="unfold", ylabel="share of uploads")


def controller_heatmaps(study: Study) -> Sheet:
    """Return mean eta and delta of every client and unfold."""
    trace = study.table("client_trace")
    panels = {
        "heatmap_lr_client_unfold": partial(_heatmap, trace=trace, column="eta", title="Learning rate η"),
        "heatmap_pert_client_unfold": partial(_heatmap, trace=trace, column="delta", title="Perturbation δ"),
    }
    return Sheet("controller_heatmaps", panels, study.facts, size=(4.5, 3.4))


def _heatmap(axis: Axes, trace: pd.DataFrame, column: str, title: str) -> None:
    mean = trace.pivot_table(index="client", columns="unfold", values=column)
    sns.heatmap(mean, ax=axis, cmap="viridis", annot=True, fmt=".4f", annot_kws={"fontsize": 7}, linewidths=0.5)
    axis.set_title(title)


def loss_shift_trace(study: Study) -> Sheet:
    """Return how far clients move per unfold, over rounds, and loss reduction against eta and delta."""
    trace = with_reduction(study.table("client_trace"))
    panels = {
        "param_shift_over_rounds": partial(_shift, trace=trace),
        "scatter_lr_pert_loss_delta": partial(_reduction_scatter, trace=trace),
    }
    return Sheet("loss_shift_trace", panels, study.facts, size=(4.5, 3.4))


def _shift(axis: Axes, trace: pd.DataFrame) -> None:
    moved = trace.groupby(["seed", "round"])["displacement"].mean().reset_index()
    curve(axis, moved, "displacement", color=_PROX)
    axis.set(title="Parameter shift over rounds", ylabel="displacement of an unfold")


def _reduction_scatter(axis: Axes, trace: pd.DataFrame) -> None:
    points = axis.scatter(
        trace["eta"], trace["reduction"], c=trace["delta"], s=5, alpha=0.5, cmap="viridis", rasterized=True
    )
    axis.axhline(0, color="0.4", linewidth=0.8)
    share = (trace["reduction"] > 0).mean()
    axis.set(title=f"{share:.0%} of unfolds reduce the loss", xlabel="learning rate η", ylabel="loss reduction ΔL")
    axis.figure.colorbar(points, ax=axis, label="perturbation δ")


def unfold_level_behaviour(study: Study) -> Sheet:
    """Return eta, delta and loss reduction by unfold, each divided by its largest mean, and the uploaded unfolds."""
    trace = with_reduction(study.table("client_trace"))
    panels = {
        "eta_delta_loss_reduction_by_unfold": partial(_normalised, trace=trace),
        "selected_unfold_distribution": partial(unfold_shares, trace=trace, title="Selected unfold"),
    }
    return Sheet("unfold_level_behaviour", panels, study.facts, size=(4.5, 3.4))


def _normalised(axis: Axes, trace: pd.DataFrame) -> None:
    means = trace.groupby("unfold")[["eta", "delta", "reduction"]].mean()
    for column, label, marker in zip(means, ("η", "δ", "loss reduction ΔL"), "osD", strict=True):
        axis.plot(means.index, means[column] / means[column].abs().max(), marker=marker, label=label)
    axis.axhline(0, color="0.4", linewidth=0.8)
    axis.set(title="Normalised η, δ and loss reduction", xlabel="unfold", ylabel="share of the largest")
    axis.set_xticks(means.index)


#: What a circuit execution is spent on, in the order of the stack.
PURPOSES = ("train", "calibration", "monitor", "validation", "virtual", "tuning (once)")


def cost_per_method(studies: Mapping[str, Study], cost: Mapping[str, pd.DataFrame]) -> Sheet:
    """Return circuit executions of a run by method and purpose, one panel per track.

    ``cost`` maps each track to its :func:`qfl_core.analysis.cost_table`.
    """
    panels = {f"cost_{track}": partial(_cost, table=cost[track], track=track) for track in studies}
    first = next(iter(studies.values()))
    return Sheet("cost_per_method", panels, first.facts, size=(5.0, 3.2), legend=6)


def _cost(axis: Axes, table: pd.DataFrame, track: str) -> None:
    left = pd.Series(0.0, index=table.index)
    for purpose, colour in zip(PURPOSES, sns.color_palette("colorblind"), strict=False):
        axis.barh(table.index, table[purpose] / 1e3, left=left / 1e3, color=colour, label=purpose)
        left += table[purpose]
    axis.invert_yaxis()
    axis.set(title=f"{track}: circuits a round", xlabel="thousand circuit executions", ylabel="")
    axis.grid(visible=False, axis="y")
