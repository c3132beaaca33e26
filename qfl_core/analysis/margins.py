"""The smallest effect worth claiming, called margin: one rule for each kind of number, fixed before the runs.

A margin comes from what the paper prints and from the scale of the number, never from our results. The rules, in the
order in which they are asked:

1. **Closeness** ("within ±b of 0"): the bound b itself says what counts as close.
2. **The paper prints both numbers**: half of its own difference. Less than half of it would be another finding.
3. **Accuracies, gaps and scores between 0 and 1** (recall, specificity, ROC-AUC; MCC, too): 0.02, which is 25 of the
   1,250 test rows of BAF.
4. **Scores of a rare class** (precision, F1 and PR-AUC on BAF): half of the share of frauds, 0.0055. Guessing scores
   about the share of frauds (F1: twice as much), so 0.02 would be more than all that guessing has.
5. **Unsteadiness**, the standard deviation of changes from round to round: a tenth of the margin of the metric itself.
   Changes as large as that margin would hide a difference worth claiming; a tenth of them is the smallest part that
   counts.
6. **Shares, correlations and cosines**: a tenth of the room between the bound and 1, the best value.
7. **Log rates**: a tenth of the bound, because the bound is already the smallest variation that deserves the word.
8. **Losses**: 0.0001. Suppose that all unfolds of the longest training in the paper (50 rounds of 5) took the squared
   error from guessing (1/4) to 0 in equal steps: this is a tenth of one step.
9. **Drift**, a distance between weights (no claim has it, but a study does): a tenth of the radius to which DUQFL-drift
   limits an unfold, 0.03.
"""

from __future__ import annotations

from qfl_core.base.errors import AnalysisError, did_you_mean

#: Accuracies, gaps and scores between 0 and 1.
LEVEL = 0.02
#: The share of frauds in BAF, and the metrics for which guessing scores about that share.
FRAUDS = 0.011
RARE = ("precision", "f1", "pr_auc")
UNITS = ("accuracy", "score", "unsteadiness", "share", "correlation", "cosine", "log rate", "loss", "ratio")
_TENTH = 0.1
_RADIUS = 0.3
_UNFOLDS = 50 * 5
_GUESSING = 0.25


def of_metric(metric: str) -> float:
    """Return the margin of a metric's own values, e.g. of ``global_accuracy`` or ``test_precision`` (rules 3, 4, 9)."""
    if metric == "drift":
        return _TENTH * _RADIUS
    return FRAUDS / 2 if metric.removeprefix("test_") in RARE else LEVEL


def smallest_effect(unit: str, claimed: str, bound: float, paper: float | None = None, metric: str = "") -> float:
    """Return the margin of a part: how far beyond its bound a mean must lie to be worth claiming.

    Parameters
    ----------
    unit : what the number is counted in, one of :data:`UNITS`.
    claimed, bound : what is claimed of the mean, see :class:`qfl_core.analysis.claims.Part`.
    paper : the paper's value of the number where it prints what the number is made of.
    metric : the metric behind a score or an unsteadiness.

    Returns
    -------
    The margin; 0 for ``always``, which is checked for each value and not tested.
    """
    if unit not in UNITS:
        raise AnalysisError(f"unknown unit {unit!r}{did_you_mean(unit, UNITS)}; units: {', '.join(UNITS)}")
    if claimed == "always":
        return 0.0
    if claimed == "within":
        return bound
    if paper is not None:
        return round(abs(paper - bound) / 2, 6)
    by_unit = {
        "accuracy": of_metric(metric),
        "score": of_metric(metric),
        "unsteadiness": _TENTH * of_metric(metric),
        "log rate": _TENTH * bound,
        "loss": _TENTH * _GUESSING / _UNFOLDS,
    }
    return round(by_unit.get(unit, _TENTH * (1 - bound)), 6)
