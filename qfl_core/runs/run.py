"""Runs: start or resume one, never repeat a finished one, and read many back as one tidy table."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.federation import Federation
from qfl_core.base.display import run_html
from qfl_core.base.errors import ChangedResults, ConfigError, RunError, did_you_mean
from qfl_core.base.paths import below, repository_root
from qfl_core.base.progress import bar
from qfl_core.base.registry import DATASETS, EXTRA_METHODS, METHOD_NAMES
from qfl_core.config import ExperimentConfig
from qfl_core.data import Splits, load_splits
from qfl_core.runs.experiment import State, train
from qfl_core.runs.plugins import digests
from qfl_core.runs.records import RunFolder, locked

#: Modules that decide a run's numbers; a change in one of them makes old runs another code's.
TRAINING_CODE = ("base/streams.py", "engines", "data", "algorithm", "extras", "runs/experiment.py")
IN_PROCESS = "in-process"
NOT_TRAINING = ("audit.py", "fidelity.py", "__main__.py")
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "qiskit", "qiskit-machine-learning", "qiskit-aer")


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run, read from its folder on demand; :class:`ChangedResults` warns where its files were altered."""

    path: Path

    @cached_property
    def _folder(self) -> RunFolder:
        if changed := self.changed_files():
            told = f"run {self.path.name}: {', '.join(changed)} changed since the run was sealed"
            warnings.warn(told, ChangedResults, stacklevel=4)
        return RunFolder(self.path)

    @cached_property
    def config(self) -> ExperimentConfig:
        """The run's config."""
        try:
            return ExperimentConfig.from_json((self._folder.path / "config.json").read_text(encoding="utf-8"))
        except (ConfigError, OSError) as error:
            raise ConfigError(f"config.json of run {self.path.name}: {error}") from None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit, data source and engine of the run."""
        return json.loads((self._folder.path / "environment.json").read_text(encoding="utf-8"))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row a round, 0 being the initial weights: accuracies, losses, metrics of the test part, circuits."""
        metrics = self.metrics
        test = metrics[metrics["part"] == "test"].drop(columns=["part", "accuracy"]).add_prefix("test_")
        table = self.table("global_accuracies").merge(self.table("validation"), on="round")
        return table.merge(test.rename(columns={"test_round": "round"}), on="round")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Classification metrics of the global model: one row a round and part (val, test)."""
        return self.table("classification_metrics")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The trace: one row a round, client and unfold."""
        return self.table("client_trace")

    @cached_property
    def weights(self) -> np.ndarray:
        """Global weights (T + 1, P)."""
        return self.parameters["weights"]

    @cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        """Everything learnt, (T + 1, ...) each: ``weights``, ``phi``, and the ``logits`` or memory of an extra."""
        return self._folder.parameters()

    def table(self, name: str) -> pd.DataFrame:
        """Return one of the tables of :data:`qfl_core.runs.records.SCHEMA`, e.g. ``"client_trace"``."""
        return self._folder.table(name)

    def changed_files(self) -> list[str]:
        """Return the result files that are missing, were added, or whose SHA-256 is not the one that was sealed."""
        sealed, found = RunFolder(self.path).sealed(), RunFolder(self.path).digests()
        if sealed is None:
            return ["DONE"]
        return [name for name in sealed | found if found.get(name) != sealed.get(name)]

    def _repr_html_(self) -> str:
        return run_html(self)


def run_experiment(
    config: ExperimentConfig,
    results_dir: str | Path = "results",
    *,
    repeat: bool = False,
    progress: bool = False,
    splits: Splits | None = None,
    federation: Federation | None = None,
) -> RunResult:
    """Run an experiment and write its folder; resume it where it stopped, return it where it is finished.

    Parameters
    ----------
    repeat : run again although a finished run exists.
    progress : show a bar over the rounds, in a notebook too.
    splits : data already loaded for this config, to save the loading.
    federation : one made for this config whose clients are elsewhere; its runs are kept apart from one process's.
    """
    if federation is not None:
        splits = federation.splits
    splits = load_splits(config) if splits is None else splits
    identity = run_identity(config, splits.provenance.sha256, transport_of(federation))
    parent = run_parent(config, Path(results_dir))
    with locked(parent / f".{identity[:8]}.lock"):
        folder = _find(parent, identity, repeat)
        if folder.is_done:
            folder.drop_journal()
        else:
            _complete(folder, federation or Federation.create(config, splits), identity, progress)
    return RunResult(folder.path)


def _complete(folder: RunFolder, federation: Federation, identity: str, progress: bool) -> None:
    config = federation.config
    if not folder.is_begun:
        folder.create(config.to_json(), environment(federation, identity))
    folder.mend()
    done = folder.records()
    state = State.from_json(done[-1]["state"]) if done else None
    name, done_before = f"{config.method} {config.dataset} seed {config.seed}", state.done if state else 0
    with bar(config.rounds, "round", show=progress, initial=done_before, desc=name) as rounds:
        for record in train(federation, state):
            folder.append(record)
            rounds.update(record["state"]["done"] - rounds.n)
    folder.seal()


def run_parent(config: ExperimentConfig, results_dir: Path) -> Path:
    """Return ``<method>/<dataset>-<encoding>/<split>/seed-<s>`` below the results folder."""
    data = f"{config.dataset}-{config.encoding}"
    return below(results_dir, config.method, data, config.split, f"seed-{config.seed}")


def transport_of(federation: Federation | None) -> str:
    """Return how clients are reached: ``"in-process"``, or what the federation's clients say."""
    return getattr(federation and federation.clients, "transport", IN_PROCESS)


def run_identity(config: ExperimentConfig, data_sha256: str, transport: str = IN_PROCESS) -> str:
    """Return the SHA-256 of what decides the numbers: config, data, the code that trains and the extensions' code.

    The transport decides none, but a run says what it ran on, so another transport's run does not stand for it.
    """
    parts = [config.digest, data_sha256, code_digest(), *digests(config).values()]
    parts += [transport] if transport != IN_PROCESS else []
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return the SHA-256 of the training modules' sources."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in TRAINING_CODE:
        path = package / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.name not in NOT_TRAINING:
                digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def finished_run(config: ExperimentConfig, data_sha256: str, results_dir: str | Path = "results") -> RunResult | None:
    """Return the newest finished run of this config, data and code, or ``None``; nothing is trained."""
    existing = _folders(run_parent(config, Path(results_dir)), run_identity(config, data_sha256))
    finished = [folder for folder in existing if folder.is_done]
    return RunResult(finished[-1].path) if finished else None


def _folders(parent: Path, identity: str) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted(parent.glob(f"*-{identity[:8]}"))]


def _find(parent: Path, identity: str, repeat: bool) -> RunFolder:
    """Return the run of this identity: a finished one, an unfinished one to resume, or a new folder's name."""
    existing = _folders(parent, identity)
    finished = [folder for folder in existing if folder.is_done]
    unfinished = [folder for folder in existing if not folder.is_done]
    if finished and not repeat:
        return finished[-1]
    if unfinished:
        return unfinished[-1]
    # Microseconds keep a repeated run apart from the one it repeats.
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return RunFolder(parent / f"{stamp}-{identity[:8]}")


def environment(federation: Federation, identity: str) -> dict[str, Any]:
    """Return where a run's numbers come from; no path and no name of a machine."""
    provenance, transport = federation.splits.provenance, transport_of(federation)
    return {
        **({"transport": transport} if transport != IN_PROCESS else {}),
        **({"extensions": own} if (own := digests(federation.config)) else {}),
        "identity": identity,
        "code_sha256": code_digest(),
        "commit": commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "data": {"source": provenance.kind, "name": provenance.name, "sha256": provenance.sha256},
        "data_notes": federation.splits.notes,
        "engine": federation.engine.describe(),
    }


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the checkout's commit, ``-dirty`` where files differ from it, or ``"unknown"``."""
    root = repository_root()
    if root is None:
        return "unknown"
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def find_runs(results_dir: str | Path = "results", **filters: Any) -> list[RunResult]:
    """Return the finished runs whose config has these values, in the order of their folders.

    Runs of a method or dataset that is not registered here are left out.
    """
    known = ExperimentConfig.describe()
    for name in filters:
        if name not in known:
            raise ConfigError(f"unknown filter {name!r}{did_you_mean(name, known)}; filters are config fields")
    runs = [RunResult(path.parent) for path in sorted(Path(results_dir).glob("*/*/*/seed-*/*/DONE"))]
    runs = [run for run in runs if _is_known(run)]
    return [run for run in runs if all(_matches(getattr(run.config, k), v) for k, v in filters.items())]


def _is_known(run: RunResult) -> bool:
    if "config.json" in run.changed_files():
        return True  # altered: told by who reads it, not passed over
    named = json.loads((run.path / "config.json").read_text(encoding="utf-8"))
    return named["method"] in (*METHOD_NAMES, *EXTRA_METHODS) and named["dataset"] in DATASETS


def _matches(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, (list, set)) else value == wanted


def load_runs(results_dir: str | Path = "results", **filters: Any) -> pd.DataFrame:
    """Return all rounds of all finished runs as one tidy table, with the columns that tell runs apart.

    Filters are config fields: ``load_runs(dataset="baf", method=["duqfl-prox", "default-qfl"])``.
    """
    runs = find_runs(results_dir, **filters)
    if not runs:
        raise RunError(f"no finished run in {results_dir} matches {filters or 'anything'}")
    return tidy(runs)


def tidy(runs: Iterable[RunResult], table: str = "rounds") -> pd.DataFrame:
    """Return one table of all runs, with the columns that tell them apart.

    ``table`` is ``"rounds"`` or a name of :data:`qfl_core.runs.records.SCHEMA`, e.g. ``"client_trace"``.
    """
    parts = []
    for run in runs:
        labels = {name: getattr(run.config, name) for name in ("dataset", "encoding", "split", "method", "seed")}
        labels |= {"source": run.environment["data"]["source"], "kind": run.environment["engine"]["kind"]}
        rows = run.rounds if table == "rounds" else run.table(table)
        parts.append(rows.assign(**labels, run=run.path.name))
    return pd.concat(parts, ignore_index=True)
