"""Algorithm 1: what a client does between the broadcast and its upload."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from planted import federation, raw
from qiskit_machine_learning.optimizers import ADAM, SPSA
from qiskit_machine_learning.utils import algorithm_globals

from qfl_core.algorithm import optimizers
from qfl_core.algorithm.client import TRACE, Broadcast, Objective, project, select, train_locally
from qfl_core.algorithm.controller import Summary, gamma, initial_phi, psi
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.base.registry import METHOD_NAMES
from qfl_core.runs.experiment import train

PHI = initial_phi(0.13, 0.13)
# A controller that has learned something: every feature moves both rates.
LEARNED = PHI + np.linspace(-0.3, 0.4, 14).reshape(2, 7)


def train_all(fed, phi=PHI, t=0, client_ids=None, purpose="round"):
    theta, batch = fed.initial_theta(), fed.batch(t, client_ids)
    tuned = {"rate": np.full(len(batch.client_ids), 0.1)}  # Adam's; the others do not look at it
    return theta, train_locally(fed, Broadcast(t, theta, phi, purpose, tuned), batch)


def told(fed):
    """Return every record of a run as text, timings apart."""
    return [json.dumps({**r, "seconds": 0}, default=lambda v: v.item(), sort_keys=True) for r in train(fed)]


def objective(fed, t=0, client=0):
    batch = fed.batch(t, [client])
    rngs = fed.generators("test", t, batch.client_ids)
    return Objective(fed.model, batch.train, fed.initial_theta(), fed.mu, rngs)


# The proximal objective (T2)


def test_the_proximal_term_is_zero_at_the_broadcast_model():
    asked = objective(federation(mu=0.7))
    assert asked.penalty(asked.anchor[None, None]) == 0


def test_the_proximal_term_is_half_mu_times_the_squared_distance():
    asked = objective(federation(mu=0.7))
    step = np.random.default_rng(0).normal(size=(1, 4, 8))
    expected = 0.35 * np.linalg.norm(step[0], axis=1) ** 2
    assert np.allclose(asked.penalty(asked.anchor + step)[0], expected, rtol=1e-13)


@given(arrays(float, 8, elements=st.floats(-4, 4)))
def test_the_proximal_gradient_is_mu_times_the_displacement(step):
    asked = objective(federation(mu=0.7, shots=None))
    theta, h = asked.anchor + step, 1e-4
    points = theta + h * np.concatenate([np.eye(8), -np.eye(8)])
    values = asked.penalty(points[None])[0]
    assert np.allclose((values[:8] - values[8:]) / (2 * h), 0.7 * step, atol=1e-8)


@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_the_exact_gradient_equals_finite_differences(loss, mu):
    asked = objective(federation(loss=loss, mu=mu, shots=None))
    theta, h = asked.anchor + 0.3, 1e-5
    points = theta + h * np.concatenate([np.eye(8), -np.eye(8)])
    values = asked(points[None])[0]
    assert np.allclose(asked.gradient(theta), (values[:8] - values[8:]) / (2 * h), atol=1e-8)


def test_the_proximal_gradient_adds_mu_times_the_displacement_to_the_tasks():
    free, held = (objective(federation(mu=mu, shots=None)) for mu in (0.0, 0.7))
    theta = free.anchor + np.linspace(-1, 1, 8)
    assert np.allclose(held.gradient(theta) - free.gradient(theta), 0.7 * np.linspace(-1, 1, 8), atol=1e-12)


def test_methods_without_the_term_have_no_penalty():
    for name, method in METHODS.items():
        assert federation(method=method, mu=0.7).mu == (0.7 if name in ("fedprox-qfl", "duqfl-prox") else 0)


# The baselines, on the same objective


@pytest.mark.parametrize("name", ["default-qfl", "adam-qfl", "fedprox-qfl"])
def test_a_baseline_is_the_library_optimiser_on_the_clients_objective(name):
    fed = federation(method=METHODS[name], shots=None, mu=0.4, spsa_iterations=10)
    theta_t, local = train_all(fed, t=1)
    mu = 0.4 if name == "fedprox-qfl" else 0.0
    for i in range(3):
        rows = fed.schedule.round(1)[i].train
        encoded, y = fed.model.engine.encode(raw(fed).train.X[rows]), raw(fed).train.y[rows]

        def risk(theta, encoded=encoded, y=y):
            p = fed.model.engine.probabilities(encoded, theta)
            return -np.mean(np.log(np.where(y == 1, p, 1 - p))) + mu / 2 * np.sum((theta - theta_t) ** 2)

        def slope(theta, risk=risk):
            return np.array([(risk(theta + h) - risk(theta - h)) / 2e-5 for h in 1e-5 * np.eye(8)])

        if name == "adam-qfl":
            expected = ADAM(maxiter=40 // 17, lr=0.1).minimize(risk, theta_t, jac=slope).x
        else:
            seed = fed.generators("round-directions", 1, [i])[0].integers(2**31)
            algorithm_globals.random_seed = int(seed)
            expected = SPSA(maxiter=20).minimize(risk, theta_t).x
        assert np.allclose(local.theta[i], expected, atol=1e-6)


# Lines 4 to 18, against a plain reading of the algorithm


def reference(fed, theta_t, phi, t, position):
    """Algorithm 1 for one client, one number at a time, on exact probabilities; return states, losses and rates."""
    config, batch = fed.config, fed.batch(t)
    i = int(batch.client_ids[position])
    held = fed.schedule.round(t)
    rows = held[i].train
    total = sum(len(data.train) for data in held)
    labels = np.concatenate([raw(fed).train.y[data.train] for data in held])
    heterogeneity = abs(raw(fed).train.y[rows].mean() - labels.mean())

    def risk(theta, chosen):
        p = fed.model.engine.probabilities(fed.model.engine.encode(raw(fed).train.X[chosen]), theta)
        y = raw(fed).train.y[chosen]
        return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))

    def proximal(theta):
        return risk(theta, rows) + config.mu / 2 * np.sum((theta - theta_t) ** 2)

    shape = (config.unfolds, config.spsa_iterations, len(theta_t))
    directions = 1.0 - 2.0 * fed.generators("round-directions", t, [i])[0].integers(0, 2, shape)
    theta, change, moved = theta_t, 0.0, 0.0
    best, upload, told = np.inf, None, []
    for k in range(config.unfolds):
        features = [k / config.unfolds, t / config.rounds, change, moved / np.sqrt(len(theta)), len(rows) / total]
        z = np.array([1.0, *features, heterogeneity])
        eta = np.clip(np.exp(phi[0] @ z), *config.eta_bounds)
        delta = np.clip(np.exp(phi[1] @ z), *config.delta_bounds)
        before, begun = proximal(theta), theta
        for direction in directions[k]:
            slope = (proximal(theta + delta * direction) - proximal(theta - delta * direction)) / (2 * delta)
            theta = theta - eta * slope * direction
        after, moved = proximal(theta), np.linalg.norm(theta - begun)
        change = (before - after) / abs(before)
        validation = risk(theta, held[i].val)
        if validation < best:
            best, upload = validation, theta
        told.append((eta, delta, before, after, risk(begun, rows), risk(theta, rows), validation, moved))
    return upload, np.array(told)


@pytest.mark.parametrize("t", [0, 1])
def test_a_round_of_a_client_is_algorithm_1_line_by_line(t):
    fed = federation(unfolds=4, spsa_iterations=3, shots=None, mu=0.2)
    theta, local = train_all(fed, LEARNED, t)
    columns = ("eta", "delta", "loss_before", "loss_after", "task_loss_before", "task_loss_after", "val_loss")
    for i in range(3):
        upload, numbers = reference(fed, theta, LEARNED, t, i)
        assert np.allclose(local.theta[i], upload, atol=1e-9)
        found = np.array([local.trace[name][i] for name in (*columns, "displacement")])
        assert np.allclose(found, numbers.T, atol=1e-9)
    assert len(set(local.trace["eta"].ravel())) == 12


def test_the_controller_reads_the_summary_of_the_unfold_before():
    fed = federation(unfolds=3)
    _, local = train_all(fed, LEARNED, 1)
    batch, change, moved = fed.batch(1), np.zeros(3), np.zeros(3)
    for k in range(3):
        told = Summary(np.ones(3), 1 - change, np.ones(3), np.outer(moved, np.eye(8)[0]))
        z = psi(k / 3, 1 / 2, told, batch.data_fraction, batch.heterogeneity)
        eta, delta = gamma(z, LEARNED, fed.config.eta_bounds, fed.config.delta_bounds)
        assert np.allclose(local.trace["eta"][:, k], eta, rtol=1e-12, atol=0)
        assert np.allclose(local.trace["delta"][:, k], delta, rtol=1e-12, atol=0)
        before, after = local.trace["loss_before"][:, k], local.trace["loss_after"][:, k]
        change, moved = (before - after) / before, local.trace["displacement"][:, k]


@pytest.mark.parametrize("shots", [None, 256])
def test_the_loss_before_an_unfold_is_measured_afresh(shots):
    """Line 8 measures the point that line 10 of the unfold before measured: other shots, the same exact value."""
    _, local = train_all(federation(unfolds=3, shots=shots))
    for name in ("loss", "task_loss"):
        before, after = local.trace[f"{name}_before"][:, 1:], local.trace[f"{name}_after"][:, :-1]
        assert np.array_equal(before, after) == (shots is None)
        assert np.abs(before - after).max() < 0.1


def test_standardised_features_change_the_rates_of_a_learned_controller_and_not_of_a_new_one():
    fed = federation(unfolds=3, controller_features="standardised")
    raw_fed = federation(unfolds=3)
    same = [train_all(f, PHI)[1].trace["eta"] for f in (fed, raw_fed)]
    other = [train_all(f, LEARNED)[1].trace["eta"] for f in (fed, raw_fed)]
    assert np.array_equal(*same)
    assert not np.isclose(*other).any()


@pytest.mark.parametrize("name", ["default-qfl", "fedprox-qfl"])
def test_a_baseline_with_fixed_rates_is_one_plain_spsa_block(name):
    mu = 0.3
    fixed = {"default_spsa": "fixed", "fedprox_spsa": "fixed"}
    fed = federation(method=METHODS[name], mu=mu, **fixed)
    _, local = train_all(fed)
    plain = federation(method=METHODS["duqfl-last"], unfolds=1, spsa_iterations=fed.blocks[1], mu=mu)
    if name == "fedprox-qfl":
        plain = federation(
            method=replace(METHODS["duqfl-last"], proximal=True), unfolds=1, spsa_iterations=fed.blocks[1], mu=mu
        )
    assert np.array_equal(local.theta, train_all(plain)[1].theta)
    assert np.allclose(local.trace["eta"], 0.13)
    assert set(local.circuits) == {"train", "calibration", "monitor", "validation"}
    assert local.circuits["calibration"] == 0


def test_adam_keeps_its_moments_from_round_to_round_only_if_asked():
    settings = {"method": METHODS["adam-qfl"], "adam_rates": (0.1,), "adam_steps": 2, "shots": None, "rounds": 2}
    runs = {kept: list(train(federation(adam_moments=kept, **settings))) for kept in ("kept", "forgotten")}
    theta = {kept: [np.array(r["state"]["theta"]) for r in records] for kept, records in runs.items()}
    assert np.array_equal(theta["kept"][1], theta["forgotten"][1])
    assert not np.allclose(theta["kept"][2], theta["forgotten"][2], atol=1e-6)
    assert runs["kept"][2]["state"]["memory"]["taken"] == [4.0] * 3
    assert set(runs["forgotten"][2]["state"]["memory"]) == {"rate"}


def test_an_untrained_federation_keeps_its_initial_weights_and_executes_no_training_circuit():
    fed = federation(method=method_named("untrained"))
    records = list(train(fed))
    for record in records[1:]:
        assert np.allclose(record["state"]["theta"], fed.initial_theta(), atol=1e-14)
        assert record["global_accuracies"][0]["circuits_train"] == 0
        assert record["global_accuracies"][0]["drift_from_broadcast"] < 1e-14


def test_recall_in_the_trace_is_the_share_of_positive_test_samples_found():
    fed = federation(method=METHODS["duqfl-last"], unfolds=2, shots=None)
    _, local = train_all(fed)
    encoded, y = fed.model.engine.encode(raw(fed).test.X), raw(fed).test.y
    for i in range(3):
        p = fed.model.engine.probabilities(encoded, local.theta[i])
        assert local.trace["test_recall"][i, -1] == pytest.approx((p[y == 1] >= 0.5).mean())


def test_local_training_lowers_the_penalised_loss():
    _, local = train_all(federation(unfolds=5, spsa_iterations=10, shots=None))
    assert (local.trace["loss_after"][:, -1] < local.trace["loss_before"][:, 0]).all()


def test_the_trace_scores_every_unfold_on_the_clients_own_parts():
    fed = federation(method=METHODS["duqfl-last"], unfolds=3, shots=None, client_test="split")
    _, local = train_all(fed)
    held = fed.schedule.round(0)
    for i in range(3):
        for part, rows in (("train", held[i].train), ("val", held[i].val), ("test", held[i].test)):
            split = raw(fed).parts["test" if part == "test" else "train"]
            p = fed.model.engine.probabilities(fed.model.engine.encode(split.X[rows]), local.theta[i])
            accuracy = np.mean((p >= 0.5) == split.y[rows])
            assert local.trace[f"{part}_accuracy"][i, -1] == pytest.approx(accuracy, abs=1e-12), part


def test_losses_under_shots_use_the_rule_of_half_a_shot():
    assert federation(shots=64).model.margin == 1 / 128
    assert federation(shots=None).model.margin == 1e-12
    fed = federation(shots=64)
    train = fed.batch(0).train
    never = cross_entropy(np.zeros((1, len(train.y))), train.y, fed.model.margin)
    share = [part.mean() for part in np.split(train.y, np.cumsum(train.sizes)[:-1])]
    assert np.allclose(train.means(never)[:, 0], np.log(128) * np.array(share))


def test_every_client_and_round_has_directions_of_its_own(monkeypatch):
    asked = []

    def watched(theta, loss, iterations, seeds):
        asked.extend((iterations, seed) for seed in seeds)
        return theta, np.full(len(theta), 0.1)

    monkeypatch.setattr(optimizers, "calibrated_spsa", watched)
    fed = federation(method=METHODS["default-qfl"])
    for t in (0, 1):
        train_all(fed, t=t)
        train_all(fed, t=t, purpose="virtual")
    assert len({seed for _, seed in asked}) == 12
    assert {iterations for iterations, _ in asked} == {4}
    drawn = [rng.integers(1 << 40) for t in (0, 1) for rng in fed.generators("round-directions", t, np.arange(3))]
    assert len(set(drawn)) == 6


# What is uploaded


@pytest.mark.parametrize("seed", range(4))
def test_upload_is_the_validation_best_unfold(seed):
    fed = federation(unfolds=6, spsa_iterations=1, shots=None, learning_rate=0.9, seed=seed)
    _, local = train_all(fed)
    val = fed.batch(0).val
    reached = fed.model.means(val, local.theta[:, None], None, cross_entropy)[0][:, 0]
    assert np.array_equal(reached, local.trace["val_loss"].min(axis=1))
    assert np.array_equal(local.trace["val_loss"][np.arange(3), local.selected - 1], reached)


def test_upload_is_never_unfold_0_even_where_training_harms():
    harmed = 0
    for seed in range(6):
        fed = federation(unfolds=2, spsa_iterations=1, shots=None, learning_rate=1.0, seed=seed)
        theta, local = train_all(fed)
        val = fed.batch(0).val
        start = fed.model.means(val, np.tile(theta, (3, 1, 1)), None, cross_entropy)[0][:, 0]
        harmed += int((start < local.trace["val_loss"].min(axis=1)).sum())
        assert local.selected.min() >= 1
        assert not (local.theta == theta).all(axis=1).any()
    assert harmed > 0


def test_the_best_unfold_is_not_always_the_last():
    chosen = [train_all(federation(unfolds=5, seed=seed))[1].selected for seed in range(4)]
    assert len(set(np.concatenate(chosen))) > 1


def test_a_tie_is_won_by_the_first_unfold():
    assert select(np.array([[0.3, 0.2, 0.2], [0.1, 0.1, 0.1], [0.3, 0.2, 0.1]]), best=True).tolist() == [2, 1, 3]


def test_without_selection_the_last_unfold_is_uploaded():
    assert select(np.array([[0.1, 0.2, 0.3]]), best=False).tolist() == [3]
    fed = federation(method=METHODS["duqfl-last"], unfolds=4)
    assert train_all(fed)[1].selected.tolist() == [4, 4, 4]


def test_mu_0_without_selection_equals_duqfl_last():
    stripped = dataclasses.replace(METHODS["duqfl-prox"], best_unfold=False)
    settings = {"unfolds": 4, "outer_period": 1}
    last = told(federation(method=METHODS["duqfl-last"], **settings))
    assert told(federation(method=stripped, mu=0, **settings)) == last
    assert told(federation(method=stripped, mu=0.5, **settings)) != last
    assert told(federation(method=METHODS["duqfl-prox"], mu=0, **settings)) != last


def test_with_one_unfold_best_equals_last():
    best, last = (
        told(federation(method=METHODS[name], unfolds=1, outer_period=1)) for name in ("duqfl-best", "duqfl-last")
    )
    assert best == last


def test_task_and_penalised_losses_differ_by_the_penalty():
    last = dataclasses.replace(METHODS["duqfl-prox"], best_unfold=False)
    for method in (last, METHODS["fedprox-qfl"]):
        theta, local = train_all(federation(method=method, mu=0.7, unfolds=3))
        trace = local.trace
        penalty = 0.5 * 0.7 * np.cumsum((local.theta - theta) ** 2, axis=1)[:, -1]  # added from the first to the last
        assert np.array_equal(trace["loss_after"][:, -1], trace["task_loss_after"][:, -1] + penalty)
        assert (penalty > 0).all()
        assert np.array_equal(trace["loss_before"][:, 0], trace["task_loss_before"][:, 0])


@pytest.mark.parametrize("name", ["default-qfl", "adam-qfl", "duqfl-last", "duqfl-best", "duqfl-drift"])
def test_without_the_term_both_losses_are_one(name):
    _, local = train_all(federation(method=METHODS[name], mu=0.7))
    assert np.array_equal(local.trace["loss_before"], local.trace["task_loss_before"])
    assert np.array_equal(local.trace["loss_after"], local.trace["task_loss_after"])


# Projection (T1)

STEPS = arrays(float, (3, 5), elements=st.floats(-100, 100))


@given(STEPS, STEPS, st.floats(1e-3, 50))
def test_projection_holds_every_step_inside_the_ball_and_keeps_its_direction(start, end, radius):
    held, clipped = project(start, end, radius)
    raw, moved = np.linalg.norm(end - start, axis=1), np.linalg.norm(held - start, axis=1)
    assert np.allclose(moved, np.minimum(raw, radius), rtol=1e-9, atol=1e-9)
    assert np.array_equal(held[~clipped], end[~clipped])
    assert (raw[clipped] > radius * (1 - 1e-12)).all()
    assert (raw[~clipped] <= radius * (1 + 1e-12)).all()
    along = ((held - start) * (end - start)).sum(axis=1)
    assert np.allclose(along, moved * raw, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("best", [True, False])
def test_projection_bounds_the_rounds_drift_by_k_times_r(best):
    method = dataclasses.replace(METHODS["duqfl-drift"], best_unfold=best)
    fed = federation(method=method, unfolds=5, learning_rate=1.0, drift_radius=0.05)
    theta, local = train_all(fed)
    assert (np.linalg.norm(local.theta - theta, axis=1) <= 5 * 0.05 + 1e-12).all()
    assert (local.trace["displacement"] <= 0.05 + 1e-12).all()
    assert local.trace["clipped"].all()


def test_a_step_inside_the_ball_is_not_touched():
    wide = train_all(federation(method=METHODS["duqfl-drift"], drift_radius=1e3))[1]
    free = train_all(federation(method=METHODS["duqfl-best"]))[1]
    assert not wide.trace["clipped"].any()
    assert np.array_equal(wide.theta, free.theta)


def test_the_trace_tells_which_steps_were_cut():
    fed = federation(method=METHODS["duqfl-drift"], unfolds=6, drift_radius=0.3)
    clipped, displacement = (train_all(fed)[1].trace[name] for name in ("clipped", "displacement"))
    assert 0 < clipped.sum() < clipped.size
    assert np.allclose(displacement[clipped], 0.3)
    assert (displacement[~clipped] <= 0.3).all()


# Bits, records and budget


@pytest.mark.parametrize("shots", [64, None])
@pytest.mark.parametrize("name", METHOD_NAMES)
def test_one_client_alone_gives_the_same_bits_as_in_a_batch(name, shots):
    fed = federation(method=METHODS[name], chunk=40, clients=4, shots=shots, mu=0.3)
    _, together = train_all(fed, LEARNED, 1)
    for i in range(4):
        _, alone = train_all(fed, LEARNED, 1, [i])
        assert np.array_equal(alone.theta[0], together.theta[i])
        assert alone.selected[0] == together.selected[i]
        for column in TRACE:
            assert np.array_equal(alone.trace[column][0], together.trace[column][i], equal_nan=True), column


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_trace_has_every_column_for_every_client_and_unfold(name):
    fed = federation(method=METHODS[name], unfolds=3)
    _, local = train_all(fed)
    assert set(local.trace) == set(TRACE)
    blocks = 3 if METHODS[name].unfolded else 1
    assert {values.shape for values in local.trace.values()} == {(3, blocks)}


def test_a_virtual_round_does_not_touch_the_test_set():
    _, local = train_all(federation(), purpose="virtual")
    assert set(TRACE) - set(local.trace) == {"test_accuracy", "test_recall"}


class CountingEngine:
    """Another engine's numbers, with a count of the circuits behind them."""

    def __init__(self, engine):
        self.engine, self.name, self.shots, self.num_weights = engine, engine.name, engine.shots, engine.num_weights
        self.circuits, self.noiseless = 0, None

    def exact(self):
        self.noiseless = CountingEngine(self.engine.exact())
        return self.noiseless

    def probabilities(self, encoded, weights, rng=None):
        self.circuits += len(encoded) * len(np.atleast_2d(weights))
        return self.engine.probabilities(encoded, weights, rng)

    def probabilities_ragged(self, encoded, weights, rngs=None):
        self.circuits += sum(len(part) for part in encoded) * weights.shape[1]
        return self.engine.probabilities_ragged(encoded, weights, rngs)

    def gradient(self, encoded, weights):
        self.circuits += 2 * len(weights) * len(encoded)
        return self.engine.gradient(encoded, weights)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_counted_circuits_are_those_that_were_run(name):
    fed = federation(method=METHODS[name], unfolds=3, spsa_iterations=10)
    engine = CountingEngine(fed.model.engine)
    counted = dataclasses.replace(fed, model=dataclasses.replace(fed.model, engine=engine))
    _, local = train_all(counted, purpose="virtual")
    exact = engine.noiseless.circuits if engine.noiseless else 0
    assert (exact > 0) == (name == "adam-qfl")
    assert sum(local.circuits.values()) == engine.circuits + exact


@pytest.mark.parametrize("name", METHOD_NAMES)
@pytest.mark.parametrize("iterations", [9, 20])
def test_every_method_has_the_same_training_budget(name, iterations):
    fed = federation(method=METHODS[name], unfolds=2, spsa_iterations=iterations)
    spent = train_all(fed)[1].circuits
    samples = len(fed.batch(0).train.y)
    budget = 2 * 2 * iterations * samples
    step = (2 * fed.num_weights + 1) * samples
    if name == "adam-qfl":
        assert budget - step < spent["train"] <= budget
    else:
        assert spent["train"] == budget
    assert spent["calibration"] == (50 * samples if name in ("default-qfl", "fedprox-qfl") else 0)
