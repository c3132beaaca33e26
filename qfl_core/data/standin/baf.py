"""Offline stand-in for BAF's base variant: a class-conditional Gaussian copula with camouflaged frauds.

A row is a vector z of correlated standard normals, one per column. The value of a column is a monotone map of its z,
so rank correlations come from the correlation of z, and marginals come from the maps
(:mod:`~qfl_core.data.standin.discrete`, :mod:`~qfl_core.data.standin.curves`). A row is first put into months 0-5 or
into months 6-7, which have their own maps; the month itself is then one of the columns. This gives the drift of the
velocities and of the fraud rate.

Two constants shape the frauds beyond their marginals. VEILED: a fraud hides, so each of its cells looks legitimate
with this probability; the other cells take the marginal that restores the published fraud marginal. LOOSENED: a
fraudster invents the profile, so its columns depend on each other less; their latent correlations are multiplied by 1
- LOOSENED. Both constants were chosen on the published ROC-AUC figures (``baf_facts.ROC_AUC``) and on nothing else:
VEILED separates the forest from the linear model, LOOSENED raises all four figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from qfl_core.base.streams import stream
from qfl_core.data.standin.baf_facts import COLUMNS, FLOAT_COLUMNS, PRIOR, TEXT_COLUMNS, table
from qfl_core.data.standin.curves import (
    DECIMALS,
    DRIFTING_COLUMNS,
    GRID,
    PLAIN_COLUMNS,
    Curve,
    balcon_tables,
    curves,
    late_shares,
    overt_curve,
)
from qfl_core.data.standin.discrete import DISCRETE_COLUMNS, discrete

VEILED = 0.1
LOOSENED = 0.6
BLOCK = 100_000
LATENT = ("month", *(c for c in COLUMNS if c not in ("fraud_bool", "device_fraud_count", "month")))


def generate_baf(rows: int, seed: int) -> pd.DataFrame:
    """Generate a stand-in dataset with the layout of BAF's Base.csv.

    Parameters
    ----------
    rows : at least 1. Exactly ``round(rows * 0.011029)`` of them are frauds, at random places.
    seed : non-negative. Equal (rows, seed) give equal frames on every machine. Rows come in blocks of 100,000, each
        with its own stream, and the labels have a stream of their own: frames of different length with the same seed
        share latents, but not labels.

    Returns
    -------
    DataFrame (rows, 32) in the official column order, int64 / float64 / str, missing coded as in Base.csv.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")
    if seed < 0:
        raise ValueError(f"seed must be non-negative, got {seed}")
    fraud = np.zeros(rows, dtype=np.int64)
    places = stream(seed, "standin-baf-labels").choice(rows, size=round(rows * PRIOR), replace=False)
    fraud[places] = 1
    codes: dict[str, np.ndarray] = {
        c: np.empty(rows, dtype=np.float64 if c in FLOAT_COLUMNS else np.int64) for c in LATENT
    }
    for block, start in enumerate(range(0, rows, BLOCK)):
        stop = min(start + BLOCK, rows)
        _fill(codes, fraud, start, stop, stream(seed, "standin-baf", block))
    codes |= {"fraud_bool": fraud, "device_fraud_count": np.zeros(rows, dtype=np.int64)}
    texts = {
        column: pd.Categorical.from_codes(codes.pop(column), categories=pd.Index(discrete(column).values)).astype("str")
        for column in TEXT_COLUMNS
    }
    return pd.DataFrame({c: texts.pop(c) if c in texts else codes.pop(c) for c in COLUMNS})


def _fill(codes: dict[str, np.ndarray], fraud: np.ndarray, start: int, stop: int, rng: np.random.Generator) -> None:
    """Write rows start..stop of every latent column into ``codes`` (text columns as category positions)."""
    z = np.ascontiguousarray(rng.standard_normal((stop - start, len(LATENT))).T)
    frauds = np.flatnonzero(fraud[start:stop])
    fabricated = z[:, frauds]
    _correlate(z, cholesky_factor(0.0))
    _correlate(fabricated, cholesky_factor(LOOSENED))
    z[:, frauds] = fabricated
    draws = rng.random((frauds.size, len(LATENT))).T
    late = rng.random(stop - start) < late_shares()[fraud[start:stop]]
    periods = ((False, ~late), (True, late))
    for j, column in enumerate(LATENT):
        if column == "intended_balcon_amount":
            continue
        values = codes[column][start:stop]
        drifting = column == "month" or column in DRIFTING_COLUMNS
        for period, rows in periods if drifting else ((False, np.ones_like(late)),):
            maps = _maps(column, VEILED, period)
            values[rows] = maps.legit(z[j, rows])
            overt = frauds[rows[frauds] & (draws[j] >= maps.q)]
            values[overt] = maps.overt(z[j, overt])
    # Amounts exist for payment type AA (position 0) and nowhere else.
    amount = _balcon(z[LATENT.index("intended_balcon_amount")], codes["payment_type"][start:stop] == 0)
    codes["intended_balcon_amount"][start:stop] = amount


def _correlate(z: np.ndarray, L: np.ndarray) -> None:
    """Replace independent normals z (C, n) by L z in place."""
    # Row i of L z needs only rows 0..i of the old z, so the last row is replaced first.
    for i in range(len(z) - 1, -1, -1):
        z[i] *= L[i, i]
        for j in range(i):
            z[i] += L[i, j] * z[j]


@dataclass(frozen=True)
class _Maps:
    """How the values of a column follow from z.

    Attributes
    ----------
    legit : map for legitimate cells and for fraud cells that blend in.
    overt : map for fraud cells that stand out.
    q : the share of fraud cells that blend in.
    """

    legit: Callable[[np.ndarray], np.ndarray]
    overt: Callable[[np.ndarray], np.ndarray]
    q: float


@cache
def _maps(column: str, q: float, late: bool) -> _Maps:
    """Return the maps of a column in months 0-5 (``late``: months 6-7); text columns give category positions."""
    if column in PLAIN_COLUMNS:
        q = 0.0
    if column not in DISCRETE_COLUMNS:
        legit_curve, fraud_curve = curves(column, late)
        overt = overt_curve(legit_curve, fraud_curve, q) if q > 0.0 else fraud_curve
        return _Maps(_curve_map(column, legit_curve), _curve_map(column, overt), q)
    marginal = discrete(column)
    if column == "month":
        marginal = marginal.given(slice(6, 8) if late else slice(0, 6))
    legit_cuts, overt_cuts, q = marginal.thresholds(q)
    values = np.arange(len(marginal.values)) if column in TEXT_COLUMNS else marginal.values
    return _Maps(lambda z: values[marginal.map(z, legit_cuts)], lambda z: values[marginal.map(z, overt_cuts)], q)


def _curve_map(column: str, curve: Curve) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map of a numeric column: the curve, rounded as the official file rounds, -1 below the threshold."""
    cut, x = curve.tabulate()
    decimals = DECIMALS.get(column)

    def follow(z: np.ndarray) -> np.ndarray:
        values = np.interp(z, GRID, x)
        values = np.floor(values + 0.5) if decimals is None else np.round(values, decimals)
        values[z < cut] = -1.0
        return values

    return follow


def _balcon(z: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Return intended_balcon_amount: an amount where one is recorded, a negative code elsewhere."""
    negative, amounts = balcon_tables()
    values = np.where(recorded, np.interp(z, GRID, amounts), np.interp(z, GRID, negative))
    return np.round(values, DECIMALS["intended_balcon_amount"])


@cache
def cholesky_factor(loosened: float) -> np.ndarray:
    """Return the Cholesky factor (C, C) of (1 - loosened) R + loosened B, in the order of ``LATENT``.

    R is the latent correlation of all rows; B keeps R among month and velocities (drift) and is I elsewhere.

    Ties weaken a rank correlation: for small r, Spearman = c_i c_j r with c the correlation of a column's
    mid-ranks with its z (c^2 = 3 / pi without ties). Dividing by c_i c_j pi / 3 gives rho without ties, and
    r = 2 sin(pi rho / 6).
    """
    rho = table("baf_spearman").loc[list(LATENT), list(LATENT)].to_numpy(copy=True)
    balcon, payment = LATENT.index("intended_balcon_amount"), LATENT.index("payment_type")
    # The amount follows the payment type by construction; its z carries what the type does not explain.
    rho[balcon] -= rho[balcon, payment] * rho[payment]
    rho[:, balcon] = rho[balcon]
    c = np.array([_rank_score(column) for column in LATENT])
    free = np.clip(rho * (3.0 / np.pi) / (c[:, None] * c), -0.95, 0.95)
    r = 2.0 * np.sin(np.pi * free / 6.0)
    np.fill_diagonal(r, 1.0)
    # Nearest correlation matrix in one step: raise the eigenvalues, rescale the diagonal. Six decimals leave
    # no trace of the linear-algebra library.
    values, vectors = np.linalg.eigh(r)
    r = (vectors * np.maximum(values, 0.02)) @ vectors.T
    scale = np.sqrt(np.diag(r))
    r = np.round(r / (scale[:, None] * scale), 6)
    drifting = np.array([column == "month" or column.startswith("velocity") for column in LATENT])
    kept = np.eye(len(r), dtype=bool) | (drifting[:, None] & drifting)
    r = np.where(kept, r, (1.0 - loosened) * r)
    L = np.zeros_like(r)
    for i in range(len(r)):
        for j in range(i + 1):
            rest = r[i, j] - sum(L[i, k] * L[j, k] for k in range(j))
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    return L


def _rank_score(column: str) -> float:
    """Return the correlation of a legitimate column's mid-ranks with its z."""
    if column == "intended_balcon_amount":
        return float(np.sqrt(3.0 / np.pi))
    z = np.linspace(-4.0, 4.0, 4001)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    values = _maps(column, 0.0, False).legit(z)
    group = np.unique(values, return_inverse=True)[1]
    p = np.bincount(group, weights=weight)
    rank = (np.cumsum(p) - 0.5 * p)[group]
    rank -= np.sum(weight * rank)
    return float(np.sum(weight * rank * z) / np.sqrt(np.sum(weight * rank**2) * np.sum(weight * z * z)))
