"""The figure of the attacks: accuracy by attack and defence, by the share of bad clients, and the cost of defending."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from qfl_core.analysis.differences import HIGHER, LOWER
from qfl_core.analysis.untrained import START_FACT, UNTRAINED
from qfl_core.figures.results import BARS, CORRECTED
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import (
    SAFE,
    TRACK_COLOURS,
    TRACK_MARKERS,
    Look,
    offsets,
    reference_line,
    steady,
    titled,
    track_title,
)
from qfl_core.studies.attacks import DEFENCES, HONEST, NOBODY, UNDEFENDED, VARIED, AttackStudy

COLOURS = dict(zip(DEFENCES, ("0.2", SAFE[9], SAFE[2], SAFE[4], SAFE[3], SAFE[6], SAFE[5]), strict=True))
MARKERS = dict(zip(DEFENCES, "osD^vPX", strict=True))
#: What readers see in place of names; other names have a blank for the hyphen.
TITLES = {HONEST: NOBODY, "lying-trace": "lies about its trace", "krum": "Krum", "multi-krum": "multi-Krum"}
MARKS = {HIGHER: "+", LOWER: "−"}
_SIGNS = (
    "+ or −: shown to be better or worse than the mean;\n"
    "in its own column, −: the attack is shown to harm;\n"
    "no sign: undecided or absent"
)


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("-", " "))


def attacks(found: AttackStudy) -> Sheet:
    """Return one table of accuracies per track, the cost where nobody attacks, and the share of colluding clients."""
    table, differences = steady(found.table()), steady(found.differences)
    panels: dict[str, Panel] = {}
    for track in found.studies:
        mine = table[(table["track"] == track) & table["share"].isin([0.0, found.share])]
        judged = differences[differences["track"] == track]
        panels[f"attacks_{track.replace('-', '_')}"] = partial(
            _matrix, table=mine, judged=judged, title=f"{track_title(track)}, {found.share:.0%} bad clients"
        )
    costs = differences[differences["compared"] == "cost"]
    panels["attacks_cost"] = partial(_costs, table=costs, tracks=tuple(found.studies))
    first = next(iter(found.studies))
    varied = table[(table["track"] == first) & table["attack"].isin([VARIED, HONEST])]
    if varied["share"].nunique() > 2:
        untrained = found.start(first)
        title = titled(f"Global accuracy under {_title(VARIED)}", first)
        panels["attacks_share"] = partial(_shares, table=varied, title=title, untrained=untrained)
    notes: dict[str, tuple[str, ...]] = {name: (CORRECTED,) for name in panels if name != "attacks_share"}
    notes |= {"attacks_cost": (BARS, CORRECTED), "attacks_share": (START_FACT,)}
    return Sheet("attacks", panels, found.facts, size=(4.6, 3.4), columns=2, legend=5, notes=notes)


def _matrix(axis: Axes, table: pd.DataFrame, judged: pd.DataFrame, title: str) -> None:
    """Draw mean accuracies as a table of colours; a sign marks a difference that the seeds show."""
    attacks, defences = list(dict.fromkeys(table["attack"])), list(DEFENCES)
    means = table.pivot(index="attack", columns="defence", values="mean").loc[attacks, defences]
    axis.imshow(means, cmap="viridis", vmin=0.4, vmax=1.0, aspect="auto")
    keys = zip(judged["attack"], judged["defence"], strict=True)
    marks = dict(zip(keys, judged["verdict"].map(MARKS).fillna(""), strict=True))
    for (i, attack), (j, defence) in itertools.product(enumerate(attacks), enumerate(defences)):
        value = means.loc[attack, defence]
        ink = "white" if value < 0.75 else "black"
        told = f"{value:.2f}{marks.get((attack, defence), '')}"
        axis.text(j, i, told, ha="center", va="center", color=ink, fontsize=7)
    axis.set_xticks(range(len(defences)), map(_title, defences), rotation=30, ha="right", fontsize=7)
    axis.set_yticks(range(len(attacks)), map(_title, attacks), fontsize=7)
    axis.grid(visible=False)
    axis.set_xlabel(_SIGNS, fontsize=7)
    axis.set_title(f"{title}: global accuracy")


def _costs(axis: Axes, table: pd.DataFrame, tracks: tuple[str, ...]) -> None:
    defences = [name for name in DEFENCES if name in set(table["defence"])]
    for offset, track in zip(offsets(len(tracks), 0.2), tracks, strict=True):
        mine = table[table["track"] == track].set_index("defence").loc[defences]
        ends = np.abs(mine[["low", "high"]].to_numpy().T - mine["mean"].to_numpy())
        line = {"color": TRACK_COLOURS[track], "fmt": TRACK_MARKERS[track], "markersize": 4, "linewidth": 1.1}
        axis.errorbar(mine["mean"], np.arange(len(defences)) + offset, xerr=ends, label=track_title(track), **line)
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.set_yticks(range(len(defences)), map(_title, defences), fontsize=7)
    axis.set_ylim(len(defences) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set(
        title=titled("What a defence costs", *tracks),
        xlabel="accuracy where nobody attacks:\ndefended − mean (left is a cost)",
    )


def _shares(axis: Axes, table: pd.DataFrame, title: str, untrained: float) -> None:
    for defence, colour in COLOURS.items():
        mine = table[table["defence"] == defence].sort_values("share")
        # On top and with gaps, because a defence that leaves out nobody is the mean.
        line = {"linestyle": "--", "zorder": 3} if defence == UNDEFENDED else {"linestyle": "-"}
        look: Look = {"marker": MARKERS[defence], "markersize": 4, "color": colour, "linewidth": 1.2}
        axis.plot(mine["share"], mine["mean"], label=_title(defence), **look, **line)
    reference_line(axis, UNTRAINED, untrained)
    axis.set(title=title, xlabel="share of colluding clients", ylabel="global accuracy")
    axis.set_xticks(sorted(set(table["share"])))
    axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
