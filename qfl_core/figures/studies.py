"""Figures of the studies: the clean track, and what the method depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
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
from qfl_core.analysis.untrained import level as untrained_level
from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import counted, number, rounded, significant, span
from qfl_core.config import CLEAN, load_profile
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

#: The reference that knows nothing but which class is more frequent.
MAJORITY = "majority class"


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
    return {MAJORITY: clean.study.references(metric)[MAJORITY], **clean.means(metric)}


def _clean_curves(axis: Axes, curves: pd.DataFrame, references: Mapping[str, float], title: str) -> None:
    method_curves(axis, curves)
    reference_lines(axis, references)
    axis.set(title=title, ylabel="score" if references else "lower is better")
    if references:
        _from_round_1(axis, curves, references)


#: What is scored without training. Where a line would make the axis longer by this share, its score is written instead.
_WITHOUT_TRAINING = (MAJORITY, UNTRAINED)
_WORTH_SHOWING = 0.25


def _from_round_1(axis: Axes, curves: pd.DataFrame, references: Mapping[str, float]) -> None:
    """Let the y axis cover the rounds from the first and what was trained, so that their differences are visible.

    Round 0 and what is scored without training often lie far below: their scores are written at the lower edge.
    """
    later = curves[(curves["round"] > 0) & (curves["method"] != UNTRAINED)]
    levels = {**references, UNTRAINED: untrained_level(curves, "mean")}
    without = {name: levels[name] for name in _WITHOUT_TRAINING if not np.isnan(levels[name])}
    taught = [value for name, value in references.items() if name not in without]
    ends = [*later["low"].dropna(), *later["high"].dropna(), *later["mean"], *taught]
    low, high = min(ends), max(ends)
    reach = low - _WORTH_SHOWING * (high - low)
    ends += [value for value in without.values() if value >= reach]
    low, high = min(ends), max(ends)
    axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    below = [f"{name} {number(value, 2)}" for name, value in without.items() if value < reach]
    if below:
        place: Look = {"transform": axis.transAxes, "ha": "right", "va": "bottom", "fontsize": 7}
        look: Look = {"color": "0.3", "bbox": {"color": "white", "pad": 1}}
        axis.text(0.98, 0.03, f"below: {', '.join(below)}", **place, **look)


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
    table, own = steady(found.table()), own_levels(found)
    names = {metric: f"sensitivity_{found.name}_{metric.removeprefix('test_')}" for metric in METRICS}
    panels = {
        name: partial(
            _levels,
            table=table[table["metric"] == metric],
            title=titled(METRICS[metric], *found.studies),
            label=label,
            own=own,
            ylabel="lower is better" if metric.endswith("gap") else "score",
            untrained={} if metric.endswith("gap") else found.start(metric),
        )
        for metric, name in names.items()
    }
    told = (*found.facts, method_named(METHOD).label, BARS)
    notes = {name: (START_FACT,) for metric, name in names.items() if not metric.endswith("gap")}
    return Sheet(f"sensitivity_{found.name}", panels, told, size=(2.7, 2.75), notes=notes)


def own_levels(found: Sensitivity) -> dict[str, Any]:
    """Return by track the level at which the runs have exactly the settings of the profile that they are named after.

    A track without such a level is left out, and all are where settings of the profile were changed for the runs.
    """
    own = {}
    for track, levels in found.studies.items():
        for level, study in levels.items():
            config = study.runs[0].config
            with suppress(ConfigError):  # of a profile from another folder nothing is known
                profile = load_profile(study.profile)
                changed = (profile.section("sensitivity", {}).get("settings") or {}).get(track, {})
                if config == profile.config(track, method=config.method, seed=config.seed, **changed):
                    own[track] = level
    return own


def _levels(
    axis: Axes,
    table: pd.DataFrame,
    title: str,
    label: str,
    own: Mapping[str, Any],
    ylabel: str,
    untrained: Mapping[str, float],
) -> None:
    levels = list(dict.fromkeys(table["level"]))
    tracks = list(dict.fromkeys(table["track"]))
    for offset, track in zip(offsets(len(tracks), 0.06), tracks, strict=True):
        mine = table[table["track"] == track]
        x = [levels.index(level) + offset for level in mine["level"]]
        half = half_width(mine)
        style = {"fmt": f"{TRACK_MARKERS[track]}-", "color": TRACK_COLOURS[track], "markersize": 4, "linewidth": 1.2}
        axis.errorbar(x, mine["mean"], yerr=half, capsize=2, label=track_title(track), **style)
        ringed = mine[mine["level"] == own[track]] if track in own else mine[:0]
        if len(ringed):
            places = [levels.index(level) + offset for level in ringed["level"]]
            axis.plot(places, ringed["mean"], "o", label="the profile's own level", **_RING)
    untrained_by_track(axis, untrained)
    axis.set_xticks(
        range(len(levels)), [significant(level, 6) if isinstance(level, int | float) else level for level in levels]
    )
    axis.yaxis.set_major_locator(MaxNLocator(5, min_n_ticks=4))
    axis.set(title=title, xlabel=label, ylabel=ylabel)


#: The mark around the profile's own level.
_RING: Look = {"markersize": 9, "markerfacecolor": "none", "color": "0.1", "markeredgewidth": 0.8}


def untrained_by_track(axis: Axes, levels: Mapping[str, float]) -> None:
    """Draw what the untrained model scores on each track as a line in the track's colour; the legend has one entry."""
    for track, value in levels.items():
        reference_line(axis, UNTRAINED, value, color=TRACK_COLOURS[track], label="_untrained")
    if levels:
        axis.plot([], [], label=UNTRAINED, **REFERENCE_LINES[UNTRAINED])


def controller_learning(found: ControllerStudy) -> Sheet:
    """Return what learnt controllers gain over a frozen one, the learning rates they end with, and how these vary."""
    tracks, rows = tuple(found.studies), _row_names(found)
    gains = {
        f"controller_gain_{metric.removeprefix('test_')}": (titled(title, *tracks), _shown(steady(found.gains(metric))))
        for metric, title in METRICS.items()
        if metric != "train_test_gap"
    }
    panels: dict[str, Panel] = {
        name: partial(_gains, gains=table, tracks=tracks, rows=rows, title=title)
        for name, (title, table) in gains.items()
    }
    rates = steady(found.rates())
    first = next(iter(found.studies[tracks[0]].values()))
    scale = rate_scales(first.runs[0].config, rates)["eta"]
    panels["controller_final_eta"] = partial(_final_eta, rates=rates, tracks=tracks, rows=rows, scale=scale)
    varies = steady(found.variations())[["track", "level", "across", "rate", "mean"]]
    panels["controller_variation"] = partial(_variation, table=varies, tracks=tracks, rows=rows)
    told = (
        *found.facts,
        method_named(METHOD).label,
        *(("own: the setting of the profile",) if own_levels(found) else ()),
    )
    notes = {name: (BARS, *((ARROWS,) if _cut(table).any(axis=None) else ())) for name, (_, table) in gains.items()}
    return Sheet("controller_learning", panels, told, size=(4.4, 2.75), columns=3, notes=notes)


def _row_names(found: ControllerStudy) -> dict[str, str]:
    """Return what a row calls each level, with the tracks whose own setting it is in the profile."""
    levels = dict.fromkeys(str(level) for studies in found.studies.values() for level in studies)
    own, names = own_levels(found), {}
    for level in levels:
        tracks = [track_title(track) for track, mine in own.items() if mine == level]
        told = [f"(own: {', '.join(tracks)})"] if tracks else []
        names[level] = "\n".join([level.replace(", ", ",\n", 1), *told])
    return names


#: An interval is cut where it reaches more than so many times as far from 0 as what is shown without it.
_LONGEST = 3.0
ARROWS = "arrow: the bar goes on to the number"


def _shown(gains: pd.DataFrame) -> pd.DataFrame:
    """Add what is drawn of each interval, ``from`` and ``to``: one that is much longer than most is cut.

    The axis reaches to all means, to half of the intervals and to the margin at least. The other intervals make it
    longer, the shortest first, as long as each needs at most :data:`_LONGEST` times what is there; those that are left
    end soon after it.
    """
    ends = gains[["low", "high"]].abs().to_numpy()
    reach = max(gains["margin"].max(), gains["mean"].abs().max(), float(np.median(ends.max(axis=1))))
    for end in np.sort(ends.ravel()):
        if end > _LONGEST * reach:
            reach *= 1.2
            break
        reach = max(reach, end)
    return gains.assign(**{"from": gains["low"].clip(lower=-reach), "to": gains["high"].clip(upper=reach)})


def _cut(gains: pd.DataFrame) -> pd.DataFrame:
    """Return which ends of the intervals are cut, one column per end."""
    return pd.DataFrame({"from": gains["from"] > gains["low"], "to": gains["to"] < gains["high"]})


def _gains(axis: Axes, gains: pd.DataFrame, tracks: tuple[str, ...], rows: Mapping[str, str], title: str) -> None:
    levels = list(dict.fromkeys(gains["level"]))
    for offset, track in zip(offsets(len(tracks), 0.25), tracks, strict=True):
        mine = gains[gains["track"] == track]
        y = np.array([levels.index(level) + offset for level in mine["level"]])
        ends = np.abs(mine[["from", "to"]].to_numpy().T - mine["mean"].to_numpy())
        style = _track_look(track) | {"markersize": 3.5, "linewidth": 1, "label": track_title(track)}
        axis.errorbar(mine["mean"], y, xerr=ends, **style)
        beside: Look = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
        for place, row in zip(y, mine.itertuples(), strict=True):
            axis.annotate(str(row.verdict), (1.02, place), fontsize=7, color=TRACK_COLOURS[track], **beside)
        for end, bound, mark in (("from", "low", "<"), ("to", "high", ">")):
            cut = _cut(mine)[end].to_numpy()
            axis.plot(mine[end][cut], y[cut], mark, color=TRACK_COLOURS[track], markersize=4)
            for place, at, value in zip(y[cut], mine[end][cut], mine[bound][cut], strict=True):
                above: Look = {"xytext": (0, 3), "textcoords": "offset points", "va": "bottom", "fontsize": 7}
                side = "left" if end == "from" else "right"
                axis.annotate(
                    significant(value, 2).replace("-", "−"), (at, place), ha=side, color=TRACK_COLOURS[track], **above
                )
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    _level_rows(axis, levels, rows)
    axis.set(title=title, xlabel="learnt − frozen")
    axis.title.set_fontsize("small")


def _final_eta(
    axis: Axes, rates: pd.DataFrame, tracks: tuple[str, ...], rows: Mapping[str, str], scale: RateScale
) -> None:
    levels = list(dict.fromkeys(rates["level"]))
    for offset, track in zip(offsets(len(tracks), 0.25), tracks, strict=True):
        mine = rates[rates["track"] == track]
        places = [levels.index(level) + offset for level in mine["level"]]
        axis.errorbar(mine["eta"], places, markersize=4, label=track_title(track), **_track_look(track))
    rate_axis(axis, scale, "x")
    _level_rows(axis, levels, rows)
    axis.set(title=titled("Learning rate η it ends with", *tracks), xlabel="mean η of the last round (line: initial)")
    axis.title.set_fontsize("small")


def _variation(axis: Axes, table: pd.DataFrame, tracks: tuple[str, ...], rows: Mapping[str, str]) -> None:
    """Write the three coefficients of variation of eta / delta, one row per controller and track, behind its mark."""
    levels, columns = (list(dict.fromkeys(table[name])) for name in ("level", "across"))
    for offset, track in zip(offsets(len(tracks), 0.28), tracks, strict=True):
        look: Look = {"color": TRACK_COLOURS[track], "ha": "center", "va": "center", "fontsize": 7}
        mine = table[table["track"] == track]
        for (level, across), found in mine.groupby(["level", "across"]):
            means = found.set_index("rate")["mean"]
            text = " / ".join(_percent(means[rate]) for rate in ("eta", "delta"))
            axis.text(columns.index(across), levels.index(level) + offset, text, **look)
        places = [levels.index(level) + offset for level in dict.fromkeys(mine["level"])]
        marks = _track_look(track) | {"markersize": 3.5, "label": track_title(track)}
        axis.errorbar([_MARKS] * len(places), places, **marks)
    axis.set_xticks(range(len(columns)), columns)
    axis.set_xlim(_MARKS - 0.2, len(columns) - 0.4)
    axis.grid(visible=False, axis="x")
    _level_rows(axis, levels, rows)
    axis.set(title=titled("How much η / δ vary", *tracks), xlabel="coefficient of variation across (%)")
    axis.title.set_fontsize("small")


#: Where the marks of the rows stand, left of the first column.
_MARKS = -0.65
#: Percents below this are as good as none.
_LEAST_PERCENT = 0.1


def _percent(value: float) -> str:
    return f"<{_LEAST_PERCENT}" if 0 < value < _LEAST_PERCENT else significant(value, 2)


def _track_look(track: str) -> Look:
    """Return a track's mark and colour: hollow on a clean track, which has its dataset's colour and shape."""
    hollow = {"markerfacecolor": "white"} if track.endswith(CLEAN) else {}
    return {"fmt": TRACK_MARKERS[track], "color": TRACK_COLOURS[track], **hollow}


def _level_rows(axis: Axes, levels: list[str], rows: Mapping[str, str]) -> None:
    axis.set_yticks(range(len(levels)), [rows[level] for level in levels], fontsize=7)
    axis.set_ylim(len(levels) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
