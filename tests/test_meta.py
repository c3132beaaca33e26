"""Algorithm 3: the controller learns from two virtual rounds, and nothing else does."""

import itertools
import json

import numpy as np
import pytest
from planted import federation, start

from qfl_core.algorithm import meta
from qfl_core.algorithm.controller import initial_phi
from qfl_core.algorithm.meta import is_due, moved, outer_direction, outer_gradient, refine_controller
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.server import federated_round
from qfl_core.base.streams import stream, streams
from qfl_core.runs.experiment import state_from_json, train

PHI = initial_phi(0.13, 0.13)
CONTROLLED = [name for name, method in METHODS.items() if method.controller]
OUTER = ("updated", "meta_loss_plus", "meta_loss_minus", "controller_gradient_norm")


# The estimate (T3)


def bowl(centre, weights):
    return lambda phi: float((weights * (phi["controller"] - centre) ** 2).sum())


def outer_step(phi, loss, direction, rate, radius):
    """Return where lines 2 to 6 take phi (any shape) on a loss of the test's own."""
    phi, direction = {"controller": phi}, {"controller": direction}
    plus, minus = loss(moved(phi, radius, direction)), loss(moved(phi, -radius, direction))
    return moved(phi, -rate, outer_gradient(plus, minus, radius, direction))["controller"]


@pytest.mark.parametrize("seed", range(3))
def test_the_outer_step_averages_to_a_step_downhill_on_a_quadratic(seed):
    rng = np.random.default_rng(seed)
    phi, centre, weights = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.uniform(0.5, 2, (2, 3))
    directions = [np.reshape(signs, (2, 3)) for signs in itertools.product((-1.0, 1.0), repeat=6)]
    steps = [outer_step(phi, bowl(centre, weights), d, rate=0.1, radius=0.2) - phi for d in directions]
    gradient = 2 * weights * (phi - centre)
    assert np.allclose(np.mean(steps, axis=0), -0.1 * gradient, atol=1e-12)
    # On a quadratic no single step points uphill either.
    assert max((step * gradient).sum() for step in steps) <= 1e-12


def test_the_outer_estimate_is_the_difference_over_twice_the_radius_along_the_direction():
    asked = []
    phi, direction = np.zeros((2, 2)), np.array([[1.0, -1.0], [-1.0, -1.0]])

    def loss(candidate):
        asked.append(candidate["controller"])
        return [0.9, 0.5][len(asked) - 1]

    end = outer_step(phi, loss, direction, rate=0.1, radius=0.25)
    assert np.array_equal(asked, [0.25 * direction, -0.25 * direction])
    assert np.allclose(end, -0.1 * (0.4 / 0.5) * direction)
    assert np.allclose(outer_gradient(0.9, 0.5, 0.25, {"a": direction})["a"], 0.8 * direction)


def test_every_array_of_phi_moves_along_a_direction_of_its_own():
    phi = {"controller": np.zeros((2, 7)), "weights": np.zeros(14)}
    drawn = outer_direction(phi, seed=0, t=3)
    assert {name: values.shape for name, values in drawn.items()} == {"controller": (2, 7), "weights": (14,)}
    assert set(np.concatenate([values.ravel() for values in drawn.values()])) == {-1.0, 1.0}
    assert not np.array_equal(drawn["controller"].ravel(), drawn["weights"])
    alone = outer_direction({"controller": phi["controller"]}, seed=0, t=3)
    assert np.array_equal(alone["controller"], drawn["controller"])


# The virtual rounds


def test_both_virtual_rounds_start_from_the_rounds_model_on_streams_of_their_own(monkeypatch):
    fed = federation(outer_perturbation=0.2)
    theta, seen = fed.initial_theta(), []

    def spied(federation, state, trainer, purpose):
        seen.append((state.theta.copy(), state.phi["controller"], state.t, purpose))
        return federated_round(federation, state, trainer, purpose)

    monkeypatch.setattr(meta, "federated_round", spied)
    step = refine_controller(fed, start(fed, 1))
    (theta_plus, plus, *_), (theta_minus, minus, *_) = seen
    assert np.array_equal(theta_plus, theta)
    assert np.array_equal(theta_minus, theta)
    assert np.allclose(plus + minus, 2 * PHI)
    assert np.allclose(np.abs(plus - PHI), 0.2)
    assert len(set(np.sign(plus - PHI).ravel())) == 2
    assert [(t, purpose) for _, _, t, purpose in seen] == [(1, "virtual")] * 2
    assert not np.array_equal(step.phi["controller"], PHI)
    change = step.phi["controller"] - PHI
    assert step.gradient_norm == pytest.approx(np.linalg.norm(change) / fed.config.outer_learning_rate)


def test_a_virtual_round_draws_other_numbers_than_the_real_one():
    fed = federation()
    real, virtual = (federated_round(fed, start(fed), purpose=purpose) for purpose in ("round", "virtual"))
    assert not np.array_equal(real.local.theta, virtual.local.theta)
    # With shots off only the directions are left to differ.
    fed = federation(shots=None)
    real, virtual = (federated_round(fed, start(fed), purpose=purpose) for purpose in ("round", "virtual"))
    assert not np.array_equal(real.local.theta, virtual.local.theta)


@pytest.mark.parametrize("name", ["duqfl-prox", "default-qfl"])
def test_a_virtual_round_shares_no_random_stream_with_the_real_one(monkeypatch, name):
    fed, drawn = federation(method=METHODS[name]), {"round": set(), "virtual": set()}
    begun = start(fed)
    for purpose, names in drawn.items():

        def spied(seed, name, *indices, names=names):
            names.add(name)
            return stream(seed, name, *indices)

        def spied_many(seed, name, *indices, last, names=names):
            names.add(name)
            return streams(seed, name, *indices, last=last)

        for module in ("federation", "server"):
            monkeypatch.setattr(f"qfl_core.algorithm.{module}.stream", spied)
        monkeypatch.setattr("qfl_core.algorithm.federation.streams", spied_many)
        federated_round(fed, begun, purpose=purpose)
    assert len(drawn["virtual"]) == 4  # training shots, directions, scores of the new model, meta-loss
    assert not drawn["round"] & drawn["virtual"]


def test_refining_uses_virtual_rounds_and_not_the_real_one():
    # The perturbation is too small to move phi, so both virtual rounds run under phi itself.
    fed = federation(outer_perturbation=1e-300)
    step = refine_controller(fed, start(fed))
    assert step.loss_plus == federated_round(fed, start(fed), purpose="virtual").meta.total
    assert step.loss_plus != federated_round(fed, start(fed)).meta.total


def test_the_two_virtual_rounds_share_their_random_numbers():
    fed = federation(outer_perturbation=1e-300)
    step = refine_controller(fed, start(fed))
    assert step.loss_plus == step.loss_minus
    assert np.array_equal(step.phi["controller"], PHI)


def told(fed):
    """Return a run's records as text, with what the outer step may change taken out of them: phi and its columns."""
    kept, outer = [], []
    for record in train(fed):
        record = json.loads(json.dumps(record, default=lambda v: v.item()))
        del record["seconds"], record["state"]["phi"]
        for row in record["global_accuracies"]:
            row.pop("circuits_virtual", None)
        for row in record["outer_meta"]:
            outer.append({key: row.pop(key) for key in list(row) if key in OUTER or key.startswith("phi_")})
        kept.append(json.dumps(record))
    return kept, outer


@pytest.mark.parametrize("name", CONTROLLED)
def test_virtual_rounds_change_nothing_but_phi(name):
    settings = {"method": METHODS[name], "rounds": 3}
    frozen, never = told(federation(outer_period=0, **settings))
    idle, tried = told(federation(outer_period=1, outer_learning_rate=0, **settings))
    assert idle == frozen
    assert not any(row["updated"] for row in never)
    assert [row["updated"] for row in tried] == [True, True, False]  # no round follows the last
    assert all(row["controller_gradient_norm"] > 0 for row in tried[:2])
    learnt, _ = told(federation(outer_period=1, outer_learning_rate=1.0, **settings))
    assert learnt[:2] == frozen[:2]
    assert learnt[2:] != frozen[2:]


def test_a_run_refines_the_controller_from_the_model_that_its_round_started_from():
    fed = federation(outer_period=2, rounds=3)
    before, after = list(train(fed))[1:3]
    expected = refine_controller(fed, state_from_json(before["state"]))
    assert after["state"]["phi"]["controller"] == expected.phi["controller"].tolist()
    (row,) = after["outer_meta"]
    assert (row["meta_loss_plus"], row["meta_loss_minus"]) == (expected.loss_plus, expected.loss_minus)
    assert row["controller_gradient_norm"] == expected.gradient_norm


# When


def test_the_controller_is_refined_every_m_rounds():
    fed = federation(rounds=10, outer_period=3)
    assert [t + 1 for t in range(10) if is_due(fed, t)] == [3, 6, 9]
    everywhere = federation(rounds=4, outer_period=1)
    assert [is_due(everywhere, t) for t in range(4)] == [True, True, True, False]


def test_no_outer_step_is_spent_where_no_round_follows():
    assert not any(is_due(federation(rounds=5, outer_period=5), t) for t in range(5))
    assert [t for t in range(6) if is_due(federation(rounds=6, outer_period=5), t)] == [4]


def test_a_period_of_zero_freezes_the_controller():
    fed = federation(rounds=4, outer_period=0)
    assert not any(is_due(fed, t) for t in range(4))
    phis = [record["state"]["phi"]["controller"] for record in train(fed)]
    assert all(phi == PHI.tolist() for phi in phis)


def test_phi_changes_after_the_rounds_that_are_due_and_no_others():
    records = train(federation(rounds=5, outer_period=2))
    phis = [record["state"]["phi"]["controller"] for record in records]
    assert phis[0] == phis[1] == PHI.tolist()
    assert phis[1] != phis[2] == phis[3] != phis[4] == phis[5]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in CONTROLLED])
def test_baselines_have_no_outer_step(name):
    fed = federation(method=METHODS[name], outer_period=1)
    assert not any(is_due(fed, t) for t in range(2))
    rows = [row for record in train(fed) for row in record["global_accuracies"] if row["round"] > 0]
    assert [row["circuits_virtual"] for row in rows] == [0, 0]


def test_virtual_circuits_are_counted_apart():
    fed = federation(outer_period=2, rounds=3)
    records = list(train(fed))
    rows = [row for record in records for row in record["global_accuracies"] if row["round"] > 0]
    real = sum(federated_round(fed, start(fed, 1)).local.circuits.values())
    assert [row["circuits_virtual"] for row in rows] == [0, 2 * real, 0]
    assert rows[0]["circuits_train"] == 2 * 2 * 2 * len(fed.batch(0).train.y)


def test_directions_differ_from_round_to_round():
    fed = federation(outer_perturbation=0.2)
    steps = [refine_controller(fed, start(fed, t)) for t in range(2)]
    signs = [np.sign((s.phi["controller"] - PHI) * (s.loss_minus - s.loss_plus)) for s in steps]
    assert not np.array_equal(*signs)
