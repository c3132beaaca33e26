"""Inference over a few seeds: every interval of the package, an exact test, and a correction for many tests.

Tables and figures show Student's interval of a mean over seeds: :func:`intervals`, or :func:`student_half` where the
standard error comes from elsewhere. Claims and paired comparisons need stronger tools, because ten seeds are few:

- :func:`mean_interval` is the *studentised* bootstrap of the mean. Percentile and BCa intervals resample a spread that
  is too small by (n - 1) / n and cover about 90 % instead of 95 % at ten seeds; dividing each resample by its own
  standard error repairs that, and follows a skew that Student's interval cannot follow.
- :func:`sign_flip_p` flips signs: under the null a paired difference is as likely d as -d, so all 2^n sign patterns are
  equally likely and the p value is exact.
- :func:`step_down` corrects many tests by the step-down maximum over the *same* flips (Westfall and Young), the
  permutation form of Holm's procedure. Holm's own bound can reject nothing among 26 tests or more at ten seeds, because
  the smallest two-sided p value is 2 / 1024; the maximum uses how the tests depend on each other and does not bound it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import t as student

RESAMPLES = 9_999
#: Sign patterns are enumerated up to this many seeds and drawn beyond it.
EXACT_SEEDS = 14
BOOTSTRAP, STUDENT = "studentised bootstrap", "Student's t"


def student_half(error: ArrayLike, free: ArrayLike, confidence: float = 0.95) -> np.ndarray:
    """Return half the width of Student's interval: the two-sided t quantile times the standard error.

    Parameters
    ----------
    error : standard error of each estimate, of any shape; the result has the same shape.
    free : degrees of freedom of the error, n - 1 for the mean of n values; where there are none the result is NaN.
    confidence : the share of such intervals that hold the true value.
    """
    return student.ppf((1 + confidence) / 2, free) * np.asarray(error)


def intervals(table: pd.DataFrame, metric: str, by: Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
    """Return mean, low, high and seeds of a metric, one row per group; the rows of a group are its seeds.

    The interval is Student's for the mean over seeds; with one seed it is NaN.
    """
    groups = table.dropna(subset=[metric]).groupby(list(by), sort=False)[metric]
    found = groups.agg(["mean", "sem", "count"]).reset_index()
    half = student_half(found["sem"], found["count"] - 1, confidence)
    found["low"], found["high"] = found["mean"] - half, found["mean"] + half
    return found.rename(columns={"count": "seeds"}).drop(columns="sem")


def repeats_interval(value: float, repeats: np.ndarray) -> tuple[float, float]:
    """Return (low, high): the central 95 % of ``repeats`` (n,) of a measurement, widened to hold its ``value``."""
    low, high = np.quantile(repeats, [0.025, 0.975])
    return float(min(low, value)), float(max(high, value))


def mean_interval(
    values: np.ndarray, rng: np.random.Generator, confidence: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float, str]:
    """Return (low, high, kind) of the mean of ``values`` (n,), n >= 2.

    Where more than 1 % of the resamples are constant (four values or fewer, or many ties) their standard error says
    nothing, and the interval is Student's; ``kind`` tells which. Equal values have an interval of no width.
    """
    n, mean = len(values), values.mean()
    if np.ptp(values) == 0:
        return float(mean), float(mean), STUDENT
    error = values.std(ddof=1) / np.sqrt(n)
    drawn = values[rng.integers(0, n, (resamples, n))]
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(n)
    constant = np.ptp(drawn, axis=1) == 0
    tail = (1 - confidence) / 2
    if constant.mean() > 0.01:
        half = student_half(error, n - 1, confidence)
        return float(mean - half), float(mean + half), STUDENT
    moved = drawn.mean(axis=1) - mean
    pivots = np.where(constant, np.copysign(np.inf, moved), moved / np.where(constant, 1.0, errors))
    low, high = np.quantile(pivots, [tail, 1 - tail], method="inverted_cdf")
    return float(mean - high * error), float(mean - low * error), BOOTSTRAP


def effect_size(values: np.ndarray) -> float:
    """Return Cohen's d_z of paired differences (n,): mean / standard deviation; 0 where all are 0."""
    mean, spread = values.mean(), values.std(ddof=1)
    if np.ptp(values) == 0:
        return float(np.sign(mean) * np.inf) if mean else 0.0
    return float(mean / spread)


def sign_patterns(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return sign patterns (F, n) of -1 and +1, the first all +1: all 2^n, or 2^14 at random for more seeds."""
    if n <= EXACT_SEEDS:
        bits = np.arange(2**n)[:, None] >> np.arange(n)
        return 1.0 - 2.0 * (bits & 1)
    drawn = 1.0 - 2.0 * rng.integers(0, 2, (2**EXACT_SEEDS, n))
    drawn[0] = 1.0
    return drawn


def sign_flip_p(values: np.ndarray, rng: np.random.Generator) -> float:
    """Return the two-sided p value of mean 0 for paired differences (n,): the share of flips that are as extreme."""
    return float(step_down(values[:, None], rng)[0])


def step_down(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return two-sided p values (tests,) of mean 0, corrected so that the family-wise error rate holds.

    Parameters
    ----------
    values : (seeds, tests) paired differences, NaN where a test has no such seed.

    Notes
    -----
    A test's statistic is |sum_s d_s| / sqrt(sum_s d_s^2), which orders flips as |t| does and needs no variance to
    divide by. A seed's sign is flipped in all tests at once, so dependence between tests is kept. Tests are taken from
    the most extreme down; each is compared with the maximum over itself and those after it.
    """
    scale = np.sqrt(np.nansum(values**2, axis=0))
    scaled = np.nan_to_num(values) / np.where(scale > 0, scale, 1.0)
    flipped = np.abs(sign_patterns(len(values), rng) @ scaled)
    observed = flipped[0]
    order = np.argsort(-observed, kind="stable")
    largest = np.maximum.accumulate(flipped[:, order[::-1]], axis=1)[:, ::-1]
    # Two equal sums may differ by rounding: they must still count as equal.
    share = (largest >= observed[order] - 1e-9).mean(axis=0)
    corrected = np.empty(len(order))
    corrected[order] = np.maximum.accumulate(share)
    return corrected
