"""Private federations of real processes: masked sums give the simulation's bits, a client that dies is recovered."""

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.flower,
    pytest.mark.outside,
    pytest.mark.slow,  # real processes: `make test-federation`
    # Flower's command line uses options of its own dependencies that are on their way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

from deployed import CONFIG as COMMON  # noqa: E402
from deployed import Gates, assert_equal_runs, finish, settings, start_nodes  # noqa: E402

from qfl_core.data import load_splits  # noqa: E402
from qfl_core.extras.accountant import epsilon, gaussian_rdp  # noqa: E402
from qfl_core.network.deployment import Deployment  # noqa: E402
from qfl_core.network.launch import bundle  # noqa: E402
from qfl_core.runs import find_runs, run_experiment  # noqa: E402

CONFIG = COMMON.replace(clients=4, outer_period=0, uploads="masked")


@pytest.fixture(scope="module")
def gates(tmp_path_factory) -> Gates:
    return Gates(tmp_path_factory.mktemp("gates"))


@pytest.fixture(scope="module")
def deployment(gates):
    """A SuperLink with TLS and four nodes, each with the folder of its client, that wait at gates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        with Deployment() as running:
            more = {"plan-dir": str(gates.folder)}
            start_nodes(running, load_splits(CONFIG), CONFIG, app="faulty_app:client_app", more=more)
            yield running


def ran(deployment, config, tmp_path, **more):
    """Run a config over the nodes; return how it ended and the finished run."""
    run = deployment.submit(bundle(tmp_path / "app"), settings(config, tmp_path / "network", **more))
    ended = finish(deployment, run)
    return ended, find_runs(tmp_path / "network")


def test_a_masked_deployment_gives_the_bits_of_one_process(deployment, gates, tmp_path):
    gates.plan({})
    ended, (found,) = ran(deployment, CONFIG, tmp_path)
    assert ended.startswith("finished:completed")
    assert_equal_runs(found, run_experiment(CONFIG, tmp_path / "here"))


def test_noise_over_a_deployment_is_its_own_and_costs_what_the_simulation_says(deployment, gates, tmp_path):
    gates.plan({})
    config = CONFIG.replace(dp_noise=2.0)
    ended, (found,) = ran(deployment, config, tmp_path)
    assert ended.startswith("finished:completed")
    here = run_experiment(config, tmp_path / "here")
    assert (found.path / "privacy.csv").read_bytes() == (here.path / "privacy.csv").read_bytes()
    assert found.table("privacy")["epsilon"].iloc[-1] == pytest.approx(epsilon(2 * gaussian_rdp(2.0), 1e-5))
    assert np.array_equal(found.weights[0], here.weights[0])
    assert not np.isclose(found.weights[1], here.weights[1]).any()  # no named stream gives this noise


def test_a_node_that_dies_after_the_shares_were_dealt_is_recovered_and_too_few_stop_the_run(
    deployment, gates, tmp_path
):
    """Last in this file, because it kills a node; the others have a minute for their answers."""
    gates.plan({"3": {"train-1": "hold"}})  # the phase in which masked steps are sent
    config, short = CONFIG.replace(rounds=1), {"timeout": 60.0, "ask-again": 5.0}
    run = deployment.submit(bundle(tmp_path / "app"), settings(config, tmp_path / "network", **short))
    gates.wait_for(3, "train-1")
    deployment.kill("node-3")
    assert finish(deployment, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert found.rows("global_accuracies")[1]["clients"] == 3
    assert [row["client"] for row in found.rows("exclusions")] == [3]
    assert np.abs(found.weights[1] - found.weights[0]).max() < np.pi  # a mask that stays is far longer
    gates.plan({"2": {"train-1": "fail"}})
    (tmp_path / "second").mkdir()
    # Another run on the same rows: a folder serves no other seed.
    ended, runs = ran(deployment, config.replace(mu=0.5), tmp_path / "second", **short, wait=1.0)
    assert ended.startswith("finished:failed")
    assert not runs
    told = ended + deployment.log("superlink", 5000)
    assert "2 of 4 clients are left in the phase 'sum', 3 are needed for a masked sum" in told
