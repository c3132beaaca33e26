"""What surrounds training: imports, data, the command line and Dask, in seconds, each in processes of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.runs.sweep import grid, sweep
from tools.bench import record as targets
from tools.bench.timing import once

#: The run that the README shows.
README_COMMAND = ("-m", "qfl_core", "run", "--dataset", "baf", "--method", "duqfl-prox", "--seed", "0")
#: Loads data in a process that has imported what it needs, and prints the processor time of the load.
_LOAD = """
import time
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
for settings in {settings!r}:
    begun = time.process_time()
    load_splits(ExperimentConfig(source="stand-in", **settings))
    print(time.process_time() - begun)
"""


def measure_around(quick: bool) -> dict[str, float]:
    """Return the measured values by the name of their target.

    Parameters
    ----------
    quick : measure once and without k-mers and Dask, for a test.
    """
    repeats = 1 if quick else 3
    found = {
        targets.IMPORT: min(_cpu_seconds("-c", "import qfl_core") for _ in range(repeats + 1)),
        targets.SECOND_LOAD: _second_load(),
        targets.README_RUN: _readme_run(repeats),
    }
    return found if quick else found | {targets.KMER_6: _kmer_6()} | _dask()


def _cpu_seconds(*arguments: str) -> float:
    """Run Python with these arguments; return the processor time of its process and those that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def _run(*arguments: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "QFL_DATA_DIR"}
    environment |= {"QFL_OFFLINE": "1"} | variables
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _loads(*settings: Mapping[str, object], **variables: str) -> list[float]:
    """Return the processor time of each load, all in one new process; the data room tells its sources on a line."""
    printed = _run("-c", _LOAD.format(settings=settings), **variables).split("\n")
    return [float(line) for line in printed if line and not line.startswith("[")]


def _second_load() -> float:
    """Return the slower one of the datasets' loads in a new process, after another process has loaded them."""
    settings = [{"dataset": "baf", "encoding": "pca"}, {"dataset": "genome", "encoding": "word-id"}]
    _loads(*settings)
    return max(_loads(*settings))


def _kmer_6() -> float:
    """Return the processor time of a first load with words of six letters, after the sequences were read."""
    with TemporaryDirectory() as folder:
        kmers = [{"dataset": "genome", "encoding": "kmer", "kmer": k} for k in (3, 6)]
        return _loads(*kmers, QFL_CACHE_DIR=folder)[1]


def _readme_run(repeats: int) -> float:
    """Return the processor time of the README's command when data and compiled code are kept."""
    with TemporaryDirectory() as folder:
        times = [_cpu_seconds(*README_COMMAND, "--results", str(Path(folder, str(i)))) for i in range(repeats + 1)]
    return min(times[1:])


def _dask() -> dict[str, float]:
    """Return what a warm worker adds to a run, and how many times as fast two workers are as one.

    The same runs are done here, by one worker and by two; each worker has done a run before.
    """
    base = load_profile("paper").config("baf", source="stand-in", rounds=10)
    with TemporaryDirectory() as folder:
        warm = grid(base, method=["untrained"], seed=range(2))
        runs = grid(base, method=["duqfl-prox"], seed=range(16))
        sweep(warm, Path(folder, "here"), jobs=1, progress=False)
        time = {0: once(partial(sweep, runs, Path(folder, "here"), jobs=1, progress=False))[0]}
        for count in (1, 2):
            with _cluster(count) as address:
                _warm_up(address, count, base, Path(folder, f"warm-{count}"))
                call = partial(sweep, runs, Path(folder, str(count)), scheduler=address, progress=False)
                time[count] = once(call)[0]
    return {
        targets.DASK_OVERHEAD: (time[1] - time[0]) / len(runs),
        targets.DASK_WORKERS: time[1] / time[2],
    }


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    """Start a Dask scheduler on this machine with workers of one thread; yield its address."""
    from distributed import LocalCluster

    with (
        TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=folder,
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster.scheduler_address


def _warm_up(address: str, workers: int, base: ExperimentConfig, folder: Path) -> None:
    """Let every worker import and compile what a run needs: each gets its own run."""
    from distributed import Client

    from qfl_core.runs.run import run_experiment

    with Client(address) as client:
        names = list(client.scheduler_info()["workers"])
        first = [
            client.submit(run_experiment, base.replace(seed=1000 + i), str(folder / str(i)), workers=[name], pure=False)
            for i, name in enumerate(names[:workers])
        ]
        for future in first:
            future.result()
