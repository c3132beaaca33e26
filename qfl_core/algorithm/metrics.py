"""Classification and federation metrics, equal to scikit-learn's; NaN where a split has one class only."""

from __future__ import annotations

import numpy as np

#: What :func:`classification` returns, in order.
CLASSIFICATION = (
    "accuracy",
    "balanced_accuracy",
    "precision",
    "recall",
    "f1",
    "specificity",
    "roc_auc",
    "pr_auc",
    "mcc",
    "tn",
    "fp",
    "fn",
    "tp",
)


def classification(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """Return the metrics of probabilities ``p`` (n,) of class 1 against labels ``y`` (n,); class 1 is p >= 1/2.

    As in scikit-learn with ``zero_division=0``: precision, recall and F1 are 0 where nothing was predicted positive.
    With one class in ``y``, whatever needs the other class is NaN.
    """
    predicted = p >= 0.5
    tp, fp = int((predicted & (y == 1)).sum()), int((predicted & (y == 0)).sum())
    fn, tn = int((y == 1).sum()) - tp, int((y == 0).sum()) - fp
    recall = _ratio(tp, tp + fn, empty=np.nan)
    specificity = _ratio(tn, tn + fp, empty=np.nan)
    both = tp + fn > 0 and tn + fp > 0
    positives = tp + fn > 0
    return {
        "accuracy": (tp + tn) / len(y),
        "balanced_accuracy": (recall + specificity) / 2,
        "precision": _ratio(tp, tp + fp, empty=0.0) if positives else np.nan,
        "recall": recall,
        "f1": _ratio(2 * tp, 2 * tp + fp + fn, empty=0.0) if positives else np.nan,
        "specificity": specificity,
        "roc_auc": roc_auc(y, p) if both else np.nan,
        "pr_auc": average_precision(y, p) if positives else np.nan,
        "mcc": _mcc(tn, fp, fn, tp) if both else np.nan,
        "tn": tn,
        "fp": fp,
        "fn": fn,
        "tp": tp,
    }


def _ratio(part: int, whole: int, empty: float) -> float:
    return part / whole if whole else empty


def _mcc(tn: int, fp: int, fn: int, tp: int) -> float:
    """(TP TN - FP FN) / sqrt of the four margins; 0 where everything was predicted alike."""
    margins = float(tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / np.sqrt(margins) if margins else 0.0


def roc_auc(y: np.ndarray, p: np.ndarray) -> float:
    """Return P(score of a positive > score of a negative) + half the ties, by the rank-sum formula."""
    positives = int((y == 1).sum())
    _, place, count = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]  # scores that are equal share the mean of their ranks
    wins = ranks[y == 1].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * (len(y) - positives)))


def average_precision(y: np.ndarray, p: np.ndarray) -> float:
    """Return sum_n (R_n - R_{n-1}) P_n over the distinct scores, falling."""
    order = np.argsort(-p, kind="stable")
    hits = np.cumsum(y[order])
    last_of_score = np.append(np.flatnonzero(np.diff(p[order])), len(p) - 1)
    hits, taken = hits[last_of_score], last_of_score + 1
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / hits[-1])


def spread(values: np.ndarray) -> float:
    """Return P90 - P10 of client accuracies ``values`` (clients,): the fairness gap."""
    low, high = np.percentile(values, [10, 90])
    return float(high - low)
