"""Runs with a controller that no config can name: trained like all others, kept as one small file each."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.hooks import LocalOptimizer
from qfl_core.algorithm.methods import METHODS
from qfl_core.base.files import write_text
from qfl_core.base.processes import in_processes
from qfl_core.config import ExperimentConfig
from qfl_core.runs import RunResult
from qfl_core.runs.experiment import initial_state, train
from qfl_core.runs.identity import run_identity
from qfl_core.runs.prepare import make_federation
from qfl_core.studies.controllers.score import final

#: What is compared: over all rounds, or at the end of training. The last two are mean test accuracies of the uploads of
#: clients whose label mix is further from the federation's than the median of their round, and of those with fewer
#: samples than the median.
MEASURES = ("mean score", "final score", "fairness gap", "worst client", "skewed clients", "small clients")
#: The column of the client trace that makes the groups, and the sign that turns it so that they lie above its median.
GROUPS = {"skewed": ("heterogeneity", 1), "small": ("client_size", -1)}
#: What is kept of every round.
COLUMNS = ("accuracy", "roc_auc", "fairness_gap", "worst", *GROUPS)


@dataclass(frozen=True, eq=False)
class Probe:
    """A run whose controller starts from ``phi`` (2, 7), or whose rates come from a local optimiser of its own.

    ``data`` is the SHA-256 of the data.
    """

    config: ExperimentConfig
    data: str
    phi: np.ndarray | None = None
    optimizer: LocalOptimizer | None = None

    def path(self, folder: Path) -> Path:
        """Return where its rounds are kept: what decides them names the file."""
        parts = [run_identity(self.config, self.data), *COLUMNS]
        parts += [str(self.phi.tolist())] if self.phi is not None else []
        if self.optimizer is not None:
            parts += [repr(self.optimizer), inspect.getsource(type(self.optimizer))]
        return folder / f"{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:24]}.json"

    def train(self, folder: Path) -> None:
        """Train it and keep one row per round."""
        method = METHODS[self.config.method]
        with threadpool_limits(1):
            own = None if self.optimizer is None else replace(method, optimizer=self.optimizer)
            federation = make_federation(self.config, method=own)
            state = initial_state(federation)
            state = state if self.phi is None else replace(state, phi={"controller": self.phi})
            rows = [_row(record) for record in train(federation, state)]
        folder.mkdir(parents=True, exist_ok=True)
        write_text(self.path(folder), json.dumps(rows))

    def read(self, folder: Path) -> pd.DataFrame:
        """Return what :meth:`train` kept."""
        return pd.DataFrame(json.loads(self.path(folder).read_text(encoding="utf-8")))


def train_probes(probes: Sequence[Probe], folder: Path, jobs: int = -1) -> None:
    """Train those that the folder does not hold."""
    missing = [probe for probe in probes if not probe.path(folder).is_file()]
    if missing:
        list(in_processes(Probe.train, ((probe, folder) for probe in missing), jobs))


def in_group(trace: pd.DataFrame, group: str, key: list[str]) -> tuple[pd.Series, pd.Series]:
    """Return which rows of a client trace belong to a group, and which to the others; rows at the median are neither.

    ``key`` names the columns that tell one round from another.
    """
    column, sign = GROUPS[group]
    above = sign * (trace[column] - trace.groupby(key)[column].transform("median"))
    return above > 0, above < 0


def _row(record: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, float]:
    (of_round,), metrics = record["global_accuracies"], record["classification_metrics"]
    (test,) = [row for row in metrics if str(row["part"]) == "test"]
    groups = _group_accuracies(pd.DataFrame(record["client_trace"]))
    return {
        **{name: float(test[name]) for name in ("accuracy", "roc_auc")},
        "fairness_gap": float(of_round["fairness_gap"]),
        "worst": float(of_round["client_test_accuracy_min"]),
        **{name: float(groups[name].iloc[0]) for name in GROUPS},
    }


def _group_accuracies(trace: pd.DataFrame) -> pd.DataFrame:
    """Return the mean test accuracy of the uploads of every group, one row per round; of all where a group is empty."""
    uploads = trace[trace["is_selected"]]
    every = uploads.groupby("round")["test_accuracy"].mean()
    found = {}
    for group in GROUPS:
        inside, _ = in_group(uploads, group, ["round"])
        found[group] = uploads[inside].groupby("round")["test_accuracy"].mean().reindex(every.index).fillna(every)
    return pd.DataFrame(found)


def curve_of(run: RunResult) -> pd.DataFrame:
    """Return of a finished run what a probe keeps."""
    trained = run.rounds[run.rounds["round"] > 0].set_index("round")
    names = {"global_accuracy": "accuracy", "test_roc_auc": "roc_auc", "client_test_accuracy_min": "worst"}
    both = trained.rename(columns=names).join(_group_accuracies(run.clients))
    return both[list(COLUMNS)].reset_index(drop=True)


def summary(curve: pd.DataFrame, score: str) -> dict[str, float]:
    """Return the :data:`MEASURES` of a curve; ``score`` is its column that counts."""
    scores = curve[score].to_numpy(float)
    ends = [final(curve[name].to_numpy(float)) for name in ("fairness_gap", "worst", *GROUPS)]
    return dict(zip(MEASURES, map(float, (scores.mean(), final(scores), *ends)), strict=True))
