"""The normalised outer optimiser: steps of a known length, few clients, and the right rates from any start."""

import dataclasses

import numpy as np
import pytest
from planted import contents, federation, interrupted, planted_splits, small, start

from qfl_core.algorithm.client import Broadcast
from qfl_core.algorithm.controller import initial_phi
from qfl_core.algorithm.meta import refine_controller
from qfl_core.algorithm.server import IN_PROCESS, State
from qfl_core.base.errors import ConfigError
from qfl_core.extras.learned import DUQFL_LEARNED
from qfl_core.extras.normalised import NORMALISED, NormalisedDescent
from qfl_core.runs.experiment import train
from qfl_core.runs.run import run_experiment

SETTINGS = {
    "outer_optimizer": "normalised",
    "outer_period": 1,
    "outer_perturbation": 0.5,
    "outer_learning_rate": 1.0,
    "delta_bounds": (1e-3, 1.0),
}
CONFIG = small(**SETTINGS)


def state(eta=0.1, delta=0.2, outer=None) -> State:
    return State(0, np.zeros(3), {"controller": initial_phi(eta, delta)}, outer=outer or {})


def refined(begun, losses, config=CONFIG, optimizer=NORMALISED) -> State:
    phi, memory, _ = optimizer.update(begun, np.array(losses), config)
    return dataclasses.replace(begun, phi=phi, outer=memory)


def log_rates(begun) -> np.ndarray:
    return begun.phi["controller"][:, 0]


# The step


def test_the_first_step_has_the_length_of_the_learning_rate_whatever_the_size_of_the_loss():
    for scale in (1e-6, 1.0, 1e6):
        change = log_rates(refined(state(), scale * np.array([1.0, 4.0, 5.0, 1.0]))) - log_rates(state())
        assert np.allclose(change, [0.6, -0.8])  # eta's slope is -3, delta's is 4


def test_four_controllers_are_tried_each_constant_higher_and_lower():
    begun = state()
    tried = [phi["controller"] - begun.phi["controller"] for phi in NORMALISED.probes(begun, CONFIG)]
    assert np.allclose([values[:, 0] for values in tried], [[0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5]])
    assert not np.any([values[:, 1:] for values in tried])


def test_a_smaller_slope_than_before_gives_a_shorter_step():
    begun = state(eta=0.01, delta=0.1)
    after_large = refined(refined(begun, [1.0, 3.0, 1.0, 1.0]), [1.0, 1.1, 1.0, 1.0])
    after_equal = refined(refined(begun, [1.0, 1.1, 1.0, 1.0]), [1.0, 1.1, 1.0, 1.0])
    moved = [log_rates(end)[0] - log_rates(begun)[0] - 1.0 for end in (after_large, after_equal)]
    # By hand: v = (0.5 * 0.5 * 2^2 + 0.5 * 0.1^2) / 0.75, of the slopes 2 and 0.1.
    assert moved[0] == pytest.approx(2**-0.602 * 0.1 / np.sqrt((0.25 * 4 + 0.5 * 0.01) / 0.75))
    assert moved[1] == pytest.approx(2**-0.602)


def test_the_constants_alone_move_and_stay_inside_the_bounds_of_the_rates():
    begun = state(eta=0.9, delta=0.9)
    end = refined(begun, [1.0, 2.0, 1.0, 2.0])
    assert np.array_equal(log_rates(end), np.log([1.0, 1.0]))
    assert np.array_equal(end.phi["controller"][:, 1:], begun.phi["controller"][:, 1:])
    assert np.array_equal(begun.phi["controller"], initial_phi(0.9, 0.9))  # the caller's phi is not changed


def test_a_constant_that_starts_outside_of_the_bounds_is_not_cut_to_them():
    """A pretrained controller's constant is no rate: its other entries lower the rates again."""
    begun = state(eta=2.67, delta=0.2)
    assert log_rates(refined(begun, [1.0, 1.0, 1.0, 1.0]))[0] == np.log(2.67)
    assert log_rates(refined(begun, [1.0, 2.0, 1.0, 1.0]))[0] == np.log(2.67)  # not further outside
    assert log_rates(refined(begun, [2.0, 1.0, 1.0, 1.0]))[0] == pytest.approx(np.log(2.67) - 1)


def test_equal_losses_move_nothing():
    end = refined(state(), [1.0, 1.0, 1.0, 1.0])
    assert np.array_equal(log_rates(end), log_rates(state()))
    assert np.isfinite(log_rates(refined(end, [1.0, 2.0, 1.0, 1.0]))).all()


@pytest.mark.parametrize("eta", [0.02, 0.13, 1.0])
@pytest.mark.parametrize("delta", [0.02, 1.0])
def test_from_any_start_it_finds_the_lowest_loss(eta, delta):
    """The loss is a bowl in log eta and log delta, twice as steep in eta, with noise in every measurement."""
    config = CONFIG.replace(outer_learning_rate=2.0)
    best, rng, now = np.log([0.4, 0.1]), np.random.default_rng(0), state(eta, delta)
    for _ in range(NORMALISED.refinements):
        losses = []
        for phi in NORMALISED.probes(now, config):
            off = phi["controller"][:, 0] - best
            losses.append(0.01 * (2 * off[0] ** 2 + off[1] ** 2) + rng.normal(0, 0.002))
        now = refined(now, losses, config)
    assert np.abs(log_rates(now) - best).max() < np.log(2)


# The virtual rounds


class Spy:
    """Trains in this process and remembers what it was asked."""

    transport = "in-process"

    def __init__(self):
        self.sent = []

    def train(self, fed, sent: Broadcast):
        self.sent.append(sent)
        return IN_PROCESS.train(fed, sent)

    def validate(self, *asked):
        raise AssertionError("the local losses judge a controller, no model is scored")


def test_two_clients_train_in_turn_and_their_circuits_alone_are_counted():
    fed, spy = federation(clients=5, **SETTINGS), Spy()
    now, asked = start(fed), []
    for _ in range(4):
        step = refine_controller(fed, now, spy)
        four = [sent.client_ids.tolist() for sent in spy.sent[-4:]]
        assert four == 4 * [four[0]]
        asked.append(four[0])
        alone = IN_PROCESS.train(fed, spy.sent[-1])
        assert step.circuits == 4 * sum(alone.circuits.values())
        assert step.loss_minus == alone.trace["loss_after"][:, -1].mean()
        assert {sent.purpose for sent in spy.sent} == {"virtual"}
        now = dataclasses.replace(now, outer=step.memory)
    assert asked == [[0, 1], [2, 3], [0, 4], [1, 2]]


def test_a_client_of_a_virtual_round_trains_as_among_all_others():
    """Its features refer to all participants, so it gives the same bits, in this process and on a node of its own."""
    fed = federation(clients=5, controller_features="standardised")
    begun = start(fed)
    phi = begun.phi["controller"] + 0.1
    everyone = IN_PROCESS.train(fed, Broadcast(0, begun.theta, phi, "virtual"))
    some = IN_PROCESS.train(fed, Broadcast(0, begun.theta, phi, "virtual", client_ids=np.array([1, 4])))
    assert np.array_equal(some.theta, everyone.theta[[1, 4]])


def test_after_its_refinements_the_controller_stays_and_costs_nothing():
    fed = federation(rounds=2, **SETTINGS)
    done = dataclasses.replace(start(fed), outer={"taken": np.array(float(NORMALISED.refinements))})
    assert refine_controller(fed, done, Spy()) is None
    one_less = dataclasses.replace(done, outer={"taken": done.outer["taken"] - 1})
    assert refine_controller(fed, one_less, Spy()) is not None


def test_the_config_refuses_a_method_that_learns_its_weights():
    with pytest.raises(ConfigError, match="'spsa' for method='duqfl-learned'"):
        small(method="duqfl-learned", **SETTINGS)


def test_more_clients_than_there_are_means_all_of_them():
    fed, spy = federation(clients=3, **SETTINGS), Spy()
    NormalisedDescent(clients=7).measure(fed, start(fed), spy)
    assert spy.sent[0].client_ids.tolist() == [0, 1, 2]


def test_it_changes_nothing_but_the_controller():
    fed = federation(rounds=3, **SETTINGS)
    frozen = federation(rounds=3, **SETTINGS | {"outer_period": 0})
    ours, theirs = list(train(fed)), list(train(frozen))
    assert ours[1]["state"]["theta"] == theirs[1]["state"]["theta"]
    assert ours[1]["state"]["phi"] != theirs[1]["state"]["phi"]
    assert ours[2]["state"]["theta"] != theirs[2]["state"]["theta"]
    assert [row["updated"] for record in ours[1:] for row in record["outer_meta"]] == [True, True, False]


def test_an_interrupted_run_ends_in_the_same_bytes(tmp_path):
    config, splits = small(rounds=4, **SETTINGS), planted_splits()
    whole = run_experiment(config, tmp_path / "whole", splits=splits)
    resumed = interrupted(config, tmp_path / "resumed", splits, kept=3)
    kept = ("global_params.npz", "global_accuracies.csv", "outer_meta.csv", "client_trace.csv")
    assert [contents(whole)[name] for name in kept] == [contents(resumed)[name] for name in kept]


def test_a_method_that_learns_more_than_the_controller_is_refused():
    fed = federation(method=DUQFL_LEARNED, **SETTINGS)
    with pytest.raises(ConfigError, match="learns the controller alone, but this method has controller, weights"):
        refine_controller(fed, start(fed))
