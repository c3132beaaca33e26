"""How much faster Dask workers are together: ``python -m tools.bench.cluster``; needs a machine without other work."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from qfl_core.config import load_profile
from qfl_core.runs.sweep import grid, sweep
from tools.bench.around import _cluster, _warm_up
from tools.bench.timing import once


def measure_workers(most: int, runs: int) -> dict[int, float]:
    """Return the seconds of one sweep by 0 workers (this process), 1, 2, ... workers; all have done a run before."""
    base = load_profile("paper").config("baf", source="stand-in", rounds=10)
    configs = grid(base, method=["duqfl-prox"], seed=range(runs))
    seconds = {}
    with TemporaryDirectory() as folder:
        sweep(grid(base, method=["untrained"], seed=range(2)), Path(folder, "here"), jobs=1, progress=False)
        seconds[0] = once(partial(sweep, configs, Path(folder, "here"), jobs=1, progress=False))[0]
        for count in range(1, most + 1):
            with _cluster(count) as address:
                _warm_up(address, count, base, Path(folder, f"warm-{count}"))
                call = partial(sweep, configs, Path(folder, str(count)), scheduler=address, progress=False)
                seconds[count] = once(call)[0]
    return seconds


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
