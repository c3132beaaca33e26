"""Verdicts on the paper's claims: holds, fails, absent, undecided, or missing where a run is not there.

A part **holds** where its mean is shown to lie on the claimed side of the bound, and **fails** where it is shown to lie
on the other side. It is **absent** where neither is shown, but an effect of the margin or more is excluded: its mean is
shown to be less than the margin beyond the bound. Otherwise it is **undecided**: the seeds do not settle it. "Within"
is shown from both ends (two one-sided tests), so it holds only where the data show closeness and not where they merely
show no difference; its margin is its bound, and it is never absent.

"Shown" means that the sign-flip test rejects, corrected (beyond 14 seeds a joint bootstrap, which follows a skew, must
reject, too), and that the 95 % interval lies on the same side. Three lists
of statements share the level of 5 %, and each is corrected by :mod:`qfl_core.analysis.statements`:

1. claims that hold: a claim is one statement with the tests of all its parts, corrected over claims;
2. parts that hold by themselves, corrected over parts;
3. parts that fail or are absent, corrected over parts.

The chance that even one verdict, of a claim or of a part, is wrong is therefore at most 5 %. A claim holds if all its
parts do, fails if one fails, and is absent if one is absent and none fails. A part that repeats another one's number
and question (``same_as``) takes part in no list a second time. Theory points are a family of their own, because their
federations are not the seeds of the runs. Intervals are not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.evidence import Evidence, Numbers
from qfl_core.analysis.inference import FULL_EFFORT, Effort, effect_size, mean_interval
from qfl_core.analysis.measures import Theory
from qfl_core.analysis.paper_claims import CLAIMS
from qfl_core.analysis.part_tests import ABSENT, FAILS, HOLDS, Pair, Shown, shown_parts, supporting
from qfl_core.analysis.single_run import NO_RUNS, SingleRun, single_run
from qfl_core.analysis.untrained_claims import untrained_claims
from qfl_core.base.streams import stream
from qfl_core.runs import RunResult

LEVEL = 0.05
UNDECIDED, MISSING = "undecided", "missing"
VERDICTS = (HOLDS, FAILS, ABSENT, UNDECIDED, MISSING)


@dataclass(frozen=True)
class PartResult:
    """The result of a part: mean over seeds, interval, p values, and the effect size d_z.

    ``effect`` is above 0 where the data support the claim. ``p`` is the one-sided p value of what the verdict says, or
    of "holds" where nothing is shown; ``p_corrected`` is corrected for its list and for the three lists. Both are NaN
    where the part is missing, or where a bound is checked for every value (``always``); ``estimate`` is then the
    largest value. ``untrained`` is the verdict with the untrained model in DUQFL-Prox's place, or ``n/a: reason``.
    ``values`` has one number per seed of ``seeds``.
    """

    part: Part
    verdict: str
    note: str = ""
    source: str = ""
    seeds: tuple[int, ...] = ()
    estimate: float = np.nan
    low: float = np.nan
    high: float = np.nan
    interval: str = ""
    p: float = np.nan
    p_corrected: float = np.nan
    effect: float = np.nan
    untrained: str = ""
    values: tuple[float, ...] = ()

    @property
    def supports(self) -> bool:
        """Whether the whole interval lies on the claimed side; where a bound is checked, whether it is kept."""
        if self.part.claimed == "always":
            return self.verdict == HOLDS
        return bool((self.part.support(np.array([self.low, self.high])) > 0).all())

    @property
    def small(self) -> bool:
        """Whether the part holds or fails by less than the margin: its whole interval is closer to the bound."""
        if self.verdict not in (HOLDS, FAILS) or self.part.claimed not in ("above", "below"):
            return False
        return bool((np.abs(np.array([self.low, self.high]) - self.part.bound) < self.part.margin).all())


@dataclass(frozen=True)
class Verdict:
    """A claim with the results of its parts.

    ``p_holds`` is the p value of "all parts hold", corrected over claims; ``single`` tells in how many seeds one run
    alone shows the whole pattern.
    """

    claim: Claim
    parts: tuple[PartResult, ...]
    p_holds: float = np.nan
    single: SingleRun = NO_RUNS

    @property
    def verdict(self) -> str:
        """One of :data:`VERDICTS`."""
        found = {result.verdict for result in self.parts}
        return next((name for name in (FAILS, ABSENT, MISSING, UNDECIDED) if name in found), HOLDS)

    @property
    def deciding(self) -> PartResult:
        """The part that decides: of the parts with the claim's verdict, it supports the claim least."""
        those = [result for result in self.parts if result.verdict == self.verdict]
        return min(those, key=lambda result: np.nan_to_num(result.effect, nan=np.inf))

    @property
    def p_corrected(self) -> float:
        """The corrected p value of the verdict; that of "holds" where nothing is shown."""
        if self.verdict in (FAILS, ABSENT):
            return self.deciding.p_corrected
        by_parts = max((result.p_corrected for result in self.parts if result.part.claimed != "always"), default=np.nan)
        return min(self.p_holds, by_parts)


def counted_verdicts(verdicts: Sequence[str]) -> str:
    """Return how many claims have each verdict: ``13 holds, 1 fails``."""
    counts = {name: verdicts.count(name) for name in VERDICTS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def judge(
    studies: Mapping[str, Sequence[RunResult]],
    hardware: pd.DataFrame | None = None,
    theory: Theory | None = None,
    *,
    claims: Sequence[Claim] = CLAIMS,
    seed: int = 0,
) -> list[Verdict]:
    """Judge every claim on the runs of each track; a claim without its runs is "missing" and no error.

    Every part is also judged with the untrained model in DUQFL-Prox's place, see
    :mod:`qfl_core.analysis.untrained_claims`.

    Parameters
    ----------
    studies : ``{"baf": runs, "genome": runs}``; the runs of a track may differ in method and seed only. Runs of the
        method ``untrained`` tell what an untrained model's clients score.
    hardware : columns method, seed, checkpoint, kind (exact | shots | noisy | fake | hardware), accuracy.
    theory : from :func:`qfl_core.studies.theory.check_theory`.
    seed : names the random streams of the bootstrap and, beyond 14 seeds, of the sign flips.
    """
    evidence = Evidence.gather(studies, hardware, theory)
    parts = {label: part for claim in claims for label, part in zip(claim.labels, claim.parts, strict=True)}
    verdicts = judge_numbers(claims, {label: evidence.numbers(part) for label, part in parts.items()}, seed)
    alone, numbers, reasons = untrained_claims(evidence, parts)
    told = {label: f"n/a: {reason}" for label, reason in reasons.items()}
    told |= {verdict.claim.id: verdict.verdict for verdict in judge_numbers(alone, numbers, seed)}
    return [
        replace(
            verdict,
            parts=tuple(
                replace(result, untrained=told[label])
                for label, result in zip(verdict.claim.labels, verdict.parts, strict=True)
            ),
        )
        for verdict in verdicts
    ]


def judge_numbers(
    claims: Sequence[Claim], found: Mapping[str, Numbers], seed: int = 0, effort: Effort = FULL_EFFORT
) -> list[Verdict]:
    """Judge every claim on the numbers of its parts, which are given by label (``1a``); see :func:`judge`."""
    values = {label: numbers.values for label, numbers in found.items()}
    shown = shown_parts(claims, values, seed, effort.flips)
    verdicts = []
    for claim in claims:
        results = []
        for label, part in zip(claim.labels, claim.parts, strict=True):
            # A repetition has the interval of the part that it repeats, to the last digit.
            rng = stream(seed, f"claim {shown.own[label]}")
            results.append(_result(part, found[label], shown.of(label), rng, effort.resamples))
        verdict = _by_its_worst_part(claim, tuple(results), shown)
        verdicts.append(replace(verdict, single=single_run(claim, values)))
    return verdicts


def _result(
    part: Part, numbers: Numbers, shown: Mapping[str, Pair], rng: np.random.Generator, resamples: int
) -> PartResult:
    """Return the verdict on a part by itself, with all its numbers."""
    x = numbers.values.to_numpy()
    seeds = tuple(int(seed) for seed in numbers.values.index)
    empty = PartResult(part, MISSING, numbers.note, numbers.source, seeds, values=tuple(x.tolist()))
    if part.claimed == "always" and len(x):
        return replace(empty, verdict=HOLDS if (x <= part.bound).all() else FAILS, estimate=float(x.max()))
    if not shown:
        return empty
    # Of distances from the bound, so that a part and its repetition in the other direction have the same interval.
    low, high, kind = mean_interval(x if part.claimed == "within" else part.support(x), rng, resamples=resamples)
    if part.claimed == "below":
        low, high = part.bound - high, part.bound - low
    elif part.claimed == "above":
        low, high = part.bound + low, part.bound + high
    measured = replace(
        empty,
        estimate=float(x.mean()),
        low=low,
        high=high,
        interval=kind,
        effect=min(effect_size(column) for column in supporting(part, x)),
    )
    agrees = {HOLDS: measured.supports, FAILS: _outside(measured), ABSENT: _below_margin(measured)}
    verdict = next((name for name, (_, p) in shown.items() if p <= LEVEL and agrees[name]), UNDECIDED)
    p, p_corrected = shown.get(verdict, shown[HOLDS])
    return replace(measured, verdict=verdict, p=p, p_corrected=p_corrected)


def _outside(result: PartResult) -> bool:
    """Return whether the whole interval lies on the other side of the bound; for "within", beyond one end."""
    part = result.part
    if part.claimed == "within":
        return result.low > part.bound or result.high < -part.bound
    return bool((part.support(np.array([result.low, result.high])) < 0).all())


def _below_margin(result: PartResult) -> bool:
    """Return whether the whole interval lies less than the margin beyond the bound."""
    return bool((result.part.support(np.array([result.low, result.high])) < result.part.margin).all())


def _by_its_worst_part(claim: Claim, results: tuple[PartResult, ...], shown: Shown) -> Verdict:
    """Return the claim's verdict; all its parts hold where the claim is shown to hold by its worst part."""
    p = shown.claims.get(claim.id, np.nan)
    if p <= LEVEL and all(result.supports for result in results):
        results = tuple(
            replace(result, verdict=HOLDS, p_corrected=p) if result.verdict in (ABSENT, UNDECIDED) else result
            for result in results
        )
    return Verdict(claim, results, p)
