"""What is validated: the saved global models of a run, on a stratified part of its test set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.base.errors import HardwareError, RunError
from qfl_core.base.streams import stream
from qfl_core.data.splits import Split
from qfl_core.engines.qnn import QNN
from qfl_core.runs import RunResult
from qfl_core.runs.prepare import make_qnn


@dataclass(frozen=True, eq=False)
class Checkpoints:
    """Global models of one run: ``rounds`` (C,) and ``weights`` (C, P)."""

    method: str
    seed: int
    run: str
    rounds: np.ndarray
    weights: np.ndarray


def load_checkpoints(run: RunResult, count: int, qnn: QNN | None = None) -> Checkpoints:
    """Return at most ``count`` global models from a run's ``global_params.npz``, evenly spaced over its rounds.

    Round 0 (the initial weights) and the last round are always among them. ``qnn`` is the circuit they must fit, the
    run's own by default.
    """
    qnn = qnn or make_qnn(run.config)
    try:
        weights = np.asarray(run.weights, dtype=float)
    except (RunError, ValueError) as error:
        raise HardwareError(f"the checkpoints of run {run.path.name} cannot be read: {error}") from None
    if weights.ndim != 2 or weights.shape[1] != qnn.num_weights:
        raise HardwareError(
            f"the checkpoints of run {run.path.name} have shape {weights.shape}, but the circuit of "
            f"{qnn.num_qubits} qubits takes {qnn.num_weights} weights"
        )
    if not np.isfinite(weights).all():
        raise HardwareError(f"the checkpoints of run {run.path.name} hold weights that are not finite")
    rounds = np.unique(np.linspace(0, len(weights) - 1, min(count, len(weights))).round().astype(int))
    return Checkpoints(run.config.method, run.config.seed, run.path.name, rounds, weights[rounds])


def stratified(y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return ``count`` sorted positions of ``y`` (n,) with its label mix, and one of each label at least.

    Shares are rounded by largest remainder; with 1.1 % frauds, 40 rows hold one.
    """
    if count > len(y):
        raise HardwareError(f"{count} test samples were asked for, but the test set has {len(y)}")
    labels, sizes = np.unique(y, return_counts=True)
    if count < len(labels):
        raise HardwareError(f"{count} samples cannot hold the {len(labels)} labels of the test set")
    exact = count * sizes / len(y)
    take = np.maximum(np.floor(exact).astype(int), 1)
    while take.sum() < count:
        take[np.argmax(np.where(take < sizes, exact - take, -np.inf))] += 1
    while take.sum() > count:
        take[np.argmax(np.where(take > 1, take - exact, -np.inf))] -= 1
    rng = stream(seed, "hardware-subset", count)
    chosen = [rng.permutation(np.flatnonzero(y == label))[:n] for label, n in zip(labels, take, strict=True)]
    return np.sort(np.concatenate(chosen))


def subset(part: Split, count: int, seed: int) -> Split:
    """Return ``count`` rows of a part, stratified; all of it where it has no more."""
    rows = stratified(part.y, min(count, len(part.y)), seed)
    return Split(part.X[rows], part.y[rows], part.origin[rows])
