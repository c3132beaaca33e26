"""The walk through one round: what it lays open is what the algorithms did."""

import numpy as np
import pandas as pd
import pytest

from qfl_core.base.errors import ConfigError
from qfl_core.config import load_profile
from qfl_core.studies.walkthrough import engines_apart, engines_beside, walk

CONFIG = load_profile("smoke").config(
    "genome", method="duqfl-prox", controller_features="standardised", source="stand-in"
)


@pytest.fixture(scope="module")
def second():
    return walk(CONFIG, t=1)


def test_rates_computed_from_the_features_are_those_that_the_clients_used(second):
    for client in range(CONFIG.clients):
        rates = second.rates(client)
        np.testing.assert_allclose(rates["eta from z"], rates["eta"], rtol=1e-12)
        np.testing.assert_allclose(rates["delta from z"], rates["delta"], rtol=1e-12)
    assert second.rates(0)["eta"].std() > 0  # the controller has moved, so the rates are not all alike


def test_the_upload_is_the_unfold_with_the_lowest_validation_loss(second):
    table = second.unfolds(2)
    assert table["uploaded"].sum() == 1
    assert table["val_loss"].idxmin() == table.index[table["uploaded"]][0] == second.uploads().loc[2, "uploaded unfold"]


def test_the_aggregation_by_hand_is_the_new_global_model(second):
    assert second.by_hand() < 1e-12
    assert second.uploads()["weight"].sum() == pytest.approx(1)


def test_the_outer_step_moves_phi_along_its_direction_by_the_slope(second):
    table, config = second.outer_step(), second.federation.config
    slope = (second.outer.loss_plus - second.outer.loss_minus) / (2 * config.outer_perturbation)
    np.testing.assert_allclose(
        table["new phi"], table["phi"] - config.outer_learning_rate * slope * table["direction"], rtol=1e-12
    )


def test_the_aggregation_shows_each_clients_share_and_the_packages_own_sum(second):
    table = second.aggregation(2)
    clients = [f"client {i}" for i in range(CONFIG.clients)]
    assert list(table.index) == [*clients, "sum by hand", "aggregate(...)"]
    sizes = second.uploads()["samples"]
    np.testing.assert_allclose(table.loc[clients, "weight"], sizes / sizes.sum())
    np.testing.assert_allclose(
        table.loc["client 1", "weight × θ[1]"], sizes[1] / sizes.sum() * second.result.local.theta[1, 1]
    )
    for place, column in enumerate(("weight × θ[0]", "weight × θ[1]")):
        assert table.loc[clients, column].sum() == pytest.approx(table.loc["sum by hand", column], abs=1e-12)
        assert table.loc["sum by hand", column] == pytest.approx(table.loc["aggregate(...)", column], abs=1e-12)
        assert table.loc["aggregate(...)", column] == second.result.state.theta[place]


def test_both_engines_give_the_same_probabilities():
    table = engines_beside(CONFIG)
    np.testing.assert_allclose(table["exact: qfl_core"], table["exact: Qiskit"], atol=1e-12)
    found = engines_apart(table, CONFIG)
    assert found["exact probabilities"] == 0
    assert 0 < found["means with shots, in standard errors"] < 4
    pd.testing.assert_frame_equal(table, engines_beside(CONFIG))  # a reader sees the same numbers every time


def test_a_wrong_mean_with_shots_would_be_seen():
    table = engines_beside(CONFIG)
    table["shots: Qiskit"] += 0.02
    assert engines_apart(table, CONFIG)["means with shots, in standard errors"] > 4


@pytest.mark.parametrize(("client", "message"), [(9, "client=9 is not valid"), ("a", "client='a' is not valid")])
def test_a_client_that_is_not_there_is_refused(second, client, message):
    with pytest.raises(ConfigError, match=message):
        second.unfolds(client)
