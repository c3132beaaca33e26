"""Finished runs: read one from its folder, find many, and put them into one tidy table."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qfl_core.base.display import run_html
from qfl_core.base.errors import ChangedResults, ConfigError, RunError, did_you_mean
from qfl_core.base.registry import PLUGIN_TABLES, names_for
from qfl_core.config import ExperimentConfig
from qfl_core.runs.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

#: The entries of an environment that tables, figures and commands show.
_LINES = (
    *("identity", "code_sha256", "commit", "python", "platform"),
    *("data.source", "data.name", "data.sha256", "engine.engine", "engine.kind"),
)


@dataclass(frozen=True, eq=False)
class RunResult:
    """A finished run, read from its folder on demand; :class:`ChangedResults` warns where its files were altered."""

    path: Path

    @cached_property
    def _folder(self) -> RunFolder:
        if self.changes:
            told = f"run {self.path.name}: {', '.join(self.changes)} changed since the run was sealed"
            warnings.warn(told, ChangedResults, stacklevel=4)
        return RunFolder(self.path)

    @cached_property
    def config(self) -> ExperimentConfig:
        """The run's config."""
        with self._folder.reading("config.json"):
            return ExperimentConfig.from_json((self.path / "config.json").read_text(encoding="utf-8"))

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, commit, data source and engine of the run."""
        with self._folder.reading("environment.json"):
            return _checked_environment(json.loads((self.path / "environment.json").read_text(encoding="utf-8")))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round, 0 being the initial weights: accuracies, losses, metrics of the test split, circuits."""
        accuracies, losses, metrics = self.table("global_accuracies"), self.table("validation"), self.metrics
        test = metrics[metrics["part"] == "test"].drop(columns=["part", "accuracy"]).add_prefix("test_")
        table = accuracies.merge(losses, on="round").merge(test.rename(columns={"test_round": "round"}), on="round")
        if table.empty:
            raise RunError(f"the tables of run {self.path.name} have no round in common")
        return table

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Classification metrics of the global model: one row per round and split (val, test)."""
        return self.table("classification_metrics")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The trace: one row per round, client and unfold."""
        return self.table("client_trace")

    @cached_property
    def weights(self) -> np.ndarray:
        """Global weights (T + 1, P)."""
        return self.parameters["weights"]

    @cached_property
    def parameters(self) -> dict[str, np.ndarray]:
        """Everything learnt, (T + 1, ...) each: ``weights``, ``phi``, and what the hooks of an extra remembered."""
        return self._folder.parameters()

    def table(self, name: str) -> pd.DataFrame:
        """Return one of the tables of :data:`qfl_core.runs.schema.SCHEMA`, e.g. ``"client_trace"``."""
        return self._folder.table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a table as :meth:`table` does, but as one mapping per row: whoever prints it needs no pandas."""
        return self._folder.rows(name)

    @cached_property
    def changes(self) -> tuple[str, ...]:
        """What :meth:`changed_files` found when it was first asked, because it reads and hashes every file."""
        return tuple(self.changed_files())

    def changed_files(self) -> list[str]:
        """Return the result files that are missing, were added, or whose SHA-256 is not the one that was sealed."""
        sealed = RunFolder(self.path).sealed()
        if sealed is None:
            return ["DONE"]
        try:
            found = RunFolder(self.path).digests()
        except OSError as error:  # a file that cannot be read
            return [Path(error.filename or self.path).name]
        return [name for name in sealed | found if found.get(name) != sealed.get(name)]

    def _repr_html_(self) -> str:
        return run_html(self)


def find_runs(results_dir: str | Path = "results", **filters: object) -> list[RunResult]:
    """Return the finished runs whose config has these values, in the order of their folders.

    A filter is a config field with one value, or with several in any iterable: ``find_runs(seed=range(5))``.
    Runs that name a method, dataset, loss or circuit that is not registered here are left out. A run that lost its
    ``DONE`` is found too, because reading it warns of the change; so is a folder that cannot be opened, because reading
    it raises an error that names it.

    Raises
    ------
    RunError
        When a filter needs a config that cannot be read; the message names the run. A config that names something
        which is not registered here cannot be read either, where the run lost its ``DONE``.
    """
    known = ExperimentConfig.describe()
    for name in filters:
        if name not in known:
            raise ConfigError(f"unknown filter {name!r}{did_you_mean(name, known)}; filters are config fields")
    folders = [RunFolder(path) for path in sorted(Path(results_dir).glob("*/*/*/seed-*/*"))]
    runs = [RunResult(folder.path) for folder in folders if folder.is_done or folder.lost_its_seal or folder.is_closed]
    runs = [run for run in runs if _is_known(run)]
    choices = {name: _choices(wanted) for name, wanted in filters.items()}
    return [run for run in runs if all(getattr(run.config, name) in values for name, values in choices.items())]


def _is_known(run: RunResult) -> bool:
    folder = RunFolder(run.path)
    if folder.sealed() is None or folder.lost_its_config():
        return True  # because reading an altered run warns, and leaving it out would not
    try:
        named = json.loads((run.path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True
    if not isinstance(named, dict):
        return True
    return all(named[field] in names_for(field) for field in PLUGIN_TABLES if field in named)


def _checked_environment(found: Any) -> dict[str, Any]:
    """Return an environment that has the entries which every reader uses; otherwise raise a ValueError."""
    for entry in _LINES:
        value = found
        for key in entry.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not (isinstance(value, str) and value.isprintable()):
            raise ValueError(f"{entry} is not a line of text")
    if not isinstance(found.get("packages"), dict):
        raise ValueError("packages does not map names to versions")
    return found


def _choices(wanted: object) -> list[object]:
    """Return the values that a filter accepts: one value, or those of any iterable; text is one value.

    A field may itself hold several numbers, so the whole iterable counts as one value, too.
    """
    if isinstance(wanted, np.ndarray):
        wanted = wanted.tolist()  # of an array without axes: its number
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        return [wanted]
    several = [tuple(value) if isinstance(value, list) else value for value in wanted]
    return [*several, tuple(several)]


def load_runs(results_dir: str | Path = "results", **filters: object) -> pd.DataFrame:
    """Return all rounds of all finished runs as one tidy table, with the columns that tell runs apart.

    Filters are config fields: ``load_runs(dataset="baf", method=["duqfl-prox", "default-qfl"])``.
    """
    runs = find_runs(results_dir, **filters)
    if not runs:
        raise RunError(f"no finished run in {results_dir} matches {filters or 'anything'}")
    return tidy(runs)


def tidy(runs: Iterable[RunResult], table: str = "rounds") -> pd.DataFrame:
    """Return one table of all runs, with the columns that tell them apart.

    ``table`` is ``"rounds"`` or a name of :data:`qfl_core.runs.schema.SCHEMA`, e.g. ``"client_trace"``.
    """
    import pandas as pd  # here, because whoever only trains reads no table

    parts = []
    for run in runs:
        labels = {name: getattr(run.config, name) for name in ("dataset", "encoding", "split", "method", "seed")}
        labels |= {"source": run.environment["data"]["source"], "kind": run.environment["engine"]["kind"]}
        rows = run.rounds if table == "rounds" else run.table(table)
        parts.append(rows.assign(**labels, run=run.path.name))
    return pd.concat(parts, ignore_index=True)
