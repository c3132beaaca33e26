"""A SuperLink and its SuperNodes on this machine: started with TLS and node keys, stopped whatever happens."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qfl_core.base.errors import FederationError
from qfl_core.base.files import write_text
from qfl_core.network import superlink, supernode
from qfl_core.network.credentials import Certificates, make_certificates, make_node_key

LOOPBACK = "127.0.0.1"
CONNECTION = "federation"
#: Seconds until a SuperLink that does not listen counts as hung; one that ends is noticed at once.
START_SECONDS = 300.0
#: The exit status of a command that Ctrl-C ended.
INTERRUPTED = 130


@dataclass(frozen=True)
class Status:
    """A run as the SuperLink sees it: ``state`` such as ``running`` or ``finished:failed``, and its ``details``."""

    state: str
    details: str

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.state.startswith("finished")


class Deployment:
    """Processes of one federation in one temporary folder; use it in a ``with`` statement.

    Parameters
    ----------
    insecure : no TLS and no node keys; every node that connects is accepted.
    simulation : the SuperLink simulates the nodes (Ray) instead of waiting for them; loopback without TLS, as no
        node connects.
    database : keep the SuperLink's state in a file, so that it can be started again.
    plain : start Flower's own ``flower-supernode``, which starts a process per message, instead of ours.
    poll : seconds between two looks for work of the processes that start apps.
    """

    def __init__(
        self,
        *,
        insecure: bool = False,
        simulation: bool = False,
        database: bool = False,
        plain: bool = False,
        poll: float = 0.25,
    ) -> None:
        if sys.platform == "win32":  # which has no groups of processes
            raise FederationError("a federation on one machine needs Linux or macOS; on Windows, use WSL")
        self.insecure, self.simulation, self.poll = insecure or simulation, simulation, poll
        self.database, self.plain = database, plain
        self.folder = Path(tempfile.mkdtemp(prefix="qfl-federation-"))  # mode 700
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.certificates: Certificates | None = None
        self._held = hold_port()
        self.port = int(self._held.getsockname()[1])
        if sys.platform != "linux":  # where a held port would be closed to the SuperLink, too
            self._held.close()

    def __enter__(self) -> Deployment:
        try:
            if not self.insecure:
                self.certificates = make_certificates(self.folder)
            for name in ("keys", "homes/launcher"):
                (self.folder / name).mkdir(parents=True)
            write_text(self.folder / "homes" / "launcher" / "config.toml", self._connection())
            self.start_superlink()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _connection(self) -> str:
        trust = f'root-certificates = "{self.certificates.authority}"' if self.certificates else "insecure = true"
        return (
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{self.address}"\n{trust}\n'
        )

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{LOOPBACK}:{self.port}"

    def start_superlink(self) -> None:
        """Start the SuperLink, or, where it has a database, start it again after it died: its nodes are in there."""
        command = [*self._program("flower-superlink"), "--host", LOOPBACK, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        command += ["--database", str(self.folder / "superlink.db")] if self.database else []
        command += ["--simulation"] if self.simulation else []
        if self.certificates:
            command += [*self._tls(self.certificates), "--enable-supernode-auth"]
        else:
            command += ["--insecure"]
        self._start("superlink", command)
        self._wait_for(self.port, "superlink")

    def start_node(
        self,
        name: str,
        node_config: Mapping[str, Any],
        *,
        listed: bool = True,
        address: str | None = None,
        app: str | None = None,
    ) -> None:
        """Start a SuperNode.

        Parameters
        ----------
        listed : tell the SuperLink the node's key; it refuses a node whose key it does not know.
        address : where the node reaches the SuperLink, if not at its own address.
        app : another ClientApp than the package's, ``module:name``.
        """
        command = [*self._program("flower-supernode"), "--superlink", address or self.address]
        command += ["--app", app] if app else []
        command += ["--node-config", " ".join(f"{key}={json.dumps(value)}" for key, value in node_config.items())]
        if self.plain:
            with hold_port() as held:
                command += ["--host", LOOPBACK, "--port", str(held.getsockname()[1])]
            command += self._tls(self.certificates) if self.certificates else []
        if self.certificates:
            key = self.folder / "keys" / name
            if not key.exists():
                make_node_key(key.parent, name)
                if listed:
                    self.flwr("supernode", "register", str(key.with_suffix(".pub")), CONNECTION)
            command += ["--root-certificates", str(self.certificates.authority)]
            command += ["--auth-supernode-private-key", str(key)]
        else:
            command += ["--insecure"]
        self._start(name, command)

    @staticmethod
    def _tls(made: Certificates) -> list[str]:
        paths = {"ca-certfile": made.authority, "certfile": made.certificate, "keyfile": made.key}
        return [part for option, path in paths.items() for part in (f"--ssl-{option}", str(path))]

    def submit(self, app: Path, run_config: Mapping[str, Any], federation_config: str | None = None) -> str:
        """Start a run of the app in this folder; return its id."""
        path = self.folder / "run.toml"
        write_text(path, "".join(f"{key} = {json.dumps(value)}\n" for key, value in run_config.items()))
        more = ["--federation-config", federation_config] if federation_config else []
        return str(self._flwr_json("run", str(app), CONNECTION, "--run-config", str(path), *more)["run-id"])

    def status(self, run: str) -> Status:
        """Ask the SuperLink for the state of a run."""
        found = self._flwr_json("list", CONNECTION, "--run-id", run)["runs"][0]
        return Status(found["status"], found.get("status-details") or "")

    def is_alive(self, name: str = "superlink") -> bool:
        """Whether a process is running."""
        return self.processes[name].poll() is None

    def kill(self, name: str) -> None:
        """Kill a process and its group at once, as a power cut would."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str, lines: int = 20) -> str:
        """Return the end of a process's log."""
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Stop every process that was started, nodes first, and remove keys, logs and copies of data."""
        names = sorted(self.processes, key=lambda name: name == "superlink")
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.processes[name].pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        for name in names:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(max(0.1, deadline - time.monotonic()))
        for name in names:
            self.kill(name)
        # The SuperLink starts its apps in sessions of their own, and one that cannot reach it any more may linger.
        for process in self._leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._held.close()

    def _leftovers(self) -> list[int]:
        """Return the processes whose command line names this deployment's folder or the SuperLink's address."""
        marks = (f"{self.folder}/", f"--runtime-api-address {self.address} ")
        return [process for process, line in _command_lines() if any(mark in f"{line} " for mark in marks)]

    def flwr(self, *arguments: str) -> str:
        """Run a command of Flower's own command line; return the JSON that it prints.

        The command runs in this process, because a new process would spend seconds on imports for every node that is
        registered.
        """
        import click
        from flwr.cli.app import typer_click_object

        told, said = io.StringIO(), io.StringIO()
        with _environ(self._environment("launcher")), _captured(said, told):
            try:
                failed = typer_click_object.main(list(arguments), prog_name="flwr", standalone_mode=False)
            except click.ClickException as error:
                failed = error.format_message()
            except click.Abort:
                failed = "aborted"
            except SystemExit as ended:
                failed = ended.code
        if failed == INTERRUPTED:
            raise KeyboardInterrupt
        if failed:
            reason = f"{said.getvalue()}{told.getvalue()}{failed if isinstance(failed, str) else ''}".strip()
            raise FederationError(f"flwr {' '.join(arguments[:2])} failed: {reason[-500:]}")
        return said.getvalue()

    def _flwr_json(self, *arguments: str) -> dict[str, Any]:
        """Run a command of Flower's own command line that answers in JSON; return the answer."""
        said = self.flwr(*arguments, "--format", "json")
        answer: dict[str, Any] = json.loads(said[said.index("{") :])
        if not answer.get("success", True):  # the command itself ends as if all were well
            raise FederationError(f"flwr {' '.join(arguments[:2])} failed: {answer.get('error-message', said)}")
        return answer

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("a", encoding="utf-8") as file:
            self.processes[name] = subprocess.Popen(
                command,
                env=self._environment(name),
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a group of its own: killed with its children, spared by Ctrl-C
            )

    def _program(self, name: str) -> list[str]:
        """Return how one of Flower's programs is started: as ours, which takes the same options, unless ``plain``."""
        path = Path(sys.executable).parent / name
        if not path.exists():
            raise FederationError(f"{name} is not installed beside {sys.executable} (extra 'federation')")
        ours = {"flower-superlink": superlink, "flower-supernode": supernode}[name]
        return [str(path)] if self.plain else [sys.executable, "-m", ours.__name__]

    def _environment(self, home: str) -> dict[str, str]:
        """Return an environment in which processes find this package, keep to their own folder and tell nobody."""
        package = Path(__file__).resolve().parents[2]
        paths = {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(package), "NO_PROXY": LOOPBACK}
        joined = {
            key: (os.pathsep if key != "NO_PROXY" else ",").join(filter(None, [first, os.environ.get(key)]))
            for key, first in paths.items()
        }
        return (
            os.environ
            | joined
            | {
                "FLWR_HOME": str(self.folder / "homes" / home),
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
                "RAY_USAGE_STATS_ENABLED": "0",
                "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": f"{self.poll:g}",
                "OMP_NUM_THREADS": "1",
            }
        )

    def _wait_for(self, port: int, name: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.is_alive(name):
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
                return
            time.sleep(0.1)
        raise FederationError(f"the {name} did not start:\n{self.log(name)}")


@contextlib.contextmanager
def _environ(environment: Mapping[str, str]) -> Iterator[None]:
    """Let a call in this process see an environment; afterwards the environment is what it was."""
    own = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(own)


@contextlib.contextmanager
def _captured(said: io.StringIO, told: io.StringIO) -> Iterator[None]:
    """Collect what Flower's command line prints: its JSON in ``said``, everything else in ``told``.

    Flower prints JSON to the interpreter's own stdout, past any redirection, so that one is lent out as well.
    """
    own = sys.__stdout__
    try:
        sys.__stdout__ = said  # type: ignore[assignment, misc]
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            yield
    finally:
        sys.__stdout__ = own  # type: ignore[misc]


def _command_lines() -> Iterator[tuple[int, str]]:
    """Yield the id and the command line of every process; small Linux systems have no ``ps``."""
    if Path("/proc/self/cmdline").exists():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                yield int(path.parent.name), path.read_text(errors="replace").replace("\0", " ")
        return
    listed = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        process, _, command = line.strip().partition(" ")
        yield int(process), command


def hold_port() -> socket.socket:
    """Return a socket that holds a port of the loopback interface on which nobody listens.

    On Linux, a server that allows its address to be reused, as Flower's does, can listen there. Nobody else gets the
    port from the operating system while it is held, also when the SuperLink is down and starts again.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((LOOPBACK, 0))
    return held
