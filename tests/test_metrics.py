"""Metrics are scikit-learn's, number for number; what one class cannot tell is NaN."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as sk

from qfl_core.algorithm.metrics import CLASSIFICATION, average_precision, classification, roc_auc, spread

REFERENCE = {
    "accuracy": lambda y, p: sk.accuracy_score(y, p >= 0.5),
    "balanced_accuracy": lambda y, p: sk.balanced_accuracy_score(y, p >= 0.5),
    "precision": lambda y, p: sk.precision_score(y, p >= 0.5, zero_division=0),
    "recall": lambda y, p: sk.recall_score(y, p >= 0.5, zero_division=0),
    "f1": lambda y, p: sk.f1_score(y, p >= 0.5, zero_division=0),
    "specificity": lambda y, p: sk.recall_score(y, p >= 0.5, pos_label=0, zero_division=0),
    "roc_auc": sk.roc_auc_score,
    "pr_auc": sk.average_precision_score,
    "mcc": lambda y, p: sk.matthews_corrcoef(y, p >= 0.5),
}
# Sixteenths tie often and include 0, 1/2 and 1; the others rarely do.
SCORES = st.one_of(st.integers(0, 16).map(lambda n: n / 16), st.floats(0, 1))
SAMPLES = st.lists(st.tuples(st.integers(0, 1), SCORES), min_size=2, max_size=60)


def arrays(samples):
    y, p = zip(*samples, strict=True)
    return np.array(y), np.array(p)


def agree(y, p):
    found = classification(y, p)
    for name, reference in REFERENCE.items():
        assert found[name] == pytest.approx(reference(y, p), abs=1e-12), name
    assert [found[name] for name in ("tn", "fp", "fn", "tp")] == sk.confusion_matrix(y, p >= 0.5).ravel().tolist()


@given(SAMPLES)
def test_metrics_equal_scikit_learns(samples):
    y, p = arrays(samples)
    assume(0 < y.sum() < len(y))
    agree(y, p)


@pytest.mark.parametrize("levels", [2, 5, 1000, 10**9])
def test_metrics_equal_scikit_learns_on_large_parts(levels):
    rng = np.random.default_rng(levels)
    y = (rng.uniform(size=3000) < 0.011).astype(int)
    agree(y, rng.integers(0, levels + 1, 3000) / levels)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_predicting_one_class_only_is_scored_without_a_warning(p):
    agree(np.array([0, 1, 1, 0, 0]), np.full(5, p))


def test_the_names_and_their_order_are_fixed():
    assert tuple(classification(np.array([0, 1]), np.array([0.2, 0.7]))) == CLASSIFICATION
    assert set(CLASSIFICATION) == {*REFERENCE, "tn", "fp", "fn", "tp"}


def test_a_probability_of_one_half_is_class_1():
    assert classification(np.array([1, 0]), np.array([0.5, np.nextafter(0.5, 0)]))["accuracy"] == 1


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_without_positives_what_needs_them_is_nan(scores):
    p = np.array(scores)
    found = classification(np.zeros(len(p), int), p)
    nan = {name for name, value in found.items() if np.isnan(value)}
    assert nan == {"balanced_accuracy", "precision", "recall", "f1", "roc_auc", "pr_auc", "mcc"}
    assert found["accuracy"] == found["specificity"] == (p < 0.5).mean()


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_without_negatives_what_needs_them_is_nan(scores):
    p = np.array(scores)
    found = classification(np.ones(len(p), int), p)
    nan = {name for name, value in found.items() if np.isnan(value)}
    assert nan == {"balanced_accuracy", "specificity", "roc_auc", "mcc"}
    assert found["accuracy"] == found["recall"] == (p >= 0.5).mean()


@given(SAMPLES, st.randoms(use_true_random=False))
def test_areas_do_not_depend_on_the_order_of_the_samples(samples, random):
    y, p = arrays(samples)
    assume(0 < y.sum() < len(y))
    random.shuffle(samples)
    shuffled = arrays(samples)
    assert roc_auc(*shuffled) == pytest.approx(roc_auc(y, p), abs=1e-12)
    assert average_precision(*shuffled) == pytest.approx(average_precision(y, p), abs=1e-12)


def test_the_fairness_gap_is_p90_minus_p10():
    assert spread(np.arange(11) / 10) == pytest.approx(0.8)
    assert spread(np.array([0.7])) == 0
    assert spread(np.full(5, 0.3)) == 0
