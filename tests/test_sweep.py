"""Sweeps: every run once, failures together at the end and never lost, the same bits in any process."""

import importlib
import math
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from qfl_core.base.errors import RunError
from qfl_core.base.registry import DATASETS, DatasetSpec
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.data import sources
from qfl_core.data.standin.common import announce
from qfl_core.runs import find_runs, run_experiment
from qfl_core.runs import sweep as sweeps
from qfl_core.runs.plugins import register_dataset, register_loss, register_method
from qfl_core.runs.sweep import SweepError, grid, sweep

BASE = load_profile("smoke").config(
    "baf", source="stand-in", rounds=2, clients=2, train_size=300, val_size=100, test_size=100
)
FILES = ("global_accuracies.csv", "client_trace.csv", "classification_metrics.csv", "global_params.npz")


def contents(result) -> list[bytes]:
    return [(result.path / name).read_bytes() for name in FILES]


def test_a_grid_has_every_combination_in_order():
    configs = grid(BASE, method=["duqfl-prox", "default-qfl"], seed=[0, 1])
    assert [(c.method, c.seed) for c in configs] == [
        ("duqfl-prox", 0),
        ("duqfl-prox", 1),
        ("default-qfl", 0),
        ("default-qfl", 1),
    ]


@pytest.mark.outside
def test_processes_give_the_bits_of_a_serial_run(tmp_path):
    configs = grid(BASE, method=["duqfl-prox", "adam-qfl"], seed=[0, 1])
    results = sweep(configs, tmp_path / "parallel", jobs=2, progress=False)
    assert [r.config for r in results] == configs
    for config, result in zip(configs, results, strict=True):
        assert contents(result) == contents(run_experiment(config, tmp_path / "serial"))
    assert contents(results[0]) != contents(results[1])


@pytest.mark.parametrize(("seconds", "processes"), [(0.0, 2), (math.inf, 0)])
def test_processes_are_used_where_the_runs_take_long_enough(tmp_path, monkeypatch, seconds, processes):
    handed_over = []

    def in_processes(function, tasks, jobs, *, ordered, versions):
        assert jobs == -1  # one per core
        return [handed_over.append(task[0]) or function(*task) for task in tasks]

    monkeypatch.setattr(sweeps, "WORTH_PROCESSES", seconds)
    monkeypatch.setattr(sweeps, "in_processes", in_processes)
    configs = grid(BASE, seed=[0, 1, 2])
    assert [run.config for run in sweep(configs, tmp_path, progress=False)] == configs
    assert handed_over == configs[3 - processes :]  # the first run tells how long the others take


def test_finished_runs_are_skipped_and_equal_configs_run_once(tmp_path):
    first = sweep([BASE, BASE], tmp_path, jobs=1, progress=False)
    stamps = [(p, p.stat().st_mtime_ns) for p in sorted(first[0].path.iterdir())]
    again = sweep([BASE], tmp_path, jobs=1, progress=False)
    assert first[0].path == first[1].path == again[0].path
    assert [(p, p.stat().st_mtime_ns) for p in sorted(again[0].path.iterdir())] == stamps
    assert len(find_runs(tmp_path)) == 1


@pytest.mark.outside
def test_failures_come_together_at_the_end_and_the_others_finish(tmp_path):
    impossible = BASE.replace(clients=250, split="iid", train_size=250)
    unknown = BASE.replace(source="official", seed=3)
    with pytest.raises(SweepError) as caught:
        sweep([impossible, BASE, unknown], tmp_path, jobs=2, progress=False)
    failed = {failure.config: failure for failure in caught.value.failures}
    assert set(failed) == {impossible, unknown}
    assert "2 of 3 runs failed" in str(caught.value)
    assert "owns no training row" in failed[impossible].error
    assert "Traceback" in failed[unknown].details
    assert [run.config for run in find_runs(tmp_path)] == [BASE]


def test_data_that_cannot_be_loaded_fail_their_run_alone(tmp_path, clean_tables):
    def gone(config, order=None):
        return (tmp_path / "gone.csv").open()

    register_dataset("mine", DatasetSpec(gone, (300, 100, 100), {"pca": DATASETS["baf"].encodings["pca"]}))
    with pytest.raises(SweepError, match="1 of 2 runs failed") as told:
        sweep([BASE, BASE.replace(dataset="mine", source="auto")], tmp_path, jobs=1)
    assert [failure.config.dataset for failure in told.value.failures] == ["mine"]
    assert "FileNotFoundError" in told.value.failures[0].error
    assert [run.config.dataset for run in find_runs(tmp_path)] == ["baf"]


@pytest.mark.outside
def test_workers_do_not_repeat_a_download_that_failed(tmp_path, monkeypatch):
    """The parent finds out once; a worker that tried again would wait for the network in every process."""
    monkeypatch.setenv("QFL_OFFLINE", "0")
    monkeypatch.setattr(sources, "_download", lambda official, cache, where: f"{where}, planted failure")
    results = sweep(grid(BASE.replace(source="auto"), seed=[0, 1]), tmp_path, jobs=2, progress=False)
    assert [result.environment["data"]["source"] for result in results] == ["stand-in", "stand-in"]


def test_the_reason_for_the_stand_in_is_told_once_and_stays_true(tmp_path, monkeypatch, capsys):
    """What forbids the network inside a sweep is the failed download, and not a variable that nobody has set."""
    monkeypatch.setenv("QFL_OFFLINE", "0")
    monkeypatch.setattr(sources, "_download", lambda official, cache, where: f"{where}, planted failure (a, b)")
    announce.cache_clear()
    sweep(grid(BASE.replace(source="auto"), seed=[0, 1]), tmp_path, progress=False)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[data]")]
    assert len(told) == 1
    assert told[0].endswith("no file in the cache, planted failure (a, b))")


@pytest.fixture
def mine(tmp_path, monkeypatch, clean_tables):
    """A user's module with a loss."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_sweep_loss.py").write_text(LOSS.format(2.0))
    importlib.invalidate_caches()
    yield importlib.import_module("my_sweep_loss")
    del sys.modules["my_sweep_loss"]


LOSS = "POWER = {}\ndef value(p, y, margin):\n    return abs(p - y) ** POWER\n"


@pytest.mark.outside
def test_a_run_is_refused_where_a_worker_has_another_plugin(tmp_path, mine):
    mine.POWER = 3.0  # of this process alone: the function travels by its name
    register_loss("mine", mine.value)
    with pytest.raises(SweepError, match="loss 'mine' differs between this worker and the process that registered it"):
        sweep([BASE.replace(loss="mine")], tmp_path, jobs=2, progress=False)
    assert find_runs(tmp_path) == []
    sweep([BASE.replace(loss="mine")], tmp_path, jobs=1, progress=False)


@pytest.mark.outside
def test_an_edited_plugin_is_edited_in_the_workers_too(tmp_path, mine):
    """joblib keeps its workers, with the modules that they have imported."""
    for power in (2.0, 14.0):
        Path(mine.__file__).write_text(LOSS.format(power))
        importlib.reload(mine)
        register_loss("mine", mine.value)
        configs = grid(BASE.replace(loss="mine"), seed=range(4))  # enough for both workers
        for there in sweep(configs, tmp_path / "workers", jobs=2, progress=False):
            assert contents(there) == contents(run_experiment(there.config, tmp_path / "here"))


#: One object is a default, an attribute and a global at once: a copy of the row has an attribute of its own.
SHARED = """
import dataclasses
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.optimizers import Spsa

STEPS = {"factor": 0.5}

class Slower(Spsa):
    def __init__(self, steps=STEPS):
        super().__init__()
        object.__setattr__(self, "steps", steps)

    def update(self, block, objective, state):
        slow = dataclasses.replace(block, eta=block.eta * self.steps["factor"])
        return super().update(slow, objective, state)

row = dataclasses.replace(METHODS["duqfl-prox"], optimizer=Slower())
"""


@pytest.mark.outside
def test_a_plugin_whose_attribute_is_a_global_runs_in_workers_too(tmp_path, monkeypatch, clean_tables):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_shared.py").write_text(SHARED)
    importlib.invalidate_caches()
    monkeypatch.setitem(sys.modules, "my_shared", None)  # so that it is gone again after the test
    del sys.modules["my_shared"]
    register_method("mine", importlib.import_module("my_shared").row)
    (there,) = sweep([BASE.replace(method="mine")], tmp_path / "workers", jobs=2, progress=False)
    assert contents(there) == contents(run_experiment(there.config, tmp_path / "here"))


#: A whole study in one file, the way a reader of EXTENDING.md may write it.
SCRIPT = (
    SHARED
    + """
from qfl_core import ExperimentConfig, register_method
from qfl_core.runs.sweep import sweep

factor = 3.0  # a text of Slower.update is the same word, and workers have no such global

if __name__ == "__main__":
    register_method("mine", row)
    config = ExperimentConfig.from_dict(SETTINGS).replace(method="mine")
    for jobs in (1, 2):
        sweep([config], f"results-{jobs}", jobs=jobs, progress=False)
"""
)


@pytest.mark.outside
def test_a_class_of_the_script_that_was_started_runs_in_workers_too(tmp_path):
    text = SCRIPT.replace("SETTINGS", repr(BASE.to_dict()))
    (tmp_path / "my_study.py").write_text(text)
    done = subprocess.run([sys.executable, "my_study.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here, there = (find_runs_of_mine(tmp_path / f"results-{jobs}") for jobs in (1, 2))
    assert contents(here) == contents(there)
    assert here.path.name[-8:] == there.path.name[-8:]  # one identity


def find_runs_of_mine(results) -> SimpleNamespace:
    """The only run, which :func:`find_runs` leaves out because its method is not registered here."""
    (done,) = results.rglob("DONE")
    return SimpleNamespace(path=done.parent)


def test_a_progress_bar_counts_the_runs(tmp_path, capsys):
    sweep([BASE], tmp_path, jobs=1)
    assert "1/1" in capsys.readouterr().err


@pytest.mark.loopback
def test_a_scheduler_that_does_not_answer_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "CONNECT_SECONDS", 0.1)
    with socket.socket() as held:  # a port on which nobody listens, and nobody else can
        held.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(RunError, match=f"no Dask scheduler answers at '{address}'"):
            sweep([BASE], tmp_path, scheduler=address, progress=False)


def test_a_scheduler_that_is_lost_in_mid_sweep_is_a_clear_error(monkeypatch):
    """Dask cancels what it has been given when it cannot reach the scheduler any more."""
    distributed = pytest.importorskip("distributed")

    class Cancelled:
        def exception(self):
            raise distributed.client.FutureCancelledError("_run-1", "scheduler-connection-lost")

    monkeypatch.setattr(distributed, "as_completed", list)
    client = SimpleNamespace(submit=lambda function, *task, pure: Cancelled())
    with pytest.raises(RunError, match="the Dask scheduler is gone: start the same sweep again"):
        list(sweeps._cluster_outcomes([(BASE, "results", False, [])], client))


def test_configs_travel_between_processes():
    config = ExperimentConfig(participation=[0, 2], clients=3)
    assert pickle.loads(pickle.dumps(config)) == config
