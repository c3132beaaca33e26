"""The controller: clipped, log-linear, and at the paper's 0.13 / 0.13 before it has learned anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qfl_core.algorithm.controller import FEATURES, Summary, gamma, initial_phi, psi, standardised

ETA, DELTA = (1e-3, 1.0), (1e-3, 0.5)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FEATURE = st.floats(-1e6, 1e6)


def features(clients=4, k=1, t=1, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.uniform(-1, 1, (4, clients))
    summary = Summary(np.ones(clients), 1 - columns[0], np.ones(clients), np.abs(columns[1:2]).T)
    return psi(k / 5, t / 10, summary, np.abs(columns[2]), np.abs(columns[3]))


@given(arrays(float, (3, 7), elements=FEATURE), arrays(float, (2, 7), elements=FINITE))
def test_eta_and_delta_stay_inside_their_bounds_for_any_phi(z, phi):
    eta, delta = gamma(z, phi, ETA, DELTA)
    assert ((eta >= ETA[0]) & (eta <= ETA[1])).all()
    assert ((delta >= DELTA[0]) & (delta <= DELTA[1])).all()


@given(arrays(float, (3, 6), elements=FEATURE))
def test_the_controller_starts_at_the_initial_rates_whatever_the_features(rest):
    z = np.column_stack([np.ones(3), rest])
    eta, delta = gamma(z, initial_phi(0.13, 0.13), ETA, DELTA)
    assert np.allclose(eta, 0.13, rtol=1e-15, atol=0)
    assert np.allclose(delta, 0.13, rtol=1e-15, atol=0)


def test_each_rate_has_its_own_row():
    eta, delta = gamma(features(), initial_phi(0.2, 0.05), ETA, DELTA)
    assert np.allclose(eta, 0.2)
    assert np.allclose(delta, 0.05)


def test_the_map_is_log_linear_between_the_bounds():
    rng = np.random.default_rng(1)
    z, phi = features(), rng.uniform(-0.3, 0.3, (2, 7)) + initial_phi(0.13, 0.13)
    eta, delta = gamma(z, phi, ETA, DELTA)
    assert np.allclose(np.log(eta), z @ phi[0])
    assert np.allclose(np.log(delta), z @ phi[1])
    assert len(set(eta)) == 4


def test_a_rate_outside_the_bounds_is_clipped_to_them():
    z = features(clients=1)
    assert gamma(z, initial_phi(7.0, 1e-9), ETA, DELTA) == (pytest.approx(1.0), pytest.approx(1e-3))


def test_one_client_alone_gets_the_same_bits():
    z = features(clients=9)
    phi = np.random.default_rng(2).uniform(-0.5, 0.5, (2, 7))
    together = gamma(z, phi, ETA, DELTA)
    for i in range(9):
        alone = gamma(z[[i]], phi, ETA, DELTA)
        assert alone[0][0] == together[0][i]
        assert alone[1][0] == together[1][i]


def test_psi_holds_the_state_that_algorithm_1_names():
    summary = Summary(np.array([2.0]), np.array([1.8]), np.array([0.6]), np.full((1, 16), 0.2))
    z = psi(2 / 5, 3 / 10, summary, np.array([0.25]), np.array([0.3]))
    assert len(FEATURES) == z.shape[1]
    assert dict(zip(FEATURES, z[0].tolist(), strict=True)) == pytest.approx(
        {
            "constant": 1,
            "unfold": 2 / 5,
            "round": 3 / 10,
            "loss_change": 0.1,
            "displacement": 0.8 / 4,
            "data_fraction": 0.25,
            "heterogeneity": 0.3,
        }
    )


def test_nothing_has_changed_before_training():
    summary = Summary.before_training(3, 16)
    assert not summary.loss_change.any()
    assert not summary.displacement.any()
    assert np.isinf(summary.val_loss).all()  # L* starts at infinity (Algorithm 1, line 3)


def test_standardised_features_are_centred_and_of_size_one_where_clients_and_unfolds_are_typical():
    rng = np.random.default_rng(3)
    sizes = rng.uniform(0.5, 1.5, 10)
    rows = []
    for k in range(5):
        for t in range(20):
            step = rng.normal(0, 0.1, (10, 16))
            summary = Summary(np.ones(10), 1 - rng.normal(0, 0.05, 10), np.ones(10), step)
            mix = np.clip(rng.normal(0.3, 0.1, 10), 0, 1)
            rows.append(standardised(psi(k / 5, t / 20, summary, sizes / sizes.sum(), mix), 10))
    z = np.concatenate(rows)
    assert (z[:, 0] == 1).all()
    centred = [FEATURES.index(name) for name in FEATURES if name not in ("constant", "displacement")]
    assert np.abs(z[:, centred].mean(axis=0)).max() < 0.4
    size = np.sqrt((z[:, 1:] ** 2).mean(axis=0))
    assert (size > 0.7).all()
    assert (size < 1.4).all()


def test_a_standardised_client_needs_no_other_clients_features():
    z = features(clients=5)
    assert np.array_equal(standardised(z, 5)[2], standardised(z[2:3], 5)[0])
