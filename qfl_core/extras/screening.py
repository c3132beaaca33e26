"""Uploads are looked at before they count: those far from their round's others are left out, long steps shortened.

A trainer (:class:`qfl_core.algorithm.server.Trainer`) around another one does it, in one process and over a network
alike. So Algorithms 1 to 3 stay as the paper has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qfl_core.algorithm.client import Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import Trainer
from qfl_core.config import ExperimentConfig

#: An upload is absurd beyond so many times its round's median, and beyond so many times these scales: the step that
#: turns every weight by pi, and the log loss of a coin toss. Honest clients stay inside even where the controller gives
#: them learning rates that differ a thousandfold.
ABSURD = 100.0
COIN_TOSS = float(np.log(2))
STEP, UNSTEADINESS = "step", "unsteadiness of its losses"


class Screened:
    """Trains by another trainer, and screens what the clients upload."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.transport = trainer, trainer.transport

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Train the participants of a round, and return the uploads that count."""
        return screened(federation.config, sent, self.trainer.train(federation, sent))

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracy (clients,) of the clients whose uploads count."""
        return self.trainer.validate(federation, theta, attendance, purpose)


def screened(config: ExperimentConfig, sent: Broadcast, local: LocalResult) -> LocalResult:
    """Return the uploads of a round that count, in the form in which they count.

    Absurd uploads never count. Others are left out where ``config.screening`` says so, and shortened where the
    aggregation clips. Where nothing of this happens, the result is ``local`` itself, to the bit.
    """
    turn = np.pi * np.sqrt(local.theta.shape[1])
    scales = {STEP: turn, UNSTEADINESS: COIN_TOSS} | {f"state {name}": turn for name in local.state}
    local = without_far(local, sent.theta, ABSURD, scales)
    if config.screening is not None:
        local = without_far(local, sent.theta, config.screening, {STEP: 0.0, UNSTEADINESS: 0.0})
    return clipped(local, sent.theta) if config.aggregation == "clipped-mean" else local


def sizes(local: LocalResult, start: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is compared between the clients of a round, (clients,) each.

    The step is |theta_i - theta_t|. The unsteadiness is the standard deviation over k of the client's loss change,
    which the meta-loss averages. What the local optimiser remembers of a client has the length of its array.
    """
    found = {STEP: local.theta - start} | {f"state {name}": values for name, values in local.state.items()}
    with np.errstate(over="ignore"):
        lengths = {name: np.sqrt((v.reshape(len(v), -1) ** 2).sum(axis=1)) for name, v in found.items()}
        return lengths | {UNSTEADINESS: (local.trace["loss_after"] - local.trace["loss_before"]).std(axis=1)}


def without_far(local: LocalResult, start: np.ndarray, times: float, scales: Mapping[str, float]) -> LocalResult:
    """Leave out the uploads that are far beyond their round's others; record why.

    Far is more than ``times`` the round's median of a quantity in ``scales``, or ``times`` its scale where that is
    larger. Nobody is far from a median of 0 without a scale. Numbers that are not finite are left to the checks that
    refuse them.
    """
    absent, keep, found = [], np.ones(len(local.theta), bool), sizes(local, start)
    for name, scale in scales.items():
        middle = max(float(np.median(found[name])), scale)
        far = (found[name] > times * middle) & (middle > 0) & keep
        # Fewer than half are beyond twice a median, but several quantities together must not leave nobody.
        if far.sum() == keep.sum():
            continue
        keep &= ~far
        for i in np.flatnonzero(far):
            reason = f"{name} {found[name][i]:.4g}, more than the {times * middle:.4g} that its round allows"
            absent.append((int(local.attendance.client_ids[i]), reason))
    if not absent:
        return local
    kept = rows(local, keep)
    return replace(kept, attendance=replace(kept.attendance, absent=local.attendance.absent + tuple(absent)))


def rows(local: LocalResult, chosen: np.ndarray) -> LocalResult:
    """Return the results of some clients (a mask); circuits are counted for all, because all were executed."""
    roll = local.attendance
    names = ("client_ids", "sizes", "val_sizes", "heterogeneity")
    return LocalResult(
        local.theta[chosen],
        local.selected[chosen],
        {name: values[chosen] for name, values in local.trace.items()},
        local.circuits,
        replace(roll, **{name: getattr(roll, name)[chosen] for name in names}),
        {name: values[chosen] for name, values in local.state.items()},
    )


def clipped(local: LocalResult, start: np.ndarray) -> LocalResult:
    """Shorten every step that is longer than the round's median step to it."""
    length = sizes(local, start)[STEP]
    middle = float(np.median(length))
    long = length > middle
    scale = np.where(long, middle / np.where(long, length, 1.0), 1.0)
    return replace(local, theta=np.where(long[:, None], start + scale[:, None] * (local.theta - start), local.theta))
