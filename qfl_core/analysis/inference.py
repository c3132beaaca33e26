"""Inference over a few seeds: every interval of the package, an exact test, and a correction for many tests.

Tables and figures show Student's interval of a mean over seeds: :func:`intervals`, or :func:`student_half` where the
standard error comes from elsewhere. Claims and paired comparisons need stronger tools, because ten seeds are few:

- :func:`mean_interval` is the *studentised* bootstrap of the mean. Percentile and BCa intervals resample a spread that
  is too small by (n - 1) / n and cover about 90 % instead of 95 % at ten seeds; dividing each resample by its own
  standard error repairs that, and follows a skew that Student's interval cannot follow.
- :func:`sign_flip_p` flips signs: under the null a paired difference is as likely d as -d, so all 2^n sign patterns are
  equally likely and the p value is exact. :mod:`qfl_core.analysis.statements` corrects many such tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import norm as normal
from scipy.stats import t as student

RESAMPLES = 9_999
#: All 2^n sign patterns are counted where there are no more than this, and so many are drawn otherwise.
FLIPS = 2**14
#: Up to so many seeds all sign patterns are counted.
EXACT_SEEDS = 14
#: Two equal sums may differ by rounding: they must still count as equal.
TIE = 1e-9
BOOTSTRAP, STUDENT = "studentised bootstrap", "Student's t"


@dataclass(frozen=True)
class Effort:
    """How many resamples a bootstrap draws, and how many sign patterns a test uses at most.

    Less effort gives coarser numbers, which are still right: simulations need many of them.
    """

    resamples: int = RESAMPLES
    flips: int = FLIPS


FULL_EFFORT = Effort()


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


def wilson_interval(shown: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share, ``shown`` of ``n`` cases, n >= 1; it stays inside [0, 1]."""
    z = float(normal.ppf((1 + confidence) / 2))
    share, wide = shown / n, z * z / n
    middle, half = share + wide / 2, z * np.sqrt(share * (1 - share) / n + wide / (4 * n))
    return max(0.0, float((middle - half) / (1 + wide))), min(1.0, float((middle + half) / (1 + wide)))


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


def sign_patterns(n: int, rng: np.random.Generator, flips: int = FLIPS) -> np.ndarray:
    """Return sign patterns (F, n) of -1 and +1, the first all +1: all 2^n, or ``flips`` at random if 2^n is more."""
    if 2**n <= flips:
        bits = np.arange(2**n)[:, None] >> np.arange(n)
        return 1.0 - 2.0 * (bits & 1)
    drawn = 1.0 - 2.0 * rng.integers(0, 2, (flips, n))
    drawn[0] = 1.0
    return drawn


def flip_sums(values: np.ndarray, rng: np.random.Generator, flips: int = FLIPS) -> np.ndarray:
    """Return the statistics (F, tests) of paired differences under sign flips; the first row is what was seen.

    A test's statistic is sum_s d_s / sqrt(sum_s d_s^2), which orders flips as t does and needs no variance to divide
    by; it is 0 where all differences are 0. A seed's sign is flipped in all tests at once, so that the dependence
    between tests is kept.

    Parameters
    ----------
    values : (seeds, tests), NaN where a test has no such seed.
    flips : how many sign patterns are used at most.
    """
    scale = np.sqrt(np.nansum(values**2, axis=0))
    scaled = np.nan_to_num(values) / np.where(scale > 0, scale, 1.0)
    return sign_patterns(len(values), rng, flips) @ scaled


def pivots(values: np.ndarray, rng: np.random.Generator, resamples: int = FLIPS) -> np.ndarray:
    """Return studentised statistics (R, tests) of resampled seeds; the first row is what was seen.

    What was seen is mean / standard error. A resample's statistic is (its mean - the mean) / its standard error: if the
    true mean is 0, both have about the same distribution, and the same skew. A seed is drawn for all tests at once, so
    that the dependence between tests is kept.

    Parameters
    ----------
    values : (seeds, tests), NaN where a test has no such seed.
    resamples : how many rows are returned.
    """
    seeds, present = len(values), np.isfinite(values)
    center = np.nanmean(values, axis=0)
    x = np.where(present, values - center, 0.0)
    drawn = rng.multinomial(seeds, np.full(seeds, 1 / seeds), resamples).astype(float)
    drawn[0] = 1.0
    counts = np.maximum(drawn @ present, 1.0)
    means = (drawn @ x) / counts
    errors = np.sqrt(np.maximum((drawn @ x**2) / counts - means**2, 0.0) / np.maximum(counts - 1, 1.0))
    means[0] = center
    # Without a spread, a mean that differs from the true one at all is infinitely far from it.
    nothing = TIE * np.nanmax(np.abs(values), axis=0)
    constant = errors <= nothing
    limit = np.copysign(np.where(np.abs(means) > nothing, np.inf, 0.0), means)
    return np.where(constant, limit, means / np.where(constant, 1.0, errors))


def sign_flip_p(values: np.ndarray, rng: np.random.Generator) -> float:
    """Return the two-sided p value of mean 0 for paired differences (n,): the share of flips that are as extreme."""
    sums = np.abs(flip_sums(values[:, None], rng))
    return float((sums >= sums[0] - TIE).mean())
