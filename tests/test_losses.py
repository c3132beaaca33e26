"""The task losses and their slopes, and the rule that keeps them finite under shots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from qfl_core.algorithm.losses import EXACT_MARGIN, cross_entropy, margin_of, squared_error
from qfl_core.base.registry import LOSSES as NAMED
from qfl_core.base.registry import resolve

LOSSES = {name: (resolve(row).value, resolve(row).slope) for name, row in NAMED.items()}


def draws(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.01, 0.99, rows), rng.integers(0, 2, rows)


def test_cross_entropy_is_the_log_loss():
    p, y = draws()
    assert cross_entropy(p, y, EXACT_MARGIN).mean() == pytest.approx(log_loss(y, p), abs=1e-12)


def test_squared_error_is_the_brier_score():
    p, y = draws()
    assert squared_error(p, y, EXACT_MARGIN).mean() == pytest.approx(brier_score_loss(y, p), abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_slope_is_the_numeric_derivative(name):
    loss, slope = LOSSES[name]
    p, y = draws()
    h = 1e-6
    numeric = (loss(p + h, y, EXACT_MARGIN) - loss(p - h, y, EXACT_MARGIN)) / (2 * h)
    assert np.allclose(slope(p, y, EXACT_MARGIN), numeric, rtol=1e-6, atol=1e-6)


def test_an_outcome_never_seen_counts_as_half_a_shot():
    assert margin_of(1024) == 1 / 2048
    never = cross_entropy(np.array([0.0, 1.0]), np.array([1, 0]), margin_of(1024))
    assert np.allclose(never, np.log(2048), atol=1e-12)


def test_an_outcome_seen_once_is_not_touched_by_the_margin():
    p = np.array([1 / 1024])
    assert cross_entropy(p, np.array([1]), margin_of(1024)) == -np.log(p)


def test_exact_probabilities_have_a_margin_of_their_own():
    assert margin_of(None) == EXACT_MARGIN
    assert cross_entropy(np.zeros(1), np.ones(1), margin_of(None))[0] == pytest.approx(-np.log(1e-12))


@given(
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 0.5, 1e-300, -1e-16, 1 + 1e-15]), st.integers(0, 1)), min_size=1),
)
def test_losses_and_slopes_are_finite_at_the_edges(shots, samples):
    p, y = (np.array(values) for values in zip(*samples, strict=True))
    for loss, slope in LOSSES.values():
        assert np.isfinite(loss(p, y, margin_of(shots))).all()
        assert np.isfinite(slope(p, y, margin_of(shots))).all()


def test_many_weight_vectors_share_the_labels():
    p, y = draws(rows=12)
    stacked = np.stack([p, p[::-1]])
    for loss, slope in LOSSES.values():
        for f in (loss, slope):
            assert np.array_equal(f(stacked, y, 0.01)[1], f(p[::-1], y, 0.01))
