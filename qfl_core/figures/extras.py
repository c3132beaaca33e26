"""The figure of the extras: how each differs from its base, the bundled dataset, and the learned weights."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import method_named
from qfl_core.figures.results import method_curves, reference_lines
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import TRACK_COLOURS, TRACK_MARKERS, offsets
from qfl_core.studies.extras import BASES, METRICS, NO_DIFFERENCE, ExtrasStudy

BUNDLED = "breast-cancer"


def extensions(found: ExtrasStudy) -> Sheet:
    """Return the paired differences of each metric, curves on the bundled dataset, and the learned weights."""
    panels = {
        f"extensions_{metric.removeprefix('test_')}": partial(_differences, found=found, metric=metric)
        for metric in METRICS
    }
    if BUNDLED in found.studies:
        panels["extensions_breast_cancer"] = partial(_curves, found=found)
    panels["extensions_weights"] = partial(_factors, found=found)
    return Sheet("extensions", panels, found.facts, size=(3.6, 3.0), columns=3, legend=6)


def _differences(axis: Axes, found: ExtrasStudy, metric: str) -> None:
    title, more_is_better = METRICS[metric]
    table = found.differences[found.differences["metric"] == metric]
    rows = {extra: place for place, extra in enumerate(BASES)}
    rings: list[tuple[float, float]] = []
    for offset, track in zip(offsets(len(found.studies), 0.2), found.studies, strict=True):
        mine = table[table["track"] == track]
        y = np.array([rows[extra] for extra in mine["extra"]]) + offset
        ends = np.abs(mine[["low", "high"]].to_numpy().T - mine["mean"].to_numpy())
        line = {"color": TRACK_COLOURS[track], "fmt": TRACK_MARKERS[track], "markersize": 4, "linewidth": 1.1}
        axis.errorbar(mine["mean"], y, xerr=ends, label=track, **line)
        rings += zip(mine["mean"][shown := mine["verdict"] != NO_DIFFERENCE], y[shown], strict=True)
    for place in rings:
        axis.plot(*place, "o", markersize=10, markerfacecolor="none", color="0.1", label="difference shown")
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    labels = [f"{method_named(extra).label}\n− {method_named(base).label}" for extra, base in BASES.items()]
    axis.set_yticks(range(len(rows)), labels, fontsize=7)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(title=title, xlabel=f"difference ({'right' if more_is_better else 'left'} is better)")


def _curves(axis: Axes, found: ExtrasStudy) -> None:
    study = found.studies[BUNDLED]
    method_curves(axis, study.rounds, "global_accuracy")
    reference_lines(axis, study.references())
    axis.set(title="Breast cancer", ylabel="global accuracy")


def _factors(axis: Axes, found: ExtrasStudy) -> None:
    """Draw one point per client and seed: the learned weight over the sample-size weight."""
    tracks = list(found.studies)
    for place, track in enumerate(tracks):
        factors = found.factors[found.factors["track"] == track]["factor"].to_numpy()
        spread = np.linspace(-0.3, 0.3, len(factors))
        style = {"color": TRACK_COLOURS[track], "markersize": 2.5, "alpha": 0.6, "linestyle": "none"}
        axis.plot(place + spread, np.sort(factors), TRACK_MARKERS[track], **style)
    axis.axhline(1, color="0.3", linewidth=0.8)
    axis.set_xticks(range(len(tracks)), tracks, fontsize=7)
    axis.grid(visible=False, axis="x")
    axis.set(title="Learned weights", ylabel="Θᵢ / FedAvg's weight, last round")
