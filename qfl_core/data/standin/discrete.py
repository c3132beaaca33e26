"""Discrete columns of the BAF stand-in: published shares and fraud rates as thresholds of a standard normal z.

The published fraud marginal f of a column is a mixture of frauds that blend in (legitimate marginal l, share q) and
frauds that stand out (marginal s): f = q l + (1 - q) s. Hence s = (f - q l) / (1 - q), which is a distribution only
while q <= min f / l. Where q is above that bound, the bound is used, so that the published shares stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy.special import ndtri

from qfl_core.data.standin.baf_facts import BINARY_COLUMNS, PRIOR, TEXT_COLUMNS, marginal, rates

DISCRETE_COLUMNS = (
    "income", "customer_age", "payment_type", "employment_status", "housing_status", "source", "device_os",
    "month", "device_distinct_emails_8w", "proposed_credit_limit", *BINARY_COLUMNS,
)  # fmt: skip
# Shares of the credit-limit neighbours (190, 210, ...) are not published. 510 must push the share up to 500
# below three quarters (the published third quartile of legitimate rows is 510); the others take a thousandth.
LIMIT_NEIGHBOURS = {190: 200, 210: 200, 490: 500, 510: 500, 990: 1000, 1900: 2000, 2100: 2000}
LIMIT_NEIGHBOUR_SHARE = 0.001
LIMIT_510_SHARE = 0.02


@dataclass(frozen=True)
class Discrete:
    """The values of a column in order, with the probability of each per class.

    Attributes
    ----------
    values : (V,) codes in increasing (text: alphabetical) order.
    shares : (2, V) published probabilities of the legitimate and the fraud class.
    """

    values: np.ndarray
    shares: np.ndarray

    def thresholds(self, q: float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
        """Return thresholds (V - 1,) of legitimate rows and of frauds that stand out, and the q in force."""
        legit, fraud = self.shares
        q = min(q, float(np.min(fraud / legit)))
        overt = (fraud - q * legit) / (1.0 - q)
        return _cut(legit), _cut(overt), q

    def given(self, which: slice) -> Discrete:
        """Return the marginal under the condition that the value is one of ``values[which]``."""
        shares = self.shares[:, which]
        return Discrete(self.values[which], shares / shares.sum(axis=1, keepdims=True))

    def map(self, z: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """Return the position in ``values`` that each latent z falls on."""
        return np.searchsorted(thresholds, z, side="right")


@cache
def discrete(column: str) -> Discrete:
    """Return the class-conditional shares of a discrete column from its published shares and fraud rates."""
    facts = rates(column)
    share, rate = facts["share"].to_numpy(float), facts["fraud_rate"].to_numpy(float)
    if column in BINARY_COLUMNS:
        # prior = rate_0 (1 - s) + rate_1 s gives the share s of ones.
        ones = (PRIOR - rate[0]) / (rate[1] - rate[0])
        share = np.array([1.0 - ones, ones])
    elif column == "device_distinct_emails_8w":
        share = _email_shares(share, rate)
    elif column == "proposed_credit_limit":
        facts, share, rate = _limit_shares(facts)
    values = facts.index.to_numpy(dtype=object)
    if column == "income":
        # The official file prints k * 0.1, so 0.30000000000000004 and not 0.3.
        values = np.round(values.astype(float) * 10.0) * 0.1
    elif column not in TEXT_COLUMNS:
        values = values.astype(np.int64)
    order = np.argsort(values)
    shares = np.stack([share * (1.0 - rate), share * rate])[:, order]
    return Discrete(values[order], shares / shares.sum(axis=1, keepdims=True))


def _email_shares(share: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Return the shares of -1, 0, 1, 2 e-mails from their total, overall fraud rate and legitimate mean."""
    mean = float(marginal("baf_legit_marginals", "device_distinct_emails_8w")["mean"])
    codes = np.array([0.0, 1.0, 2.0])
    equations = np.stack([np.ones(3), rate[1:], codes * (1.0 - rate[1:])])
    known = np.array([1.0, rate[0], -(1.0 - rate[0])]) * share[0]
    rest = np.linalg.solve(equations, np.array([1.0, PRIOR, (1.0 - PRIOR) * mean]) - known)
    return np.round(np.array([share[0], *rest]), 9)


def _limit_shares(facts: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return values, shares and rates of the credit-limit grid.

    Five shares (200, 500, 1000, 1500, 2000) solve five published equations: total, overall fraud rate, mean
    and second moment of legitimate rows, mean of frauds.
    """
    main = np.array([200.0, 500.0, 1000.0, 1500.0, 2000.0])
    rate = facts.loc[main.astype(int).astype(str), "fraud_rate"].to_numpy(float)
    legit = marginal("baf_legit_marginals", "proposed_credit_limit")
    fraud = marginal("baf_fraud_marginals_all_months", "proposed_credit_limit")
    equations = np.stack([np.ones(5), rate, main * (1.0 - rate), main**2 * (1.0 - rate), main * rate])
    moments = np.array(
        [
            1.0,
            PRIOR,
            (1 - PRIOR) * legit["mean"],
            (1 - PRIOR) * (legit["mean"] ** 2 + legit["std"] ** 2),
            PRIOR * fraud["mean"],
        ]
    )
    share = dict(zip(main.astype(int), np.round(np.linalg.solve(equations, moments), 9), strict=True))
    published = dict(zip(facts.index.astype(int), facts["fraud_rate"], strict=True))
    for value, parent in LIMIT_NEIGHBOURS.items():
        own = LIMIT_510_SHARE if value == 510 else LIMIT_NEIGHBOUR_SHARE * share[parent]
        share[value], share[parent] = own, share[parent] - own
        published.setdefault(value, published[parent])
    values = sorted(share)
    index = pd.DataFrame(index=pd.Index([str(v) for v in values]))
    return index, np.array([share[v] for v in values]), np.array([published[v] for v in values])


def _cut(shares: np.ndarray) -> np.ndarray:
    """Return the thresholds (V - 1,) in z that give the shares (V,)."""
    return np.round(ndtri(np.clip(np.cumsum(shares)[:-1], 0.0, 1.0)), 12)
