"""The SPSA block against the library's SPSA, and the library's optimisers as the library runs them."""

import numpy as np
import pytest
from qiskit_machine_learning.optimizers import ADAM, SPSA
from qiskit_machine_learning.utils import algorithm_globals

from qfl_core.optimizers import CALIBRATION, library_adam, library_spsa, spsa_block

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


@pytest.mark.parametrize("seed", [0, 7])
def test_library_spsa_is_a_call_of_minimize_with_the_same_seed(seed):
    start = np.linspace(-1, 1, 5)
    algorithm_globals.random_seed = seed
    expected = SPSA(maxiter=8).minimize(scalar_bowl, start)
    found = library_spsa(start, bowl, 8, seed)
    assert np.array_equal(found.theta, expected.x)


def test_calibration_takes_fifty_evaluations_and_an_iteration_two():
    asked = []

    def counting(points):
        asked.append(len(points))
        return bowl(points)

    library_spsa(np.zeros(5), counting, 8, 0)
    assert CALIBRATION == 50
    # The library ends with one evaluation of the point that it returns.
    assert asked == [CALIBRATION, *[2] * 8, 1]


def test_library_spsa_reports_its_first_calibrated_rates():
    found = library_spsa(np.zeros(5), bowl, 8, 3)
    algorithm_globals.random_seed = 3
    rate, perturbation = SPSA.calibrate(scalar_bowl, np.zeros(5))
    assert (found.eta, found.delta) == (next(rate()), next(perturbation()))


def test_library_spsa_depends_on_its_seed_and_on_nothing_before():
    first = library_spsa(np.zeros(5), bowl, 4, 1).theta
    other = library_spsa(np.zeros(5), bowl, 4, 2).theta
    assert np.array_equal(library_spsa(np.zeros(5), bowl, 4, 1).theta, first)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("steps", [1, 6])
def test_library_adam_equals_the_librarys(steps):
    start = np.linspace(-1, 1, 5)
    expected = ADAM(maxiter=steps, lr=0.1).minimize(scalar_bowl, start, jac=bowl_gradient)
    found = library_adam(start, bowl, bowl_gradient, steps, 0.1)
    assert np.array_equal(found.theta, expected.x)
    assert found.eta == 0.1
    assert np.isnan(found.delta)


def test_library_adam_takes_one_gradient_a_step():
    asked = []

    def counting(x):
        asked.append(x)
        return bowl_gradient(x)

    library_adam(np.zeros(5), bowl, counting, 6, 0.1)
    assert len(asked) == 6


def test_library_adam_goes_on_where_a_step_is_small():
    # The library stops at a step below its tolerance (1e-6); the budget is spent all the same here.
    asked = []

    def counting(x):
        asked.append(x)
        return bowl_gradient(x)

    library_adam(np.zeros(5), bowl, counting, 6, 1e-9)
    assert len(asked) == 6
