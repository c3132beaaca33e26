"""Robust aggregations: one model of the uploads that a minority of bad clients cannot move far.

Each rule is built for a share of bad clients, ``tolerated``: of n uploads, f = floor(tolerated n) may be anything. A
rule takes the uploads (clients, P) and the weights (clients,) of the method's aggregation, and returns the model (P,).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qfl_core.algorithm.hooks import Combine, weighted_sum
from qfl_core.algorithm.methods import Method
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import AGGREGATIONS, resolve
from qfl_core.config import ExperimentConfig

#: Room for the rounding of ``tolerated * n``: a share of 0.29 of 100 clients is 29 of them.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Rule:
    """An aggregation rule that bears a share of bad clients. ``uses_weights`` tells whether the weights count."""

    tolerated: float = 0.2
    uses_weights = False

    def bad(self, clients: int) -> int:
        """Return f, the largest number of bad clients that the rule is built for."""
        return int(self.tolerated * clients + ROUNDING)

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return one model (P,) of the uploads (clients, P)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Median(Rule):
    """The median of every weight on its own (Yin et al., ICML 2018)."""

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the median (P,) over the clients."""
        return np.median(uploads, axis=0)


@dataclass(frozen=True)
class TrimmedMean(Rule):
    """The mean of every weight without its f lowest and its f highest values (Yin et al., ICML 2018)."""

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the trimmed mean (P,) over the clients."""
        cut = self.bad(len(uploads))
        return np.sort(uploads, axis=0)[cut : len(uploads) - cut].mean(axis=0)


@dataclass(frozen=True)
class Krum(Rule):
    """The one upload that is closest to its n - f - 2 nearest others (Blanchard et al., NeurIPS 2017)."""

    def ranked(self, uploads: np.ndarray) -> np.ndarray:
        """Return the clients (clients,) by the sum of squared distances to their nearest others, the smallest first."""
        distances = ((uploads[:, None] - uploads[None]) ** 2).sum(axis=2)
        nearest = max(1, len(uploads) - self.bad(len(uploads)) - 2)
        # The first column is the distance to itself.
        return np.argsort(np.sort(distances, axis=1)[:, 1 : nearest + 1].sum(axis=1), kind="stable")

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the chosen upload (P,)."""
        return uploads[self.ranked(uploads)[0]]


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The weighted mean of the n - f uploads that Krum ranks first (Blanchard et al., NeurIPS 2017)."""

    uses_weights = True

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted mean (P,) of the chosen uploads."""
        chosen = np.sort(self.ranked(uploads)[: len(uploads) - self.bad(len(uploads))])
        total = weights[chosen].sum()
        # Learned weights may all be zero among the chosen; then they count alike.
        shares = weights[chosen] / total if total > 0 else np.full(len(chosen), 1 / len(chosen))
        return weighted_sum(uploads[chosen], shares)


@dataclass(frozen=True)
class ClippedMean(Rule):
    """The method's own rule, after steps longer than the round's median step were shortened to it.

    The shortening needs the model that the round started from, so it happens where uploads arrive
    (:mod:`qfl_core.extras.screening`).
    """

    uses_weights = True

    def __call__(self, uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the weighted mean (P,)."""
        return weighted_sum(uploads, weights)


def rule_named(config: ExperimentConfig) -> Combine | None:
    """Return the config's aggregation rule; None is the method's own."""
    target = AGGREGATIONS[config.aggregation]
    rule: Combine | None = resolve(target)(config.tolerated) if target else None
    return rule


def with_rule(method: Method, config: ExperimentConfig) -> Method:
    """Return the method with the config's aggregation rule instead of its own.

    Raises
    ------
    ConfigError
        When the method learns its aggregation weights and the rule does not use them.
    """
    rule = rule_named(config)
    if rule is None:
        return method
    if method.aggregation.init(1) and not getattr(rule, "uses_weights", True):
        raise ConfigError(
            f"aggregation={config.aggregation!r} does not use the weights that method={config.method!r} learns: "
            "take own, multi-krum or clipped-mean"
        )
    return replace(method, aggregation=replace(method.aggregation, combine=rule))
