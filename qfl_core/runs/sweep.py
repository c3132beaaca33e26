"""Many runs: a grid of configs over processes, or over a Dask cluster by naming its scheduler."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qfl_core.base.errors import RunError
from qfl_core.base.paths import no_network
from qfl_core.base.processes import in_processes
from qfl_core.base.progress import bar
from qfl_core.base.registry import REGISTERED, Plugin
from qfl_core.config import ExperimentConfig
from qfl_core.data import data_source
from qfl_core.runs.plugins import adopt
from qfl_core.runs.results import RunResult
from qfl_core.runs.run import run_experiment

if TYPE_CHECKING:
    from distributed import Client

#: Seconds of work from which on processes are worth their start: each imports the package and loads the data.
WORTH_PROCESSES = 12.0
#: Seconds until a Dask scheduler must have answered.
CONNECT_SECONDS = 10.0


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
    progress: bool | None = None,
) -> list[RunResult]:
    """Run every config, finished ones excepted, and return all results in the order given.

    Parameters
    ----------
    configs : equal ones are run once.
    jobs : processes on this machine; by default one per core if the runs take long enough, otherwise none.
    scheduler : address of a Dask scheduler, e.g. ``"tcp://host:8786"``; its workers must see ``results_dir``.
    progress : show a bar with the time left; by default everywhere but in a notebook.

    Raises
    ------
    SweepError
        At the end, when some runs failed: the others are complete.
    """
    wanted = list(configs)
    unique = list(dict.fromkeys(wanted))
    found: dict[ExperimentConfig, Path | Failure] = {}
    without_files = _without_files(unique)
    own = list(REGISTERED.values())
    tasks = [(config, str(results_dir), without_files.get(config.dataset, ""), own) for config in unique]
    with nullcontext() if scheduler is None else _connected(scheduler) as client:
        outcomes = _outcomes(tasks, jobs) if client is None else _cluster_outcomes(tasks, client)
        with bar(len(unique), "run", show=progress) as runs:
            for config, outcome in outcomes:
                found[config] = outcome
                runs.update()
    failures = [outcome for outcome in found.values() if isinstance(outcome, Failure)]
    if failures:
        raise SweepError(failures, len(unique))
    paths = {config: outcome for config, outcome in found.items() if isinstance(outcome, Path)}
    return [RunResult(paths[config]) for config in wanted]


#: What a worker needs to know about one run: the arguments of :func:`_run`.
Task = tuple[ExperimentConfig, str, str, list[Plugin]]
Outcome = tuple[ExperimentConfig, Path | Failure]


def _outcomes(tasks: list[Task], jobs: int | None) -> Iterator[Outcome]:
    """Yield every task's outcome as it is done on this machine.

    Without ``jobs``, runs are done here until those before tell that the rest will take longer than processes take to
    start.
    """
    waiting, begun = list(tasks), time.perf_counter()
    if jobs is None:
        while waiting:
            yield _run(*waiting.pop(0))
            seconds = (time.perf_counter() - begun) / (len(tasks) - len(waiting))
            if seconds * len(waiting) > WORTH_PROCESSES:
                break
    if waiting:
        # Processes that imported another version of a plugin are not used again.
        versions = tuple(sorted(plugin.sha256 for plugin in REGISTERED.values()))
        yield from in_processes(_run, waiting, jobs or -1, ordered=False, versions=versions)


def _without_files(configs: list[ExperimentConfig]) -> dict[str, str]:
    """Look for each dataset's files once, before any worker starts; return why those that have none got none."""
    missing = {}
    for config in {config.dataset: config for config in configs if config.source == "auto"}.values():
        with suppress(Exception):  # whatever it is, the runs that need the data report it
            if (source := data_source(config)).kind == "stand-in":
                missing[config.dataset] = source.reason.split(", ", 1)[-1]  # the first part names the folders
    return missing


def _run(config: ExperimentConfig, results_dir: str, without_files: str, own: list[Plugin]) -> Outcome:
    """Run one config in a worker; an error comes back as a value, so that the others go on.

    Where the parent found no files, ``without_files`` is the reason, and the worker does not ask the network again.
    What the parent registered, the worker knows too.
    """
    from threadpoolctl import threadpool_limits  # here, because only workers need it

    try:
        adopt(own)
        # Processes share the cores, so threads inside them would only get in the way.
        with threadpool_limits(1), no_network(without_files) if without_files else nullcontext():
            return config, run_experiment(config, results_dir).path
    except Exception as error:  # whatever it is, it belongs to this config and is reported with it
        return config, Failure(config, f"{type(error).__name__}: {error}", traceback.format_exc())


def _connected(scheduler: str) -> Client:
    """Return a connection to a Dask scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise RunError("a Dask scheduler needs the package 'distributed' (extra 'cluster')") from None
    try:
        return Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise RunError(f"no Dask scheduler answers at {scheduler!r}: {error}") from None


def _cluster_outcomes(tasks: list[Task], client: Client) -> Iterator[Outcome]:
    """Yield every task's outcome as it is done on a Dask cluster.

    Tasks go to Dask directly and not through joblib, because under joblib a worker with one thread was seen to run two
    tasks at the same time, each of which then took about twice the processor time.
    """
    from distributed import as_completed

    configs = {client.submit(_run, *task, pure=False): task[0] for task in tasks}
    try:
        for future in as_completed(list(configs)):
            error = future.exception()
            if error is None:
                yield future.result()
            else:  # the worker died with this run several times
                yield configs[future], Failure(configs[future], f"{type(error).__name__}: {error}", str(error))
    except CancelledError:  # what was submitted, because the scheduler cannot be reached any more
        advice = "start the same sweep again, finished runs and complete rounds are kept"
        raise RunError(f"the Dask scheduler is gone: {advice}") from None
