"""Algorithm 2: who takes part, how uploads become one model, and how that model is judged."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from planted import federation, raw, start

from qfl_core.algorithm import server
from qfl_core.algorithm.hooks import SAMPLE_SIZE
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import State, aggregate, evaluate_global, federated_round, tune
from qfl_core.base.errors import DataError
from qfl_core.runs.experiment import train


def aggregation_weights(sizes):
    nobody = np.zeros(len(sizes))
    return SAMPLE_SIZE(Attendance(0, np.arange(len(sizes)), sizes, nobody, nobody), {})


def one_round(fed, t=0, **options):
    return federated_round(fed, start(fed, t), **options)


# Aggregation (lines 5 and 6)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_weights_are_sample_sizes_over_their_sum(sizes):
    weights = aggregation_weights(np.array(sizes))
    assert np.allclose(weights, [n / sum(sizes) for n in sizes], rtol=1e-15)
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(arrays(float, (4, 6), elements=st.floats(-10, 10)), st.lists(st.integers(1, 99), min_size=4, max_size=4))
def test_the_global_model_is_the_weighted_mean_of_the_uploads(uploads, sizes):
    found = aggregate(uploads, aggregation_weights(np.array(sizes)), np.arange(4))
    assert np.allclose(found, np.average(uploads, axis=0, weights=sizes), rtol=0, atol=1e-13)


@given(arrays(float, (1, 6), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_one_client_aggregates_to_itself(upload):
    assert np.array_equal(aggregate(upload, aggregation_weights(np.array([17])), np.array([3])), upload[0])


def test_a_federation_of_one_client_takes_over_its_upload():
    result = one_round(federation(clients=1))
    assert np.array_equal(result.state.theta, result.local.theta[0])


@pytest.mark.parametrize("name", METHODS)
def test_a_round_aggregates_the_selected_uploads_by_sample_size(name):
    fed = federation(method=METHODS[name])
    result = one_round(fed)
    sizes = [len(data.train) for data in fed.schedule.round(0)]
    assert len(set(sizes)) > 1
    assert np.allclose(result.weights, np.array(sizes) / sum(sizes), rtol=1e-15)
    assert np.allclose(result.state.theta, np.average(result.local.theta, axis=0, weights=sizes), atol=1e-13)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_upload_that_is_not_finite_is_refused_with_the_client_named(value):
    uploads = np.zeros((3, 4))
    uploads[1, 2] = value
    with pytest.raises(DataError, match="client 7 uploaded weights that are not finite"):
        aggregate(uploads, np.full(3, 1 / 3), np.array([2, 7, 9]))


def test_a_round_with_a_nan_upload_stops(monkeypatch):
    train_locally = server.train_locally

    def broken(*arguments):
        local = train_locally(*arguments)
        theta = local.theta.copy()
        theta[2, 0] = np.nan
        return dataclasses.replace(local, theta=theta)

    monkeypatch.setattr(server, "train_locally", broken)
    with pytest.raises(DataError, match="client 2 "):
        one_round(federation())


def test_drift_is_the_mean_distance_of_the_uploads_from_the_broadcast_model_and_spread_from_their_aggregate():
    fed = federation()
    result, record = one_round(fed), list(train(fed))[1]
    centres = {"drift_from_broadcast": fed.initial_theta(), "upload_spread": result.state.theta}
    for name, centre in centres.items():
        distances = [np.linalg.norm(upload - centre) for upload in result.local.theta]
        assert record["global_accuracies"][0][name] == pytest.approx(np.mean(distances), abs=1e-12)
    assert record["state"]["theta"] == result.state.theta.tolist()


# Participation: S(t)


def test_everyone_takes_part_by_default():
    fed = federation(clients=5)
    assert fed.participants(0).tolist() == fed.batch(1).client_ids.tolist() == [0, 1, 2, 3, 4]


def test_a_share_is_drawn_anew_every_round():
    fed = federation(clients=10, rounds=8, participation=0.3)
    drawn = [fed.participants(t).tolist() for t in range(8)]
    for clients in drawn:
        assert len(set(clients)) == 3
        assert clients == sorted(clients)
        assert set(clients) <= set(range(10))
    assert len({tuple(clients) for clients in drawn}) > 1


def test_a_draw_is_decided_by_seed_and_round_alone():
    settings = {"clients": 10, "rounds": 8, "participation": 0.3}
    fed, again, other = (federation(seed=seed, **settings) for seed in (0, 0, 1))
    backwards = [again.participants(t).tolist() for t in reversed(range(8))][::-1]
    assert [fed.participants(t).tolist() for t in range(8)] == backwards
    assert [other.participants(t).tolist() for t in range(8)] != backwards


def test_at_least_one_client_takes_part():
    assert len(federation(participation=0.01).participants(0)) == 1


def test_a_list_names_the_clients_of_every_round():
    fed = federation(clients=5, participation=[4, 1])
    for t in range(2):
        result = one_round(fed, t)
        assert result.attendance.client_ids.tolist() == [1, 4]
        assert len(result.weights) == 2


def test_fractions_and_label_mixes_refer_to_those_who_take_part():
    fed = federation(clients=5, participation=[1, 4])
    held, y = fed.schedule.round(0), raw(fed).train.y
    rows = [held[i].train for i in (1, 4)]
    batch = fed.batch(0)
    assert np.allclose(batch.data_fraction, [len(r) / sum(map(len, rows)) for r in rows])
    everyone = y[np.concatenate(rows)].mean()
    assert np.allclose(batch.heterogeneity, [abs(y[r].mean() - everyone) for r in rows])


def test_a_client_trains_on_its_own_rows():
    fed = federation()
    batch, held = fed.batch(1), fed.schedule.round(1)
    for part, split in (("train", "train"), ("val", "train"), ("test", "test")):
        samples = getattr(batch, part)
        rows = [getattr(data, part) for data in held]
        assert samples.sizes.tolist() == [len(r) for r in rows]
        assert np.array_equal(samples.y, raw(fed).parts[split].y[np.concatenate(rows)])
        p = fed.model.engine.encode(raw(fed).parts[split].X[rows[2]]).rows
        assert np.array_equal(samples.encoded[2].rows[: len(rows[2])], p[: len(rows[2])])


def test_means_are_taken_client_by_client():
    fed = federation()
    train = fed.batch(0).train
    values = np.random.default_rng(0).normal(size=(2, len(train.y)))
    edges = np.cumsum(train.sizes)[:-1]
    expected = np.array([[part.mean() for part in np.split(row, edges)] for row in values]).T
    assert np.allclose(train.means(values), expected, atol=1e-14)


# The meta-loss (line 7)


@pytest.mark.parametrize("name", ["duqfl-prox", "default-qfl"])
def test_the_meta_loss_is_the_sum_of_its_four_terms(name):
    weights = {"lambda_fair": 0.3, "lambda_comm": 0.05, "lambda_stab": 0.7}
    fed = federation(
        method=METHODS[name], clients=5, participation=[0, 1, 2, 4], unfolds=4, shots=None, chunk=20, **weights
    )
    result = one_round(fed)

    def p(part, rows=slice(None)):
        X = raw(fed).parts[part].X[rows]
        scores = fed.model.engine.probabilities(fed.model.engine.encode(X), result.state.theta)
        return scores, raw(fed).parts[part].y[rows]

    scores, y = p("val")
    val_loss = -np.mean(y * np.log(scores) + (1 - y) * np.log(1 - scores))
    held = fed.schedule.round(0)
    accuracies = []
    for i in (0, 1, 2, 4):
        scores, y = p("train", held[i].val)
        accuracies.append(np.mean((scores >= 0.5) == y))
    fair = np.percentile(accuracies, 90) - np.percentile(accuracies, 10)
    comm = (4 + 4) * 8 / (2 * 5 * 8)  # down and up for four of five clients
    trace = result.local.trace
    stab = np.mean([np.std(trace["loss_after"][i] - trace["loss_before"][i]) for i in range(4)])
    found = result.meta
    assert (found.val_loss, found.fair, found.comm, found.stab) == pytest.approx(
        (val_loss, fair, comm, stab), abs=1e-12
    )
    assert found.total == pytest.approx(val_loss + 0.3 * fair + 0.05 * comm + 0.7 * stab, abs=1e-12)
    assert fair > 0
    assert (stab > 0) == METHODS[name].unfolded


def test_validation_is_scored_by_log_loss_whatever_the_training_loss():
    fed = federation(loss="squared_error", shots=None)
    result = one_round(fed)
    p, y = fed.model.engine.probabilities(fed.splits["val"].encoded, result.state.theta), raw(fed).val.y
    assert result.meta.val_loss == pytest.approx(-np.mean(np.log(np.where(y == 1, p, 1 - p))), abs=1e-12)


def test_the_global_model_is_scored_on_every_part():
    fed = federation()
    found = evaluate_global(fed, fed.initial_theta(), 0)
    assert {part: len(p) for part, p in found.items()} == {"train": 160, "val": 40, "test": 30}
    exact = evaluate_global(federation(shots=None), fed.initial_theta(), 0)
    for part, p in found.items():
        assert np.array_equal(p * 64, np.round(p * 64))
        assert np.abs(p - exact[part]).max() < 0.35


# Adam's learning rate


def test_adams_rate_is_the_candidate_of_lowest_validation_loss():
    rates = (1e-4, 0.03, 0.3, 3.0)
    picked = set()
    for seed in range(4):
        fed = federation(method=METHODS["adam-qfl"], adam_rates=rates, spsa_iterations=20, seed=seed)
        losses = [federated_round(fed, start(fed, rate=rate), purpose="tuning").meta.val_loss for rate in rates]
        tuned, circuits = tune(fed, State.initial(fed))
        (rate,) = set(tuned.memory["rate"])
        assert rate == rates[losses.index(min(losses))]
        assert circuits == 4 * sum(one_round(fed).local.circuits.values())
        picked.add(rate)
    assert len(picked) > 1


def test_tuning_does_not_depend_on_the_order_of_the_candidates():
    rates = (0.01, 0.1, 0.5)
    found = {
        tune(fed, State.initial(fed))[0].memory["rate"][0]
        for fed in (federation(method=METHODS["adam-qfl"], adam_rates=order) for order in (rates, rates[::-1]))
    }
    assert len(found) == 1


@pytest.mark.parametrize("name", [name for name in METHODS if name != "adam-qfl"])
def test_other_methods_tune_nothing(name):
    fed = federation(method=METHODS[name])
    untouched = State.initial(fed)
    assert tune(fed, untouched) == (untouched, 0)


# Bits


@pytest.mark.parametrize("name", METHODS)
def test_a_round_is_decided_by_its_seed(name):
    first, again, other = (one_round(federation(method=METHODS[name], seed=seed)) for seed in (0, 0, 1))
    assert np.array_equal(first.state.theta, again.state.theta)
    assert first.meta.total == again.meta.total
    assert not np.array_equal(first.state.theta, other.state.theta)


def test_rounds_of_one_seed_draw_different_data_and_directions():
    fed = federation()
    assert not np.array_equal(one_round(fed, 0).state.theta, one_round(fed, 1).state.theta)


def test_initial_weights_are_uniform_in_their_range():
    theta = np.array([federation(seed=seed, initial_range=0.5).initial_theta() for seed in range(40)])
    assert theta.min() < -0.4
    assert theta.max() > 0.4
    assert np.abs(theta).max() <= 0.5
