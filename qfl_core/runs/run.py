"""Start or resume a run, and never repeat a finished one."""

from __future__ import annotations

import warnings
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from qfl_core.algorithm.server import IN_PROCESS, Trainer
from qfl_core.base.errors import MendedJournal, NotFiniteError, RunError
from qfl_core.base.files import locked
from qfl_core.base.paths import below
from qfl_core.base.progress import bar
from qfl_core.config import ExperimentConfig
from qfl_core.data import Splits, data_source
from qfl_core.runs.experiment import state_from_json, train
from qfl_core.runs.finite import check_finite
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

    A finished run is found without a lock and without writing anything, so results may be on a read-only disk.

    Parameters
    ----------
    repeat : run again although a finished run exists.
    progress : show a bar over the rounds, in a notebook too.
    splits : data of your own instead of those that the config names. The digest of their arrays becomes part of the
        run's identity. So such a run is returned only for the same arrays, and never for a call without ``splits``.

    Raises
    ------
    ConfigError
        When the data have other sizes or another number of features than the config says.
    """
    identity = run_identity(config, data_source(config).sha256 if splits is None else splits.digest)
    found = None if repeat else _finished(config, results_dir, identity)
    return found or _run(prepare(config, splits), results_dir, identity, IN_PROCESS, repeat, progress)


def run_prepared(prepared: Prepared, results_dir: str | Path, trainer: Trainer, *, repeat: bool = False) -> RunResult:
    """Run a federation whose clients are trained elsewhere; its runs are kept apart from those of one process."""
    config = prepared.federation.config
    identity = run_identity(config, prepared.data_sha256, trainer.transport)
    found = None if repeat else _finished(config, results_dir, identity)
    return found or _run(prepared, results_dir, identity, trainer, repeat, progress=False)


def _run(
    prepared: Prepared, results_dir: str | Path, identity: str, trainer: Trainer, repeat: bool, progress: bool
) -> RunResult:
    """Train what is missing while this process holds the run's lock, and return the finished run."""
    config = prepared.federation.config
    with locked(run_parent(config, results_dir) / f".{identity[:8]}.lock"):
        # Another process may have finished the run while this one waited for the lock.
        found = None if repeat else _finished(config, results_dir, identity)
        if found:
            return found
        folder = _unfinished(config, results_dir, identity)
        _complete(folder, prepared, identity, trainer, progress)
    return RunResult(folder.path)


def _complete(folder: RunFolder, prepared: Prepared, identity: str, trainer: Trainer, progress: bool) -> None:
    federation, config = prepared.federation, prepared.federation.config
    is_mended = folder.mend()
    done = folder.journal.records()
    if is_mended:
        told = f"training goes on after round {len(done) - 1}, the last good one" if done else "training starts anew"
        warnings.warn(f"run {folder.path.name}: its journal is not whole; {told}", MendedJournal, stacklevel=4)
    if not done:
        folder.create(config.to_json(), environment(prepared, identity, trainer.transport))
    journal = folder.journal
    state = state_from_json(done[-1]["state"]) if done else None
    name = f"{config.method} {config.dataset} seed {config.seed}"
    reached = state.t if state else -1
    shown = bar(config.rounds, "round", show=progress, initial=state.t if state else 0, desc=name)
    # Where weights overflow, NumPy would warn again and again; what comes of it is refused below, in one line.
    with shown as rounds, np.errstate(all="ignore"):
        try:
            for record in train(federation, state, trainer):
                check_finite(record)
                journal.append(record)
                reached = record["state"]["done"]
                rounds.update(reached - rounds.n)
        except NotFiniteError as error:
            advice = "the rounds before it are kept; lower learning_rate, eta_bounds, outer_learning_rate or mu"
            raise RunError(f"run {folder.path.name} stops in round {reached + 1}: {error}; {advice}") from error
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
    return _finished(config, results_dir, run_identity(config, data_sha256))


def _finished(config: ExperimentConfig, results_dir: str | Path, identity: str) -> RunResult | None:
    """Return the newest finished run of this identity, or ``None``; no lock is needed."""
    found = run_folders(config, results_dir, identity)
    finished = [folder for folder in found if folder.is_done and not folder.is_of_another(identity)]
    if not finished:
        return None
    with suppress(RunError):  # because a disk that cannot be written may keep the journal of a sealed run
        finished[-1].drop_journal()
    return RunResult(finished[-1].path)


def _unfinished(config: ExperimentConfig, results_dir: str | Path, identity: str) -> RunFolder:
    """Return the newest unfinished run of this identity, or the name of a new folder."""
    found = run_folders(config, results_dir, identity)
    unfinished = [folder for folder in found if not folder.is_done and not folder.is_of_another(identity)]
    if unfinished:
        return unfinished[-1]
    # Microseconds keep a repeated run apart from the one it repeats.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return RunFolder(run_parent(config, results_dir) / f"{stamp}-{identity[:8]}")
