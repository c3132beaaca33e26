"""Processes of a federation on this machine, with programs that only play Flower's: what is started and stopped."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("flwr")

from planted import planted_splits, small

from qfl_core.algorithm.server import InProcess
from qfl_core.base.errors import FederationError
from qfl_core.network import deployment as deploying
from qfl_core.network import launch
from qfl_core.network.deployment import CONNECTION, Deployment
from qfl_core.network.nodes import DEPLOYMENT
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.prepare import prepare
from qfl_core.runs.run import run_prepared

pytestmark = pytest.mark.outside

# Writes its arguments to its log; a SuperLink then listens on its port, and all wait.
PROGRAM = """#!{python}
import socket, sys, time
print(*sys.argv[1:], flush=True)
if "--superlink" not in sys.argv:
    server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(600)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Let one script play all programs."""
    script = tmp_path / "program"
    script.write_text(PROGRAM.format(python=sys.executable))
    script.chmod(0o700)
    monkeypatch.setattr(Deployment, "_program", lambda self, name: [str(script)])
    return script


@pytest.fixture
def asked(monkeypatch):
    """Record what Flower's command line is asked, and answer."""
    calls = []
    answers = {
        "run": 'Success\n{"success": true, "run-id": 17}',
        "list": '{"runs": [{"status": "finished:failed", "status-details": "out of luck"}]}',
    }

    def flwr(self, *arguments):
        calls.append(arguments)
        return answers.get(arguments[0], "")

    monkeypatch.setattr(Deployment, "flwr", flwr)
    return calls


def wait_for_log(made: Deployment, name: str) -> str:
    """Return what a program has written, once its line is whole: Python may write it word by word."""
    for _ in range(12000):  # until it counts as hung
        if (text := (made.folder / f"{name}.log").read_text()).endswith("\n"):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{name} wrote no line")


@pytest.mark.loopback
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("insecure", [False, True])
def test_everything_is_started_with_or_without_keys_and_stopped(program, asked, insecure, plain):
    with Deployment(insecure=insecure, plain=plain) as made:
        made.start_node("node-0", {"partition-id": 0, "data-dir": "/srv/a b"})
        made.start_node("stranger", {"partition-id": 1}, listed=False)
        link, node = wait_for_log(made, "superlink"), wait_for_log(made, "node-0")
        assert f"--host 127.0.0.1 --port {made.port}" in link
        assert '--node-config partition-id=0 data-dir="/srv/a b"' in node
        for told in (link, node, wait_for_log(made, "stranger")):
            assert ("--insecure" in told) == insecure
        assert ("--ssl-keyfile" in link) != insecure
        assert ("--ssl-keyfile" in node) == (plain and not insecure)  # only Flower's own node opens a port
        assert ("--port" in node) == plain
        assert ("--root-certificates" in node) == ("--auth-supernode-private-key" in node) != insecure
        assert ("--enable-supernode-auth" in link) != insecure
        registered = [call[2] for call in asked if call[:2] == ("supernode", "register")]
        assert registered == ([] if insecure else [str(made.folder / "keys" / "node-0.pub")])
        trust = (made.folder / "homes" / "launcher" / "config.toml").read_text()
        assert ("insecure = true" in trust) == insecure
        running = [process.pid for process in made.processes.values()]
        made.kill("stranger")
        assert len(made.processes) == 2
    assert not made.folder.exists()
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.loopback
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a held port would be closed to the SuperLink, too")
def test_the_port_of_a_superlink_is_kept_for_it_until_the_end(program):
    """Another process that asks for any free port, such as a second federation, does not get it."""
    with Deployment(insecure=True) as made:
        made.kill("superlink")
        with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", made.port))
        made.start_superlink()
        assert made.is_alive()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", made.port))


@pytest.mark.loopback
def test_a_process_that_left_the_group_is_ended_with_the_rest(program, monkeypatch):
    """The SuperLink's apps run in sessions of their own; a system without ``ps`` has them, too."""
    if Path("/proc/self/cmdline").exists():
        monkeypatch.setenv("PATH", "")
    with Deployment(insecure=True) as made:
        stray = subprocess.Popen([str(program), "--superlink", f"{made.folder}/"], start_new_session=True)
    try:
        assert stray.wait(60) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait()
    assert not made.folder.exists()


@pytest.mark.loopback
def test_a_superlink_that_does_not_start_is_told_with_its_log_and_leaves_nothing(program):
    program.write_text(f"#!{sys.executable}\nraise SystemExit('no port for me')\n")
    made = Deployment(insecure=True)
    with pytest.raises(FederationError, match="the superlink did not start:\nno port for me"), made:
        pass
    assert not made.folder.exists()


def test_a_program_that_is_not_installed_is_named(idle, monkeypatch, tmp_path):
    ours = idle._program("flower-supernode")
    idle.plain = True
    own = idle._program("flower-supernode")
    assert ours == [sys.executable, "-m", "qfl_core.network.supernode"]
    assert own == [str(Path(sys.executable).parent / "flower-supernode")]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(FederationError, match="flower-superlink is not installed"):
        Deployment(insecure=True).__enter__()


def test_a_run_is_submitted_and_its_state_is_read(asked, tmp_path):
    made = Deployment(insecure=True)
    try:
        assert made.submit(tmp_path, {"rounds": 3, "experiment": '{"mu": 0.1}'}, "num-supernodes=2") == "17"
        assert (made.folder / "run.toml").read_text() == 'rounds = 3\nexperiment = "{\\"mu\\": 0.1}"\n'
        assert asked[-1][:3] == ("run", str(tmp_path), CONNECTION)
        assert asked[-1][-4:-2] == ("--federation-config", "num-supernodes=2")
        found = made.status("17")
        assert (found.state, found.details, found.is_over) == ("finished:failed", "out of luck", True)
    finally:
        made.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_command_of_flower_that_fails_is_told():
    made = Deployment(insecure=True)
    try:
        with pytest.raises(FederationError, match="flwr no-such-command"):
            made.flwr("no-such-command", "at all")
    finally:
        made.stop()


class Command:
    """Plays Flower's command line: prints as it does, sees the environment, and ends with a status."""

    def __init__(self, status=None, answer=""):
        self.status, self.answer, self.home = status, answer, None

    def main(self, arguments, prog_name, standalone_mode):
        self.home = os.environ["FLWR_HOME"]
        print("Loading")
        print(self.answer, file=sys.__stdout__)
        return self.status


@pytest.fixture
def command(monkeypatch):
    from flwr.cli import app

    made = Command()
    monkeypatch.setattr(app, "typer_click_object", made)
    return made


@pytest.fixture
def idle():
    made = Deployment(insecure=True)
    yield made
    made.stop()


def test_a_command_of_flower_gets_its_own_environment_and_leaves_that_of_this_process(idle, command, capsys):
    environment, stdout = dict(os.environ), sys.__stdout__
    command.answer = '{"success": true}'
    assert idle.flwr("list") == '{"success": true}\n'
    assert command.home == str(idle.folder / "homes" / "launcher")
    assert dict(os.environ) == environment
    assert sys.__stdout__ is stdout
    assert capsys.readouterr().out == ""


def test_ctrl_c_during_a_command_of_flower_is_ctrl_c(idle, command):
    command.status = 130  # what its command line makes of an interrupt
    with pytest.raises(KeyboardInterrupt):
        idle.flwr("list")


def test_an_answer_of_flower_that_says_no_is_told(idle, command):
    command.answer = '{"success": false, "error-message": "Run ID not found."}'
    with pytest.raises(FederationError, match=r"flwr list federation failed: Run ID not found\."):
        idle.status("77")
    command.status, command.answer = 1, "it said why"
    with pytest.raises(FederationError, match="flwr list federation failed: it said why\nLoading"):
        idle.status("77")


# Following a run

CONFIG, SPLITS = small(rounds=2), planted_splits()


class Elsewhere(InProcess):
    """Trains in this process, but says that it reaches nodes."""

    transport = DEPLOYMENT


def over_nodes(results: Path, **options):
    prepared = dataclasses.replace(prepare(CONFIG, SPLITS), splits_sha256=None)  # as if the config had named these data
    return run_prepared(prepared, results, Elsewhere(), **options)


class Played:
    """A deployment whose run is done by this process as soon as it is submitted, or never."""

    def __init__(self, folder: Path, does=lambda settings: None):
        self.folder, self.does, self.nodes, self.alive = folder, does, [], True
        self.address = "127.0.0.1:1"

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        pass

    def start_node(self, name, config):
        assert {path.name for path in Path(config["data-dir"]).iterdir()} == {"rows.csv", "site.json"}
        self.nodes.append(name)

    def submit(self, app, settings):
        assert {path.name for path in app.iterdir()} == {"pyproject.toml"}
        self.does(settings)
        return "1"

    def is_alive(self):
        return self.alive

    def log(self, name):
        return "its last words"

    def status(self, run):
        return deploying.Status("finished:failed", "out of luck")


@pytest.fixture
def played(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "data_source", lambda _: SPLITS.provenance)
    monkeypatch.setattr(launch, "load_splits", lambda _: SPLITS)
    made = Played(tmp_path / "deployment")
    monkeypatch.setattr(launch, "Deployment", lambda **_: made)
    return made


def test_a_federation_tells_its_rounds_and_is_not_repeated(played, tmp_path):
    told = []
    played.does = lambda settings: over_nodes(tmp_path / "results", repeat=settings["repeat"])
    handler = signal.getsignal(signal.SIGTERM)
    result = launch.federate(CONFIG, tmp_path / "results", say=told.append)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert played.nodes == ["node-0", "node-1", "node-2"]
    assert told[:2] == ["SuperLink on 127.0.0.1:1, TLS", "3 SuperNodes started, their keys on the list"]
    last = result.rounds.iloc[-1]
    assert told[-1].startswith(f"round  2/2  accuracy {last['global_accuracy']:.4f}  val loss {last['val_loss']:.4f}")
    assert [line[:9] for line in told[2:]] == ["round  0/", "round  1/", "round  2/"]
    again = launch.federate(CONFIG, tmp_path / "results", say=told.append)
    assert again.path == result.path
    assert told[-1] == f"finished before: {result.path}"


def test_a_superlink_that_stops_and_a_run_that_fails_are_told(played, tmp_path, monkeypatch):
    played.alive = False
    with pytest.raises(FederationError, match="the SuperLink stopped; .* resumes the run:\nits last words"):
        launch.federate(CONFIG, tmp_path / "results", say=lambda _: None)
    played.alive, played.folder = True, tmp_path / "another"
    monkeypatch.setattr(launch, "ASK_SECONDS", 0.0)
    with pytest.raises(FederationError, match="the run ended as finished:failed: out of luck"):
        launch.federate(CONFIG, tmp_path / "results", say=lambda _: None)


def test_sigterm_ends_a_federation_as_ctrl_c_does(played, tmp_path):
    played.does = lambda _: signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        launch.federate(CONFIG, tmp_path / "results", say=lambda _: None)


def test_rounds_are_told_alike_from_the_journal_and_from_the_tables(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "seal", lambda self: None)
        unsealed = over_nodes(tmp_path / "a").path
    sealed = over_nodes(tmp_path / "b").path

    def lines(path):
        rows = [row | {"seconds": 0.0} for row in launch._rounds(RunFolder(path))]
        return [launch._line(row, 2) for row in rows]

    assert lines(unsealed) == lines(sealed)
    row = launch._rounds(RunFolder(sealed))[1] | {"exclusions": [{"client": 2, "reason": "it was late"}]}
    assert launch._line(row, 2).endswith("\n  without client 2: it was late")


def test_a_round_with_noise_tells_what_privacy_it_has_cost(tmp_path):
    config = CONFIG.replace(outer_period=0, dp_noise=2.0)
    prepared = prepare(config, SPLITS)
    path = run_prepared(prepared, tmp_path, Elsewhere()).path
    rows = launch._rounds(RunFolder(path))
    spent = pd.read_csv(path / "privacy.csv").set_index("round")
    for row in rows[1:]:
        epsilon, at_server = spent.loc[row["round"], ["epsilon", "epsilon_server"]]
        assert f"  epsilon {epsilon:.2f}, at the server {at_server:.2f}" in launch._line(row, 2)
    assert 0 < spent["epsilon"].iloc[0] < spent["epsilon"].iloc[-1] < spent["epsilon_server"].iloc[-1]
