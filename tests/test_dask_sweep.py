"""Sweeps on a Dask cluster: a worker that dies in mid-sweep costs time, not runs."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from qfl_core.config import load_profile
from qfl_core.runs import find_runs, run_experiment
from qfl_core.runs.sweep import grid, sweep

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.loopback,
    pytest.mark.outside,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning",
        "ignore::ResourceWarning",
        "ignore::UserWarning",
        "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    ),
]

BASE = load_profile("smoke").config(
    "baf", source="stand-in", rounds=2, clients=2, train_size=300, val_size=100, test_size=100
)


def hold_at_the_gate(gate: str) -> None:
    """Let every run of this worker wait after its first round until the file ``gate`` exists."""
    from qfl_core.runs.journal import Journal

    append = Journal.append

    def append_and_wait(self, record) -> None:
        append(self, record)
        while not Path(gate).exists():
            time.sleep(0.01)

    Journal.append = append_and_wait  # type: ignore[method-assign]


def kill_a_worker_in_mid_run(cluster, results: Path, gate: Path, killed: list[int]) -> None:
    """Kill the first worker when both workers are in mid-run, then open the gate."""
    while len([path for path in results.glob("*/*/*/seed-*/*/journal.jsonl") if path.stat().st_size > 0]) < 2:
        time.sleep(0.01)
    worker = next(iter(cluster.workers.values()))
    killed.append(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    gate.touch()


def test_a_worker_killed_in_mid_sweep_loses_no_run(tmp_path):
    configs = grid(BASE, seed=range(3))
    killed: list[int] = []
    gate = tmp_path / "gate"
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        local_directory=str(tmp_path / "dask"),
        silence_logs=50,
    ) as cluster:
        with distributed.Client(cluster) as client:
            client.run(hold_at_the_gate, str(gate))
        threading.Thread(
            target=kill_a_worker_in_mid_run, args=(cluster, tmp_path / "results", gate, killed), daemon=True
        ).start()
        results = sweep(configs, tmp_path / "results", scheduler=cluster.scheduler_address, progress=False)
    assert killed
    assert [result.config for result in results] == configs
    assert len(find_runs(tmp_path / "results")) == len(configs)
    assert not any(result.changed_files() for result in results)
    for config, result in zip(configs[:2], results[:2], strict=True):  # those that were in mid-run
        expected = run_experiment(config, tmp_path / "serial")
        assert np.array_equal(result.weights, expected.weights)
        assert (result.path / "client_trace.csv").read_bytes() == (expected.path / "client_trace.csv").read_bytes()
