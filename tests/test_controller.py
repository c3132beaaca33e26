"""The controller: clipped, log-linear, and at the paper's 0.13 / 0.13 before it has learned anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qfl_core.algorithm.controller import FEATURES, Summary, gamma, initial_phi, psi, summarize

ETA, DELTA = (1e-3, 1.0), (1e-3, 0.5)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FEATURE = st.floats(-1e6, 1e6)


def features(clients=4, k=1, t=1, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.uniform(-1, 1, (4, clients))
    summary = Summary(columns[0], np.abs(columns[1]) / 4)
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
    summary = summarize(np.array([2.0]), np.array([1.8]), np.array([0.8]), num_weights=16)
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
