"""The SPSA block against the library's SPSA, and the baselines' optimisers against the library's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit_machine_learning.optimizers import ADAM, SPSA
from qiskit_machine_learning.utils import algorithm_globals

from qfl_core.algorithm.optimizers import CALIBRATION, adam, calibrated_spsa, spsa_block

CENTRE = np.array([0.5, -1.0, 0.25, 2.0, 0.0])


def bowl(points):
    """Losses (..., m) of points (..., m, P): a quadratic with a ripple, so that no two directions agree."""
    return ((points - CENTRE) ** 2 * np.arange(1, 6)).sum(axis=-1) + np.sin(3 * points).sum(axis=-1)


def bowl_gradient(x):
    return 2 * (x - CENTRE) * np.arange(1, 6) + 3 * np.cos(3 * x)


def scalar_bowl(x):
    return float(bowl(np.asarray(x)[None])[0])


def library_directions(seed, count, dim):
    """Return the perturbations (count, dim) that the library's SPSA draws first after this seed."""
    algorithm_globals.random_seed = seed
    return np.array([1 - 2 * algorithm_globals.random.binomial(1, 0.5, size=dim) for _ in range(count)], float)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("eta", "delta"), [(0.13, 0.13), (0.01, 0.4)])
def test_the_spsa_block_equals_the_librarys_given_its_perturbations(seed, eta, delta):
    iterations, start = 12, np.linspace(-1, 1, 5)
    directions = library_directions(seed, iterations, 5)
    algorithm_globals.random_seed = seed
    expected = SPSA(maxiter=iterations, learning_rate=eta, perturbation=delta).minimize(scalar_bowl, start)
    rates = np.array([eta]), np.array([delta])
    found = spsa_block(start[None], bowl, *rates, directions[None])
    assert np.allclose(found[0], expected.x, rtol=0, atol=1e-12)
    assert not np.allclose(found[0], start, atol=1e-3)


def test_each_client_of_a_block_has_its_own_rates_and_directions():
    rng = np.random.default_rng(0)
    theta, directions = rng.normal(size=(3, 5)), rng.choice([-1.0, 1.0], (3, 4, 5))
    eta, delta = np.array([0.01, 0.02, 0.03]), np.array([0.1, 0.2, 0.3])
    together = spsa_block(theta, bowl, eta, delta, directions)
    for i in range(3):
        one = slice(i, i + 1)
        assert np.array_equal(spsa_block(theta[one], bowl, eta[one], delta[one], directions[one])[0], together[i])


def test_the_spsa_block_leaves_its_start_alone():
    theta = np.zeros((1, 5))
    spsa_block(theta, bowl, np.array([0.1]), np.array([0.1]), np.ones((1, 3, 5)))
    assert not theta.any()


def library_spsa(start, iterations, seed, loss=scalar_bowl):
    """Return the library's result, and the first learning rate that it calibrates, for one client."""
    algorithm_globals.random_seed = seed
    end = SPSA(maxiter=iterations).minimize(loss, start).x
    algorithm_globals.random_seed = seed
    return end, next(SPSA.calibrate(loss, start)[0]())


@given(
    seeds=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
    iterations=st.integers(0, 15),
    spread=st.floats(0.01, 3),
)
@settings(max_examples=25, deadline=None)
def test_calibrated_spsa_is_the_librarys_to_the_bit(seeds, iterations, spread):
    starts = np.random.default_rng(1).uniform(-spread, spread, (len(seeds), 5))
    found, rates = calibrated_spsa(starts, bowl, iterations, seeds)
    for start, seed, end, rate in zip(starts, seeds, found, rates, strict=True):
        expected, first = library_spsa(start, iterations, seed)
        assert np.array_equal(end, expected)
        assert rate == first


def test_calibrated_spsa_asks_for_noisy_losses_in_the_librarys_order():
    # Both draw the noise as they go: equal ends mean equal calls.
    seeds, start = [3, 4], np.linspace(-1, 1, 5)
    noise = [np.random.default_rng(i) for i in range(2)]

    def noisy(points):
        return bowl(points) + np.array([rng.normal(size=points.shape[1]) for rng in noise])

    found, _ = calibrated_spsa(np.array([start, start]), noisy, 6, seeds)
    for i, seed in enumerate(seeds):
        alone = np.random.default_rng(i)
        algorithm_globals.random_seed = seed
        optimizer = SPSA(maxiter=6)
        end = optimizer.minimize(lambda x, rng=alone: scalar_bowl(x) + rng.normal(), start).x
        assert np.array_equal(found[i], end)
        assert noise[i].normal() == alone.normal()  # nothing more, nothing less was drawn


def test_calibration_takes_fifty_evaluations_and_an_iteration_two():
    asked = []

    def counting(points):
        asked.append(points.shape[1])
        return bowl(points)

    calibrated_spsa(np.zeros((3, 5)), counting, 8, [0, 1, 2])
    assert CALIBRATION == 50
    # The library ends with one evaluation of the point that it returns.
    assert asked == [CALIBRATION, *[2] * 8, 1]


def test_calibrated_spsa_leaves_the_librarys_generator_alone():
    algorithm_globals.random_seed = 5
    before = algorithm_globals.random.bit_generator.state
    calibrated_spsa(np.zeros((1, 5)), bowl, 2, [1])
    assert algorithm_globals.random.bit_generator.state == before


@pytest.mark.parametrize("steps", [1, 6])
def test_adam_equals_the_librarys(steps):
    start = np.linspace(-1, 1, 5)
    expected = ADAM(maxiter=steps, lr=0.1, tol=0.0).minimize(scalar_bowl, start, jac=bowl_gradient)
    found, (first, second, taken) = adam(start, bowl_gradient, steps, 0.1)
    assert np.allclose(found, expected.x, rtol=0, atol=1e-14)
    assert taken == steps
    assert (second > 0).all()
    assert first.any()


def test_adam_that_goes_on_with_its_moments_is_adam_without_a_pause():
    start = np.linspace(-1, 1, 5)
    whole, reached = adam(start, bowl_gradient, 7, 0.1)
    half, moments = adam(start, bowl_gradient, 3, 0.1)
    end, again = adam(half, bowl_gradient, 4, 0.1, moments)
    assert np.array_equal(end, whole)
    assert all(np.array_equal(a, b) for a, b in zip(reached, again, strict=True))
    assert not np.allclose(adam(half, bowl_gradient, 4, 0.1)[0], whole, atol=1e-3)


def test_adam_takes_one_gradient_per_step_and_goes_on_where_a_step_is_small():
    # The library stops at a step below its tolerance (1e-6); the budget is spent all the same here.
    asked = []

    def counting(x):
        asked.append(x)
        return bowl_gradient(x)

    adam(np.zeros(5), counting, 6, 1e-9)
    assert len(asked) == 6
