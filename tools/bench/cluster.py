"""How much faster Dask workers are together: ``python -m tools.bench.cluster``; needs a machine without other work."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.runs.sweep import grid, sweep
from tools.bench.timing import once


def measure_workers(most: int, runs: int) -> dict[int, float]:
    """Return the seconds of one sweep by 0 workers (this process), 1, 2, ... workers; all have done a run before."""
    base = load_profile("paper").config("baf", source="stand-in", rounds=10)
    configs = grid(base, method=["duqfl-prox"], seed=range(runs))
    seconds = {}
    with TemporaryDirectory() as folder:
        # So that the data of every seed are kept, and no row has to compute them.
        sweep(grid(base, method=["untrained"], seed=range(runs)), Path(folder, "here"), jobs=1, progress=False)
        seconds[0] = once(partial(sweep, configs, Path(folder, "here"), jobs=1, progress=False))[0]
        for count in range(1, most + 1):
            with _cluster(count) as address:
                _warm_up(address, count, base, Path(folder, f"warm-{count}"))
                call = partial(sweep, configs, Path(folder, str(count)), scheduler=address, progress=False)
                seconds[count] = once(call)[0]
    return seconds


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


def main(arguments: list[str] | None = None) -> None:
    """Print one row of a table per number of workers."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.cluster", description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="the most workers (4)")
    parser.add_argument("--runs", type=int, default=24)
    options = parser.parse_args(arguments)
    seconds = measure_workers(options.workers, options.runs)
    print(f"{options.runs} runs, {os.cpu_count()} cores")
    print("| workers | seconds | runs per second | times one worker |\n|---|---|---|---|")
    for count, time in seconds.items():
        name = str(count) if count else "none (one process)"
        print(f"| {name} | {time:.1f} | {options.runs / time:.2f} | {seconds[1] / time:.2f} |")


if __name__ == "__main__":
    main()
