"""A real federation: SuperLink, SuperNodes and apps as processes on loopback, with TLS and keys."""

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.flower,
    pytest.mark.outside,
    pytest.mark.slow,  # real processes: `make test-federation`
    # Flower's command line uses options of its own dependencies that are on their way out.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

from deployed import CONFIG, ROOT, assert_equal_runs, finish, settings, start_nodes, until  # noqa: E402

from qfl_core.data import Splits, load_splits  # noqa: E402
from qfl_core.network.deployment import Deployment  # noqa: E402
from qfl_core.network.launch import bundle  # noqa: E402
from qfl_core.runs import find_runs, run_experiment  # noqa: E402


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits(CONFIG)


@pytest.fixture(scope="module")
def deployment(splits):
    """A SuperLink with TLS and three nodes, each with the folder of its client."""
    with Deployment() as running:
        start_nodes(running, splits)
        yield running


@pytest.fixture
def app(tmp_path) -> Path:
    return bundle(tmp_path / "app")


@pytest.mark.parametrize("method", ["duqfl-prox", "scaffold-qfl"])
def test_a_deployment_gives_the_bits_of_one_process(deployment, app, tmp_path, method):
    config = CONFIG.replace(method=method)
    run = deployment.submit(app, settings(config, tmp_path / "network"))
    assert finish(deployment, run).startswith("finished:completed")
    (found,) = find_runs(tmp_path / "network")
    assert found.environment["transport"] == "flower-deployment"
    assert not found.changed_files()
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
    assert checked == 1  # the SuperLink; nodes open no port
    return found


def test_flowers_own_programs_give_the_bits_of_one_process(splits, app, tmp_path):
    """Whoever does not want our SuperLink and SuperNode takes Flower's, with the same options."""
    config = CONFIG.replace(rounds=1)
    with Deployment(plain=True) as running:
        start_nodes(running, splits, config)
        assert finish(running, running.submit(app, settings(config, tmp_path / "network"))).startswith("finished:comp")
    (found,) = find_runs(tmp_path / "network")
    assert_equal_runs(found, run_experiment(config, tmp_path / "here"))


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
