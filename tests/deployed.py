"""Real federations for tests: settings, waiting without timing, comparing runs, and a proxy that cuts connections."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np

from qfl_core.config import load_profile
from qfl_core.network.deployment import Deployment
from qfl_core.network.site import export_client
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.prepare import make_federation
from qfl_core.runs.schema import SCHEMA

ROOT = Path(__file__).resolve().parent.parent
CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=3, rounds=2, train_size=300, val_size=100, test_size=100, seed=5, outer_period=1
)
#: A machine with other work may need long; nothing here waits this long when all is well.
PATIENCE = 400


def settings(config, results, **more) -> dict:
    common = {"experiment": json.dumps(config.to_dict()), "results-dir": str(results), "timeout": 300.0, "wait": 120.0}
    return common | more


def finish(deployment: Deployment, run: str) -> str:
    """Wait until a run is over; return its state and details."""
    deadline = time.monotonic() + PATIENCE
    while not (status := deployment.status(run)).is_over:
        assert time.monotonic() < deadline, deployment.log("superlink", 60)
        time.sleep(0.5)
    return f"{status.state} {status.details}"


def until(condition, what: str):
    """Wait until a condition holds; return what it returned."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)
    return found


def start_node(deployment: Deployment, federation, splits, i: int, **options) -> None:
    """Start the node of client i, which has a folder of its own; node settings are in ``more``."""
    folder, more = deployment.folder / f"data-{i}", options.pop("more", {})
    export_client(splits, federation, i, folder)
    deployment.start_node(f"node-{i}", {"partition-id": i, "data-dir": str(folder)} | more, **options)


def start_nodes(deployment: Deployment, splits, config=CONFIG, **options) -> None:
    """Start the node of every client."""
    federation = make_federation(config, splits)
    for i in range(config.clients):
        start_node(deployment, federation, splits, i, **options)


def journal(results: Path) -> list[dict]:
    """Return the rounds of a run that goes on."""
    paths = sorted(results.glob("*/*/*/seed-*/*/journal.jsonl"))
    return RunFolder(paths[-1].parent).journal.records() if paths else []


def assert_equal_runs(found, expected) -> None:
    """Both runs have the same weights and controller in every round, to the bit, and the same tables, to the byte."""
    assert not (found.path / "exclusions.csv").exists(), (found.path / "exclusions.csv").read_text()
    assert np.array_equal(found.weights, expected.weights)
    assert (found.path / "global_params.npz").read_bytes() == (expected.path / "global_params.npz").read_bytes()
    for name in SCHEMA:
        assert (found.path / f"{name}.csv").read_bytes() == (expected.path / f"{name}.csv").read_bytes(), name


class Gates:
    """The plan file of :mod:`faulty_app`, and its gates: where a client waits, and when it goes on."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.plan({})

    def plan(self, faults: dict) -> None:
        """Write the faults by client and phase, and close all gates."""
        for mark in (*self.folder.glob("asked-*"), *self.folder.glob("open-*")):
            mark.unlink()
        (self.folder / "plan.new").write_text(json.dumps(faults))
        (self.folder / "plan.new").replace(self.folder / "plan.json")

    def wait_for(self, client: int, phase: str) -> None:
        """Wait until a client has got the message of a phase."""
        until((self.folder / f"asked-{client}-{phase}").exists, f"client {client} in {phase}")

    def open(self, client: int, phase: str) -> None:
        """Let a client go on."""
        (self.folder / f"open-{client}-{phase}").touch()


class CuttingProxy:
    """Forwards connections to a port of this machine, and cuts every one of them in mid-message.

    Every second connection is cut after ``few`` bytes in both directions together, the others after ``many``. So a
    message of fewer than ``many`` bytes gets through at the second try of its node, and no test waits for luck. Half of
    the connections end as if the other side had closed them, half as if it had never been there.
    """

    def __init__(self, port: int, few: int, many: int):
        self.target, self.limits, self.cuts = port, itertools.cycle((few, many)), 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.server.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            near.close()
            return
        left = [next(self.limits)]
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._forward, args=(source, sink, left), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1000):
                if left[0] < len(data):
                    self.cuts += 1
                    if self.cuts % 2:
                        for end in (source, sink):  # a reset instead of an end
                            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                left[0] -= len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
