"""How often are verdicts wrong, and intervals too short? Measured on planted data, written to docs/claims.md.

The truth of planted data is known, so every verdict on them is right or wrong. The claims are the paper's own, with all
their parts; parts are correlated, as those of real runs are. ``make error-rates`` writes docs/claims/error_rates.csv,
docs/claims/coverage.csv and the section of the page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from scipy.stats import norm as normal

from qfl_core.analysis import CLAIMS
from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.evidence import Numbers
from qfl_core.analysis.inference import Effort, mean_interval, student_half, wilson_interval
from qfl_core.analysis.part_tests import ABSENT, FAILS, HOLDS, shown_parts
from qfl_core.analysis.tables import csv_text, markdown
from qfl_core.analysis.verdicts import LEVEL, UNDECIDED, judge_numbers
from qfl_core.base.files import write_text
from qfl_core.base.numbers import count, interval, number
from qfl_core.base.streams import stream
from tools.claims_page import PAGE, filled

SEEDS = (10, 30, 150)
#: Distributions of mean 0 and standard deviation 1, each made from normal numbers, which keeps correlations.
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": lambda g: g,
    "exponential": lambda g: -normal.logsf(g) - 1,
    "lognormal": lambda g: (np.exp(g) - np.exp(0.5)) / np.sqrt(np.expm1(1.0) * np.exp(1.0)),
}
#: The numbers of the repository's own runs, drawn again with their shapes and correlations.
RUNS = "as in the runs"
VALUES = PAGE.parent.parent / "figures" / "tables" / "claim_values.csv"
#: Standard deviation of a part's number over seeds, in margins.
SPREAD = 2.0
#: How much the parts have in common: the correlation of the normal numbers behind two parts.
COMMON = 0.5
#: Effects far beyond any margin, in standard deviations.
FAR = 2.0
#: Less effort than the tables', because there are thousands of worlds: coarser p values, still right.
EFFORT = Effort(resamples=499, flips=1024)
#: Claims that are tested on runs; theory points are a family of their own, and "always" is not tested.
TESTED = tuple(c for c in CLAIMS if "theory" not in c.tracks and all(p.claimed != "always" for p in c.parts))


@dataclass(frozen=True)
class World:
    """A planted truth: ``effect(part, first)`` is how far a mean lies on the claimed side, in the part's own unit.

    ``first`` tells whether the part is the first of its claim; ``shapes`` are the distributions that are tried.
    """

    told: str
    effect: Callable[[Part, bool], float]
    shapes: tuple[str, ...] = (*SHAPES, RUNS)


def _far(part: Part) -> float:
    # "Within" cannot hold by more than its bound: the middle of the range.
    return part.bound if part.claimed == "within" else FAR * SPREAD * part.margin


WORLDS = {
    "bound": World("every mean lies on its bound: nothing is there", lambda part, first: 0.0),
    "margin": World("every effect has the size of its margin", lambda part, first: part.margin),
    "opposite": World(
        "every effect has the size of its margin, on the wrong side", lambda part, first: -part.margin, ("normal",)
    ),
    "one part": World(
        "one part per claim lies on its bound, all others far beyond it",
        lambda part, first: 0.0 if first else _far(part),
    ),
}


def effects(claims: Sequence[Claim], world: World) -> dict[str, float]:
    """Return the planted effect of every part by label; a repetition has that of the part which it repeats."""
    found: dict[str, float] = {}
    for claim in claims:
        for label, part in zip(claim.labels, claim.parts, strict=True):
            own = world.effect(part, label == claim.labels[0])
            found[label] = found.get(part.same_as, own)
    return found


def noise(claims: Sequence[Claim], seeds: int, shape: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return standardised numbers (seeds,) for every part, by label; every second part is skewed the other way.

    :data:`RUNS` draws seeds of the repository's runs, for all parts at once; a part that some seeds lack is normal.
    """
    labels = [label for claim in claims for label in claim.labels]
    shared = rng.normal(size=(seeds, 1))
    own = np.sqrt(COMMON) * shared + np.sqrt(1 - COMMON) * rng.normal(size=(seeds, len(labels)))
    if shape != RUNS:
        drawn = SHAPES[shape](own) * np.where(np.arange(len(labels)) % 2, 1, -1)
        return dict(zip(labels, drawn.T, strict=True))
    table = _of_runs()
    rows = rng.integers(0, len(table), seeds)
    return {label: table[label].to_numpy()[rows] if label in table else own[:, j] for j, label in enumerate(labels)}


@lru_cache(maxsize=1)
def _of_runs() -> pd.DataFrame:
    """Return the numbers of the runs, one column per part, standardised; do not modify the result."""
    table = pd.read_csv(VALUES, index_col="seed").dropna(axis=1)
    return (table - table.mean()) / table.std(ddof=0)


def planted(
    claims: Sequence[Claim], effect: Mapping[str, float], seeds: int, shape: str, rng: np.random.Generator
) -> dict[str, pd.Series]:
    """Return one number per seed for every part, by label."""
    found: dict[str, pd.Series] = {}
    drawn = noise(claims, seeds, shape, rng)
    for claim in claims:
        for label, part in zip(claim.labels, claim.parts, strict=True):
            if part.same_as in found:  # the same number, asked from the other side
                found[label] = -found[part.same_as]
            else:
                towards = effect[label] if part.claimed == "above" else -effect[label]
                found[label] = pd.Series(part.bound + towards + SPREAD * part.margin * drawn[label])
    return found


def is_wrong(part: Part, verdict: str, effect: float) -> bool:
    """Return whether a verdict contradicts the planted effect; "undecided" contradicts nothing."""
    if verdict == HOLDS:
        return effect <= 0
    if verdict == FAILS:
        return effect >= 0
    return verdict == ABSENT and effect >= part.margin


def right_verdict(part: Part, effect: float) -> str:
    """Return what enough seeds would show: "holds", "fails", "absent", or "undecided" for "within" on its very edge."""
    if effect:
        return HOLDS if effect > 0 else FAILS
    return UNDECIDED if part.claimed == "within" else ABSENT


def any_wrong(
    claims: Sequence[Claim], values: Mapping[str, pd.Series], effect: Mapping[str, float], seed: int, effort: Effort
) -> bool:
    """Return whether even one part gets a wrong verdict.

    A verdict needs a p value below the level, so the intervals are computed only where a wrong one has that.
    """
    shown = shown_parts(claims, values, seed, effort.flips)
    for claim in claims:
        wrongly = shown.claims[claim.id] <= LEVEL and any(effect[label] <= 0 for label in claim.labels)
        for label, part in zip(claim.labels, claim.parts, strict=True):
            tests = shown.of(label).items()
            if wrongly or any(p <= LEVEL and is_wrong(part, told, effect[label]) for told, (_, p) in tests):
                return bool(wrong_labels(claims, values, effect, seed, effort))
    return False


def wrong_labels(
    claims: Sequence[Claim], values: Mapping[str, pd.Series], effect: Mapping[str, float], seed: int, effort: Effort
) -> list[str]:
    """Return the labels of the parts that get a wrong verdict."""
    verdicts = judge_numbers(claims, {label: Numbers(x) for label, x in values.items()}, seed, effort)
    return [
        label
        for verdict in verdicts
        for label, result in zip(verdict.claim.labels, verdict.parts, strict=True)
        if is_wrong(result.part, result.verdict, effect[label])
    ]


def error_rate(
    name: str, seeds: int, shape: str, worlds: int, claims: Sequence[Claim] = TESTED, effort: Effort = EFFORT
) -> dict[str, object]:
    """Return how many of the planted worlds got even one wrong verdict, with Wilson's 95 % interval."""
    rng = stream(seeds, f"error-rates {name} {shape}")
    effect = effects(claims, WORLDS[name])
    wrong = sum(
        any_wrong(claims, planted(claims, effect, seeds, shape, rng), effect, world, effort) for world in range(worlds)
    )
    low, high = wilson_interval(wrong, worlds)
    return {"planted": WORLDS[name].told, "distribution": shape, "seeds": seeds, "worlds": worlds} | {
        "wrong": wrong / worlds,
        "low": low,
        "high": high,
    }


def right_share(name: str, seeds: int, worlds: int, claims: Sequence[Claim] = TESTED, effort: Effort = EFFORT) -> float:
    """Return the share of parts that get the right verdict, with normal numbers."""
    rng = stream(seeds, f"right-verdicts {name}")
    effect = effects(claims, WORLDS[name])
    right = []
    for world in range(worlds):
        values = planted(claims, effect, seeds, "normal", rng)
        for verdict in judge_numbers(claims, {label: Numbers(x) for label, x in values.items()}, world, effort):
            for label, result in zip(verdict.claim.labels, verdict.parts, strict=True):
                right.append(result.verdict == right_verdict(result.part, effect[label]))
    return float(np.mean(right))


def coverage(shape: str, seeds: int, samples: int, resamples: int = 1999) -> dict[str, object]:
    """Return how often the 95 % interval of a mean holds the true one: the package's and, beside it, Student's."""
    rng = stream(seeds, f"coverage {shape}")
    drawn = SHAPES[shape](rng.normal(size=(samples, seeds)))
    ends = np.array([mean_interval(x, rng, resamples=resamples)[:2] for x in drawn])
    held = int(((ends[:, 0] <= 0) & (ends[:, 1] >= 0)).sum())
    half = student_half(drawn.std(axis=1, ddof=1) / np.sqrt(seeds), seeds - 1)
    low, high = wilson_interval(held, samples)
    return {"distribution": shape, "seeds": seeds, "samples": samples, "coverage": held / samples} | {
        "low": low,
        "high": high,
        "Student's t": float((np.abs(drawn.mean(axis=1)) <= half).mean()),
    }


def section(errors: pd.DataFrame, covered: pd.DataFrame) -> str:
    """Return both tables in Markdown, for the page."""
    shown = pd.DataFrame(
        {
            "planted": errors["planted"],
            "numbers": errors["distribution"],
            "seeds": errors["seeds"],
            "even one wrong verdict [95 %]": _shares(errors, "wrong"),
            "worlds": [count(value) for value in errors["worlds"]],
            "right verdicts": [number(value, missing="") for value in errors["right"]],
        }
    )
    intervals = pd.DataFrame(
        {
            "numbers": covered["distribution"],
            "seeds": covered["seeds"],
            "coverage [95 %]": _shares(covered, "coverage"),
            "Student's t": [number(value) for value in covered["Student's t"]],
            "samples": [count(value) for value in covered["samples"]],
        }
    )
    return f"{markdown(shown)}\n{markdown(intervals)}"


def _shares(table: pd.DataFrame, column: str) -> list[str]:
    return [interval(*ends) for ends in zip(table[column], table["low"], table["high"], strict=True)]


def main(worlds: int = 400, samples: int = 4000) -> int:
    """Measure everything and write the tables and the page."""
    errors = pd.DataFrame(
        error_rate(name, seeds, shape, worlds)
        | {"right": right_share(name, seeds, 10) if shape == "normal" else np.nan}
        for name in WORLDS
        for shape in WORLDS[name].shapes
        for seeds in SEEDS
    )
    covered = pd.DataFrame(coverage(shape, seeds, samples) for shape in SHAPES for seeds in SEEDS)
    folder = PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    write_text(folder / "error_rates.csv", csv_text(errors))
    write_text(folder / "coverage.csv", csv_text(covered))
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), "error rates", section(errors, covered)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
