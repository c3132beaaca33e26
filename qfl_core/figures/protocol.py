"""The figure of the protocol search: candidates by their total, what decides, the winner beside the paper."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.tracks import with_titles
from qfl_core.base.numbers import significant
from qfl_core.figures.results import FEDERATED
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import (
    METHOD_COLOURS,
    SAFE,
    TRACK_COLOURS,
    TRACK_MARKERS,
    Look,
    half_width,
    offsets,
    titled,
    track_title,
)
from qfl_core.studies.protocol import ALL, DEFAULTS, GRADE, TOTAL, SearchTables

#: The mark of a level and its fill, by the number of the level: shapes differ, because small greys look alike.
_LEVELS = (("o", "0.15"), ("o", "white"), ("^", SAFE[2]), ("X", SAFE[3]))
_LEVELS_TOLD = "levels: ● first, ○ second, ▲ third, × fourth"
_SCORES = {TOTAL: ("total", "D", "0.1"), ALL: ("numbers", "s", "#CC79A7"), GRADE: ("statements", "^", "#D55E00")}


def protocol_search(tables: SearchTables, name: str = "protocol_search") -> Sheet:
    """Return the candidates with levels and scores, the main effects, and the winner's numbers beside the paper's."""
    tracks = tuple(track for track in TRACK_COLOURS if track in tables.candidates)
    panels = {
        f"{name}_candidates": partial(_candidates, table=tables.candidates, factors=tables.factors, tracks=tracks),
        f"{name}_effects": partial(_effects, effects=tables.effects, factors=tables.factors, tracks=tracks),
        f"{name}_numbers": partial(_numbers, numbers=tables.numbers, winner=tables.winner),
    }
    return Sheet(name, panels, tables.facts, size=(4.4, 6.9), legend=5)


def _candidates(axis: Axes, table: pd.DataFrame, factors: dict[str, list[str]], tracks: tuple[str, ...]) -> None:
    """Draw one row per candidate: a mark for each factor's level on the left, its scores on the right."""
    y = np.arange(len(table))
    for track in tracks:
        style: Look = {
            "markersize": 3.5,
            "alpha": 0.75,
            "color": TRACK_COLOURS[track],
            "label": f"numbers of {track_title(track)}",
        }
        axis.plot(table[track], y, TRACK_MARKERS[track], **style)
    label, marker, colour = _SCORES[TOTAL]
    half = table[f"{TOTAL} ±"].fillna(0)
    axis.errorbar(table[TOTAL], y, xerr=half, fmt=marker, markersize=4, linewidth=1, color=colour, label=label)
    final = int((table["stage"] == "final").sum())
    if final:
        axis.axhline(final - 0.5, color="0.3", linewidth=0.8)
    width = 0.07 * table[[TOTAL, *tracks]].to_numpy().max()
    for column, (factor, levels) in enumerate(factors.items()):
        x = -width * (len(factors) - column)
        for row, level in enumerate(table[factor]):
            if level != DEFAULTS:
                shape, fill = _LEVELS[levels.index(level) % len(_LEVELS)]
                axis.plot(x, row, shape, markersize=5, markerfacecolor=fill, markeredgewidth=0.7, color="0.15")
        axis.annotate(
            factor,
            (x, -1.3),
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=7,
            annotation_clip=False,
        )
    ends = (table[TOTAL] + half).to_numpy()
    for row, (role, marked) in enumerate(zip(table["role"], table["marked"], strict=True)):
        text = "; ".join([*([with_titles(str(role), tracks)] if role else []), *(["†"] if marked else [])])
        if "profile" in str(role):
            axis.axhspan(row - 0.5, row + 0.5, color="0.9", zorder=0)
        end = max(ends[row], *(table[track].iloc[row] for track in tracks))
        axis.annotate(text, (end, row), (4, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set_xlim(-width * (len(factors) + 1), 1.5 * ends.max())
    axis.set_xticks([tick for tick in axis.get_xticks() if tick >= 0 and tick <= axis.get_xlim()[1]])
    axis.set_ylim(len(table) - 0.3, -1)
    axis.set_yticks([])
    axis.grid(visible=False, axis="y")
    above = titled("Final above the line, screening below" if final else "Screening", *tracks)
    # Above the factors' names, which stand on the axis; the empty line keeps it inside the figure.
    axis.set_title(f"\n{above}", y=1.27)
    axis.set_xlabel(f"distance from the paper\n({_LEVELS_TOLD};\n†: no winner, the untrained model is as accurate)")


def _effects(axis: Axes, effects: pd.DataFrame, factors: dict[str, list[str]], tracks: tuple[str, ...]) -> None:
    steps = dict.fromkeys(zip(effects["factor"], effects["level"], strict=True))
    rows = {step: place for place, step in enumerate(steps)}
    for offset, (score, (label, marker, colour)) in zip(offsets(len(_SCORES), 0.22), _SCORES.items(), strict=True):
        mine = effects[effects["score"] == score]
        y = [rows[step] + offset for step in zip(mine["factor"], mine["level"], strict=True)]
        style: Look = {"color": colour, "markersize": 3, "linewidth": 1, "label": label}
        axis.errorbar(mine["effect"], y, xerr=half_width(mine, "effect"), fmt=marker, **style)
    axis.axvline(0, color="0.4", linewidth=0.8)
    axis.set_yticks(list(rows.values()), [f"{factor}:\n{factors[factor][0]} → {level}" for factor, level in rows])
    axis.tick_params(axis="y", labelsize=7)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_ylim(len(rows) - 0.5, -0.5)
    title = titled("Main effects", *tracks)
    axis.set(title=title, xlabel="change (total, numbers: left is closer;\nstatements: right is better)")


def _numbers(axis: Axes, numbers: pd.DataFrame, winner: str) -> None:
    shapes = dict(zip(FEDERATED, "osD^", strict=True))
    mine = numbers[numbers["candidate"] == winner]
    for row in mine.to_dict("records"):
        hollow: Look = {"markerfacecolor": "white"} if row["track"] == "genome" else {}
        wide = np.nan_to_num(row["high"] - row["ours"])
        axis.errorbar(
            row["paper"], row["ours"], yerr=wide, fmt=shapes[row["metric"]], color=METHOD_COLOURS[row["method"]],
            markersize=5, linewidth=0.8, **hollow,
        )  # fmt: skip
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    for method in mine["method"].unique():
        axis.plot([], [], "o", color=METHOD_COLOURS[method], label=METHODS[method].label)
    for metric, shape in shapes.items():
        axis.plot([], [], shape, color="0.4", label=FEDERATED[metric][0].lower())
    axis.plot([], [], "o", color="0.4", markerfacecolor="white", label="genome (hollow)")
    lowest = min(-0.05, float(significant(mine["low"].min() - 0.05, 1)) if mine["low"].notna().any() else 0)
    title = titled("The winner beside the paper", *dict.fromkeys(mine["track"]))
    axis.set(title=title, xlabel="paper", ylabel="ours (bar: 95 % of single runs)")
    axis.set(xlim=(-0.05, 1), ylim=(lowest, 1))
