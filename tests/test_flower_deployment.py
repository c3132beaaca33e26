"""A real federation: SuperLink, SuperNodes and apps as processes on loopback, with TLS, keys and faults."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.flower,
    pytest.mark.slow,  # real processes: `make test-federation`
    # Flower's command line uses options of its own dependencies that are on their way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

from qfl_core.config import load_profile  # noqa: E402
from qfl_core.data import Splits, load_splits  # noqa: E402
from qfl_core.network.deployment import Deployment  # noqa: E402
from qfl_core.network.launch import bundle  # noqa: E402
from qfl_core.network.site import export_client  # noqa: E402
from qfl_core.runs import find_runs, run_experiment  # noqa: E402
from qfl_core.runs.folder import RunFolder  # noqa: E402
from qfl_core.runs.prepare import make_federation  # noqa: E402
from qfl_core.runs.schema import SCHEMA  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=3, rounds=2, train_size=300, val_size=100, test_size=100, seed=5, outer_period=1
)
#: A machine with other work may need long; nothing here waits this long when all is well.
PATIENCE = 400


def settings(config, results, **more) -> dict:
    common = {"experiment": json.dumps(config.to_dict()), "results-dir": str(results), "timeout": 120.0, "wait": 120.0}
    return common | more


def finish(deployment, run) -> str:
    """Wait until a run is over; return its state and details."""
    deadline = time.monotonic() + PATIENCE
    while not (status := deployment.status(run)).is_over:
        assert time.monotonic() < deadline, deployment.log("superlink", 60)
        time.sleep(1)
    return f"{status.state} {status.details}"


def until(condition, what: str):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.2)
    return found


def journal(results) -> list[dict]:
    paths = sorted(Path(results).glob("*/*/*/seed-*/*/journal.jsonl"))
    return RunFolder(paths[-1].parent).journal.records() if paths else []


def assert_equal_runs(found, expected) -> None:
    """Both runs have the same weights and controller in every round, to the bit, and the same tables, to the byte."""
    assert np.array_equal(found.weights, expected.weights)
    assert (found.path / "global_params.npz").read_bytes() == (expected.path / "global_params.npz").read_bytes()
    for name in SCHEMA:
        assert (found.path / f"{name}.csv").read_bytes() == (expected.path / f"{name}.csv").read_bytes(), name


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits(CONFIG)


def start_nodes(deployment, splits) -> None:
    federation = make_federation(CONFIG, splits)
    for i in range(3):
        export_client(splits, federation, i, deployment.folder / f"data-{i}")
        deployment.start_node(f"node-{i}", {"partition-id": i, "data-dir": str(deployment.folder / f"data-{i}")})


@pytest.fixture(scope="module")
def deployment(splits):
    """A SuperLink with TLS and three nodes, each with the folder of its client."""
    with Deployment() as running:
        start_nodes(running, splits)
        yield running


@pytest.fixture
def app(tmp_path) -> Path:
    return bundle(ROOT, tmp_path / "app")


@pytest.mark.parametrize("method", ["duqfl-prox", "scaffold-qfl"])
def test_a_deployment_gives_the_bits_of_one_process(deployment, app, tmp_path, method):
    config = CONFIG.replace(method=method)
    run = deployment.submit(app, settings(config, tmp_path / "network"))
    assert finish(deployment, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert found.environment["transport"] == "flower-deployment"
    assert not found.changed_files()
    assert not (found.path / "exclusions.csv").exists()
    assert_equal_runs(found, run_experiment(config, tmp_path / "here"))


def test_a_node_whose_key_is_not_on_the_list_is_refused(deployment):
    deployment.start_node("stranger", {"partition-id": 0}, listed=False)
    until(lambda: not deployment.is_alive("stranger"), "the stranger's end")
    log = deployment.log("stranger", 60)
    del deployment.processes["stranger"]
    assert "Failed to initialize the connection to the SuperLink" in log
    assert "SuperNode ID" not in log


def test_keys_are_their_owners_alone_and_nothing_listens_beyond_loopback(deployment):
    secrets = [path for path in deployment.folder.rglob("*") if b"PRIVATE KEY" in _start_of(path)]
    assert {path.name for path in secrets} >= {"server.key", "node-0", "node-1", "node-2"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(deployment.folder.stat().st_mode) == 0o700
    assert not deployment.folder.is_relative_to(ROOT)
    assert _listening_beyond_loopback(deployment) == []


def _start_of(path: Path) -> bytes:
    return path.read_bytes()[:200] if path.is_file() and not path.is_symlink() else b""


def _listening_beyond_loopback(deployment) -> list[str]:
    """Return the listening sockets of the deployment's processes that other machines could reach (Linux)."""
    if not Path("/proc/net/tcp").exists():
        pytest.skip("needs /proc")
    groups = {process.pid for process in deployment.processes.values()}
    listed = subprocess.run(["ps", "-axo", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    ours = {int(pid) for pid, group in (line.split() for line in listed.splitlines()) if int(group) in groups}
    ours |= set(deployment._leftovers())
    inodes = set()
    for pid in ours:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes |= set(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
            except OSError:
                continue
    found, checked = [], 0
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = line.split()[1], line.split()[3], line.split()[9]
            if state == "0A" and inode in inodes:
                checked += 1
                found += [local] if local.split(":")[0] != loopback else []
    assert checked >= 4  # the SuperLink and three nodes
    return found


def test_a_run_resumes_after_the_superlink_was_killed_and_started_again(splits, app, tmp_path):
    """A SuperLink with a database may lose an answer (docs/federation.md): that client is then left out, on record.

    So complete rounds are kept in any case, and the bits are those of one process in the first run without a loss.
    """
    with Deployment(database=True) as deployment:
        start_nodes(deployment, splits)
        for attempt in range(3):
            results = tmp_path / f"network-{attempt}"
            config = CONFIG.replace(lambda_fair=0.2 + 0.1 * attempt)  # another run with the same data
            wanted = settings(config, results) | {"timeout": 60.0}
            deployment.submit(app, wanted)
            until(lambda results=results: len(journal(results)) == 2, "the first round")
            before = journal(results)
            deployment.kill("superlink")
            deployment.start_superlink()
            assert finish(deployment, deployment.submit(app, wanted)).startswith("finished:completed")
            (found,) = find_runs(results)
            assert np.array_equal(found.weights[:2], [record["state"]["theta"] for record in before])
            if not (found.path / "exclusions.csv").exists():
                assert_equal_runs(found, run_experiment(config, tmp_path / "here"))
                return
    pytest.fail("every run lost an answer")


def test_faults_leave_clients_out_and_the_others_go_on(tmp_path):
    """Six clients, of which 0 and 1 are honest.

    Round 1: 2 sends NaN, 3 answers too late, 4 is killed in mid-round, 5 has no node yet. Round 2: 2 sends a wrong
    shape, 3 is back, 5 has joined. Round 3: 2 sends a wrong n_i.
    """
    config = CONFIG.replace(clients=6, rounds=3)
    splits, app, timeout = load_splits(config), _faulty_app(tmp_path / "app"), 75.0
    whole = make_federation(config, splits)
    results, plan = tmp_path / "results", tmp_path / "plan.json"

    def start(running, i):
        folder = running.folder / f"data-{i}"
        export_client(splits, whole, i, folder)
        running.start_node(f"node-{i}", {"partition-id": i, "data-dir": str(folder), "plan-dir": str(tmp_path)})

    with Deployment() as running:
        for i in range(3):
            start(running, i)
        plan.write_text(json.dumps({"1": {"1": "nan"}, "2": {"1": "shape"}}))
        ended = finish(running, running.submit(app, settings(config.replace(clients=3), tmp_path / "few")))
        assert "finished:failed" in ended
        assert "round 1: 1 of 3 clients gave a valid answer, 2 are needed" in ended
        assert "client 1: weights that are not finite" in ended
        assert find_runs(tmp_path / "few") == []

        for mark in tmp_path.glob("asked-*"):
            mark.unlink()
        faults = {
            "2": {"1": "nan", "2": "shape", "3": "size"},
            "3": {"1": f"late {timeout + 10}"},
            "4": {"1": "late 600"},
        }
        plan.write_text(json.dumps(faults))
        for i in (3, 4):
            start(running, i)
        until(lambda: all("SuperNode ID" in running.log(f"node-{i}", 60) for i in range(5)), "five nodes")
        run = running.submit(app, settings(config, results, timeout=timeout, wait=5.0))
        until(lambda: (tmp_path / "asked-4-1").exists(), "client 4 in the first round")
        running.kill("node-4")
        start(running, 5)
        assert finish(running, run).startswith("finished:completed")

    (found,) = find_runs(results)
    table = RunFolder(found.path).table("exclusions")
    reasons = {(row.round, row.client): row.reason for row in table.itertuples()}
    assert reasons[1, 2] == "weights that are not finite"
    assert reasons[1, 3] == "no answer within 75 s"
    assert {(1, 4), (1, 5), (2, 4), (3, 4)} <= set(reasons)
    assert reasons[2, 2].startswith("theta of shape (3,)")
    assert reasons[3, 2].startswith("n_i = 1000000, but the client holds")
    trace = found.clients
    present = {t: set(rows["client"]) for t, rows in trace.groupby("round")}
    assert present == {1: {0, 1}, 2: {0, 1, 3, 5}, 3: {0, 1, 3, 5}}
    for _, rows in trace[trace["unfold"] == 1].groupby("round"):
        assert rows["aggregation_weight"].to_numpy() == pytest.approx(rows["client_size"] / rows["client_size"].sum())
    assert not found.changed_files()


def _faulty_app(folder: Path) -> Path:
    bundle(ROOT, folder)
    (folder / "faulty_app.py").write_text((ROOT / "tests" / "faulty_app.py").read_text())
    project = folder / "pyproject.toml"
    text = project.read_text().replace('fab-include = ["LICENSE"]', 'fab-include = ["LICENSE", "faulty_app.py"]')
    project.write_text(text.replace("qfl_core.network.app:client_app", "faulty_app:client_app"))
    return folder


def test_the_simulation_engine_gives_the_bits_of_one_process(app, tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation engine needs ray (extra 'federation')")
    with Deployment(simulation=True) as running:
        nodes = "num-supernodes=3 client-resources-num-cpus=1"
        run = running.submit(app, settings(CONFIG, tmp_path / "simulated"), federation_config=nodes)
        assert finish(running, run).startswith("finished:completed"), running.log("superlink", 60)
    (found,) = find_runs(tmp_path / "simulated")
    assert found.environment["transport"] == "flower-simulation"
    assert_equal_runs(found, run_experiment(CONFIG, tmp_path / "here"))


def test_make_federate_runs_shows_progress_and_leaves_no_process(tmp_path):
    command = _federate("--clients", "2", "--rounds", "1", "--results", str(tmp_path))
    done = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"SuperLink on 127\.0\.0\.1:\d+, TLS", done.stderr)
    assert re.search(r"round  1/1  accuracy 0\.\d{4}  val loss \d\.\d{4}  clients 2  \d+\.\d s", done.stderr)
    port = re.search(r"127\.0\.0\.1:(\d+)", done.stderr).group(1)
    assert f"127.0.0.1:{port}" not in _processes()
    assert len(find_runs(tmp_path)) == 1
    again = subprocess.run(command, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
    assert "finished before" in again.stderr


def test_an_interrupted_launcher_stops_everything_it_started(tmp_path):
    with subprocess.Popen(
        _federate("--clients", "2", "--results", str(tmp_path)),
        cwd=ROOT,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as launched:
        lines = []
        while not any("SuperNodes started" in line for line in lines):
            lines.append(launched.stderr.readline())
            assert lines[-1], lines
        launched.terminate()
        rest = launched.stderr.read()
    assert launched.returncode == 130, rest
    assert "interrupted" in rest
    port = re.search(r"127\.0\.0\.1:(\d+)", "".join(lines)).group(1)
    assert f"127.0.0.1:{port}" not in _processes()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))) != 0


def _federate(*options: str) -> list[str]:
    return [sys.executable, "-m", "qfl_core", "federate", "--profile", "smoke", "--source", "stand-in", *options]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def _processes() -> str:
    return subprocess.run(["ps", "-axo", "command="], capture_output=True, text=True, check=True).stdout
