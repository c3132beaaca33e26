"""How the parts of the paper's claims are built: each takes its margin from the rules, and the paper's value with it.

``more`` stands for fields of :class:`~qfl_core.analysis.claims.Part` wherever it appears.
"""

from __future__ import annotations

from typing import Any

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import measures as m
from qfl_core.analysis.claims import Part
from qfl_core.analysis.margins import smallest_effect
from qfl_core.analysis.paper import PAPER

NAMES = {
    "global_accuracy": "global accuracy",
    "client_test_accuracy": "client test accuracy",
    "train_test_gap": "train-test gap",
    "fairness_gap": "fairness gap",
}
#: Five points count as close, ten as far.
CLOSE, FAR = 0.05, 0.10

PROX, FEDPROX, DEFAULT, ADAM = "duqfl-prox", "fedprox-qfl", "default-qfl", "adam-qfl"
LAST, BEST, DRIFT = "duqfl-last", "duqfl-best", "duqfl-drift"
BASELINES = (FEDPROX, DEFAULT, ADAM)
VARIANTS = (LAST, BEST, DRIFT)


def part(
    text: str,
    track: str,
    methods: tuple[str, ...],
    measure: m.Measure | m.TheoryMeasure,
    claimed: str = "above",
    bound: float = 0.0,
    paper: float | None = None,
    unit: str = "accuracy",
    metric: str = "",
    same_as: str = "",
    column: str = "",
) -> Part:
    """Return the part with its margin; ``metric`` is the metric behind a score or an unsteadiness."""
    margin = smallest_effect(unit, claimed, bound, paper, metric)
    return Part(text, track, methods, measure, claimed, bound, paper, unit, margin, same_as, column)


def minus(track: str, what: str, measure: m.Measure, a: str, b: str, claimed: str = "above", **more: Any) -> Part:
    """Return the part on the measure of method ``a`` minus that of ``b``."""
    labels = " − ".join(METHODS[method].label for method in (a, b))
    return part(f"{labels}, {what}", track, (a, b), m.minus(measure), claimed, **more)


def final(track: str, column: str, a: str, b: str, claimed: str = "above", **more: Any) -> Part:
    """Return the part that final values of a and b differ, with the paper's difference where it prints both."""
    printed = PAPER.get((track, column), {})
    paper = round(printed[a] - printed[b], 4) if a in printed and b in printed else None
    what = f"final {NAMES[column]}"
    return minus(track, what, m.final(column), a, b, claimed, paper=paper, column=column, **more)


def against(track: str, column: str, a: str, others: tuple[str, ...], claimed: str = "above") -> tuple[Part, ...]:
    """Return one part per other method: that final values of ``a`` and the other differ."""
    return tuple(final(track, column, a, b, claimed) for b in others)


def near_zero(track: str, column: str, method: str) -> Part:
    """Return the part that a method's final value is close to 0."""
    text = f"{METHODS[method].label}, final {NAMES[column]}"
    paper = PAPER.get((track, column), {}).get(method)
    return part(text, track, (method,), m.final(column), "within", CLOSE, paper, column=column)


def thirds(track: str, method: str, column: str, a: int, b: int, name: str, **more: Any) -> Part:
    """Return the part that a curve's mean over one third of the rounds is above that over another third."""
    early = ("first", "middle", "last")
    text = f"{METHODS[method].label}, {early[a]} − {early[b]} third, {name}"
    return part(text, track, (method,), m.third_minus_third(column, a, b), metric=column, **more)


def unsteadier(track: str, column: str, a: str, b: str, claimed: str, name: str = "") -> Part:
    """Return the part that the late rounds of ``a`` are less steady than those of ``b`` (``below``: steadier)."""
    what = f"late unsteadiness of {name}" if name else "late unsteadiness"
    return minus(track, what, m.late_unsteadiness(column), a, b, claimed, unit="unsteadiness", metric=column)
