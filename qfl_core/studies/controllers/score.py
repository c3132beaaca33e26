"""Scores of a curve of test scores against circuits: its area, the circuits up to a goal, and its end.

A run has a score after every round, and has spent so many circuits by then: training, calibration, monitoring,
validation, virtual rounds and tuning all count. Between two rounds the server holds the model of the earlier one, so a
curve is a staircase: its score at c circuits is that of the last round that was finished with c circuits or fewer.
Behind its last round a curve keeps its last value.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd

from qfl_core.studies.controllers.plan import CONSTANT, GRID, METHODS, TUNED

#: The end of a run is the mean of so many rounds, because single rounds scatter.
LAST_ROUNDS = 3
#: What identifies a curve.
KEY = ["task", "method", "start", "seed"]


def area(circuits: np.ndarray, scores: np.ndarray, horizon: float) -> float:
    """Return the mean height of the staircase from 0 to ``horizon`` circuits.

    ``circuits`` (rounds + 1,) do not fall, and begin with the untrained model; ``scores`` has the same shape.
    """
    ends = np.clip(np.append(circuits[1:], horizon), 0, horizon)
    begins = np.clip(np.append(0.0, circuits[1:]), 0, horizon)
    ends = np.maximum(ends, begins)
    return float((scores * (ends - begins)).sum() / horizon)


def height(circuits: np.ndarray, scores: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the height of the staircase at every place, in circuits."""
    found: np.ndarray = scores[np.maximum(np.searchsorted(circuits, places, side="right") - 1, 0)]
    return found


def first_reach(circuits: np.ndarray, scores: np.ndarray, goal: float) -> float:
    """Return the circuits that were spent when a round first scored the goal; NaN where none did.

    The untrained model, which has spent nothing, does not count.
    """
    hits = np.flatnonzero(scores[1:] >= goal)
    return float(circuits[1:][hits[0]]) if len(hits) else float("nan")


def final(scores: np.ndarray) -> float:
    """Return the mean of the last rounds."""
    return float(scores[-LAST_ROUNDS:].mean())


def with_tuned(rounds: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Add the tuned constant of each task, and leave its grid out; also return the value that was chosen by task.

    All constants of the grid are trained side by side, so the tuned one has spent the circuits of all of them. Chosen
    is the value whose validation score at the end of training has the highest mean over the seeds of the task.

    ``rounds`` has the columns of :func:`qfl_core.studies.controllers.collect.measured`.
    """
    parts, chosen = [rounds[rounds["method"] != GRID]], {}
    for task, mine in rounds[rounds["method"] == GRID].groupby("task", sort=False):
        ends = mine.groupby(["start", "seed"], sort=False)["val_score"].agg(lambda v: final(v.to_numpy()))
        best = str(ends.groupby("start", sort=False).mean().idxmax())
        spent = mine.groupby(["seed", "round"])["circuits"].sum().rename("all")
        tuned = mine[mine["start"] == best].join(spent, on=["seed", "round"])
        parts.append(tuned.assign(method=TUNED, start="", circuits=tuned["all"]).drop(columns="all"))
        chosen[str(task)] = best
    return pd.concat(parts, ignore_index=True), chosen


def values(rounds: pd.DataFrame, goals: pd.DataFrame) -> pd.DataFrame:
    """Return one row per curve: its area, its end, the circuits up to the goal and in all, and the goal.

    The area reaches to the circuits that constant 0.13 spends in the whole run with the same seed; circuits are given
    as shares of these.

    Parameters
    ----------
    rounds : as :func:`with_tuned` returns them.
    goals : columns task, seed, goal.
    """
    horizons = _horizons(rounds)
    goal = {(row["task"], row["seed"]): float(row["goal"]) for row in goals.to_dict("records")}
    rows = []
    for key, curve in rounds.groupby(KEY, sort=False):
        horizon, aim = horizons[key[0], key[3]], goal[key[0], key[3]]
        circuits, scores = curve["circuits"].to_numpy(float), curve["score"].to_numpy(float)
        rows.append(
            dict(zip(KEY, key, strict=True))
            | {
                "area": area(circuits, scores, horizon),
                "final": final(scores),
                "reached": first_reach(circuits, scores, aim) / horizon,
                "spent": circuits[-1] / horizon,
                "goal": aim,
            }
        )
    return in_order(pd.DataFrame(rows))


def heights(rounds: pd.DataFrame, places: np.ndarray) -> pd.DataFrame:
    """Return the staircase of every curve at ``places``, which are shares of the circuits of constant 0.13."""
    horizons = _horizons(rounds)
    rows = []
    for key, curve in rounds.groupby(KEY, sort=False):
        at = places * horizons[key[0], key[3]]
        found = height(curve["circuits"].to_numpy(float), curve["score"].to_numpy(float), at)
        labels = dict(zip(KEY, key, strict=True))
        rows.append(pd.DataFrame({**labels, "circuits": places, "score": found}))
    return in_order(pd.concat(rows, ignore_index=True))


def _horizons(rounds: pd.DataFrame) -> dict[tuple[Hashable, Hashable], float]:
    """Return all circuits of constant 0.13 by task and seed."""
    mine = rounds[rounds["method"] == CONSTANT].groupby(["task", "seed"])["circuits"].max()
    return {(row["task"], row["seed"]): float(row["circuits"]) for row in mine.reset_index().to_dict("records")}


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of every task in the order of the methods."""
    tasks = {name: place for place, name in enumerate(dict.fromkeys(table["task"]))}
    methods = {name: place for place, name in enumerate(METHODS)}
    places = pd.DataFrame({"task": table["task"].map(tasks), "method": table["method"].map(methods)})
    order = places.sort_values(["task", "method"], kind="stable").index
    return table.loc[order].reset_index(drop=True)
