"""A small federation for tests: two features, a learnable label, three clients."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.methods import METHODS, Method
from qfl_core.algorithm.server import State
from qfl_core.config import ExperimentConfig
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_federation
from qfl_core.runs.results import RunResult
from qfl_core.runs.run import run_experiment
from qfl_core.runs.study import Study


def planted_splits(train=160, val=40, test=30, features=2, seed=0) -> Splits:
    """Return angles in [0, pi] whose first feature decides the label, nine times in ten."""
    rng = np.random.default_rng(seed)

    def part(rows, offset):
        X = rng.uniform(0, np.pi, (rows, features))
        y = (X[:, 0] > np.pi / 2) ^ (rng.uniform(size=rows) < 0.1)
        return Split(X, y.astype(int), np.arange(rows) + offset)

    name = f"planted {train} {val} {test} {features} {seed}"
    source = DataSource("baf", "stand-in", name, hashlib.sha256(name.encode()).hexdigest(), "planted")
    return Splits(part(train, 0), part(val, 10_000), part(test, 20_000), source)


def small(**changes) -> ExperimentConfig:
    """Return the smallest config that still has several clients, rounds, unfolds and iterations.

    Its sizes are those of :func:`planted_splits`.
    """
    base = {
        "train_size": 160,
        "val_size": 40,
        "test_size": 30,
        "features": 2,
        "clients": 3,
        "rounds": 2,
        "chunk": 12,
        "unfolds": 2,
        "spsa_iterations": 2,
        "shots": 64,
    }
    return ExperimentConfig(**(base | changes))


def federation(splits: Splits | None = None, method: Method | None = None, **changes) -> Federation:
    """Return the planted federation under a small config, with a method of the table or one of the test's own."""
    config = small(**changes)
    features = config.features
    return make_federation(config, splits or planted_splits(features=features), method or METHODS[config.method])


def planted_study(runs: Sequence[RunResult], folder: Path) -> Study:
    """Return runs as a study whose results folder is another one than theirs."""
    return Study("planted", "smoke", tuple(runs), folder)


#: The files whose digests DONE holds.
SEALED = (
    "config.json",
    "environment.json",
    "global_params.npz",
    "global_accuracies.csv",
    "validation.csv",
    "client_trace.csv",
    "outer_meta.csv",
    "classification_metrics.csv",
)


def contents(run: RunResult) -> dict[str, bytes]:
    """Return every file of a run by name, timings apart."""
    return {file.name: file.read_bytes() for file in run.path.iterdir() if file.name != "timings.csv"}


class Interruption(BaseException):
    """Like Ctrl-C: no error that a run could handle."""


def interrupted(config: ExperimentConfig, folder: Path, splits: Splits, kept: int) -> RunResult:
    """Interrupt a run after so many records, start it again, and return it when it is finished."""

    def stopped(federation, state, trainer):
        for done, record in enumerate(train(federation, state, trainer)):
            if done == kept:
                raise Interruption
            yield record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qfl_core.runs.run.train", stopped)
        with pytest.raises(Interruption):
            run_experiment(config, folder, splits=splits)
    return run_experiment(config, folder, splits=splits)


def raw(fed: Federation) -> Splits:
    """Return the angles and labels behind a planted federation."""
    return planted_splits(features=fed.config.features)


def start(fed: Federation, t: int = 0, rate: float = 0.1) -> State:
    """Return the state in which round t would start from the initial weights; Adam has been tuned to this rate."""
    state = dataclasses.replace(State.initial(fed), t=t)
    return dataclasses.replace(state, memory=dict.fromkeys(state.memory, np.full(fed.config.clients, rate)))
