"""The tables of many runs, read once: the joint table is kept in the cache folder under the digest of the runs' files.

A study of 150 seeds has over a thousand runs with six tables each, and reading them takes longer than all statistics
and pictures together. :func:`kept` returns the same study with the same tables; they come from the cache folder where
they were read before from exactly these files.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.base.files import write_bytes
from qfl_core.base.paths import cache_dir
from qfl_core.runs import RunResult
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.study import Study, reference_scores

#: The table of all rounds, see :attr:`qfl_core.runs.RunResult.rounds`.
ROUNDS = "rounds"
#: The second small table of a run; a study keeps those of all its runs together.
METRICS = "classification_metrics"
_LABELS = ("dataset", "encoding", "split", "method", "seed", "source", "kind", "run")


def joint_table(runs: Sequence[RunResult], name: str) -> pd.DataFrame:
    """Return the table that :func:`qfl_core.runs.tidy` returns; the labels of all runs are added in one step."""
    parts = [run.rounds if name == ROUNDS else run.table(name) for run in runs]
    labels = pd.DataFrame(
        [
            (
                *(getattr(run.config, label) for label in _LABELS[:5]),
                run.environment["data"]["source"],
                run.environment["engine"]["kind"],
                run.path.name,
            )
            for run in runs
        ],
        columns=list(_LABELS),
    )
    rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return pd.concat([pd.concat(parts, ignore_index=True), labels.iloc[rows].reset_index(drop=True)], axis=1)


class Shelf:
    """The joint tables of some runs, in the order of the runs; a table is read when it is first asked for."""

    def __init__(self, runs: Sequence[RunResult]) -> None:
        self._runs = tuple(runs)
        self._tables: dict[str, pd.DataFrame] = {}
        self._places: dict[str, dict[Path, np.ndarray]] = {}

    @cached_property
    def groups(self) -> list[tuple[list[RunResult], str | None]]:
        """Neighbouring runs of one method, and the digest of their files.

        Each group is kept alone, because notebooks and report ask for different methods with the same seeds.
        """
        by_method = itertools.groupby(self._runs, key=lambda run: run.config.method)
        return [(group, _digest_of(group)) for group in (list(runs) for _, runs in by_method)]

    def table(self, name: str) -> pd.DataFrame:
        """Return the joint table of all runs."""
        if name not in self._tables:
            table = self.kept(name)
            self._tables[name] = table
            names = table["run"].to_numpy()
            ends = np.flatnonzero(names[1:] != names[:-1]) + 1
            blocks = np.split(np.arange(len(table)), ends)
            self._places[name] = dict(zip((run.path for run in self._runs), blocks, strict=True))
        return self._tables[name]

    def kept(self, name: str) -> pd.DataFrame:
        """Return a joint table, method by method from the cache folder; make and keep what is not there."""
        parts = [keep(digest, name, partial(joint_table, group, name)) for group, digest in self.groups]
        return pd.concat(parts, ignore_index=True) if len(parts) != 1 else parts[0]

    def part(self, name: str, runs: Sequence[RunResult]) -> pd.DataFrame:
        """Return the rows of these runs, in their order."""
        table = self.table(name)
        if [run.path for run in runs] == [run.path for run in self._runs]:
            return table.copy()
        places = self._places[name]
        return table.iloc[np.concatenate([places[run.path] for run in runs])].reset_index(drop=True)

    def alone(self, name: str, run: RunResult) -> pd.DataFrame:
        """Return one run's table, without the labels, which are the last columns."""
        table = self.table(name)
        rows = self._places[name][run.path]
        return table.iloc[rows[0] : rows[-1] + 1, : -len(_LABELS)].reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class KeptRun(RunResult):
    """A finished run whose small tables come from the joint tables of its study."""

    shelf: Shelf

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """As in :class:`~qfl_core.runs.RunResult`."""
        return self.shelf.alone(ROUNDS, self)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """As in :class:`~qfl_core.runs.RunResult`."""
        return self.shelf.alone(METRICS, self)


@dataclass(frozen=True, eq=False)
class KeptStudy(Study):
    """A study whose tables come from the cache folder where they were read before."""

    shelf: Shelf

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """As in :class:`~qfl_core.runs.study.Study`."""
        return self.shelf.part(ROUNDS, self.runs)

    def table(self, name: str) -> pd.DataFrame:
        """As in :class:`~qfl_core.runs.study.Study`; a large table is kept for these runs alone."""
        return self.shelf.part(name, self.runs) if name == METRICS else Shelf(self.runs).kept(name)

    @cached_property
    def reference_scores(self) -> pd.DataFrame:
        """As in :class:`~qfl_core.runs.study.Study`.

        The identities of the runs name the data, so the data are not loaded to find the scores again.
        """
        first = {run.config.seed: run for run in self.runs}.values()
        digest = _digest([[run.config.seed, run.environment["identity"]] for run in first])
        return keep(digest, "references", lambda: reference_scores([run.config for run in first], self.folder))


def kept(study: Study) -> Study:
    """Return the same study with tables that are read once and kept in the cache folder."""
    shelf = Shelf(study.runs)
    runs = tuple(KeptRun(run.path, shelf) for run in study.runs)
    return KeptStudy(study.track, study.profile, runs, study.folder, shelf)


def keep(digest: str | None, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Return the table of this digest and name from the cache folder; make it and keep it where it is not there.

    A file that cannot be read is made again. Without a digest nothing is kept.
    """
    if digest is None:
        return make()
    path = cache_dir() / "tables" / f"{digest[:32]}-{name}.feather"
    with suppress(OSError, ValueError):  # not there, or damaged: pyarrow's errors are one of them
        return pd.read_feather(path)
    table = make()
    stored = io.BytesIO()
    table.to_feather(stored)
    with suppress(OSError):  # a folder that cannot be written costs time and nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, stored.getvalue())
    return table


def _digest_of(runs: Sequence[RunResult]) -> str | None:
    """Return the SHA-256 of all files of some runs; None where a run was altered, because its tables are not kept."""
    found = []
    for run in runs:
        folder = RunFolder(run.path)
        digests = folder.digests()
        if digests != folder.sealed():
            return None
        found.append((run.path.name, digests))
    return _digest(found)


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps([pd.__version__, facts], sort_keys=True).encode()).hexdigest()
