"""Faults of a real federation: nothing that can be asked again is lost, and no client stops the others.

No test rests on timing: clients wait at gates that the test opens (:mod:`faulty_app`).
"""

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.flower,
    pytest.mark.outside,
    pytest.mark.slow,  # real processes: `make test-federation`
    # Flower's command line uses options of its own dependencies that are on their way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

from deployed import (  # noqa: E402
    CONFIG,
    CuttingProxy,
    Gates,
    assert_equal_runs,
    finish,
    journal,
    settings,
    start_node,
    start_nodes,
    until,
)

from qfl_core.base.registry import ATTACKS  # noqa: E402
from qfl_core.data import Splits, load_splits  # noqa: E402
from qfl_core.extras.attacks import bad_clients  # noqa: E402
from qfl_core.network.deployment import Deployment  # noqa: E402
from qfl_core.network.launch import bundle  # noqa: E402
from qfl_core.runs import find_runs, run_experiment  # noqa: E402
from qfl_core.runs.prepare import make_federation  # noqa: E402

#: A ClientApp with faults and gates, which nodes find beside the tests.
FAULTY = "faulty_app:client_app"
#: A second between two questions; a phase may last as long as the machine needs.
SOON = {"ask-again": 1.0}


@pytest.fixture(scope="module", autouse=True)
def apps():
    """Let nodes find the faulty ClientApp."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits(CONFIG)


@pytest.fixture(scope="module")
def gates(tmp_path_factory) -> Gates:
    return Gates(tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def gated(splits, gates):
    """A SuperLink with a database and three nodes that wait at gates."""
    with Deployment(database=True) as running:
        start_nodes(running, splits, app=FAULTY, more={"plan-dir": str(gates.folder)})
        yield running


@pytest.fixture
def app(tmp_path) -> Path:
    return bundle(tmp_path / "app")


# Nothing is lost


def test_a_superlink_that_dies_in_any_phase_and_starts_again_loses_nothing(gated, gates, app, tmp_path):
    """It dies while a client trains, then while one scores; complete rounds are kept, and no client is left out."""
    results = tmp_path / "network"
    phases = ["train-2", "evaluate-2"]
    gates.plan({"1": dict.fromkeys(phases, "hold")})
    gated.submit(app, settings(CONFIG, results, **SOON))
    for phase in phases:
        gates.wait_for(1, phase)
        before = journal(results)
        assert len(before) == 2
        gated.kill("superlink")
        gated.start_superlink()
        gates.open(1, phase)
        run = gated.submit(app, settings(CONFIG, results, **SOON))
    assert finish(gated, run).startswith("finished:completed")
    (found,) = find_runs(results)
    assert np.array_equal(found.weights[:2], [record["state"]["theta"] for record in before])
    assert_equal_runs(found, run_experiment(CONFIG, tmp_path / "here"))


def test_a_database_that_is_locked_for_longer_than_flower_waits_loses_nothing(gated, gates, app, tmp_path):
    config = CONFIG.replace(lambda_fair=0.3)
    gates.plan({"0": {"train-1": "hold", "evaluate-2": "hold"}})
    run = gated.submit(app, settings(config, tmp_path / "network", **SOON))
    for phase in ("train-1", "evaluate-2"):
        gates.wait_for(0, phase)
        with closing(sqlite3.connect(gated.folder / "superlink.db", isolation_level=None, timeout=60)) as database:
            database.execute("BEGIN IMMEDIATE")
            gates.open(0, phase)
            time.sleep(12)  # Flower alone gives up after five
            database.execute("ROLLBACK")
    assert finish(gated, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert_equal_runs(found, run_experiment(config, tmp_path / "here"))


def test_a_node_that_ends_in_mid_round_and_starts_again_answers_in_the_same_round(gated, gates, splits, app, tmp_path):
    config = CONFIG.replace(lambda_fair=0.4)
    gates.plan({"2": {"train-1": "hold", "evaluate-1": "hold"}})
    run = gated.submit(app, settings(config, tmp_path / "network", **SOON))
    for phase in ("train-1", "evaluate-1"):
        gates.wait_for(2, phase)
        node = gated.processes.pop("node-2")
        os.kill(node.pid, signal.SIGTERM)
        assert node.wait() == 0
        gates.open(2, phase)
        start_node(gated, make_federation(CONFIG, splits), splits, 2, app=FAULTY, more={"plan-dir": str(gates.folder)})
    assert finish(gated, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert_equal_runs(found, run_experiment(config, tmp_path / "here"))


def test_a_node_that_its_superlink_does_not_know_any_more_ends(splits):
    """The SuperLink has no database: started again, it knows no node."""
    with Deployment() as running:
        start_node(running, make_federation(CONFIG, splits), splits, 0)
        until(lambda: "SuperNode ID" in running.log("node-0", 60), "the node")
        running.kill("superlink")
        running.start_superlink()
        until(lambda: not running.is_alive("node-0"), "the node's end")


def test_connections_that_are_cut_in_mid_message_lose_nothing(splits, app, tmp_path):
    config = CONFIG.replace(lambda_fair=0.6)
    with Deployment(database=True) as running, CuttingProxy(running.port, few=6_000, many=60_000) as proxy:
        start_nodes(running, splits, address=proxy.address)
        run = running.submit(app, settings(config, tmp_path / "network", **SOON))
        assert finish(running, run).startswith("finished:completed")
    assert proxy.cuts >= config.clients  # every node lost a connection
    (found,) = find_runs(tmp_path / "network")
    assert_equal_runs(found, run_experiment(config, tmp_path / "here"))


# Clients that answer wrongly or not at all


def test_several_faults_at_once_leave_out_their_clients_in_their_rounds_alone(splits, app, tmp_path):
    """Client 0 sends NaN, client 1 absurd weights, the node of client 2 dies and comes back, client 3 has no node."""
    config = CONFIG.replace(clients=4)
    gates = Gates(tmp_path)
    gates.plan({"0": {"train-1": "nan"}, "1": {"train-2": "weights"}, "2": {"train-1": "hold"}})
    federation, common = make_federation(config, splits), {"app": FAULTY, "more": {"plan-dir": str(tmp_path)}}
    with Deployment(database=True) as running:
        for i in range(3):
            start_node(running, federation, splits, i, **common)
        until(lambda: all("SuperNode ID" in running.log(f"node-{i}", 60) for i in range(3)), "three nodes")
        run = running.submit(app, settings(config, tmp_path / "network", **SOON, wait=1.0))
        gates.wait_for(2, "train-1")
        running.kill("node-2")
        gates.open(2, "train-1")
        start_node(running, federation, splits, 2, **common)
        assert finish(running, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    table = pd.read_csv(found.path / "exclusions.csv")
    reasons = {(row.round, row.client): row.reason for row in table.itertuples()}
    assert set(reasons) == {(1, 0), (1, 3), (2, 1), (2, 3)}
    assert reasons[1, 0] == "weights that are not finite"
    assert reasons[2, 1].startswith("step 4e+06, more than the ")
    assert all(reasons[t, 3].startswith("no node serves this client") for t in (1, 2))
    assert found.rounds["clients"].iloc[1:].tolist() == [2, 2]


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "none"])
def test_a_malicious_node_does_what_the_simulation_says(gated, gates, app, tmp_path, attack):
    """Same weights and controller in every round, to the bit: the attacks of the study are those of a real node."""
    config = CONFIG.replace(attackers=0.34)
    (bad,) = bad_clients(config)
    gates.plan({str(bad): {"*": attack}})
    run = gated.submit(app, settings(config, tmp_path / "network", **SOON))
    assert finish(gated, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert_equal_runs(found, run_experiment(config.replace(attack=attack), tmp_path / "here"))
    assert not np.array_equal(found.weights, run_experiment(config, tmp_path / "honest").weights)
