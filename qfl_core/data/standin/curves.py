"""Numeric columns of the BAF stand-in: for each class a monotone curve from a standard normal z to a value.

The curve passes through the published quantiles. Between them it is straight in (z, x), or in (z, x^power) for a skewed
column. Values of z below a threshold get the missing code. Because curves are functions of z, the generator computes no
normal integral per row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from qfl_core.data.standin.baf_facts import (
    BALCON_MEAN_AA,
    CLASS_MEANS,
    FLOAT_COLUMNS,
    FRAUDS,
    MISSING,
    marginal,
    table,
)
from qfl_core.data.standin.discrete import discrete

GRID = np.linspace(-4.0, 4.0, 513)
QUANTILES = {"q01": 0.01, "q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95, "q99": 0.99}
SKEWED_COLUMNS = (
    "prev_address_months_count", "current_address_months_count", "days_since_request", "zip_count_4w",
    "bank_branch_count_8w", "session_length_in_minutes",
)  # fmt: skip
# Assumed, because the least value in the tables is the missing code.
LEAST_RECORDED = {
    "prev_address_months_count": 5.0,
    "current_address_months_count": 0.0,
    "bank_months_count": 1.0,
    "session_length_in_minutes": 0.1,
}
# The month-7 table's velocities and zip counts differ by drift alone: they stand for months 6 and 7.
FAST_DRIFT = ("velocity_6h", "velocity_24h", "velocity_4w", "zip_count_4w")
SLOW_DRIFT = ("current_address_months_count", "prev_address_months_count", "credit_risk_score")
DRIFTING_COLUMNS = (*FAST_DRIFT, *SLOW_DRIFT)
# Frauds differ in these only through the months they fall in, so there is nothing to camouflage.
PLAIN_COLUMNS = ("month", "velocity_4w")
# Decimals kept: far coarser than the last bits in which libms differ, so equal seeds give equal values.
DECIMALS = {
    "name_email_similarity": 6,
    "days_since_request": 9,
    "intended_balcon_amount": 6,
    "velocity_6h": 3,
    "velocity_24h": 3,
    "velocity_4w": 3,
    "session_length_in_minutes": 6,
}


@dataclass(frozen=True)
class Curve:
    """A numeric marginal: the share of missing values, and the quantile curve of the recorded values on ``GRID``.

    Attributes
    ----------
    missing : probability of the code -1.
    x : (513,) strictly increasing recorded values at the latents of ``GRID``.
    integer : whether values are whole numbers.
    """

    missing: float
    x: np.ndarray
    integer: bool

    def cdf(self, x: np.ndarray) -> np.ndarray:
        """Return P(recorded value <= x) for each x."""
        return ndtr(np.interp(x, self.x, GRID))

    def tabulate(self) -> tuple[float, np.ndarray]:
        """Return the missing threshold in z, and the values (513,) at ``GRID`` for z above it."""
        # With missing share m the recorded values occupy u in (m, 1), at (u - m) / (1 - m) on the curve.
        u = np.clip((ndtr(GRID) - self.missing) / (1.0 - self.missing), 0.0, 1.0)
        z = np.clip(ndtri(u), GRID[0], GRID[-1])
        cut = -np.inf if self.missing == 0.0 else float(np.round(ndtri(self.missing), 12))
        return cut, np.interp(z, GRID, self.x)


def overt_curve(legit: Curve, fraud: Curve, q: float) -> Curve:
    """Return the marginal s = (f - q l) / (1 - q) of frauds that stand out, clipped to a distribution."""
    missing = float(np.clip((fraud.missing - q * legit.missing) / (1.0 - q), 0.0, 1.0))
    x = np.unique(np.concatenate([legit.x, fraud.x]))
    mass = (1.0 - fraud.missing) * fraud.cdf(x) - q * (1.0 - legit.missing) * legit.cdf(x)
    # Where f < q l the difference falls; midway between its upper and lower envelopes it rises again.
    mass = 0.5 * (np.maximum.accumulate(mass) + np.minimum.accumulate(mass[::-1])[::-1])
    u = (mass - mass[0]) / (mass[-1] - mass[0])
    u += np.linspace(0.0, 1e-9, u.size)  # strictly increasing, so that it can be inverted
    z = np.clip(ndtri(np.clip(u / u[-1], 1e-6, 1.0 - 1e-6)), GRID[0], GRID[-1])
    return Curve(missing, _increasing(np.interp(GRID, z, x)), legit.integer)


def curve_mean(curve: Curve) -> float:
    """Return the mean of the recorded values."""
    weights = np.diff(ndtr(GRID))
    return float(np.sum(weights * 0.5 * (curve.x[1:] + curve.x[:-1])) / np.sum(weights))


@cache
def curves(column: str, late: bool) -> tuple[Curve, Curve]:
    """Return the (legitimate, fraud) marginals of a numeric column in months 0-5 (``late``: months 6-7).

    The tables describe legitimate rows of months 0-5 and frauds of all months; the published class means are over all
    months. So legitimate rows of months 0-5 follow their table, and those of months 6-7 get the mean that makes the
    mean over all months right.
    """
    legit = _curve(column, "baf_legit_marginals", MISSING.get(column, 0.0))
    if column in FAST_DRIFT:
        return _drifting(column, legit, late)
    if column == "prev_address_months_count":
        # Recorded values as in legitimate rows; mean = (1 - m) recorded - m then gives the missing share m.
        recorded = curve_mean(legit)
        missing = (recorded - CLASS_MEANS[column][1]) / (recorded + 1.0)
        fraud = replace(legit, missing=missing)
    else:
        all_months = column in table("baf_fraud_marginals_all_months").index
        facts = "baf_fraud_marginals_all_months" if all_months else "baf_fraud_marginals_month7"
        fraud = _curve(column, facts, _fraud_missing(column))
    if column in SLOW_DRIFT:
        fraud = _move(fraud, CLASS_MEANS[column][1])
        legit = _move(legit, _late_mean(column, legit)) if late else legit
    return legit, fraud


def _drifting(column: str, early_curve: Curve, late: bool) -> tuple[Curve, Curve]:
    """Return both classes' curves of a column whose month-7 table differs by drift, not by fraud."""
    late_curve = _curve(column, "baf_fraud_marginals_month7", 0.0)
    if column in CLASS_MEANS:
        late_curve = _move(late_curve, _late_mean(column, early_curve))
        fraud_mean = CLASS_MEANS[column][1]
    else:
        fraud_mean = float(marginal("baf_fraud_marginals_all_months", column)["mean"])
    legit = late_curve if late else early_curve
    if column in PLAIN_COLUMNS:
        return legit, legit
    # One factor per column moves frauds from the mean that their months imply to the published one.
    share = late_shares()[1]
    implied = (1.0 - share) * curve_mean(early_curve) + share * curve_mean(late_curve)
    return legit, _scale(legit, fraud_mean / implied)


def late_shares() -> np.ndarray:
    """Return P(month 6 or 7) for the legitimate and the fraud class."""
    return discrete("month").shares[:, 6:].sum(axis=1)


def _late_mean(column: str, early_curve: Curve) -> float:
    """Return the legitimate mean of months 6-7, missing code included, that makes the published mean right."""
    share, missing = late_shares()[0], early_curve.missing
    early_mean = (1.0 - missing) * curve_mean(early_curve) - missing
    return (CLASS_MEANS[column][0] - (1.0 - share) * early_mean) / share


def _move(curve: Curve, mean: float) -> Curve:
    """Return the curve with the given mean, missing code included: scaled, or shifted where it is signed."""
    target = (mean + curve.missing) / (1.0 - curve.missing)
    if curve.x[0] < 0.0 and not curve.missing:
        return replace(curve, x=curve.x + (target - curve_mean(curve)))
    return _scale(curve, target / curve_mean(curve))


def _scale(curve: Curve, factor: float) -> Curve:
    """Return the curve times a factor, held below its published maximum."""
    return replace(curve, x=_increasing(np.minimum(curve.x * factor, curve.x[-1])))


@cache
def balcon_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return intended_balcon_amount at ``GRID``: (513,) negative codes, (513,) amounts of payment type AA."""
    row = marginal("baf_legit_marginals", "intended_balcon_amount")
    missing = MISSING["intended_balcon_amount"]
    below = [name for name, p in QUANTILES.items() if p < missing]
    p = np.array([1e-4, *(QUANTILES[name] / missing for name in below), 1.0 - 1e-4])
    codes = np.interp(GRID, ndtri(p), [row["min"], *row[below], -1e-3])
    above = [name for name, p in QUANTILES.items() if p > missing]
    p = np.array([1e-4, *((QUANTILES[name] - missing) / (1.0 - missing) for name in above), 1.0 - 1e-4])
    knots = np.log([row["q75"] / 2.0, *row[above], row["max"]])
    amounts = np.exp(np.interp(GRID, ndtri(p), knots))
    # The least amount is not published; a common factor sets the published mean of payment type AA.
    weights = np.diff(ndtr(GRID))
    mean = np.sum(weights * 0.5 * (amounts[1:] + amounts[:-1])) / np.sum(weights)
    return codes, np.minimum(amounts * BALCON_MEAN_AA / mean, row["max"])


def _curve(column: str, facts: str, missing: float) -> Curve:
    """Return the curve through the quantiles that the facts table ``facts`` publishes for a column."""
    row = marginal(facts, column)
    integer = column not in FLOAT_COLUMNS
    coded = float(row["frac_-1"]) if column in MISSING else 0.0
    names = [name for name, p in QUANTILES.items() if p > coded + 0.002]
    p = np.array([(QUANTILES[name] - coded) / (1.0 - coded) for name in names])
    # Where the least value is the missing code, the least recorded one is not published.
    low = row["min"] if row["min"] > -1.0 or column not in MISSING else LEAST_RECORDED[column]
    x = np.array([low, *row[names], row["max"]], dtype=float)
    if integer:
        # A whole number k stands for the interval (k - 1/2, k + 1/2); repeated quantiles spread inside it.
        x = x + np.linspace(-0.4, 0.4, x.size) * (np.diff(x, prepend=x[0] - 1.0) < 0.5)
    extreme = 1.0 / (float(row["n"]) * (1.0 - coded))
    z = ndtri(np.array([extreme, *p, 1.0 - extreme]))
    keep = np.concatenate([[True], np.diff(z) > 0.0])
    z, x = z[keep], x[keep]
    if column not in SKEWED_COLUMNS:
        return Curve(missing, _increasing(np.interp(GRID, z, x)), integer)
    # Between the quantiles x^power is straight in z; the mean grows with the power, so bisection finds the
    # power that gives the published mean.
    target = (float(row["mean"]) + coded) / (1.0 - coded)
    shift = 1.0 if integer else 0.0
    low_power, high_power = 0.02, 4.0
    for _ in range(30):
        power = 0.5 * (low_power + high_power)
        curve = Curve(missing, np.interp(GRID, z, (x + shift) ** power) ** (1.0 / power) - shift, integer)
        low_power, high_power = (power, high_power) if curve_mean(curve) < target else (low_power, power)
    return Curve(missing, _increasing(curve.x), integer)


def _fraud_missing(column: str) -> float:
    """Return the missing share among frauds."""
    late = float(marginal("baf_fraud_marginals_month7", column)["frac_-1"])
    if column != "bank_months_count":
        return late if column in MISSING else 0.0
    # 6,871 of the 11,029 frauds have nothing missing; the others lack the bank months or the current address.
    complete = float(marginal("baf_fraud_marginals_all_months", column)["n"]) / FRAUDS
    return 1.0 - complete / (1.0 - _fraud_missing("current_address_months_count"))


def _increasing(x: np.ndarray) -> np.ndarray:
    """Return x with ties broken by a slope too small to see in any published digit."""
    return np.maximum.accumulate(x) + np.arange(x.size) * 1e-10 * (x[-1] - x[0])
