"""The figure of the attribution: the level of every link of the chain, and what each change adds to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.analysis.differences import ABSENT, HIGHER, LOWER, UNDECIDED
from qfl_core.base.numbers import number
from qfl_core.figures.results import CORRECTED, THIN_LINES
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import SAFE, TRACK_COLOURS, Look, half_width, steady, track_title
from qfl_core.studies.attribution import METRICS, NAMES, OTHER, OWN, PARTS, WHOLE, Attribution

#: Verdicts as signs that stand after a difference, and as markers of the legend.
SIGNS = {HIGHER: ("▲", "^"), LOWER: ("▼", "v"), ABSENT: ("=", "$=$"), UNDECIDED: ("?", "$?$")}
#: Light where it needs no model that knows anything.
_BARS = {"by_calls": ("0.72", -0.19), "by_telling": (SAFE[2], 0.19)}
_SHOWN = tuple(metric for metric in METRICS if metric != "called_positive")


def attribution(found: Attribution) -> Sheet:
    """Return one column of panels per track: the levels of five metrics, and the parts of the gains in accuracy."""
    levels, differences, parts = steady(found.levels), steady(found.differences), steady(found.parts)
    names = {track: f"attribution_{track.replace('-', '_')}" for track in found.tracks}
    written = set(_written(differences[differences["metric"].isin(_SHOWN)])["verdict"])
    panels: dict[str, Panel] = {}
    for metric in _SHOWN:
        for place, (track, name) in enumerate(names.items()):
            panels[f"{name}_{metric.removeprefix('test_')}"] = partial(
                _levels,
                levels=_rows(levels, track, metric=metric),
                differences=_rows(differences, track, metric=metric),
                title=f"{_upper(METRICS[metric])}, {track_title(track)}",
                colour=TRACK_COLOURS[track],
                signs=[verdict for verdict in SIGNS if verdict in written],
                named=place == 0,
            )
    for place, (track, name) in enumerate(names.items()):
        mine = parts[(parts["track"] == track) & (parts["validation"] == OWN)]
        panels[f"{name}_parts"] = partial(_parts, parts=mine, track=track, named=place == 0)
    return Sheet(
        "attribution", panels, (*found.facts, THIN_LINES, CORRECTED), size=(2.45, 1.75), columns=len(names), legend=4
    )


def _upper(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _rows(table: pd.DataFrame, track: str, metric: str) -> pd.DataFrame:
    return table[(table["track"] == track) & (table["metric"] == metric)]


def _written(differences: pd.DataFrame) -> pd.DataFrame:
    """Return the differences that are written beside the points, each with a sign."""
    return differences[(differences["validation"] == OWN) & (differences["link"] != WHOLE)]


def _levels(
    axis: Axes,
    levels: pd.DataFrame,
    differences: pd.DataFrame,
    title: str,
    colour: str,
    signs: Sequence[str],
    named: bool,
) -> None:
    """Draw the level of every link with its 95 % interval, and write the difference from the link above it.

    ``signs`` are the verdicts of the whole figure, in the order in which the legend has them.
    """
    for validation, offset in ((OWN, 0.0), (OTHER, 0.32)):
        rows = levels[levels["validation"] == validation]
        if validation == OTHER:  # links in which validation plays no role are the same
            rows = rows[rows["link"].isin(differences.loc[differences["validation"] == OTHER, "link"])]
        y = [NAMES.index(link) + offset for link in rows["link"]]
        mark: Look = {"fmt": "o", "color": colour, "markersize": 4, "linewidth": 1.2}
        label = "client validation as in the profile"
        if validation == OTHER:
            mark |= {"markerfacecolor": "white", "markersize": 3, "linewidth": 0.8}
            label = "client validation with the other label mix"
        axis.errorbar(rows["mean"], y, xerr=half_width(rows), label=label, **mark)
    for row in _written(differences).to_dict("records"):
        words = f"{number(row['mean'], signed=True)} {SIGNS[row['verdict']][0]}"
        place = (0.985, NAMES.index(row["link"]))
        look: Look = {"ha": "right", "va": "center", "fontsize": 6.5, "color": "0.15"}
        axis.annotate(words, place, xycoords=("axes fraction", "data"), **look)
    for verdict in signs:
        sign: Look = {"marker": SIGNS[verdict][1], "linestyle": "none", "color": "0.15", "markersize": 5}
        sign["markeredgewidth"] = 0  # an edge would close the gap of "="
        axis.plot([], [], label=f"change from the row above: {verdict}", **sign)
    low, high = axis.get_xlim()
    ticks = MaxNLocator(3).tick_values(low, high)
    axis.set_xlim(low, high + 0.6 * (high - low))  # room for the words
    axis.set_xticks([tick for tick in ticks if low <= tick <= high])
    _links(axis, named)
    axis.set_title(title, fontsize=7.5)


def _parts(axis: Axes, parts: pd.DataFrame, track: str, named: bool) -> None:
    """Draw the two parts of every difference in global accuracy; they add up to it."""
    rows = parts[parts["link"] != WHOLE]
    error = {"ecolor": "0.3", "elinewidth": 0.8}
    for part, (colour, offset) in _BARS.items():
        mine = rows[rows["part"] == part]
        y = [NAMES.index(link) + offset for link in mine["link"]]
        axis.barh(y, mine["mean"], 0.36, xerr=half_width(mine), color=colour, error_kw=error, label=PARTS[part])
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    _links(axis, named)
    axis.set_title(f"Parts of the gain, {track_title(track)}", fontsize=7.5)


def _links(axis: Axes, named: bool) -> None:
    labels = [name if place < 2 else f"+ {name}" for place, name in enumerate(NAMES)]
    axis.set_yticks(np.arange(len(NAMES)), labels if named else [""] * len(NAMES), fontsize=7)
    axis.set_ylim(len(NAMES) - 0.4, -0.5)
    axis.tick_params(axis="x", labelsize=7)
    axis.grid(visible=False, axis="y")
