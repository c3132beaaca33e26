"""The figure of the extras: how each differs from its base, the bundled dataset, and the learned weights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.differences import ABSENT, UNDECIDED
from qfl_core.analysis.untrained import START_FACT, UNTRAINED, common_start
from qfl_core.figures.results import BANDS, BARS, CORRECTED, curves_of, method_curves, reference_lines
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import (
    TRACK_COLOURS,
    TRACK_MARKERS,
    offsets,
    reference_line,
    steady,
    titled,
    track_title,
)
from qfl_core.studies.extras import BASES, BETTER, METRICS, WORSE, ExtrasStudy

BUNDLED = "breast-cancer"
#: Verdicts that a mark's fill tells, with what the legend calls them; a ring marks a difference that is shown.
FILLS = {ABSENT: ("absent (hollow)", "white"), UNDECIDED: ("undecided (filled)", "0.4")}


def extensions(found: ExtrasStudy) -> Sheet:
    """Return the paired differences of each metric, curves on the bundled dataset, and the learned weights."""
    tracks = tuple(found.studies)
    differences = steady(found.differences)
    panels: dict[str, Panel] = {
        f"extensions_{metric.removeprefix('test_')}": partial(
            _differences, table=differences[differences["metric"] == metric], tracks=tracks, metric=metric
        )
        for metric in METRICS
    }
    notes: dict[str, tuple[str, ...]] = dict.fromkeys(panels, (BARS, CORRECTED))
    if BUNDLED in found.studies:
        study = found.studies[BUNDLED]
        curves = curves_of(study.rounds, "global_accuracy")
        untrained = common_start([study], "global_accuracy")
        panels["extensions_breast_cancer"] = partial(
            _curves, curves=curves, references=study.references(), untrained=untrained
        )
        notes["extensions_breast_cancer"] = (BANDS, START_FACT)
    factors = found.factors[["track", "factor"]]
    panels["extensions_weights"] = partial(_factors, factors=factors, tracks=tracks)
    return Sheet("extensions", panels, found.facts, size=(3.6, 3.1), columns=3, legend=7, notes=notes)


def _differences(axis: Axes, table: pd.DataFrame, tracks: tuple[str, ...], metric: str) -> None:
    title, more_is_better = METRICS[metric]
    rows = {extra: place for place, extra in enumerate(BASES)}
    rings: list[tuple[float, float]] = []
    for offset, track in zip(offsets(len(tracks), 0.2), tracks, strict=True):
        mine = table[table["track"] == track]
        y = np.array([rows[extra] for extra in mine["extra"]]) + offset
        ends = np.abs(mine[["low", "high"]].to_numpy().T - mine["mean"].to_numpy())
        line = {"color": TRACK_COLOURS[track], "fmt": TRACK_MARKERS[track], "markersize": 4, "linewidth": 1.1}
        axis.errorbar(mine["mean"], y, xerr=ends, label=track_title(track), **line)
        rings += zip(mine["mean"][shown := mine["verdict"].isin([BETTER, WORSE])], y[shown], strict=True)
        absent = mine["verdict"] == ABSENT
        hollow = {"color": TRACK_COLOURS[track], "markerfacecolor": "white", "markersize": 4, "linestyle": "none"}
        axis.plot(mine["mean"][absent], y[absent], TRACK_MARKERS[track], zorder=5, **hollow)
    for verdict, (label, fill) in FILLS.items():
        if (table["verdict"] == verdict).any():
            axis.plot([], [], "o", color="0.4", markerfacecolor=fill, markersize=4, label=label)
    for place in rings:
        axis.plot(*place, "o", markersize=10, markerfacecolor="none", color="0.1", label="difference shown")
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    labels = [f"{method_named(extra).label}\n− {method_named(base).label}" for extra, base in BASES.items()]
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(title=titled(title, *tracks), xlabel=f"difference ({'right' if more_is_better else 'left'} is better)")
    axis.title.set_fontsize("small")  # the names of three datasets are as wide as the panel


def _curves(axis: Axes, curves: pd.DataFrame, references: Mapping[str, float], untrained: float) -> None:
    method_curves(axis, curves)
    reference_line(axis, UNTRAINED, untrained)
    reference_lines(axis, references)
    axis.set(title=titled("Global accuracy", BUNDLED), ylabel="accuracy")


def _factors(axis: Axes, factors: pd.DataFrame, tracks: tuple[str, ...]) -> None:
    """Draw one point per client and seed: the learned weight over the sample-size weight."""
    for place, track in enumerate(tracks):
        mine = factors[factors["track"] == track]["factor"].to_numpy()
        spread = np.linspace(-0.3, 0.3, len(mine))
        style = {"color": TRACK_COLOURS[track], "markersize": 2.5, "alpha": 0.6, "linestyle": "none"}
        axis.plot(place + spread, np.sort(mine), TRACK_MARKERS[track], **style)
    axis.axhline(1, color="0.3", linewidth=0.8)
    axis.set_xticks(range(len(tracks)), map(track_title, tracks), fontsize=8)
    axis.grid(visible=False, axis="x")
    axis.set(title="Learned weights, last round", xlabel="dataset", ylabel="learned / FedAvg's weight")
