"""Measures: small functions that turn the tables of one run, or of one run per method, into one number per seed.

A measure is built by naming a column, which is checked at once: a claim about a column that no run has cannot exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.base.errors import AnalysisError, did_you_mean
from qfl_core.runs import RunResult
from qfl_core.runs.schema import SCHEMA

#: One run per method, in the order that a claim names them -> a number (NaN where it is not defined).
Measure = Callable[..., float]
#: The computed theory points -> one number per federation.
TheoryMeasure = Callable[["Theory"], tuple[float, ...]]


@dataclass(frozen=True)
class Theory:
    """The computed theory points, see :mod:`qfl_core.studies.theory`.

    ``gradient_error`` is the largest error of the proximal gradient; ``descent`` holds one cosine per federation,
    between the mean outer SPSA estimate and the true gradient.
    """

    gradient_error: float
    descent: tuple[float, ...]


ROUND_COLUMNS = (
    *SCHEMA["global_accuracies"],
    *SCHEMA["validation"][1:],
    *(f"test_{name}" for name in (*CLASSIFICATION, "loss") if name != "accuracy"),
)


def _known(column: str, columns: tuple[str, ...]) -> str:
    if column not in columns:
        raise AnalysisError(f"unknown metric {column!r}{did_you_mean(column, columns)}; metrics: {', '.join(columns)}")
    return column


def minus(measure: Measure) -> Measure:
    """Return the measure of run a minus that of run b."""
    return lambda a, b: measure(a) - measure(b)


def average(measure: Measure) -> Measure:
    """Return the mean of the measure over several methods' runs."""
    return lambda *runs: float(np.mean([measure(run) for run in runs]))


# Curves over rounds. Round 0 is left out, because its weights are the initial ones and not trained.


def _curve(run: RunResult, column: str) -> np.ndarray:
    return _over_rounds(run.rounds["round"].to_numpy(), run.rounds[column].to_numpy(float))


def _over_rounds(t: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.argsort(t)
    return values[order][t[order] > 0]


def final(column: str) -> Measure:
    """Return the value in the last round."""
    _known(column, ROUND_COLUMNS)
    return lambda run: _curve(run, column)[-1]


def peak(column: str) -> Measure:
    """Return the largest value of all rounds; compare it only between runs with the same number of rounds."""
    _known(column, ROUND_COLUMNS)
    return lambda run: _curve(run, column).max()


def mean_of_rounds(column: str) -> Measure:
    """Return the mean over rounds."""
    _known(column, ROUND_COLUMNS)
    return lambda run: _curve(run, column).mean()


EARLY, MIDDLE, LATE = range(3)


def third_minus_third(column: str, a: int, b: int) -> Measure:
    """Return the mean over one third of the rounds (``EARLY``, ``MIDDLE`` or ``LATE``) minus that over another one.

    Thirds are fixed before looking, so noise alone has mean 0; a peak minus the last value is never below 0.
    """
    _known(column, ROUND_COLUMNS)
    return lambda run: _thirds_apart(_curve(run, column), a, b)


def _thirds_apart(values: np.ndarray, a: int, b: int) -> float:
    thirds = np.array_split(values, 3)
    return float(thirds[a].mean() - thirds[b].mean()) if all(map(len, thirds)) else np.nan


def unsteadiness(values: np.ndarray) -> float:
    """Return the standard deviation of the changes from one value to the next; a steady trend counts as steady."""
    changes = np.diff(values)
    return float(changes.std(ddof=1)) if len(changes) > 1 else np.nan


def late_unsteadiness(column: str) -> Measure:
    """Return the unsteadiness of the second half of the rounds; the step into that half counts."""
    _known(column, ROUND_COLUMNS)
    return lambda run: unsteadiness(_curve(run, column)[(len(run.rounds) - 1) // 2 - 1 :])


def validation_excess(metric: str) -> Measure:
    """Return the unsteadiness of a metric's validation curve minus that of its test curve, over all rounds."""
    _known(metric, CLASSIFICATION)

    def measure(run: RunResult) -> float:
        part, t = run.metrics["part"].to_numpy(), run.metrics["round"].to_numpy()
        values = run.metrics[metric].to_numpy(float)
        curves = (_over_rounds(t[part == name], values[part == name]) for name in ("val", "test"))
        validation, test = map(unsteadiness, curves)
        return validation - test

    return measure


def share_of_rounds_above(column: str) -> Measure:
    """Return the share of rounds in which run a lies above run b."""
    _known(column, ROUND_COLUMNS)
    return lambda a, b: float((_curve(a, column) > _curve(b, column)).mean())


# The client trace: one row per round, client and unfold.


def log_variation(rate: str) -> Measure:
    """Return the standard deviation of log(rate) over all unfolds of a run, which is about its relative variation."""
    _known(rate, SCHEMA["client_trace"])
    return lambda run: float(np.log(run.clients[rate].to_numpy(float)).std())


def log_variation_across(rate: str, index: str) -> Measure:
    """Return the standard deviation across clients, or across unfolds, of the mean log(rate) of each.

    ``index`` is ``client`` or ``unfold``; the mean is over all rows of the trace with the same index.
    """
    for column in (rate, index):
        _known(column, SCHEMA["client_trace"])
    return lambda run: float(np.log(run.clients[rate]).groupby(run.clients[index]).mean().std(ddof=0))


def displacement_follows_eta(run: RunResult) -> float:
    """Return the correlation of an unfold's displacement with its eta; NaN where eta is always the same."""
    eta, moved = (run.clients[column].to_numpy(float) for column in ("eta", "displacement"))
    return float(np.corrcoef(eta, moved)[0, 1]) if np.ptp(eta) > 0 and np.ptp(moved) > 0 else np.nan


def share_inside_bounds(run: RunResult) -> float:
    """Return the share of unfolds whose eta and delta both lie strictly between their bounds, unclipped."""
    inside = np.ones(len(run.clients), bool)
    for rate, (low, high) in (("eta", run.config.eta_bounds), ("delta", run.config.delta_bounds)):
        values = run.clients[rate].to_numpy(float)
        inside &= (values > low * (1 + 1e-9)) & (values < high * (1 - 1e-9))
    return float(inside.mean())


def _reduction(trace: pd.DataFrame) -> pd.Series:
    return trace["loss_before"] - trace["loss_after"]


def share_of_reductions(run: RunResult) -> float:
    """Return the share of unfolds after which the client's objective is lower."""
    return float((_reduction(run.clients) > 0).mean())


def early_reduction_excess(run: RunResult) -> float:
    """Return the mean loss reduction of the first half of the unfolds (2 of 5) minus that of the others."""
    unfold = run.clients["unfold"]
    early = unfold <= unfold.max() // 2
    reduction = _reduction(run.clients)
    return float(reduction[early].mean() - reduction[~early].mean())


def share_of_earlier_uploads(run: RunResult) -> float:
    """Return the share of uploads that are not the last unfold."""
    uploads = run.clients[run.clients["is_selected"]]
    return float((uploads["unfold"] < run.clients["unfold"].max()).mean())


def largest_drift_ratio(run: RunResult) -> float:
    """Return the longest path of a client in a round divided by K r.

    The path, the sum of an unfold's displacements, is at least as long as the drift |theta_K - theta_t|, so a ratio of
    at most 1 bounds the drift by K r.
    """
    path = run.clients.groupby(["round", "client"])["displacement"].sum()
    return float(path.max() / (run.config.unfolds * run.config.drift_radius))


# Saved models on devices: a table by checkpoint with the columns device and exact, accuracies both.


def device_unsteadiness(checkpoints: pd.DataFrame) -> float:
    """Return the unsteadiness of the device's accuracy over checkpoints."""
    return unsteadiness(checkpoints["device"].to_numpy(float))


def device_distance(checkpoints: pd.DataFrame) -> float:
    """Return the mean distance of the device's accuracy from the exact one."""
    return float((checkpoints["device"] - checkpoints["exact"]).abs().mean())


def device_rise(checkpoints: pd.DataFrame) -> float:
    """Return the device's mean accuracy over the last third of the checkpoints minus that over the first third."""
    return _thirds_apart(checkpoints["device"].to_numpy(float), LATE, EARLY)


# Theory points, from :class:`Theory`; one value per federation.


def gradient_error(theory: Theory) -> tuple[float, ...]:
    """Return the largest relative error of the proximal gradient."""
    return (theory.gradient_error,)


def descent_cosines(theory: Theory) -> tuple[float, ...]:
    """Return the cosine of outer estimate and gradient in each federation."""
    return theory.descent
