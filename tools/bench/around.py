"""What surrounds training: imports, data, the command line and Dask, in seconds, each in processes of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.bench import record as targets
from tools.bench.cluster import measure_workers

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
    """Return what a warm worker adds to a run, and how many times as fast two workers are as one."""
    runs = 16
    time = measure_workers(2, runs)
    return {
        targets.DASK_OVERHEAD: (time[1] - time[0]) / runs,
        targets.DASK_WORKERS: time[1] / time[2],
    }
