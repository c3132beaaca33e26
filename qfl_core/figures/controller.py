"""Figures of the controller: the rates that it gives, how much they vary, and what they do to loss and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from qfl_core.analysis.variation import variation, variation_text
from qfl_core.base.numbers import rounded, significant
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.figures.results import BANDS, FOUR, curve, curves_of, over_rounds
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import METHOD_COLOURS, Look, SteadyLogScale, steady, titled
from qfl_core.runs.study import Study

_PROX = METHOD_COLOURS["duqfl-prox"]
#: A scale of rates reaches at least from half to twice the initial rate, so that small changes look small.
LEAST_FACTOR = 2.0

#: The title of the shares of uploads by unfold.
_UPLOADED = "Uploaded unfold k*"
#: What footers say of lines without intervals.
_MEANS = "lines: means over seeds and clients"


@dataclass(frozen=True)
class RateScale:
    """A logarithmic scale of rates around the initial one: from ``initial / factor`` to ``initial * factor``."""

    initial: float
    factor: float

    @property
    def low(self) -> float:
        """The lower end."""
        return self.initial / self.factor

    @property
    def high(self) -> float:
        """The upper end."""
        return self.initial * self.factor

    @property
    def ticks(self) -> list[float]:
        """The ends, the initial rate, and what lies halfway between them on the scale."""
        return [self.initial * self.factor**power for power in (-1, -0.5, 0, 0.5, 1)]


def rate_scales(config: ExperimentConfig, means: pd.DataFrame) -> dict[str, RateScale]:
    """Return a scale each for eta and delta, with a common factor that holds all rates of the columns of ``means``."""
    initial = {"eta": config.learning_rate, "delta": config.perturbation}
    shown = [rate for rate in initial if rate in means]
    furthest = max(float(np.abs(np.log(means[rate] / initial[rate])).max()) for rate in shown)
    factor = rounded(max(LEAST_FACTOR, float(np.exp(furthest)) * 1.05), 3)
    return {rate: RateScale(initial[rate], factor) for rate in shown}


def rate_axis(axis: Axes, scale: RateScale, which: str) -> None:
    """Give the x or y axis the scale, and draw a line at the initial rate."""
    shown = axis.xaxis if which == "x" else axis.yaxis
    axis.set(**{f"{which}scale": SteadyLogScale.name, f"{which}lim": (scale.low, scale.high)})
    shown.set_major_locator(FixedLocator(scale.ticks))
    shown.set_minor_locator(NullLocator())
    shown.set_major_formatter(FuncFormatter(lambda value, _: significant(value, 2)))
    line = axis.axvline if which == "x" else axis.axhline
    line(scale.initial, color="0.4", linewidth=0.8)


def _told(axis: Axes, label: str, text: str) -> None:
    """Label the x axis, and say below it how much the rate varies."""
    axis.set_xlabel(f"{label}\n{text}" if text else label, fontsize="small" if text else "medium")


def with_reduction(trace: pd.DataFrame) -> pd.DataFrame:
    """Add the loss reduction of every unfold to a client trace."""
    return trace.assign(reduction=trace["loss_before"] - trace["loss_after"])


def controller_behaviour(study: Study) -> Sheet:
    """Return eta, delta and the loss reduction over rounds, one line per unfold, and which unfold is uploaded.

    The panels of eta and delta tell how much each rate varies; their scales reach at least from half to twice the
    initial rate.
    """
    trace = with_reduction(study.table("client_trace"))
    titles = {
        "controller_eta": ("eta", "Learning rate η"),
        "controller_delta": ("delta", "Perturbation δ"),
        "controller_loss_reduction": ("reduction", "Loss reduction ΔL"),
    }
    means = steady(trace.groupby(["round", "unfold"])[["eta", "delta", "reduction"]].mean().reset_index())
    scales, texts = rate_scales(study.runs[0].config, means), _variation_texts(trace)
    panels: dict[str, Panel] = {
        name: partial(
            _by_unfold,
            means=means[["round", "unfold", column]],
            title=titled(title, study.track),
            scale=scales.get(column),
            text=texts.get(column, ""),
        )
        for name, (column, title) in titles.items()
    }
    panels["controller_selected_unfold"] = partial(
        _unfold_shares, shares=unfold_shares(trace), title=titled(_UPLOADED, study.track)
    )
    notes = dict.fromkeys(titles, (_MEANS,))
    return Sheet(
        "controller_behaviour", panels, study.facts, **FOUR | {"legend": 8}, legend_title="unfold", notes=notes
    )


def _variation_texts(trace: pd.DataFrame) -> dict[str, str]:
    found = variation(trace)
    return {rate: variation_text(found, rate) for rate in found["rate"].unique()}


def _by_unfold(axis: Axes, means: pd.DataFrame, title: str, scale: RateScale | None, text: str) -> None:
    """Draw one line per unfold; the first and the last have a mark of their own, because neighbours look alike."""
    column = means.columns[-1]
    lines = list(means.groupby("unfold"))
    colours = sns.color_palette("viridis", len(lines) + 1)  # without the last, a yellow that is pale on white
    marks = {lines[0][0]: "o", lines[-1][0]: "s"}
    every = max(1, means["round"].nunique() // 10)
    for (unfold, mine), colour in zip(lines, colours, strict=False):
        look: Look = {"marker": marks.get(unfold), "markersize": 3.5, "markevery": every}
        axis.plot(mine["round"], mine[column], color=colour, linewidth=1.3, label=str(unfold), **look)
    axis.set(title=title, ylabel="")
    over_rounds(axis, means)
    _told(axis, "round", text)
    if scale is not None:
        rate_axis(axis, scale, "y")
    if column == "reduction":
        axis.axhline(0, color="0.4", linewidth=0.8)


def unfold_shares(trace: pd.DataFrame) -> pd.Series:
    """Return the share of client uploads that each unfold provides."""
    uploads = trace[trace["is_selected"]]
    return uploads["unfold"].value_counts(normalize=True).reindex(sorted(trace["unfold"].unique()), fill_value=0)


def _unfold_shares(axis: Axes, shares: pd.Series, title: str) -> None:
    axis.bar(shares.index.astype(str), shares, color=_PROX)
    axis.set(title=title, xlabel="unfold", ylabel="share of uploads")


def controller_heatmaps(study: Study) -> Sheet:
    """Return mean eta and delta of every client and unfold, and how much each rate varies.

    Colours stand for rates from half to twice the initial one, or further where the rates go further.
    """
    trace = study.table("client_trace")
    means = trace.groupby(["client", "unfold"])[["eta", "delta"]].mean()
    scales, texts = rate_scales(study.runs[0].config, means), _variation_texts(trace)
    panels = {
        name: partial(
            _heatmap,
            means=steady(means[column].unstack()),
            title=titled(title, study.track),
            scale=scales[column],
            text=texts[column],
        )
        for name, column, title in (
            ("heatmap_lr_client_unfold", "eta", "Learning rate η"),
            ("heatmap_pert_client_unfold", "delta", "Perturbation δ"),
        )
    }
    return Sheet("controller_heatmaps", panels, (*study.facts, "cells: means over seeds and rounds"), size=(4.5, 3.4))


def _heatmap(axis: Axes, means: pd.DataFrame, title: str, scale: RateScale, text: str) -> None:
    # Colours are linear in the logarithm, whose last digits differ between processors and are taken off.
    colours = steady((means / scale.initial).apply(np.log))
    furthest = math.log(scale.factor)
    written = {"fontsize": 7, "color": "0.1"}
    look = {"cmap": "vlag", "vmin": -furthest, "vmax": furthest, "annot_kws": written, "linewidths": 0.5}
    ends = {"ticks": [share * furthest for share in (-1, -0.5, 0, 0.5, 1)]}
    names = {"format": FuncFormatter(lambda value, _: significant(scale.initial * math.exp(value), 2))}
    sns.heatmap(colours, ax=axis, annot=means, fmt=".3f", cbar_kws=ends | names, **look)
    axis.tick_params(axis="y", rotation=0)
    axis.set_title(title)
    _told(axis, "unfold", text)


def loss_shift_trace(study: Study) -> Sheet:
    """Return how far clients move per unfold, over rounds, and loss reduction against eta and delta."""
    trace = with_reduction(study.table("client_trace"))
    moved = trace.groupby(["seed", "round"])["displacement"].mean().reset_index()
    panels: dict[str, Panel] = {
        "param_shift_over_rounds": partial(
            _shift, found=curves_of(moved, "displacement", ()), title=titled("Parameter shift", study.track)
        ),
        "scatter_lr_pert_loss_delta": partial(
            _reduction_scatter, trace=trace[["eta", "delta", "reduction"]], track=study.track
        ),
    }
    notes = {"param_shift_over_rounds": (BANDS,)}
    return Sheet("loss_shift_trace", panels, study.facts, size=(4.5, 3.4), notes=notes)


def _shift(axis: Axes, found: pd.DataFrame, title: str) -> None:
    curve(axis, found, color=_PROX)
    axis.set(title=title, ylabel="displacement of an unfold")
    axis.set_ylim(bottom=0)  # so that a small change looks small


#: Points of a scatter plot: more of them would hide each other.
_MOST_POINTS = 20_000


def _reduction_scatter(axis: Axes, trace: pd.DataFrame, track: str) -> None:
    shown, told = trace, "one point per unfold"
    if len(trace) > _MOST_POINTS:
        chosen = stream(0, "scatter").choice(len(trace), _MOST_POINTS, replace=False, shuffle=False)
        shown = trace.iloc[np.sort(chosen)]
        told += f", {_MOST_POINTS:,} of {len(trace):,}, drawn at random"
    # Colours are linear in the logarithm, because most perturbations lie close together near the lower end.
    colours = np.round(np.log(shown["delta"].to_numpy()), 9)
    look: Look = {"s": 4, "alpha": 0.6, "linewidths": 0, "cmap": "viridis", "rasterized": True}
    points = axis.scatter(shown["eta"], shown["reduction"], c=colours, **look)
    axis.axhline(0, color="0.4", linewidth=0.8)
    share = (trace["reduction"] > 0).mean()
    axis.set(title=titled(f"{share:.0%} of unfolds reduce the loss", track), ylabel="loss reduction ΔL")
    _told(axis, "learning rate η", told)
    ticks = [value for value in (0.01, 0.03, 0.1, 0.3, 1.0) if colours.min() <= math.log(value) <= colours.max()]
    places = [round(math.log(value), 9) for value in ticks]
    bar = axis.figure.colorbar(points, ax=axis, label="perturbation δ", ticks=places)
    bar.ax.set_yticklabels([significant(value, 2) for value in ticks])
    if bar.solids is not None:
        bar.solids.set_alpha(1)


def unfold_level_behaviour(study: Study) -> Sheet:
    """Return eta, delta and loss reduction by unfold, each divided by its largest mean, and the uploaded unfolds."""
    trace = with_reduction(study.table("client_trace"))
    means = trace.groupby("unfold")[["eta", "delta", "reduction"]].mean()
    panels: dict[str, Panel] = {
        "eta_delta_loss_reduction_by_unfold": partial(
            _normalised, shares=steady(means / means.abs().max()), track=study.track
        ),
        "selected_unfold_distribution": partial(
            _unfold_shares, shares=unfold_shares(trace), title=titled(_UPLOADED, study.track)
        ),
    }
    notes = {"eta_delta_loss_reduction_by_unfold": (_MEANS,)}
    return Sheet("unfold_level_behaviour", panels, study.facts, size=(4.5, 3.4), notes=notes)


def _normalised(axis: Axes, shares: pd.DataFrame, track: str) -> None:
    for column, label, marker in zip(shares, ("η", "δ", "loss reduction ΔL"), "osD", strict=True):
        axis.plot(shares.index, shares[column], marker=marker, label=label)
    axis.axhline(0, color="0.4", linewidth=0.8)
    axis.set(title=titled("Normalised η, δ and loss reduction", track), xlabel="unfold", ylabel="share of the largest")
    axis.set_xticks(shares.index)
