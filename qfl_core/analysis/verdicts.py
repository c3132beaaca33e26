"""Verdicts on the paper's claims: holds, fails, undecided, or missing where a run is not there.

A part holds where the corrected test rejects at 5 % in the claimed direction and its 95 % interval lies on the claimed
side of the bound; it fails where both say the opposite; otherwise it is undecided. "Within" is tested from both ends
(two one-sided tests), so it holds only where the data show closeness and not where they merely show no difference. A
claim holds if all its parts hold and fails if one fails. All tested parts of all claims on runs form one family for the
correction (:func:`qfl_core.analysis.inference.step_down`); intervals are not corrected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.evidence import Evidence
from qfl_core.analysis.inference import effect_size, mean_interval, sign_flip_p, step_down
from qfl_core.analysis.measures import Theory
from qfl_core.analysis.paper_claims import CLAIMS
from qfl_core.base.streams import stream
from qfl_core.runs import RunResult

LEVEL = 0.05
HOLDS, FAILS, UNDECIDED, MISSING = VERDICTS = ("holds", "fails", "undecided", "missing")


@dataclass(frozen=True)
class PartResult:
    """The result of a part: mean over seeds, interval, p values, and the effect size d_z.

    ``effect`` is above 0 where the data support the claim. ``p`` comes from the exact sign-flip test, and
    ``p_corrected`` is corrected for all parts of all claims. Both are NaN where the part is missing, or where a bound
    is checked for every value (``always``); ``estimate`` is then the largest value.
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


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict and the results of its parts."""

    claim: Claim
    parts: tuple[PartResult, ...]

    @property
    def verdict(self) -> str:
        """``holds``, ``fails``, ``undecided`` or ``missing``."""
        found = {result.verdict for result in self.parts}
        return next((name for name in (FAILS, MISSING, UNDECIDED) if name in found), HOLDS)

    @property
    def deciding(self) -> PartResult:
        """The part that decides: of the parts with the claim's verdict, it supports the claim least."""
        those = [result for result in self.parts if result.verdict == self.verdict]
        return min(those, key=lambda result: np.nan_to_num(result.effect, nan=np.inf))


def judge(
    studies: Mapping[str, Sequence[RunResult]],
    hardware: pd.DataFrame | None = None,
    theory: Theory | None = None,
    *,
    claims: Sequence[Claim] = CLAIMS,
    seed: int = 0,
) -> list[Verdict]:
    """Judge every claim on the runs of each track; a claim without its runs is "missing" and no error.

    Parameters
    ----------
    studies : ``{"baf": runs, "genome": runs}``; the runs of a track may differ in method and seed only.
    hardware : columns method, seed, checkpoint, kind (exact | shots | noisy | fake | hardware), accuracy.
    theory : from :func:`qfl_core.studies.theory.check_theory`.
    seed : names the bootstrap's random streams.
    """
    evidence = Evidence.gather(studies, hardware, theory)
    found = {(claim.id, i): evidence.values(part) for claim in claims for i, part in enumerate(claim.parts)}
    corrected = _corrected(claims, found, seed)
    verdicts = []
    for claim in claims:
        results = []
        for i, part in enumerate(claim.parts):
            key = (claim.id, i)
            rng = stream(seed, f"claim {claim.id}", i)
            results.append(_judge_part(part, *found[key], evidence.source(part.track), corrected.get(key), rng))
        verdicts.append(Verdict(claim, tuple(results)))
    return verdicts


def _tests(part: Part, values: np.ndarray) -> np.ndarray:
    """Return the numbers (n, 1 or 2) whose means are above 0 if the part is true."""
    sides = {
        "above": (values - part.bound,),
        "below": (part.bound - values,),
        "within": (part.bound + values, part.bound - values),
    }
    return np.stack(sides[part.claimed], axis=1)


def _corrected(
    claims: Sequence[Claim], found: Mapping[tuple[str, int], tuple[pd.Series, str]], seed: int
) -> dict[tuple[str, int], np.ndarray]:
    """Return corrected p values of every tested part; all runs form one family, the theory points another.

    Two families are needed, because the federations of a theory point are not the seeds of the runs.
    """
    corrected = {}
    for family in (("baf", "genome", "hardware"), ("theory",)):
        keys, columns = [], []
        for claim in claims:
            for i, part in enumerate(claim.parts):
                values, _ = found[claim.id, i]
                if part.track in family and part.claimed != "always" and len(values) >= 2:
                    tests = _tests(part, values.to_numpy())
                    keys.append(((claim.id, i), tests.shape[1]))
                    columns += [pd.Series(column, values.index) for column in tests.T]
        if columns:
            p = step_down(pd.concat(columns, axis=1).to_numpy(), stream(seed, "claims-flips"))
            for key, width in keys:
                corrected[key], p = p[:width], p[width:]
    return corrected


def _judge_part(
    part: Part, values: pd.Series, note: str, source: str, corrected: np.ndarray | None, rng: np.random.Generator
) -> PartResult:
    seeds, x = tuple(int(s) for s in values.index), values.to_numpy()
    if part.claimed == "always" and len(x):
        verdict = HOLDS if (x <= part.bound).all() else FAILS
        return PartResult(part, verdict, note, source, seeds, estimate=float(x.max()))
    if corrected is None:
        return PartResult(part, MISSING, note, source, seeds)
    low, high, kind = mean_interval(x, rng)
    tests = _tests(part, x)
    supports = tests.mean(axis=0) > 0
    rejected = corrected <= LEVEL
    inside, outside = _sides(part, low, high)
    p_corrected = corrected.max()
    verdict = UNDECIDED
    if (supports & rejected).all() and inside:
        verdict = HOLDS
    elif (~supports & rejected).any() and outside:
        verdict, p_corrected = FAILS, corrected[~supports].min()
    return PartResult(
        part,
        verdict,
        note,
        source,
        seeds,
        estimate=float(x.mean()),
        low=low,
        high=high,
        interval=kind,
        p=max(sign_flip_p(column, rng) for column in tests.T),
        p_corrected=float(p_corrected),
        effect=min(effect_size(column) for column in tests.T),
    )


def _sides(part: Part, low: float, high: float) -> tuple[bool, bool]:
    """Return whether the interval lies on the claimed side of the bound, and whether it lies on the other side."""
    if part.claimed == "above":
        return low > part.bound, high < part.bound
    if part.claimed == "below":
        return high < part.bound, low > part.bound
    return -part.bound < low and high < part.bound, low > part.bound or high < -part.bound
