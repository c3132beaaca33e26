"""Which features of the controller that was learnt offline matter, and what does it do with clients that differ?

**Ablation.** The controller gives log eta = phi . z. A level keeps the first features and holds every other one at its
mean over all clients, unfolds and rounds of the full controller's runs on the task. What a level lacks is therefore
what the *variation* of a feature brings, and the mean of log eta before it is clipped stays. No controller is trained
anew: one that was trained with fewer features from the beginning might do better than the level here.

Among the measures are the accuracies of the uploads of skewed and of small clients: does what it does help them?

**Clients.** Rates of one group of clients over those of the others, as a ratio of geometric means: clients whose label
mix is further from the federation's than the median of their round, and clients with fewer samples than the median.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.algorithm.controller import FEATURES, standardised
from qfl_core.analysis.differences import judge_differences
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.margins import of_metric
from qfl_core.extras.pretrained import pretrained_phi
from qfl_core.runs import RunResult
from qfl_core.runs.study import Study
from qfl_core.studies.controllers.probe import GROUPS, MEASURES, Probe, curve_of, in_group, summary, train_probes

#: The levels and how many of the features each keeps; the last is the full controller.
LEVELS = {"constant": 1, "+ unfold": 2, "+ round": 3, "+ loss change": 5, "+ client features": len(FEATURES)}
FULL = "+ client features"


def features(run: RunResult) -> np.ndarray:
    """Return the standardised features z (rows, 7) behind every row of a run's client trace, in its order.

    A row holds the losses and the step of its own unfold; its features are made of those of the unfold before.
    """
    trace, config, num_weights = run.clients, run.config, run.weights.shape[1]
    fall: pd.Series = (trace["loss_before"] - trace["loss_after"]) / np.maximum(trace["loss_before"].abs(), 1e-12)
    done = pd.DataFrame({"fall": fall, "moved": trace["displacement"] / np.sqrt(num_weights)})
    before = done.groupby([trace["round"], trace["client"]], sort=False).shift(fill_value=0.0)
    total = trace.groupby("round")["client_size"].transform("sum") / config.unfolds
    columns = (
        np.ones(len(trace)),
        (trace["unfold"] - 1) / config.unfolds,
        (trace["round"] - 1) / config.rounds,
        before["fall"],
        before["moved"],
        trace["client_size"] / total,
        trace["heterogeneity"],
    )
    z = np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)
    return standardised(z, int(trace.groupby("round")["client"].nunique().iloc[0]))


def held(phi: np.ndarray, means: np.ndarray, count: int) -> np.ndarray:
    """Return phi (2, 7) that reads ``count`` features; the others act through their ``means`` (7,)."""
    found = np.zeros_like(phi)
    found[:, :count] = phi[:, :count]
    found[:, 0] += phi[:, count:] @ means[count:]
    return found


def ablation(
    studies: Mapping[str, Study], scores: Mapping[str, str], seeds: Sequence[int], folder: Path, jobs: int = -1
) -> pd.DataFrame:
    """Return one row per task, level and seed with the :data:`MEASURES`; runs that the folder holds are not repeated.

    Parameters
    ----------
    studies : the full controller's runs by task.
    scores : the score of each task, ``accuracy`` or ``roc_auc``.
    seeds : which seeds of the runs take part.
    """
    asked: list[tuple[str, str, Probe]] = []
    for task, study in studies.items():
        runs = [run for run in study.runs if run.config.seed in seeds]
        means = np.mean([features(run).mean(axis=0) for run in runs], axis=0)
        for run in runs:
            phi, data = pretrained_phi(run.config), run.environment["data"]["sha256"]
            some = {level: held(phi, means, count) for level, count in LEVELS.items() if level != FULL}
            asked += [(task, level, Probe(run.config, data, levelled)) for level, levelled in some.items()]
    train_probes([probe for *_, probe in asked], folder, jobs)
    curves = [(task, level, probe.config.seed, probe.read(folder)) for task, level, probe in asked]
    for task, study in studies.items():
        curves += [(task, FULL, run.config.seed, curve_of(run)) for run in study.runs if run.config.seed in seeds]
    table = pd.DataFrame(
        [
            {"task": task, "level": level, "seed": seed, **summary(curve, scores[task])}
            for task, level, seed, curve in curves
        ]
    )
    places = {level: place for place, level in enumerate(LEVELS)}
    return table.sort_values(["task", "level"], key=lambda c: c.map(places) if c.name == "level" else c, kind="stable")


def steps(table: pd.DataFrame) -> pd.DataFrame:
    """Return what each level adds to the one before, paired over seeds, with verdicts; all rows form one family.

    The columns are those of :func:`qfl_core.analysis.differences.judge_differences`, with each level's own mean.
    """
    names = list(LEVELS)
    found = {}
    for task in table["task"].unique():
        by_level = {level: rows.set_index("seed") for level, rows in table[table["task"] == task].groupby("level")}
        for before, level in itertools.pairwise(names):
            for measure in MEASURES:
                found[task, level, measure] = by_level[level][measure] - by_level[before][measure]
    differences = pd.DataFrame(found).rename_axis(columns=["task", "level", "measure"])
    margins = [of_metric(measure) for *_, measure in found]
    judged = judge_differences(differences, margins, "controllers-features").reset_index()
    parts = [intervals(table, measure, ["task", "level"]).assign(measure=measure) for measure in MEASURES]
    columns = {"mean": "level_mean", "low": "level_low", "high": "level_high"}
    levels = pd.concat(parts).rename(columns=columns).drop(columns="seeds")
    both = levels.merge(judged, on=["task", "level", "measure"], how="left")
    order = {"task": {t: i for i, t in enumerate(table["task"].unique())}, "level": {t: i for i, t in enumerate(names)}}
    order["measure"] = {t: i for i, t in enumerate(MEASURES)}
    return both.sort_values(list(order), key=lambda c: c.map(order[str(c.name)]), ignore_index=True)


def client_rates(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return the ratio of rates of skewed over other clients, and of small over large ones: one row per task and rate.

    Mean, low and high (95 % over seeds) are of the ratio's logarithm, turned back.
    """
    rows = []
    for task, study in studies.items():
        trace = study.table("client_trace")
        for group in GROUPS:
            inside, outside = in_group(trace, group, ["seed", "round"])
            for rate in ("eta", "delta"):
                logs = np.log(trace[rate])
                ratio = logs[inside].groupby(trace["seed"]).mean() - logs[outside].groupby(trace["seed"]).mean()
                label = {"task": task, "group": group, "rate": rate}
                rows.append(ratio.rename("ratio").reset_index().assign(**label))
    found = intervals(pd.concat(rows, ignore_index=True), "ratio", ["task", "group", "rate"])
    return found.assign(**{name: np.exp(found[name]) for name in ("mean", "low", "high")})
