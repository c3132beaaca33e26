"""Forest plots of the paper's claims: our interval, the paper's value and the verdict, one row per part of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from qfl_core.analysis.claim_tables import PartRow
from qfl_core.analysis.real_claims import RealClaims
from qfl_core.analysis.tracks import with_titles
from qfl_core.base.numbers import number
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import SAFE, Look

#: Colour and marker of a verdict: either alone tells them apart, and the word stands beside each row.
VERDICT_STYLE = {
    "holds": (SAFE[0], "o"),
    "fails": (SAFE[3], "X"),
    "absent": ("#8f4a86", "s"),  # the palette's purple, darker, because words are written in it
    "undecided": ("0.45", "D"),
    "missing": ("0.6", ""),
}
_REGION: Look = {"color": "0.91", "linewidth": 7, "solid_capstyle": "butt", "zorder": 0.5}
_MARGIN: Look = _REGION | {"color": "0.78", "zorder": 0.6}
_PAPER: Look = {"marker": "v", "color": "none", "markeredgecolor": "black", "markersize": 5.5, "mew": 0.9}
_REAL: Look = {"color": "0.35", "linewidth": 0.7}
#: What footers say where intervals on real samples are drawn.
_REAL_ROWS = "thin lines: real samples"
#: What titles call the kinds of engine.
_KINDS = {"noisy": "noisy simulator"}
#: How far under its row the interval on real samples is drawn.
_BELOW = 0.33
_ROW, _FRAME = 0.17, 0.62  # inches


class DrawnRow(PartRow, Protocol):
    """A row of a forest plot."""

    track: str
    real_estimate: float
    real_low: float
    real_high: float


@dataclass(frozen=True)
class Rows:
    """The parts of one panel, chosen by track and unit; one unit per panel, because its parts share an axis."""

    title: str
    xlabel: str
    tracks: Sequence[str]
    units: Sequence[str]

    def of(self, parts: pd.DataFrame) -> pd.DataFrame:
        """Return this panel's rows of :func:`qfl_core.analysis.parts_table`."""
        return parts[parts["track"].isin(self.tracks) & parts["unit"].isin(self.units)]


_ACCURACY = "difference in accuracy"
_CHANGES = "difference in the standard deviation of changes from round to round"
#: Two pages of panels, by file name; every title begins with the dataset. The devices are those of the paper's genome
#: runs, and the theory points with values of their own are computed on a small genome task.
PAGES: dict[str, dict[str, Rows]] = {
    "claims_baf": {
        "claims_baf_accuracy": Rows("BAF: accuracies and gaps", _ACCURACY, ("baf",), ("accuracy",)),
        "claims_baf_scores": Rows("BAF: recall and specificity", "difference in score", ("baf",), ("score",)),
        "claims_baf_unsteadiness": Rows("BAF: unsteadiness", _CHANGES, ("baf",), ("unsteadiness",)),
        "claims_baf_shares": Rows(
            "BAF: unfolds and uploads", "share or correlation", ("baf",), ("share", "correlation")
        ),
        "claims_controller": Rows("BAF: controller", "standard deviation of the logarithm", ("baf",), ("log rate",)),
        "claims_loss": Rows("BAF: loss of the unfolds", "difference in loss", ("baf",), ("loss",)),
    },
    "claims_genome": {
        "claims_genome_accuracy": Rows("Genome: accuracies and gaps", _ACCURACY, ("genome",), ("accuracy",)),
        "claims_genome_unsteadiness": Rows("Genome: unsteadiness", _CHANGES, ("genome",), ("unsteadiness",)),
        "claims_genome_shares": Rows("Genome: rounds", "share", ("genome",), ("share", "correlation")),
        "claims_devices": Rows("Genome: devices", _ACCURACY, ("hardware",), ("accuracy", "unsteadiness")),
        "claims_theory": Rows("BAF and genome: theory, bounds", "ratio", ("baf", "genome", "theory"), ("ratio",)),
        "claims_descent": Rows("Genome: theory, direction of the estimate", "cosine", ("theory",), ("cosine",)),
    },
}


def claim_sheets(parts: pd.DataFrame, facts: tuple[str, ...], real: RealClaims | None = None) -> list[Sheet]:
    """Return the forest plots of :func:`qfl_core.analysis.parts_table`, two pages as wide as A4.

    ``real`` adds the intervals on real samples, one thin line under each row. Engine and number of seeds differ between
    panels: they stand beside each title, and the footer leaves those of ``facts`` out.
    """
    found = pd.DataFrame(index=parts["part"], columns=["estimate", "low", "high"], dtype=float)
    if real is not None:
        found = real.parts.reindex(parts["part"])
    parts = parts.assign(**{f"real_{name}": found[name].to_numpy() for name in ("estimate", "low", "high")})
    shared = [fact for fact in facts if not fact.startswith("engine:") and not fact.endswith((" seed", " seeds"))]
    told = (*shared, "engine and seeds: beside each title")
    sheets = []
    for name, panels in PAGES.items():
        rows = {panel: chosen.of(parts) for panel, chosen in panels.items()}
        rows = {panel: mine for panel, mine in rows.items() if len(mine)}
        drawn = {
            panel: partial(forest, rows=mine, title=panels[panel].title + origin(mine), xlabel=panels[panel].xlabel)
            for panel, mine in rows.items()
        }
        heights = {panel: _FRAME + _ROW * len(mine) for panel, mine in rows.items()}
        notes = {panel: (_REAL_ROWS,) for panel, mine in rows.items() if mine["real_low"].notna().any()}
        sheets.append(Sheet(name, drawn, told, size=(7.6, 3.0), columns=1, legend=3, heights=heights, notes=notes))
    return sheets


def origin(rows: pd.DataFrame) -> str:
    """Return what computed the values of a panel, and how many seeds, in brackets."""
    told: dict[str, None] = {}
    for row in rows[rows["seeds"] > 0].itertuples():
        kind = str(row.source).rpartition(", ")[2].rpartition("(")[2].rstrip(")")
        seeds = int(cast(int, row.seeds))
        # A part of one value is the largest of several runs: it has no seeds to count.
        told[f"{_KINDS.get(kind, kind)}, {seeds} seeds" if seeds > 1 else _KINDS.get(kind, kind)] = None
    return f" ({'; '.join(told)})" if told else ""


def forest(axis: Axes, rows: pd.DataFrame, title: str, xlabel: str) -> None:
    """Draw parts of claims on one axis, the first on top.

    The grey band of a row is where the claim wants the value; its darker part, next to the bound, is closer than the
    smallest effect worth claiming. Verdict and corrected p stand at the right; "small" marks a part that holds or fails
    by less than that.
    """
    shown = cast(list[DrawnRow], list(rows.itertuples()))
    for y, row in enumerate(shown):
        colour, marker = VERDICT_STYLE[row.verdict]
        if not np.isnan(row.low):
            axis.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
        if not np.isnan(row.estimate):
            axis.plot(row.estimate, y, marker=marker, color=colour, markersize=5.5, markeredgecolor="white", mew=0.4)
        if not np.isnan(row.real_low):
            axis.plot([row.real_low, row.real_high], [y + _BELOW] * 2, **_REAL)
            axis.plot(row.real_estimate, y + _BELOW, marker="o", markersize=2.2, color=_REAL["color"])
        if not np.isnan(row.paper):
            axis.plot(row.paper, y, **_PAPER)
        axis.plot(row.bound, y, marker="|", color="0.6", markersize=7, zorder=1)
        words = row.verdict + (" (small)" if row.small else "")
        if not np.isnan(row.p_corrected):
            words += ", p < 0.001" if row.p_corrected < 0.001 else f", p {number(row.p_corrected)}"
        place: Look = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
        axis.annotate(words, (1.01, y), fontsize=6.5, color=colour, weight="bold", **place)
    axis.margins(x=0.08)
    low, high = axis.get_xlim()
    for y, row in enumerate(shown):
        start = {"above": row.bound, "below": low, "always": low, "within": -row.bound}[row.claimed]
        end = high if row.claimed == "above" else row.bound
        axis.plot([start, end], [y, y], **_REGION)
        if row.claimed in ("above", "below"):
            edge = row.bound + row.margin * (1 if row.claimed == "above" else -1)
            axis.plot([row.bound, min(max(edge, low), high)], [y, y], **_MARGIN)
    axis.set_xlim(low, high)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(
        range(len(rows)), [f"{row.part}  {with_titles(row.text, [row.track])}" for row in shown], fontsize=6.5
    )
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(axis="y", visible=False)
    axis.set_title(title, loc="left", fontsize=8)
    axis.set_xlabel(xlabel, fontsize=7, labelpad=2)
    _key(axis, rows)


def _key(axis: Axes, rows: pd.DataFrame) -> None:
    """Add the legend's entries for what the panel shows; they draw nothing on the panel."""
    for name, (colour, marker) in VERDICT_STYLE.items():
        if marker and name in set(rows["verdict"]):
            axis.plot([], [], marker=marker, color=colour, linewidth=1.6, label=f"ours, 95 % interval: {name}")
    if rows["real_low"].notna().any():
        axis.plot([], [], marker="o", markersize=2.2, label="real sample, 95 % interval", **_REAL)
    if rows["paper"].notna().any():
        axis.plot([], [], linestyle="none", label="the paper's value", **_PAPER)
    axis.plot([], [], label="claimed", **_REGION)
    axis.plot([], [], label="claimed, but less than the margin", **_MARGIN)
