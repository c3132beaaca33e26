"""Bad clients and what stands against them: rules beside Flower's, screening that spares honest runs, attacks."""

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from planted import federation, planted_splits, small

from qfl_core.algorithm.client import Broadcast, train_locally
from qfl_core.algorithm.controller import initial_phi
from qfl_core.algorithm.hooks import weighted_sum
from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.algorithm.server import IN_PROCESS, InProcess, State, federated_round
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import AGGREGATIONS, ATTACKS
from qfl_core.config import load_profile
from qfl_core.extras import attacks, screening
from qfl_core.extras.attacks import Attacked, attacked, bad_clients
from qfl_core.extras.robust import ClippedMean, Krum, Median, MultiKrum, TrimmedMean, with_rule
from qfl_core.extras.screening import STEP, UNSTEADINESS, screened
from qfl_core.network.ranges import check_trace
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_federation, prepare
from qfl_core.runs.run import run_experiment

MEAN = METHODS["duqfl-prox"].aggregation


def told(fed, trainer=IN_PROCESS) -> list[str]:
    """Return a run's records as text, without timings."""
    records = (record | {"seconds": 0} for record in train(fed, trainer=trainer))
    return [json.dumps(record, default=lambda value: value.item(), sort_keys=True) for record in records]


@dataclasses.dataclass
class Forging(InProcess):
    """Trains in this process, then lets a function change what comes up; it counts the broadcasts."""

    change: object
    transport = "in-process"

    def train(self, fed, sent):
        return self.change(super().train(fed, sent), sent)


# Rules, beside Flower's strategies


@st.composite
def uploads(draw):
    """Draw uploads (clients, P), sample sizes, and the share of bad clients; some uploads are equal."""
    clients, width = draw(st.integers(5, 15)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = rng.normal(size=(clients, width)) * 10.0 ** draw(st.integers(-3, 2))
    return found, rng.integers(1, 200, clients), draw(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4]))


def flowers(strategy, found, sizes):
    """Return what a Flower strategy makes of uploads."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower sets them
    replies = []
    for node, (upload, size) in enumerate(zip(found, sizes, strict=True), start=1):
        content = {
            "arrays": ArrayRecord({"theta": Array(upload)}),
            "metrics": MetricRecord({"num-examples": int(size)}),
        }
        replies.append(Message(RecordDict(content), reply_to=Message(RecordDict({}), node, "train")))
    return strategy.aggregate_train(1, replies)[0]["theta"].numpy()


RULES = {
    "FedMedian": (Median, lambda n, f: {}),
    "FedTrimmedAvg": (TrimmedMean, lambda n, f: {"beta": f / n + 1e-9}),
    "Krum": (Krum, lambda n, f: {"num_malicious_nodes": f}),
    "MultiKrum": (MultiKrum, lambda n, f: {"num_malicious_nodes": f, "num_nodes_to_select": n - f}),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=30)
@given(drawn=uploads())
def test_the_rules_are_flowers(name, drawn):
    pytest.importorskip("flwr")
    from flwr.serverapp import strategy

    found, sizes, tolerated = drawn
    rule, options = RULES[name][0](tolerated), RULES[name][1]
    theirs = getattr(strategy, name)(**options(len(found), rule.bad(len(found))))
    scale = np.abs(found).max()
    if name == "MultiKrum":  # where the last chosen and the first left out tie, either choice is right
        scores = np.sort([krum_score(found, upload, rule.bad(len(found))) for upload in found])
        first_out = len(found) - rule.bad(len(found))
        assume(first_out == len(found) or scores[first_out] - scores[first_out - 1] > 1e-6 * scale**2)
    ours, expected = rule(found, sizes / sizes.sum()), flowers(theirs, found, sizes)
    if name == "Krum":  # two uploads that are each other's nearest have equal scores, and either may be chosen
        ours, expected = (krum_score(found, upload, rule.bad(len(found))) for upload in (ours, expected))
        scale = scale**2
    assert np.allclose(ours, expected, rtol=1e-9, atol=1e-9 * scale)


def krum_score(found: np.ndarray, upload: np.ndarray, bad: int) -> float:
    """Return the sum of squared distances from an upload to its n - f - 2 nearest others; the lowest is chosen."""
    distances = np.sort(((found - upload) ** 2).sum(axis=1))
    return distances[1 : 1 + max(1, len(found) - bad - 2)].sum()


@pytest.mark.parametrize(
    "rule", [Median(0.4), TrimmedMean(0.4), Krum(0.4), MultiKrum(0.4)], ids=lambda r: type(r).__name__
)
def test_two_wild_uploads_of_five_do_not_move_a_rule_out_of_the_others(rule):
    honest = np.random.default_rng(3).normal(size=(3, 4))
    found = rule(np.concatenate([honest, [[1e9] * 4, [-1e9] * 4]]), np.full(5, 0.2))
    assert (found <= honest.max(axis=0) + 1e-12).all()
    assert (found >= honest.min(axis=0) - 1e-12).all()


def test_a_rule_that_bears_nobody_is_the_mean_or_the_closest_upload():
    found, weights = np.random.default_rng(4).normal(size=(6, 3)), np.array([0.3, 0.1, 0.2, 0.1, 0.1, 0.2])
    assert np.allclose(TrimmedMean(0.0)(found, weights), found.mean(axis=0), atol=1e-15)
    assert np.array_equal(MultiKrum(0.0)(found, weights), weighted_sum(found, weights / weights.sum()))
    assert np.array_equal(ClippedMean()(found, weights), weighted_sum(found, weights))


def test_a_share_of_clients_is_counted_without_rounding_errors():
    assert [Median(0.29).bad(100), Median(0.3).bad(10), Median(0.1).bad(9), Median(0.0).bad(9)] == [29, 3, 0, 0]


@pytest.mark.parametrize("name", [name for name in AGGREGATIONS if name != "own"])
def test_the_config_names_the_rule_and_everything_else_of_the_method_stays(name):
    fed = prepare(small(aggregation=name, tolerated=0.4), planted_splits()).federation
    rule = fed.method.aggregation.combine
    assert rule.tolerated == 0.4
    own = dataclasses.replace(fed.method, aggregation=METHODS["duqfl-prox"].aggregation)
    assert own == METHODS["duqfl-prox"].configured(fed.config)
    assert fed.method.aggregation.weights is MEAN.weights


def test_own_is_the_methods_rule_to_the_bit():
    assert with_rule(METHODS["duqfl-prox"], small()) is METHODS["duqfl-prox"]


def test_learned_weights_need_a_rule_that_uses_them():
    learned = method_named("duqfl-learned")
    for name in ("multi-krum", "clipped-mean"):
        assert with_rule(learned, small(method="duqfl-learned", aggregation=name)).aggregation.init(3)
    with pytest.raises(ConfigError, match="aggregation='median' .*multi-krum, clipped-mean for method='duqfl-learned'"):
        small(method="duqfl-learned", aggregation="median")
    with pytest.raises(ConfigError, match="'median' does not use the weights that method='duqfl-prox' learns"):
        make_federation(small(aggregation="median"), planted_splits(), learned)  # a method of one's own


@pytest.mark.parametrize(
    "setting",
    [
        {"aggregation": "mode"},
        {"tolerated": 0.5},
        {"screening": 1.9},
        {"screening": "10"},
        {"attack": "bribe"},
        {"attackers": 1.1},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_by_its_name(setting):
    with pytest.raises(ConfigError, match=f"{next(iter(setting))}="):
        small(**setting)


# Screening


@pytest.mark.parametrize("method", [*METHODS, "scaffold-qfl", "duqfl-learned"])
def test_honest_runs_keep_their_bits(method, monkeypatch):
    """With and without the screen, a run tells the same; the profile's settings are those of the paper's tracks."""
    paper = load_profile("paper")
    configs = [paper.config(track, seed=7, rounds=3, method=method, chunk=20) for track in ("baf", "genome")]
    small_ones = [c.replace(train_size=400, val_size=100, test_size=100, source="stand-in") for c in configs]
    with_screen = [told(prepare(config).federation) for config in small_ones]
    monkeypatch.setattr("qfl_core.runs.experiment.Screened", lambda trainer: trainer)
    assert [told(prepare(config).federation) for config in small_ones] == with_screen


def far(client, **changes):
    """Return a change of what one client uploads: new weights, or the trace columns by name."""

    def change(local, sent):
        theta, trace = local.theta.copy(), {name: values.copy() for name, values in local.trace.items()}
        row = np.flatnonzero(local.attendance.client_ids == client)[0]
        for name, value in changes.items():
            if name == "theta":
                theta[row] = value
            else:
                trace[name][row] = value
        return dataclasses.replace(local, theta=theta, trace=trace)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"theta": 1e6}, "step 2.828e\\+06, more than the .* that its round allows"),
        ({"theta": 1e149}, "step 2.828e\\+149"),
        ({"loss_after": [0.0, 1e3], "loss_before": 0.0}, "unsteadiness of its losses 500"),
        ({"loss_after": [0.0, 1e200], "loss_before": 0.0}, "unsteadiness of its losses inf"),
    ],
    ids=["weights", "huge weights", "losses", "huge losses"],
)
def test_an_absurd_upload_is_left_out_and_recorded_in_every_round(change, reason):
    records = list(train(federation(clients=4, outer_period=1), trainer=Forging(far(2, **change))))
    for record in records[1:]:
        (excluded,) = record["exclusions"]
        assert excluded["client"] == 2
        assert re.match(reason, excluded["reason"])
        assert {row["client"] for row in record["client_trace"]} == {0, 1, 3}
    assert np.abs(records[-1]["state"]["theta"]).max() < 10
    assert np.isfinite(records[-1]["state"]["phi"]["controller"]).all()


def test_what_is_left_out_leaves_the_aggregate_of_the_others():
    """The new model is the weighted mean of the other uploads, and the server optimiser's memory has no part of it."""
    fed = federation(clients=4)
    start = State.initial(fed)
    honest = federated_round(fed, start)
    found = federated_round(fed, start, screening.Screened(Forging(far(1, theta=1e6))))
    keep = np.array([True, False, True, True])
    sizes = honest.attendance.sizes[keep]
    assert np.array_equal(found.state.theta, weighted_sum(honest.local.theta[keep], sizes / sizes.sum()))
    assert np.array_equal(found.weights, sizes / sizes.sum())
    assert found.local.circuits == honest.local.circuits


def test_an_absurd_state_is_left_out_and_the_old_one_stays():
    def change(local, sent):
        state = {name: values.copy() for name, values in local.state.items()}
        state["pull"][1] = 1e9
        return dataclasses.replace(local, state=state)

    fed = federation(method=method_named("scaffold-qfl"), clients=4)
    *_, last = train(fed, trainer=Forging(change))
    variates = np.array(last["state"]["memory"]["variates"])
    assert not variates[1].any()
    assert variates[[0, 2, 3]].any(axis=1).all()
    assert [row["client"] for row in last["exclusions"]] == [1]
    assert last["exclusions"][0]["reason"].startswith("state pull")


def local_of(**changes):
    """Return honest uploads of one round and their broadcast."""
    fed = federation(**{"clients": 5} | changes)
    sent = Broadcast(0, fed.initial_theta(), initial_phi(0.13, 0.13))
    return fed, sent, train_locally(fed, sent, fed.batch(0))


def test_screening_compares_with_the_median_of_the_round():
    fed, sent, local = local_of(screening=10.0)
    lengths = screening.sizes(local, sent.theta)[STEP]
    middle = np.median(lengths)
    step = (local.theta[0] - sent.theta) / lengths[0]
    for times, clients in ((9.9, [0, 1, 2, 3, 4]), (10.1, [1, 2, 3, 4])):
        # The first step becomes the longest, so the median may move to its neighbour: take the one with it.
        moved = dataclasses.replace(local, theta=np.concatenate([[sent.theta], local.theta[1:]]))
        moved.theta[0] = sent.theta + 1e3 * step
        middle = np.median(screening.sizes(moved, sent.theta)[STEP])
        moved.theta[0] = sent.theta + times * middle * step
        found = screened(fed.config, sent, moved)
        assert found.attendance.client_ids.tolist() == clients
        assert screened(fed.config.replace(screening=None), sent, moved) is moved


def test_where_nobody_moves_nobody_is_far():
    fed, sent, local = local_of(screening=2.0)
    still = dataclasses.replace(local, theta=np.repeat(sent.theta[None], 5, axis=0))
    still.theta[0] += 1e-3
    steady = dataclasses.replace(still, trace=still.trace | {"loss_after": still.trace["loss_before"]})
    assert screened(fed.config, sent, steady) is steady


def test_several_quantities_together_never_leave_nobody():
    """Of three clients, one has the longest step and another the most unsteady losses."""
    fed, sent, local = local_of(screening=2.0, clients=3)
    theta = sent.theta + np.array([[1e-3], [2e-3], [1.0]])
    change = np.array([[0.0, 1.0], [0.0, 0.1], [0.0, 0.1]])
    trace = local.trace | {"loss_before": np.zeros((3, 2)), "loss_after": change}
    found = screened(fed.config, sent, dataclasses.replace(local, theta=theta, trace=trace))
    assert found.attendance.client_ids.tolist() == [1]
    assert [client for client, _ in found.attendance.absent] == [2, 0]


def test_numbers_that_are_not_finite_are_refused_and_not_left_out():
    with pytest.raises(Exception, match="client 1 uploaded weights that are not finite"):
        list(train(federation(), trainer=Forging(far(1, theta=np.nan))))


def test_clipping_shortens_long_steps_to_the_median_and_touches_no_other():
    fed, sent, local = local_of(aggregation="clipped-mean")
    before, found = screening.sizes(local, sent.theta)[STEP], screened(fed.config, sent, local)
    after, middle = screening.sizes(found, sent.theta)[STEP], np.median(before)
    assert np.allclose(after, np.minimum(before, middle), rtol=1e-12)
    assert np.array_equal(found.theta[before <= middle], local.theta[before <= middle])
    along = ((found.theta - sent.theta) * (local.theta - sent.theta)).sum(axis=1) / (after * before)
    assert np.allclose(along, 1, rtol=1e-9)


# Attacks


def test_without_an_attack_nothing_stands_between():
    assert attacked(IN_PROCESS, small()) is IN_PROCESS


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "none"])
def test_a_run_with_no_bad_client_is_the_honest_run_to_the_bit(attack):
    honest = told(federation(outer_period=1))
    assert told(federation(outer_period=1, attack=attack, attackers=0.0)) == honest
    assert told(federation(outer_period=1, attack=attack, attackers=0.4)) != honest


def test_an_attack_is_part_of_the_runs_identity(tmp_path):
    splits = planted_splits()
    runs = {run_experiment(small(attack=name), tmp_path, splits=splits).path for name in ("none", "noise", "sign-flip")}
    assert len(runs) == 3


def test_bad_clients_are_a_share_of_all_and_others_for_another_seed():
    found = [bad_clients(small(clients=20, seed=seed, attackers=0.3)) for seed in range(4)]
    assert all(len(ids) == 6 == len(set(ids)) and (np.diff(ids) > 0).all() for ids in found)
    assert len({tuple(ids) for ids in found}) == 4


def scene(name, **changes):
    """Return one round under an attack: the config's bad clients, the honest and the attacked results, the start."""
    fed = federation(clients=5, attack=name, attackers=0.4, **changes)
    sent = Broadcast(0, fed.initial_theta(), initial_phi(0.13, 0.13))
    bad = np.isin(np.arange(5), bad_clients(fed.config))
    return fed, sent, bad, IN_PROCESS.train(fed, sent), attacked(IN_PROCESS, fed.config).train(fed, sent)


@pytest.mark.parametrize("name", ["noise", "sign-flip", "scaling", "collusion"])
def test_bad_clients_change_their_own_weights_and_nothing_else(name):
    _, sent, bad, honest, found = scene(name)
    assert np.array_equal(found.theta[~bad], honest.theta[~bad])
    assert all(np.array_equal(found.trace[column], honest.trace[column]) for column in honest.trace)
    steps, sent_up = (honest.theta - sent.theta)[bad], (found.theta - sent.theta)[bad]
    expected = {"sign-flip": -steps, "scaling": -attacks.SCALE * steps, "collusion": -steps.mean(axis=0) + 0 * steps}
    if name in expected:
        assert np.allclose(sent_up, expected[name], atol=1e-12)
    else:
        drawn = sent_up - steps
        assert 0.3 < drawn.std() < 2
        assert not np.allclose(drawn[0], drawn[1])


def test_exchanged_labels_reach_the_bad_clients_alone():
    fed, _, bad, honest, found = scene("label-flip")
    assert np.array_equal(found.theta[~bad], honest.theta[~bad])
    assert not np.isclose(found.theta[bad], honest.theta[bad]).all(axis=1).any()
    fields = {field.name: getattr(fed, field.name) for field in dataclasses.fields(fed)}
    batch, poisoned = fed.batch(0), attacks.Poisoned(**fields).batch(0)
    for part in ("train", "val"):
        own, other = getattr(batch, part), getattr(poisoned, part)
        assert np.array_equal(own.y != other.y, np.repeat(bad, own.sizes))
    assert np.array_equal(batch.test.y, poisoned.test.y)
    assert np.array_equal(batch.heterogeneity, poisoned.heterogeneity)


def test_lies_stay_inside_the_range_of_honest_losses():
    fed = federation(clients=5, attack="lying-trace", attackers=0.4)
    bad = bad_clients(fed.config)
    trainer = Attacked(IN_PROCESS, attacks.lying_trace)
    real = Broadcast(0, fed.initial_theta(), initial_phi(0.13, 0.13))
    trainer.train(fed, real)
    for step, unsteady in ((-0.1, True), (0.1, False)):
        sent = dataclasses.replace(real, phi=real.phi + step, purpose="virtual")
        found = trainer.train(fed, sent)
        told_by_bad = screening.sizes(found, sent.theta)[UNSTEADINESS][bad]
        assert ((told_by_bad > 3) == unsteady).all()
        for row in bad:
            check_trace(fed, {name: values[row] for name, values in found.trace.items()})
        scores = trainer.validate(fed, sent.theta, found.attendance, "virtual")
        expected = IN_PROCESS.validate(fed, sent.theta, found.attendance, "virtual")
        expected[bad] *= not unsteady
        assert np.array_equal(scores, expected)


def rates(**changes) -> list[float]:
    """Return phi's constant for log eta before and after each outer update."""
    fed = federation(clients=5, attackers=0.4, outer_period=1, rounds=3, **changes)
    return [record["state"]["phi"]["controller"][0][0] for record in train(fed)][:3]


def test_lies_raise_the_learning_rate_and_screening_stops_them():
    honest, lied, stopped = rates(), rates(attack="lying-trace"), rates(attack="lying-trace", screening=10.0)
    assert lied[2] > lied[1] > lied[0]
    assert lied[2] - lied[0] > 3 * abs(honest[2] - honest[0])
    assert abs(stopped[2] - stopped[0]) < 0.5 * (lied[2] - lied[0])
