"""Figures of the studies: the clean track, and what the method depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.differences import ABSENT, HIGHER, LOWER, UNDECIDED
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.untrained import LEVEL_FACT, START_FACT, UNTRAINED
from qfl_core.base.numbers import counted, rounded, significant, span
from qfl_core.config import CLEAN
from qfl_core.figures.controller import RateScale, rate_axis, rate_scales
from qfl_core.figures.results import BANDS, BARS, curves_of, method_curves, reference_lines, trained
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import (
    REFERENCE_LINES,
    SAFE,
    TRACK_COLOURS,
    TRACK_MARKERS,
    Look,
    SteadyLogScale,
    half_width,
    method_colour,
    method_marker,
    offsets,
    reference_line,
    steady,
    titled,
    track_title,
)
from qfl_core.studies.clean import SHARE, CleanStudy, EncodingSearch, with_executions
from qfl_core.studies.sensitivity import METHOD, METRICS, ControllerStudy, Sensitivity


def clean_track(clean: CleanStudy, name: str) -> Sheet:
    """Return accuracy, balanced accuracy, ROC-AUC and fairness over rounds, and the score over circuits spent."""
    titles = {
        "global_accuracy": ("Global accuracy", "accuracy"),
        "test_balanced_accuracy": ("Balanced accuracy", "balanced_accuracy"),
        "test_roc_auc": ("ROC-AUC", "roc_auc"),
        "fairness_gap": ("Client fairness gap", None),
    }
    rounds, track = with_executions(clean.study.rounds), clean.study.track
    panels: dict[str, Panel] = {
        f"{name}_{metric.removeprefix('test_')}": partial(
            _clean_curves,
            curves=curves_of(rounds, metric),
            references=_clean_references(clean, reference) if reference else {},
            title=titled(title, track),
        )
        for metric, (title, reference) in titles.items()
    }
    column = "global_accuracy" if clean.metric == "accuracy" else f"test_{clean.metric}"
    spent = rounds[rounds["round"] > 0].groupby(["method", "round"], sort=False)[["executions", column]].mean()
    panels[f"{name}_executions"] = partial(
        _executions,
        means=steady(spent.rename(columns={column: "score"}).reset_index()),
        goal=rounded(SHARE * clean.reference().mean(), 9),
        score={"accuracy": "global accuracy", "roc_auc": "ROC-AUC"}[clean.metric],
        title=titled("What it costs", track),
    )
    untrained = (LEVEL_FACT,) if UNTRAINED in clean.study.methods else ()
    # The panel of the costs has neither.
    notes = {f"{name}_{metric.removeprefix('test_')}": (*untrained, BANDS) for metric in titles}
    return Sheet(name, panels, clean.study.facts, size=(3.3, 2.75), columns=3, legend=6, notes=notes)


def _clean_references(clean: CleanStudy, metric: str) -> dict[str, float]:
    """Return what each reference scores: the majority class, which the study's own tables leave out, and its own."""
    majority = "majority class"
    return {majority: clean.study.references(metric)[majority], **clean.means(metric)}


def _clean_curves(axis: Axes, curves: pd.DataFrame, references: Mapping[str, float], title: str) -> None:
    method_curves(axis, curves)
    reference_lines(axis, references)
    axis.set(title=title, ylabel="score" if references else "lower is better")


def _executions(axis: Axes, means: pd.DataFrame, goal: float, score: str, title: str) -> None:
    for method in trained(means):
        mine = means[means["method"] == method]
        line: Look = {"color": method_colour(method), "label": method_named(method).label}
        axis.plot(mine["executions"], mine["score"], marker=method_marker(method), markersize=2.5, **line)
    reference_line(axis, f"{100 * SHARE:.0f} % of logistic regression", goal)
    axis.set_xscale(SteadyLogScale.name)
    axis.set(title=title, xlabel="circuit executions", ylabel=score)


#: Verdicts on an encoding against the best of the others: how its mark is filled, and what the legend says.
_AGAINST_BEST = {
    (HIGHER, ABSENT): (SAFE[0], f"at most {significant(of_metric('roc_auc'))} behind the best"),
    (UNDECIDED,): ("#a9cbe4", "cannot be told from the best"),
    (LOWER,): ("white", "behind the best"),
}


def encoding_validation(found: EncodingSearch, name: str) -> Sheet:
    """Return the pooled QNN's validation ROC-AUC for every encoding, best on top."""
    return Sheet(
        name, {name: partial(_encodings, found=found)}, found.facts, size=(7.4, 1.8 + 0.17 * len(found.table)), legend=3
    )


def _encodings(axis: Axes, found: EncodingSearch) -> None:
    table, y = found.table, np.arange(len(found.table))
    half = half_width(table)
    axis.errorbar(table["mean"], y, xerr=half, fmt="none", linewidth=1, color=SAFE[0])
    for told, (fill, label) in _AGAINST_BEST.items():
        rows = table["verdict"].isin(told)
        if rows.any():
            axis.plot(table["mean"][rows], y[rows], "o", color=SAFE[0], markerfacecolor=fill, markersize=4, label=label)
    taken = table["preferred"]
    ring = {
        "markersize": 9,
        "markerfacecolor": "none",
        "color": SAFE[1],
        "label": "taken: the simplest of those",
    }
    axis.plot(table["mean"][taken], y[taken], "o", **ring)
    ordered = sorted(found.choices, key=[*_ENCODING_WORDS, *found.choices].index)
    names = [", ".join(_choice(name, row[name]) for name in ordered) for _, row in table.iterrows()]
    axis.set_yticks(y, names, fontsize=7)
    axis.set_ylim(len(table) - 0.4, -0.6)
    axis.set_xlim(max(0, axis.get_xlim()[0]), min(1, axis.get_xlim()[1]))
    axis.set(title="Encodings of BAF, best first", xlabel="validation ROC-AUC")


#: What a row of the figure calls each choice of an encoding.
_ENCODING_WORDS: dict[str, Callable[[Any], str]] = {
    "feature_map": lambda name: f"{name} map",
    "feature_map_reps": lambda reps: counted(reps, "repetition"),
    "angle_range": lambda ends: f"angles in {span(*ends)}",
    "tail_share": lambda share: f"tails of {share:.0%} clipped" if share else "no tail clipped",
}


def _choice(name: str, value: Any) -> str:
    return _ENCODING_WORDS[name](value) if name in _ENCODING_WORDS else f"{name.replace('_', ' ')} {value}"


def sensitivity(found: Sensitivity, label: str) -> Sheet:
    """Return the metrics of the last round over the levels of one setting, one line per track.

    Scores of the global model have the untrained model's as a line, in the colour of the track.
    """
    table = steady(found.table())
    names = {metric: f"sensitivity_{found.name}_{metric.removeprefix('test_')}" for metric in METRICS}
    panels = {
        name: partial(
            _levels,
            table=table[table["metric"] == metric],
            title=titled(METRICS[metric], *found.studies),
            label=label,
            untrained={} if metric.endswith("gap") else found.start(metric),
        )
        for metric, name in names.items()
    }
    told = (*found.facts, method_named(METHOD).label, BARS)
    notes = {name: (START_FACT,) for metric, name in names.items() if not metric.endswith("gap")}
    return Sheet(f"sensitivity_{found.name}", panels, told, size=(2.7, 2.75), notes=notes)


def _levels(axis: Axes, table: pd.DataFrame, title: str, label: str, untrained: Mapping[str, float]) -> None:
    levels = list(dict.fromkeys(table["level"]))
    tracks = list(dict.fromkeys(table["track"]))
    for offset, track in zip(offsets(len(tracks), 0.06), tracks, strict=True):
        mine = table[table["track"] == track]
        x = [levels.index(level) + offset for level in mine["level"]]
        half = half_width(mine)
        style = {"fmt": f"{TRACK_MARKERS[track]}-", "color": TRACK_COLOURS[track], "markersize": 4, "linewidth": 1.2}
        axis.errorbar(x, mine["mean"], yerr=half, capsize=2, label=track_title(track), **style)
    untrained_by_track(axis, untrained)
    axis.set_xticks(
        range(len(levels)), [significant(level, 6) if isinstance(level, int | float) else level for level in levels]
    )
    axis.set(title=title, xlabel=label, ylabel="")


def untrained_by_track(axis: Axes, levels: Mapping[str, float]) -> None:
    """Draw what the untrained model scores on each track as a line in the track's colour; the legend has one entry."""
    for track, value in levels.items():
        reference_line(axis, UNTRAINED, value, color=TRACK_COLOURS[track], label="_untrained")
    if levels:
        axis.plot([], [], label=UNTRAINED, **REFERENCE_LINES[UNTRAINED])


def controller_learning(found: ControllerStudy) -> Sheet:
    """Return what learnt controllers gain over a frozen one, the learning rates they end with, and how these vary."""
    tracks = tuple(found.studies)
    panels: dict[str, Panel] = {
        f"controller_gain_{metric.removeprefix('test_')}": partial(
            _gains, gains=steady(found.gains(metric)), tracks=tracks, title=titled(title, *tracks)
        )
        for metric, title in METRICS.items()
        if metric != "train_test_gap"
    }
    rates = steady(found.rates())
    first = next(iter(found.studies[tracks[0]].values()))
    scale = rate_scales(first.runs[0].config, rates)["eta"]
    panels["controller_final_eta"] = partial(_final_eta, rates=rates, tracks=tracks, scale=scale)
    varies = steady(found.variations())[["track", "level", "across", "rate", "mean"]]
    panels["controller_variation"] = partial(_variation, table=varies, tracks=tracks)
    told = (*found.facts, method_named(METHOD).label)
    notes = {name: (BARS,) for name in panels if name.startswith("controller_gain")}
    return Sheet("controller_learning", panels, told, size=(4.0, 2.65), columns=3, notes=notes)


def _gains(axis: Axes, gains: pd.DataFrame, tracks: tuple[str, ...], title: str) -> None:
    levels = list(dict.fromkeys(gains["level"]))
    for offset, track in zip(offsets(len(tracks), 0.25), tracks, strict=True):
        mine = gains[gains["track"] == track]
        y = [levels.index(level) + offset for level in mine["level"]]
        ends = np.abs(mine[["low", "high"]].to_numpy().T - mine["mean"].to_numpy())
        style = {
            "fmt": TRACK_MARKERS[track],
            "color": TRACK_COLOURS[track],
            "markersize": 3.5,
            "linewidth": 1,
            "label": track_title(track),
        } | _fill(track)
        axis.errorbar(mine["mean"], y, xerr=ends, **style)
        beside: Look = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
        for place, row in zip(y, mine.itertuples(), strict=True):
            axis.annotate(str(row.verdict), (1.02, place), fontsize=7, color=TRACK_COLOURS[track], **beside)
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    _level_rows(axis, levels)
    axis.set(title=title, xlabel="learnt − frozen")
    axis.title.set_fontsize("small")


def _final_eta(axis: Axes, rates: pd.DataFrame, tracks: tuple[str, ...], scale: RateScale) -> None:
    levels = list(dict.fromkeys(rates["level"]))
    for offset, track in zip(offsets(len(tracks), 0.25), tracks, strict=True):
        mine = rates[rates["track"] == track]
        places = [levels.index(level) + offset for level in mine["level"]]
        look: Look = {"color": TRACK_COLOURS[track], "markersize": 4, "linestyle": "none", "label": track_title(track)}
        axis.plot(mine["eta"], places, TRACK_MARKERS[track], **look | _fill(track))
    rate_axis(axis, scale, "x")
    _level_rows(axis, levels)
    axis.set(title=titled("Learning rate η it ends with", *tracks), xlabel="mean η of the last round (line: initial)")
    axis.title.set_fontsize("small")


def _variation(axis: Axes, table: pd.DataFrame, tracks: tuple[str, ...]) -> None:
    """Write the three coefficients of variation of eta / delta, one row per controller, each track in its colour."""
    levels, columns = (list(dict.fromkeys(table[name])) for name in ("level", "across"))
    for offset, track in zip(offsets(len(tracks), 0.28), tracks, strict=True):
        look: Look = {"color": TRACK_COLOURS[track], "ha": "center", "va": "center", "fontsize": 7}
        for (level, across), rows in table[table["track"] == track].groupby(["level", "across"]):
            means = rows.set_index("rate")["mean"]
            text = " / ".join(significant(means[rate], 2) for rate in ("eta", "delta"))
            axis.text(columns.index(across), levels.index(level) + offset, text, **look)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_xlim(-0.5, len(columns) - 0.5)
    axis.grid(visible=False, axis="x")
    _level_rows(axis, levels)
    axis.set(title=titled("How much η / δ vary", *tracks), xlabel="coefficient of variation across (%)")
    axis.title.set_fontsize("small")


def _fill(track: str) -> Look:
    """Return how a track's mark is filled: hollow on a clean track, which has its dataset's colour and shape."""
    return {"markerfacecolor": "white"} if track.endswith(CLEAN) else {}


def _level_rows(axis: Axes, levels: list[str]) -> None:
    axis.set_yticks(range(len(levels)), [level.replace(", ", ",\n") for level in levels], fontsize=7)
    axis.set_ylim(len(levels) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
