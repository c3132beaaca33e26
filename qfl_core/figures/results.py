"""Figures of training: curves over rounds with intervals over seeds, and what the controller did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.paper import PAPER
from qfl_core.analysis.untrained import UNTRAINED, level, level_facts
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import (
    METHOD_COLOURS,
    Look,
    method_colour,
    method_marker,
    reference_line,
    steady,
    titled,
)
from qfl_core.runs.study import Study

#: The four panels of the paper's comparison figures: column, title and the paper's label.
FEDERATED = {
    "global_accuracy": ("Global accuracy", "global_accuracy"),
    "client_test_accuracy": ("Client test accuracy", "mean_client_test"),
    "train_test_gap": ("Train-test gap", "train_test_gap"),
    "fairness_gap": ("Client fairness gap", "client_fairness_gap"),
}
#: The paper's two figures of imbalance-aware metrics.
CLASSIFICATION_1 = {"recall": "Recall", "precision": "Precision", "f1": "F1", "specificity": "Specificity"}
CLASSIFICATION_2 = {"roc_auc": "ROC-AUC", "pr_auc": "PR-AUC", "mcc": "MCC"}


def curves_of(table: pd.DataFrame, metric: str, by: Sequence[str] = ("method",)) -> pd.DataFrame:
    """Return the mean over seeds with its 95 % interval, one row per group and round.

    With few seeds an interval may pass what is possible: it ends there.
    """
    found = intervals(table, metric, [*by, "round"])
    low, high = {"displacement": (None, None)}.get(metric, (-1, 1) if metric in ("train_test_gap", "mcc") else (0, 1))
    return steady(found.assign(low=found["low"].clip(low, high), high=found["high"].clip(low, high)))


#: How four panels stand on a sheet: as wide as a page, so that letters keep their size in print.
FOUR: Look = {"size": (3.5, 2.5), "columns": 2}
#: What footers say of curves with bands, and of marks with bars.
BANDS = "bands: 95 % intervals over seeds"
BARS = "bars: 95 % intervals over seeds"
#: The same where bars are what is measured.
THIN_LINES = "thin lines: 95 % intervals over seeds"
#: Why an interval without zero may stand beside "undecided".
CORRECTED = "verdicts: corrected for all comparisons; intervals are not"


def curve(axis: Axes, found: pd.DataFrame, shade: float = 0.15, **line: Any) -> None:
    """Draw one curve of :func:`curves_of` over rounds, with its interval as a band."""
    look: Look = {"marker": "o", "markersize": 2.5} | line
    axis.plot(found["round"], found["mean"], **look)
    axis.fill_between(found["round"], found["low"], found["high"], color=line["color"], alpha=shade, linewidth=0)
    over_rounds(axis, found)


def over_rounds(axis: Axes, found: pd.DataFrame) -> None:
    """Let the axis reach from round 0, the untrained model, to the last round of ``found``, but for half a mark."""
    last = found["round"].max()
    axis.set(xlabel="round", xlim=(-0.02 * last, 1.02 * last))
    round_ticks(axis)


def round_ticks(axis: Axes) -> None:
    """Let the x axis count rounds in ones, twos, fives or tens, so that the last round has its tick."""
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))


def method_curves(axis: Axes, curves: pd.DataFrame) -> None:
    """Draw one curve of :func:`curves_of` per method, in the method's colour, and the untrained model as a line.

    With many methods the bands are paler.
    """
    methods = trained(curves)
    shade = 0.15 if len(methods) < 5 else 0.08
    for method, marks in method_marks(curves).items():
        line = {"color": method_colour(method), "label": method_named(method).label, "linewidth": 1.2}
        curve(axis, curves[curves["method"] == method], shade, **line, **marks)
    untrained_line(axis, curves)


def method_marks(curves: pd.DataFrame) -> dict[str, Look]:
    """Return the markers of each trained method of a table of curves.

    They stand at different rounds, so that a curve is seen where another one covers it.
    """
    methods = trained(curves)
    step = len(methods) if curves["round"].nunique() > 2 * len(methods) else 1
    return {
        method: {"marker": method_marker(method), "markersize": 3.5, "markevery": (place % step, step)}
        for place, method in enumerate(methods)
    }


def trained(table: pd.DataFrame) -> list[str]:
    """Return the methods of a table, without the untrained model."""
    return [method for method in table["method"].unique() if method != UNTRAINED]


def untrained_line(axis: Axes, curves: pd.DataFrame) -> None:
    """Draw what the initial weights score, the mean over seeds and rounds, as a thin horizontal line."""
    value = level(curves, "mean")
    if not np.isnan(value):
        reference_line(axis, UNTRAINED, value)


#: What a legend calls the paper's own numbers.
PAPER_LABEL = "paper, last round"


def paper_marks(axis: Axes, numbers: Mapping[str, float]) -> None:
    """Draw the paper's numbers of the last round as hollow triangles, each in its method's colour.

    They stand outside the frame and point at its right edge, where they do not hide our means. The y axis reaches to
    all of them.

    Parameters
    ----------
    numbers : by method, as in :data:`qfl_core.analysis.paper.PAPER`.
    """
    look: Look = {"marker": "<", "markersize": 6, "linestyle": "", "markeredgewidth": 1.3, "markerfacecolor": "none"}
    half = (look["markersize"] + look["markeredgewidth"]) / 2 / 72  # inches
    beside = axis.get_yaxis_transform() + ScaledTranslation(half, 0, axis.figure.dpi_scale_trans)
    for method, value in numbers.items():
        axis.plot([1], [value], color=method_colour(method), clip_on=False, transform=beside, **look)
    if numbers:
        axis.update_datalim([(0, value) for value in numbers.values()], updatex=False)
        axis.plot([], [], color="0.1", label=PAPER_LABEL, **look)


def reference_lines(axis: Axes, references: Mapping[str, float]) -> None:
    """Draw what classical models score as horizontal lines."""
    for name, value in references.items():
        reference_line(axis, name, value)


def federated_metrics(study: Study, name: str, prefix: str) -> Sheet:
    """Return global accuracy, mean client test accuracy, train-test gap and fairness gap over rounds.

    The accuracy panels carry the references, and every panel the untrained model where the study holds its runs;
    ``prefix`` begins the panels' names.
    """
    panels = {
        f"{prefix}_{label}": partial(
            _federated,
            curves=curves_of(study.rounds, metric),
            references={} if _is_gap(metric) else study.references(),
            metric=metric,
            title=titled(title, study.track),
            paper=_papers(study, metric),
        )
        for metric, (title, label) in FEDERATED.items()
    }
    return Sheet(name, panels, (*level_facts(study), BANDS), **FOUR)


def _papers(study: Study, metric: str) -> dict[str, float]:
    """Return the paper's numbers of those methods that the study holds."""
    numbers = PAPER.get((study.track, metric), {})
    return {method: numbers[method] for method in study.methods if method in numbers}


def _is_gap(metric: str) -> bool:
    return metric.endswith("gap")


def _federated(
    axis: Axes,
    curves: pd.DataFrame,
    references: Mapping[str, float],
    metric: str,
    title: str,
    paper: Mapping[str, float],
) -> None:
    method_curves(axis, curves)
    paper_marks(axis, paper)
    reference_lines(axis, references)
    ylabel = "mean accuracy" if metric == "client_test_accuracy" else "accuracy"
    axis.set(title=title, ylabel="lower is better" if _is_gap(metric) else ylabel)


def classification_curves(study: Study, name: str, metrics: Mapping[str, str], fairness: bool = False) -> Sheet:
    """Return classification metrics over rounds, test solid and validation dashed; ``fairness`` adds that panel.

    Bands are the intervals of the test curves; those of validation would hide them.

    ROC-AUC carries the references, and every panel the untrained model's test score where the study holds its runs.
    """
    table = study.table("classification_metrics")
    panels: dict[str, Panel] = {
        "recall" if metric == "recall" else f"{metric}_epochs": partial(
            _classification,
            curves=curves_of(table, metric, ("method", "part")),
            references=study.references("roc_auc") if metric == "roc_auc" else {},
            title=titled(title, study.track),
        )
        for metric, title in metrics.items()
    }
    if fairness:
        metric = "fairness_gap"
        curves, title = curves_of(study.rounds, metric), FEDERATED[metric][0]
        panels["client_fairness_epochs"] = partial(
            _federated,
            curves=curves,
            references={},
            metric=metric,
            title=titled(title, study.track),
            paper=_papers(study, metric),
        )
    return Sheet(name, panels, (*level_facts(study), BANDS, "solid curves, bands and levels: test set"), **FOUR)


#: How a curve of the validation set is drawn; that of the test set is solid.
_VALIDATION: Look = {"linestyle": "--", "linewidth": 0.9, "zorder": 1.8}


def _classification(axis: Axes, curves: pd.DataFrame, references: Mapping[str, float], title: str) -> None:
    for method, marks in method_marks(curves).items():
        mine, look = curves[curves["method"] == method], {"color": METHOD_COLOURS[method]}
        val = mine[mine["part"] == "val"]
        axis.plot(val["round"], val["mean"], **_VALIDATION, **look)
        curve(axis, mine[mine["part"] == "test"], shade=0.12, label=METHODS[method].label, **look, **marks)
    untrained_line(axis, curves[curves["part"] == "test"])
    axis.plot([], [], color=METHOD_COLOURS["duqfl-prox"], label="validation, same colour", **_VALIDATION)
    reference_lines(axis, references)
    axis.set(title=title, ylabel="")


#: What tuning spends once, before round 1, in a table of costs.
_ONCE = "tuning (once)"
#: What a circuit execution is spent on, in the order of the stack, with what the legend calls it.
PURPOSES = {
    "train": "training",
    "calibration": "calibration",
    "monitor": "loss before and after",
    "validation": "validation",
    "virtual": "virtual rounds (outer step)",
    _ONCE: "tuning: once",
}


def cost_per_method(studies: Mapping[str, Study], cost: Mapping[str, pd.DataFrame]) -> Sheet:
    """Return circuit executions of a round by method and purpose, one panel per track.

    ``cost`` maps each track to its :func:`qfl_core.analysis.cost_table`. What tuning spends once is spread over the
    rounds of a run, so that all parts of a bar are executions of the mean round.
    """
    panels = {
        f"cost_{track}": partial(_cost, table=cost[track], track=track, rounds=int(study.rounds["round"].max()))
        for track, study in studies.items()
    }
    first = next(iter(studies.values()))
    return Sheet("cost_per_method", panels, first.facts, size=(5.0, 3.2), legend=6)


def _cost(axis: Axes, table: pd.DataFrame, track: str, rounds: int) -> None:
    left = pd.Series(0.0, index=table.index)
    for (purpose, words), colour in zip(PURPOSES.items(), sns.color_palette("colorblind"), strict=False):
        spent = table[purpose] / rounds if purpose == _ONCE else table[purpose]
        label = f"{words}, spread over {rounds} rounds" if purpose == _ONCE else words
        axis.barh(table.index, spent / 1e3, left=left / 1e3, color=colour, label=label)
        left += spent
    axis.invert_yaxis()
    axis.set(title=titled("Circuits per round", track), xlabel="thousand circuit executions, all clients", ylabel="")
    axis.set_xlim(0, 1.04 * float(left.max()) / 1e3)
    axis.grid(visible=False, axis="y")
