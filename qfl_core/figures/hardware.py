"""Figures of the hardware validation: the curves, the ledger as a table, the noise study."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.untrained import START_FACT, UNTRAINED
from qfl_core.base.numbers import number, rounded, significant
from qfl_core.figures.results import BANDS, round_ticks
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import METHOD_COLOURS, SAFE, SteadyLogScale, reference_line, titled
from qfl_core.hardware.pipeline import Validation

#: Curve, what the legend calls it, colour, marker and dashes; the legend adds the kind that was recorded.
CURVES = {
    "all": ("noiseless", "0.75", "", "-"),
    "noiseless": ("noiseless", "0.35", "", "--"),
    "shots": ("sampled", SAFE[2], "s", "-"),
    "noise": ("device noise", SAFE[1], "^", "-"),
    "execution": ("SamplerV2", SAFE[0], "o", "-"),
}
SIDEWAYS = 0.08  # of a checkpoint, so that intervals do not hide each other


def real_ibm_validation(validation: Validation) -> Sheet:
    """Return accuracy over checkpoints, one panel per method, with shot intervals.

    The grey line is of all samples; the other curves are of the samples that the backend executed. All are of one run
    per method, not means over seeds; a thin line is at the accuracy of a coin.
    """
    methods = list(validation.curves["method"].unique())
    names = {"duqfl-prox": "ibm_duqfl_prox", "default-qfl": "ibm_default_qfl"}
    panels = {
        names.get(method, f"ibm_{method.replace('-', '_')}"): partial(
            _validation,
            table=validation.curves,
            method=method,
            title=f"{titled(METHODS[method].label, validation.track)}, one run (seed {validation.seed})",
        )
        for method in methods
    }
    facts = (*validation.facts, "bars: 95 % of repeats of the shots")
    return Sheet("real_ibm_validation", panels, facts, size=(4.8, 3.5), legend=3)


def _validation(axis: Axes, table: pd.DataFrame, method: str, title: str) -> None:
    rows = table[table["method"] == method]
    for place, (curve, (name, colour, marker, dashes)) in enumerate(CURVES.items()):
        found = rows[rows["curve"] == curve].sort_values("checkpoint")
        if found.empty:
            continue
        kinds = ", ".join(found["kind"].unique())
        label = f"{name} ({kinds}, {found['samples'].iloc[0]} samples)"
        spread = [found["accuracy"] - found["accuracy_low"], found["accuracy_high"] - found["accuracy"]]
        step = (found["checkpoint"].diff().min() or 1) * SIDEWAYS * (place - 2.5)
        line = {"color": colour, "label": label, "marker": marker, "markersize": 3.5, "linestyle": dashes}
        if curve in ("all", "noiseless"):
            axis.plot(found["checkpoint"], found["accuracy"], **line)
        else:
            axis.errorbar(
                found["checkpoint"] + step, found["accuracy"], yerr=spread, capsize=1.5, elinewidth=0.8, **line
            )
    ran = set(rows.loc[rows["curve"] == "execution", "kind"])
    note = "" if ran == {"hardware"} else "\nnothing ran on a quantum computer" if ran else "\nnot executed yet"
    reference_line(axis, "chance", 0.5)
    axis.set(title=title + note, xlabel="checkpoint (round)", ylabel="test accuracy", ylim=(0, 1.02))
    last = rows["checkpoint"].max()
    edge = max(0.03 * last, 2 * SIDEWAYS)
    axis.set_xlim(-edge, last + edge)
    round_ticks(axis)


def ibm_workload_evidence(validation: Validation) -> Sheet:
    """Return the ledger as a table: each job with its backend, kind and cost."""
    rows = max(len(validation.workload), 1)
    panel = partial(_workload, table=validation.workload)
    return Sheet(
        "ibm_workload_evidence", {"ibm_workload_evidence": panel}, validation.facts, size=(8.8, 0.9 + 0.28 * rows)
    )


def _workload(axis: Axes, table: pd.DataFrame) -> None:
    axis.set_axis_off()
    hardware = bool(len(table)) and set(table["kind"]) == {"hardware"}
    title = (
        "Jobs that ran on a quantum computer" if hardware else "Jobs of the ledger: nothing ran on a quantum computer"
    )
    if not hardware and "hardware" in set(table["kind"]):
        title = "Jobs of the ledger: only those of kind hardware ran on a quantum computer"
    axis.set_title(title)
    if not table["created"].any():
        table = table.drop(columns="created")
    shown = table.rename(columns={"job_id": "job id", "created": "created (UTC)", "qpu_seconds": "QPU seconds"})
    shown = shown.assign(**{"QPU seconds": shown["QPU seconds"].map(lambda seconds: number(seconds, 1))}).astype(str)
    if shown.empty:
        axis.text(0.5, 0.5, "no job yet", ha="center", transform=axis.transAxes)
        return
    shown["job"] = shown["job"].map(lambda name: METHODS[name].label if name in METHODS else name.replace("-", " "))
    shown["job id"] = shown["job id"].map(lambda name: name if len(name) <= 20 else f"{name[:17]}...")
    widths = [max(len(str(column)), *shown[column].map(len)) + 1 for column in shown]
    drawn = axis.table(
        shown.to_numpy().tolist(),
        colLabels=list(map(str, shown)),
        colWidths=[width / math.fsum(widths) for width in widths],
        bbox=Bbox.unit(),
        cellLoc="left",
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(7.5)
    for (row, _), cell in drawn.get_celld().items():
        cell.set_edgecolor("0.8")
        cell.set_linewidth(0.5)
        if row == 0:
            cell.set_text_props(weight="bold")
            cell.set_facecolor("0.93")


def noise_study(grid: pd.DataFrame, steady: pd.DataFrame, facts: tuple[str, ...], track: str) -> Sheet:
    """Return accuracy against noise scale and shots, and each seed's steadiness, for the methods compared.

    ``grid`` is :func:`qfl_core.studies.noise.noise_grid`'s table, ``steady`` that of ``steadiness``; ``track`` is in
    the titles.
    """
    panels = {
        "noise_scale": partial(_scale, grid=grid, track=track),
        "noise_shots": partial(_shots, grid=grid, track=track),
        "noise_steadiness": partial(_steadiness, steady=steady, track=track),
    }
    drawn = (BANDS, START_FACT) if UNTRAINED in grid else (BANDS,)
    notes = dict.fromkeys(("noise_scale", "noise_shots"), drawn)
    told = tuple(fact.replace("engine: ", "trained on ") for fact in facts)  # another engine evaluates
    return Sheet("noise_study", panels, told, size=(3.7, 3.2), notes=notes)


def _scale(axis: Axes, grid: pd.DataFrame, track: str) -> None:
    _bands(axis, grid[grid["shots"] == 0], "noise_scale")
    axis.set(title=titled("Noise alone, no shots", track), xlabel="times the device's noise", ylabel="test accuracy")


def _shots(axis: Axes, grid: pd.DataFrame, track: str) -> None:
    scales = grid["noise_scale"].to_numpy()
    closest = float(scales[np.abs(scales - 1).argmin()])
    table = grid[(grid["noise_scale"] == closest) & (grid["shots"] > 0)]
    _bands(axis, table, "shots")
    axis.set_xscale(SteadyLogScale.name, base=2)
    axis.set_xticks(sorted(table["shots"].unique()), [f"{n}" for n in sorted(table["shots"].unique())])
    axis.xaxis.set_minor_locator(NullLocator())
    told = titled(f"Shots, {significant(closest, 6)} × the device's noise", track)
    axis.set(title=told, xlabel="shots", ylabel="test accuracy")


def _bands(axis: Axes, table: pd.DataFrame, x: str) -> None:
    for method in table["method"].unique():
        found = intervals(table[table["method"] == method], "accuracy", [x])
        colour = METHOD_COLOURS[method]
        axis.plot(found[x], found["mean"], marker="o", markersize=3, color=colour, label=METHODS[method].label)
        axis.fill_between(found[x], found["low"].clip(0, 1), found["high"].clip(0, 1), color=colour, alpha=0.15, lw=0)
    if UNTRAINED in table:
        reference_line(axis, UNTRAINED, rounded(table[UNTRAINED].mean(), 9))


def _steadiness(axis: Axes, steady: pd.DataFrame, track: str) -> None:
    """Draw one point per seed: unsteadiness against distance; lower left is better."""
    for method in steady["method"].unique():
        found = steady[steady["method"] == method]
        style = {"color": METHOD_COLOURS[method], "label": METHODS[method].label}
        axis.plot(found["distance"], found["unsteadiness"], "o", markersize=4.5, alpha=0.8, **style)
    axis.set(
        title=titled("Steadiness, one point per seed", track),
        xlabel="mean distance from the noiseless accuracy",
        ylabel="s.d. of accuracy changes",
    )
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.xaxis.set_major_locator(MaxNLocator(5))
