"""The train-test gap of every method in the last round: what the mix of classes explains of it, and the rest."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.gap import PARTS
from qfl_core.analysis.paper import PAPER
from qfl_core.figures.results import PAPER_LABEL, THIN_LINES
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import SAFE, Look, half_width, steady, titled

#: Light where training has no part in it.
_BARS = {"shift": ("0.75", -0.19), "rest": (SAFE[0], 0.19)}


def train_test_gap_shift(table: pd.DataFrame, facts: tuple[str, ...]) -> Sheet:
    """Return one panel per track; ``table`` is that of :func:`qfl_core.analysis.gap.gap_table`.

    Two bars per method, which add up to the diamond: the gap itself. All have 95 % intervals over seeds.
    """
    table = steady(table)
    tracks = list(dict.fromkeys(table["track"]))
    panels: dict[str, Panel] = {
        f"gap_shift_{track.replace('-', '_')}": partial(_parts, table=table[table["track"] == track], track=track)
        for track in tracks
    }
    height = 1.4 + 0.36 * table["label"].nunique()
    return Sheet("train_test_gap_shift", panels, (*facts, THIN_LINES), size=(4.6, height))


def _parts(axis: Axes, table: pd.DataFrame, track: str) -> None:
    labels = list(dict.fromkeys(table["label"]))
    places = {label: place for place, label in enumerate(labels)}
    error = {"ecolor": "0.3", "elinewidth": 0.8}
    for part, (colour, offset) in _BARS.items():
        mine = table[table["part"] == part]
        y = [places[label] + offset for label in mine["label"]]
        axis.barh(y, mine["mean"], 0.36, xerr=half_width(mine), color=colour, error_kw=error, label=PARTS[part])
    whole = table[table["part"] == "gap"]
    y = [places[label] for label in whole["label"]]
    axis.errorbar(
        whole["mean"], y, xerr=half_width(whole), fmt="D", markersize=4, linewidth=1, color="0.1", label=PARTS["gap"]
    )
    printed = {method_named(name).label: value for name, value in PAPER.get((track, "train_test_gap"), {}).items()}
    rows = [label for label in printed if label in places]
    if rows:
        mark: Look = {"marker": "v", "markersize": 6, "color": "white", "markeredgecolor": "0.1", "linestyle": "none"}
        axis.plot(
            [printed[label] for label in rows], [places[label] - 0.28 for label in rows], label=PAPER_LABEL, **mark
        )
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(title=titled("What the gap is made of", track), xlabel="train accuracy − test accuracy, last round")
