"""Start or resume a run, and never repeat a finished one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from qfl_core.algorithm.server import IN_PROCESS, Trainer
from qfl_core.base.files import locked
from qfl_core.base.paths import below
from qfl_core.base.progress import bar
from qfl_core.config import ExperimentConfig
from qfl_core.data import Splits, data_source
from qfl_core.runs.experiment import state_from_json, train
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.identity import environment, run_identity
from qfl_core.runs.prepare import Prepared, prepare
from qfl_core.runs.results import RunResult


def run_experiment(
    config: ExperimentConfig,
    results_dir: str | Path = "results",
    *,
    repeat: bool = False,
    progress: bool = False,
    splits: Splits | None = None,
) -> RunResult:
    """Run an experiment and write its folder; resume it where it stopped, return it where it is finished.

    Parameters
    ----------
    repeat : run again although a finished run exists.
    progress : show a bar over the rounds, in a notebook too.
    splits : data already loaded for this config, to save the loading.
    """
    source = data_source(config) if splits is None else splits.provenance
    identity = run_identity(config, source.sha256)

    def complete(folder: RunFolder) -> None:
        _complete(folder, prepare(config, splits), identity, IN_PROCESS, progress)

    return _run(config, results_dir, identity, repeat, complete)


def run_prepared(prepared: Prepared, results_dir: str | Path, trainer: Trainer, *, repeat: bool = False) -> RunResult:
    """Run a federation whose clients are trained elsewhere; its runs are kept apart from those of one process."""
    config = prepared.federation.config
    identity = run_identity(config, prepared.source.sha256, trainer.transport)

    def complete(folder: RunFolder) -> None:
        _complete(folder, prepared, identity, trainer, progress=False)

    return _run(config, results_dir, identity, repeat, complete)


def _run(
    config: ExperimentConfig,
    results_dir: str | Path,
    identity: str,
    repeat: bool,
    complete: Callable[[RunFolder], None],
) -> RunResult:
    """Return the finished run; ``complete`` trains what is missing while this process holds the run's lock."""
    with locked(run_parent(config, results_dir) / f".{identity[:8]}.lock"):
        folder = _find(config, results_dir, identity, repeat)
        if folder.is_done:
            folder.journal.drop()
        else:
            complete(folder)
    return RunResult(folder.path)


def _complete(folder: RunFolder, prepared: Prepared, identity: str, trainer: Trainer, progress: bool) -> None:
    federation, config = prepared.federation, prepared.federation.config
    if not folder.is_begun:
        folder.create(config.to_json(), environment(prepared, identity, trainer.transport))
    folder.mend()
    journal = folder.journal
    done = journal.records()
    state = state_from_json(done[-1]["state"]) if done else None
    name = f"{config.method} {config.dataset} seed {config.seed}"
    with bar(config.rounds, "round", show=progress, initial=state.t if state else 0, desc=name) as rounds:
        for record in train(federation, state, trainer):
            journal.append(record)
            rounds.update(record["state"]["done"] - rounds.n)
    folder.seal()


def run_parent(config: ExperimentConfig, results_dir: str | Path) -> Path:
    """Return ``<method>/<dataset>-<encoding>/<split>/seed-<s>`` below the results folder."""
    data = f"{config.dataset}-{config.encoding}"
    return below(Path(results_dir), config.method, data, config.split, f"seed-{config.seed}")


def run_folders(config: ExperimentConfig, results_dir: str | Path, identity: str) -> list[RunFolder]:
    """Return the folders of this run, the oldest first, finished or not."""
    return [RunFolder(path) for path in sorted(run_parent(config, results_dir).glob(f"*-{identity[:8]}"))]


def finished_run(config: ExperimentConfig, data_sha256: str, results_dir: str | Path = "results") -> RunResult | None:
    """Return the newest finished run of this config, data and code, or ``None``; nothing is trained."""
    folders = run_folders(config, results_dir, run_identity(config, data_sha256))
    finished = [folder for folder in folders if folder.is_done]
    return RunResult(finished[-1].path) if finished else None


def _find(config: ExperimentConfig, results_dir: str | Path, identity: str, repeat: bool) -> RunFolder:
    """Return the run of this identity: a finished one, an unfinished one to resume, or a new folder's name."""
    folders = run_folders(config, results_dir, identity)
    finished = [folder for folder in folders if folder.is_done]
    unfinished = [folder for folder in folders if not folder.is_done]
    if finished and not repeat:
        return finished[-1]
    if unfinished:
        return unfinished[-1]
    # Microseconds keep a repeated run apart from the one it repeats.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return RunFolder(run_parent(config, results_dir) / f"{stamp}-{identity[:8]}")
