"""The forest plot of the paper's claims: our interval, the paper's value, and the verdict, one row a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from qfl_core.figures.style import SAFE, footer

#: Colour and marker of a verdict: either alone tells them apart.
VERDICT_STYLE = {
    "holds": (SAFE[0], "o"),
    "fails": (SAFE[3], "X"),
    "undecided": (SAFE[7], "D"),
    "missing": ("0.6", "$–$"),
}
#: Panels by track and unit: rows of one panel share an axis that means one thing.
PANELS: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "BAF: accuracies and gaps": (("baf",), ("accuracy",), "difference in accuracy"),
    "BAF: recall, specificity, unsteadiness": (("baf",), ("score",), "difference of the score"),
    "Genome: accuracies and gaps": (("genome",), ("accuracy",), "difference in accuracy"),
    "Traces: shares": (("baf", "genome"), ("share",), "share"),
    "Traces: controller and loss": (("baf",), ("log rate", "loss"), "log rate, or loss"),
    "Devices": (("hardware",), ("accuracy",), "accuracy"),
    "Theory": (("baf", "genome", "theory"), ("ratio", "cosine"), "ratio, or cosine"),
}
_ROW, _PANEL = 0.165, 0.62  # inches


def forest(axis: Axes, rows: pd.DataFrame, title: str, xlabel: str) -> None:
    """Draw rows of :func:`qfl_core.analysis.parts_table` on one axis, the first on top.

    A grey tick is the bound that the claim names (a bar between -bound and +bound for "within"), an arrow the claimed
    side; the verdict and the corrected p stand at the right.
    """
    for y, row in enumerate(rows.itertuples()):
        colour, marker = VERDICT_STYLE[row.verdict]
        _bound(axis, row, y)
        if row.verdict != "missing":
            if not np.isnan(row.low):
                axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
            axis.plot(row.estimate, y, marker=marker, color=colour, markersize=5, markeredgecolor="white", mew=0.4)
        if not np.isnan(row.paper):
            axis.plot(row.paper, y, marker="v", color="none", markeredgecolor="black", markersize=5.5, mew=0.9)
        words = row.verdict if np.isnan(row.p_corrected) else f"{row.verdict}, p {row.p_corrected:.3f}"
        axis.annotate(
            words, (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=6.5, color=colour, weight="bold"
        )
    axis.set_yticks(range(len(rows)), [f"{row.part}  {row.text}" for row in rows.itertuples()], fontsize=6.5)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="y", visible=False)
    axis.axvline(0, color="0.75", linewidth=0.8, zorder=0)
    axis.set_title(title, loc="left", fontsize=8)
    axis.set_xlabel(xlabel, fontsize=7)


def _bound(axis: Axes, row, y: int) -> None:
    grey = {"color": "0.55", "zorder": 1}
    if row.claimed == "within":
        axis.plot([-row.bound, row.bound], [y, y], color="0.85", linewidth=6, solid_capstyle="butt", zorder=0)
        return
    axis.plot(row.bound, y, marker="|", markersize=8, **grey)
    side = {"above": 1, "below": -1, "always": -1}[row.claimed]
    axis.plot(row.bound, y, marker=5 if side > 0 else 4, markersize=3, linestyle="none", **grey)


def claims_forest(
    parts: pd.DataFrame,
    facts: tuple[str, ...],
    panels: Mapping[str, tuple[Sequence[str], Sequence[str], str]] = PANELS,
) -> Figure:
    """Draw all parts of all claims on a page as wide as A4, in panels by track and unit."""
    chosen = {
        title: (parts[parts["track"].isin(tracks) & parts["unit"].isin(units)], label)
        for title, (tracks, units, label) in panels.items()
    }
    chosen = {title: (rows, label) for title, (rows, label) in chosen.items() if len(rows)}
    heights = [_PANEL + _ROW * len(rows) for rows, _ in chosen.values()]
    figure, axes = plt.subplots(
        len(chosen), 1, figsize=(8.0, sum(heights) + 0.6), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axis, (title, (rows, label)) in zip(axes[:, 0], chosen.items(), strict=True):
        forest(axis, rows, title, label)
    figure.legend(handles=_key(), loc="outside lower left", ncols=4, fontsize=7)
    footer(figure, *facts)
    return figure


def _key() -> list[Line2D]:
    def mark(marker: str | int, colour: str, label: str, **more) -> Line2D:
        return Line2D([], [], linestyle="none", marker=marker, color=colour, markersize=5.5, label=label, **more)

    return [
        *(
            mark(marker, colour, f"ours, {name}")
            for name, (colour, marker) in VERDICT_STYLE.items()
            if name != "missing"
        ),
        mark("v", "none", "the paper's value", markeredgecolor="black"),
        mark(5, "0.55", "claimed: on this side of the tick"),
        Line2D([], [], color="0.85", linewidth=6, label="claimed: within this band"),
        Line2D([], [], color="0.3", linewidth=1.6, label="95 % interval over seeds"),
    ]
