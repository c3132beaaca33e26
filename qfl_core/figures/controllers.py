"""Figures of the comparison of controllers: score over circuits, and the rates that each controller gives."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

from qfl_core.base.numbers import significant
from qfl_core.config import ExperimentConfig
from qfl_core.figures.results import BANDS, round_ticks
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import METHOD_COLOURS, SAFE, Look, SteadyLogScale, reference_line, steady, track_title
from qfl_core.studies.controllers.plan import (
    BOTH,
    CALIBRATED,
    CONSTANT,
    FROZEN,
    NOISY,
    OFFLINE,
    ONLINE,
    PAPER,
    TUNED,
)
from qfl_core.studies.controllers.tables import Tables

#: Colour and dashes of every line, so that colours are not needed to tell them apart. What stays close to another line
#: is dashed, because the other line is seen through the gaps.
LINES: dict[str, Look] = {
    CONSTANT: {"color": "0.45", "linestyle": (0, (8, 2))},
    TUNED: {"color": "0.1", "linestyle": "--"},
    CALIBRATED: {"color": METHOD_COLOURS["default-qfl"], "linestyle": ":"},
    FROZEN: {"color": SAFE[5], "linestyle": "-."},
    PAPER: {"color": SAFE[1]},
    ONLINE: {"color": SAFE[2]},
    OFFLINE: {"color": SAFE[0]},
    BOTH: {"color": SAFE[4], "linestyle": (0, (4, 2))},
}
TUNED_END = "tuned constant, at its end"
#: What the footers say of the marks and lines.
DOTS = "dots: ends of the runs"
MEANS = "lines: geometric means over clients and seeds"
_RATES = {"eta": "Learning rate η", "delta": "Perturbation δ"}
_TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_SCORES = {"accuracy": "test accuracy", "roc_auc": "test ROC-AUC"}


def task_title(task: str) -> str:
    """Return the title of a task: the name of its track, and whether the engine is noisy."""
    name = track_title(task.removesuffix(NOISY))
    return f"{name[0].upper()}{name[1:]}{NOISY if task.endswith(NOISY) else ''}"


def controller_curves(tables: Tables, name: str = "controllers_curves") -> Sheet:
    """Return the test score over circuits, one panel per task, with 95 % bands over seeds.

    Circuits are shares of what constant 0.13 spends in a whole run, and a line ends where its runs end. A method that
    can start anywhere is shown as the mean over the starts of the goal. The tuned constant pays for the whole grid,
    which ends far to the right: a level shows its final score.
    """
    curves, scores = steady(tables.curves), tables.scores
    panels: dict[str, Panel] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for task, mine in scores.groupby("task", sort=False):
        told, shown = mine.iloc[0], curves[curves["task"] == task]
        drawn = mine[mine["method"].isin(shown["method"])]
        # Starts differ in nothing that is spent.
        spent = steady(drawn.groupby("method")["spent"].mean().reset_index()).set_index("method")["spent"]
        panel = f"{name}_{str(task).replace(', ', '_').replace('-', '_')}"
        panels[panel] = partial(
            _curves,
            curves=shown,
            spent=spent,
            title=task_title(str(task)),
            goal=float(told["goal"]),
            tuned=float(mine.loc[mine["method"] == TUNED, "final"].iloc[0]),
            score=_SCORES[str(told["score"])],
        )
        notes[panel] = (BANDS, DOTS, *_beyond(spent, float(shown["circuits"].max())))
    # One row per engine, where both have the same tasks.
    columns = max(3, sum(not str(task).endswith(NOISY) for task in scores["task"].unique()))
    facts = tuple(_seeds(scores) if fact.startswith("seeds") else fact for fact in tables.facts)
    return Sheet(name, panels, facts, size=(2.8, 2.5), columns=columns, legend=5, notes=notes)


def _seeds(scores: pd.DataFrame) -> str:
    """Return what a footer says of the seeds: how many the tasks have, and how many those on the noisy engine."""
    tasks = zip(scores["task"], scores["seeds"], strict=True)
    counts = dict.fromkeys(f"{'noisy ' if task.endswith(NOISY) else ''}{seeds}" for task, seeds in tasks)
    return f"seeds: {', '.join(counts)}"


def _beyond(spent: pd.Series, end: float) -> tuple[str, ...]:
    """Return what a footer says of the methods whose runs go on behind the end of the axis."""
    longer = spent[[method for method in LINES if spent.get(method, 0.0) > end]]
    return tuple(f"{method}: runs go on to {significant(place, 2)}" for method, place in longer.items())


def _until(curve: pd.DataFrame, spent: float) -> pd.DataFrame:
    """Return a curve up to the circuits that its runs have spent: its last place becomes the end of the runs.

    A curve that ends between two places has its final score at the second one.
    """
    ahead = (curve["circuits"] >= spent).cumsum()
    return curve[ahead <= 1].assign(circuits=curve["circuits"].clip(upper=spent))


def _curves(
    axis: Axes, curves: pd.DataFrame, spent: pd.Series, title: str, goal: float, tuned: float, score: str
) -> None:
    ends = (0.0, float(curves["circuits"].max()))
    axis.plot(ends, [tuned, tuned], label=TUNED_END, linewidth=1.2, **LINES[TUNED])
    for method, line in LINES.items():
        if method not in spent:
            continue
        mine = _until(curves[curves["method"] == method], spent[method])
        axis.plot(mine["circuits"], mine["mean"], label=method, linewidth=1.4, **line)
        band: Look = {"color": line["color"], "alpha": 0.09, "linewidth": 0}
        axis.fill_between(mine["circuits"], mine["low"].clip(0, 1), mine["high"].clip(0, 1), **band)
        if spent[method] <= ends[1]:
            last = mine.iloc[-1]
            axis.plot([last["circuits"]], [last["mean"]], "o", color=line["color"], markersize=3)
    reference_line(axis, "95 % of logistic regression", goal)
    axis.axvline(1, color="0.7", linewidth=0.8)
    axis.set(
        title=title,
        xlabel="circuits (1: a run of constant 0.13)",
        ylabel=score,
        xlim=ends,
    )
    axis.xaxis.set_major_locator(MultipleLocator(0.5))
    shown = [*curves["mean"], goal, tuned]
    axis.set_ylim(max(0.0, min(shown) - 0.05), min(1.0, max(shown) + 0.05))


def controller_rates(tables: Tables, name: str = "controllers_rates") -> Sheet:
    """Return eta (upper row) and delta over rounds and unfolds, one column per start."""
    rates = steady(tables.rates)
    dataset = task_title(str(rates["task"].iloc[0]))
    starts = list(dict.fromkeys(rates["start"]))
    panels: dict[str, Panel] = {
        f"{name}_{rate}_{place}": partial(
            _rates,
            rates=rates[rates["start"] == start],
            rate=rate,
            title=f"{title}, {dataset}, start {start}",
            ends=(float(rates[rate].min()) / 1.2, float(rates[rate].max()) * 1.2),
        )
        for rate, title in _RATES.items()
        for place, start in enumerate(starts, start=1)
    }
    bound = ExperimentConfig.eta_bounds[1]
    told = (f"η is clipped at its bound of {significant(bound)}",) if rates["eta"].max() >= bound else ()
    notes = {panel: told for panel in panels if panel.startswith(f"{name}_eta")}
    facts = (*tables.rate_facts, MEANS)
    return Sheet(name, panels, facts, size=(3.7, 2.7), columns=len(starts), legend=4, notes=notes)


def _rates(axis: Axes, rates: pd.DataFrame, rate: str, title: str, ends: tuple[float, float]) -> None:
    for method in (PAPER, ONLINE, OFFLINE, BOTH):
        mine = rates[rates["method"] == method]
        if len(mine):
            place = mine["round"] - 1 + (mine["unfold"] - 1) / mine["unfolds"]
            axis.plot(place, mine[rate], label=method, linewidth=1.2, **LINES[method])
    axis.set(title=title, xlabel="round (every unfold is a step)", ylabel="", yscale=SteadyLogScale.name)
    axis.title.set_fontsize("small")
    axis.set_ylim(*ends)
    axis.yaxis.set_major_locator(FixedLocator([place for place in _TICKS if ends[0] <= place <= ends[1]]))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: significant(value, 2)))
    round_ticks(axis)
