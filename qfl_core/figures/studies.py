"""Figures of the studies: the protocol search, the clean track, and what the method depends on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.base.numbers import significant, span
from qfl_core.figures.results import FEDERATED, method_curves, reference_lines
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import (
    METHOD_COLOURS,
    SAFE,
    TRACK_COLOURS,
    TRACK_MARKERS,
    Look,
    half_width,
    method_colour,
    offsets,
)
from qfl_core.studies.clean import SHARE, CleanStudy, EncodingSearch, with_executions
from qfl_core.studies.protocol import ALL, DEFAULTS, Search
from qfl_core.studies.sensitivity import METRICS, ControllerStudy, Sensitivity

#: Numbers over all tracks are black.
_TRACKS = {ALL: "0.1", **TRACK_COLOURS}
_MARKERS = {ALL: "D", **TRACK_MARKERS}


def protocol_search(search: Search, name: str = "protocol_search") -> Sheet:
    """Return all candidates by distance with their levels, the main effects, and the winner beside the paper."""
    panels = {
        f"{name}_candidates": partial(_candidates, search=search),
        f"{name}_effects": partial(_effects, search=search),
        f"{name}_numbers": partial(_numbers, search=search),
    }
    return Sheet(name, panels, search.facts, size=(4.7, 5.6), legend=6)


def _candidates(axis: Axes, search: Search) -> None:
    """Draw one row per candidate: a mark for each factor's level on the left, its distances on the right."""
    table = search.candidates.reset_index()
    y = np.arange(len(table))
    tracks = search.plan.tracks if len(search.plan.tracks) > 1 else ()
    for track in tracks:
        axis.plot(table[track], y, _MARKERS[track], markersize=2.5, alpha=0.6, color=_TRACKS[track], label=track)
    is_final = table["stage"] == "final"
    axis.errorbar(
        table[ALL], y, xerr=table[f"{ALL} ±"].fillna(0), fmt="D", markersize=3, linewidth=1, color=_TRACKS[ALL],
        label="all numbers",
    )  # fmt: skip
    if is_final.any():
        axis.axhline(is_final.sum() - 0.5, color="0.3", linewidth=0.8)
        ends = ((0, "final"), (is_final.sum(), "screening"))
        for row, stage in ends:
            axis.annotate(stage, (0.99, row), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=7)
    width = 0.05 * table[[ALL, *tracks]].to_numpy().max()
    for column, (factor, levels) in enumerate(search.plan.factors.items()):
        x = -width * (len(search.plan.factors) - column)
        place = {level: number for number, level in enumerate(levels)}
        for row, level in enumerate(table[factor]):
            if level != DEFAULTS:
                filled = place[level] == 0
                axis.plot(x, row, "o", markersize=3.2, markerfacecolor="0.25" if filled else "white", color="0.25")
        axis.annotate(factor, (x, -1), rotation=60, ha="left", va="bottom", fontsize=7, annotation_clip=False)
    for row in map(int, np.flatnonzero(table["candidate"] == search.profile)):
        axis.axhspan(row - 0.5, row + 0.5, color="0.9", zorder=0)
        end = max(table[ALL][row] + np.nan_to_num(table[f"{ALL} ±"][row]), *(table[track][row] for track in tracks), 0)
        axis.annotate("profile", (end, row), (5, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set_xlim(-width * (len(search.plan.factors) + 1), None)
    axis.set_xticks([tick for tick in axis.get_xticks() if tick >= 0 and tick <= axis.get_xlim()[1]])
    axis.set_ylim(len(table) - 0.3, -1)
    axis.set_yticks([])
    axis.grid(visible=False, axis="y")
    axis.set_title("Candidates (● first level, ○ second)", pad=62)
    axis.set_xlabel("distance from the paper's numbers")


def _effects(axis: Axes, search: Search) -> None:
    effects = search.effects
    steps = dict.fromkeys(zip(effects["factor"], effects["level"], strict=True))
    rows = {step: place for place, step in enumerate(steps)}
    tracks = [ALL, *search.plan.tracks] if len(search.plan.tracks) > 1 else [ALL]
    for offset, track in zip(offsets(len(tracks), 0.22), tracks, strict=True):
        mine = effects[effects["track"] == track]
        y = [rows[step] + offset for step in zip(mine["factor"], mine["level"], strict=True)]
        label = "all numbers" if track == ALL else track
        half = half_width(mine, "effect")
        style = {"fmt": _MARKERS[track], "color": _TRACKS[track], "markersize": 3, "linewidth": 1, "label": label}
        axis.errorbar(mine["effect"], y, xerr=half, **style)
    axis.axvline(0, color="0.4", linewidth=0.8)
    first = {factor: next(iter(levels)) for factor, levels in search.plan.factors.items()}
    axis.set_yticks(list(rows.values()), [f"{factor}:\n{first[factor]} → {level}" for factor, level in rows])
    axis.tick_params(axis="y", labelsize=7)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set(title="Main effects", xlabel="change of the distance (left is closer)")


def _numbers(axis: Axes, search: Search) -> None:
    stage, paper = search.best, search.best.paper
    ours = stage.numbers[stage.candidates.index(search.winner)]
    shapes = dict(zip(FEDERATED, "osD^", strict=True))
    for place, (track, metric, method) in enumerate(paper.index):
        spread = ours[:, place].std(ddof=1) if len(ours) > 1 else 0
        hollow: Look = {"markerfacecolor": "white"} if track == "genome" else {}
        axis.errorbar(
            paper.iloc[place], ours[:, place].mean(), yerr=spread, fmt=shapes[metric], color=METHOD_COLOURS[method],
            markersize=5, linewidth=0.8, **hollow,
        )  # fmt: skip
    axis.plot([0, 1], [0, 1], color="0.5", linewidth=0.8)
    for method in paper.index.unique("method"):
        axis.plot([], [], "o", color=METHOD_COLOURS[method], label=METHODS[method].label)
    for metric, shape in shapes.items():
        axis.plot([], [], shape, color="0.4", label=FEDERATED[metric][0].lower())
    axis.plot([], [], "o", color="0.4", markerfacecolor="white", label="genome (hollow)")
    shown = "the profile's settings" if search.winner == search.profile else f"candidate {search.winner}"
    axis.set(title=f"Closest: {shown}", xlabel="paper", ylabel="ours (bar: standard deviation over seeds)")
    axis.set(xlim=(-0.05, 1), ylim=(-0.05, 1))


def clean_track(clean: CleanStudy, name: str) -> Sheet:
    """Return accuracy, balanced accuracy, ROC-AUC and fairness over rounds, and the score over circuits spent."""
    titles = {
        "global_accuracy": ("Global accuracy", "accuracy"),
        "test_balanced_accuracy": ("Balanced accuracy", "balanced_accuracy"),
        "test_roc_auc": ("ROC-AUC", "roc_auc"),
        "fairness_gap": ("Client fairness gap", None),
    }
    panels = {
        f"{name}_{metric.removeprefix('test_')}": partial(
            _clean_curves, clean=clean, metric=metric, title=title, reference=reference
        )
        for metric, (title, reference) in titles.items()
    }
    panels[f"{name}_executions"] = partial(_executions, clean=clean)
    return Sheet(name, panels, clean.study.facts, legend=5)


def _clean_curves(axis: Axes, clean: CleanStudy, metric: str, title: str, reference: str | None) -> None:
    method_curves(axis, clean.study.rounds, metric)
    if reference:
        reference_lines(axis, clean.means(reference))
    axis.set(title=title, ylabel="score" if reference else "lower is better")


def _executions(axis: Axes, clean: CleanStudy) -> None:
    column = "global_accuracy" if clean.metric == "accuracy" else f"test_{clean.metric}"
    rounds = with_executions(clean.study.rounds)
    for method in clean.study.methods:
        mine = rounds[(rounds["method"] == method) & (rounds["round"] > 0)]
        mean = mine.groupby("round")[[column, "executions"]].mean()
        line: Look = {"color": method_colour(method), "label": method_named(method).label}
        axis.plot(mean["executions"], mean[column], marker="o", markersize=2.5, **line)
    goal = SHARE * clean.reference().mean()
    axis.axhline(goal, color="0.1", linewidth=1, label=f"{SHARE:.0%} of logistic regression")
    axis.set_xscale("log")
    score = {"accuracy": "global accuracy", "roc_auc": "ROC-AUC"}[clean.metric]
    axis.set(title="What it costs", xlabel="circuit executions", ylabel=score)


def encoding_validation(found: EncodingSearch, name: str) -> Sheet:
    """Return the pooled QNN's validation ROC-AUC for every encoding, best on top."""
    return Sheet(name, {name: partial(_encodings, found=found)}, found.facts, size=(5.2, 1.8 + 0.17 * len(found.table)))


def _encodings(axis: Axes, found: EncodingSearch) -> None:
    table, y = found.table, np.arange(len(found.table))
    half = half_width(table)
    axis.errorbar(table["mean"], y, xerr=half, fmt="none", linewidth=1, color=SAFE[0])
    tied = table["tied"]
    for rows, fill, label in ((tied, SAFE[0], "tied with the best"), (~tied, "white", "behind it")):
        axis.plot(table["mean"][rows], y[rows], "o", color=SAFE[0], markerfacecolor=fill, markersize=4, label=label)
    taken = table["preferred"]
    ring = {"markersize": 9, "markerfacecolor": "none", "color": SAFE[1], "label": "taken: the simplest of them"}
    axis.plot(table["mean"][taken], y[taken], "o", **ring)
    names = [", ".join(_value(row[choice]) for choice in found.choices) for _, row in table.iterrows()]
    axis.set_yticks(y, names, fontsize=7)
    axis.set_ylim(len(table) - 0.4, -0.6)
    axis.set_xlim(max(0, axis.get_xlim()[0]), min(1, axis.get_xlim()[1]))
    axis.set_ylabel(",\n".join(choice.replace("_", " ") for choice in found.choices), fontsize=7)
    axis.set(title="Which encoding does validation prefer?", xlabel="validation ROC-AUC")


def _value(value: object) -> str:
    """Return a setting's value as text, a range with three significant digits."""
    return span(*value) if isinstance(value, tuple) else str(value)


def sensitivity(found: Sensitivity, label: str) -> Sheet:
    """Return the metrics of the last round over the levels of one setting, one line per track."""
    table = found.table()
    panels = {
        f"sensitivity_{found.name}_{metric.removeprefix('test_')}": partial(
            _levels, table=table[table["metric"] == metric], title=title, label=label
        )
        for metric, title in METRICS.items()
    }
    return Sheet(f"sensitivity_{found.name}", panels, found.facts, size=(2.9, 2.9))


def _levels(axis: Axes, table: pd.DataFrame, title: str, label: str) -> None:
    levels = list(dict.fromkeys(table["level"]))
    tracks = list(dict.fromkeys(table["track"]))
    for offset, track in zip(offsets(len(tracks), 0.06), tracks, strict=True):
        mine = table[table["track"] == track]
        x = [levels.index(level) + offset for level in mine["level"]]
        half = half_width(mine)
        style = {"fmt": f"{_MARKERS[track]}-", "color": _TRACKS[track], "markersize": 4, "linewidth": 1.2}
        axis.errorbar(x, mine["mean"], yerr=half, capsize=2, label=track, **style)
    axis.set_xticks(
        range(len(levels)), [significant(level, 6) if isinstance(level, int | float) else level for level in levels]
    )
    axis.set(title=title, xlabel=label, ylabel="")


def controller_learning(found: ControllerStudy) -> Sheet:
    """Return what learnt controllers gain over a frozen one, for each metric, and the learning rates they end with."""
    panels = {
        f"controller_gain_{metric.removeprefix('test_')}": partial(_gains, found=found, metric=metric, title=title)
        for metric, title in METRICS.items()
        if metric != "train_test_gap"
    }
    panels["controller_final_eta"] = partial(_final_eta, found=found)
    return Sheet("controller_learning", panels, found.facts, size=(3.3, 3.2))


def _gains(axis: Axes, found: ControllerStudy, metric: str, title: str) -> None:
    gains = found.gains(metric)
    levels = list(dict.fromkeys(gains["level"]))
    tracks = list(found.studies)
    for offset, track in zip(offsets(len(tracks), 0.12), tracks, strict=True):
        mine = gains[gains["track"] == track]
        y = [levels.index(level) + offset for level in mine["level"]]
        half = half_width(mine)
        style = {"fmt": _MARKERS[track], "color": _TRACKS[track], "markersize": 3.5, "linewidth": 1, "label": track}
        axis.errorbar(mine["mean"], y, xerr=half, **style)
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    _level_rows(axis, levels)
    axis.set(title=title, xlabel="learnt − frozen")


def _final_eta(axis: Axes, found: ControllerStudy) -> None:
    rates = found.rates()
    levels = list(dict.fromkeys(rates["level"]))
    for track in found.studies:
        mine = rates[rates["track"] == track]
        axis.plot(
            mine["eta"], [levels.index(v) for v in mine["level"]], _MARKERS[track], color=_TRACKS[track], label=track
        )
    _level_rows(axis, levels)
    axis.set(title="Learning rate it ends with", xlabel="mean η of the last round")


def _level_rows(axis: Axes, levels: list[str]) -> None:
    axis.set_yticks(range(len(levels)), levels, fontsize=7)
    axis.set_ylim(len(levels) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
