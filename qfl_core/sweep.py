"""Many runs: a grid of configs over processes, or over a Dask cluster by naming its scheduler."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import joblib
from threadpoolctl import threadpool_limits

from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.errors import DataError, RunError
from qfl_core.progress import bar
from qfl_core.runs import RunResult, run_experiment


@dataclass(frozen=True)
class Failure:
    """A run that failed: its config, the error in a line, and the traceback."""

    config: ExperimentConfig
    error: str
    details: str


class SweepError(RunError):
    """Some runs of a sweep failed; the others are finished and on disk. ``failures`` holds every one."""

    def __init__(self, failures: list[Failure], total: int):
        self.failures = failures
        lines = [
            f"  {f.config.method} {f.config.dataset}-{f.config.encoding} seed {f.config.seed}: {f.error}"
            for f in failures
        ]
        super().__init__("\n".join([f"{len(failures)} of {total} runs failed:", *lines]))


def grid(base: ExperimentConfig, **choices: Iterable[Any]) -> list[ExperimentConfig]:
    """Return the configs of all combinations: ``grid(base, method=METHODS, seed=range(10))``."""
    names = list(choices)
    return [base.replace(**dict(zip(names, values, strict=True))) for values in itertools.product(*choices.values())]


def sweep(
    configs: Iterable[ExperimentConfig],
    results_dir: str | Path = "results",
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: bool = True,
) -> list[RunResult]:
    """Run every config, finished ones excepted, and return all results in the order given.

    Parameters
    ----------
    configs : equal ones are run once.
    jobs : processes on this machine, one a core by default.
    scheduler : address of a Dask scheduler, e.g. ``"tcp://host:8786"``; its workers must see ``results_dir``.
    progress : show a bar with the time left.

    Raises
    ------
    SweepError
        At the end, when some runs failed: the others are complete.
    """
    wanted = list(configs)
    unique = list(dict.fromkeys(wanted))
    found: dict[ExperimentConfig, Path | Failure] = {}
    without_files = _without_files(unique)
    with _backend(scheduler):
        parallel = joblib.Parallel(n_jobs=jobs or -1, return_as="generator_unordered", batch_size=1)
        tasks = (joblib.delayed(_run)(config, str(results_dir), config.dataset in without_files) for config in unique)
        with bar(len(unique), "run", show=progress) as runs:
            for config, outcome in parallel(tasks):
                found[config] = outcome
                runs.update()
    failures = [outcome for outcome in found.values() if isinstance(outcome, Failure)]
    if failures:
        raise SweepError(failures, len(unique))
    return [RunResult(found[config]) for config in wanted]


def _without_files(configs: list[ExperimentConfig]) -> set[str]:
    """Look for each dataset's files once, before any worker starts; return the datasets that have none."""
    missing = set()
    for config in {config.dataset: config for config in configs if config.source == "auto"}.values():
        with suppress(DataError):  # damaged files are reported by the runs that need them
            if load_splits(config).source == "stand-in":
                missing.add(config.dataset)
    return missing


def _run(config: ExperimentConfig, results_dir: str, without_files: bool) -> tuple[ExperimentConfig, Path | Failure]:
    """Run one config in a worker; an error comes back as a value, so that the others go on.

    Where the parent found no files, the worker does not ask the network again.
    """
    if without_files and parent_process() is not None:
        os.environ["QFL_OFFLINE"] = "1"
    try:
        with threadpool_limits(1):  # processes share the cores; threads inside them would only get in the way
            return config, run_experiment(config, results_dir).path
    except Exception as error:  # whatever it is, it belongs to this config and is reported with it
        return config, Failure(config, f"{type(error).__name__}: {error}", traceback.format_exc())


@contextmanager
def _backend(scheduler: str | None) -> Iterator[None]:
    if scheduler is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise RunError("a Dask scheduler needs the package 'distributed' (extra 'cluster')") from None
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise RunError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None
    with client, joblib.parallel_config(backend="dask"):
        yield
