"""Private runs: what a client does before it uploads, and what the server still knows.

Two settings make a run private, and they go together:

- ``dp_noise`` (client-level differential privacy): every client shortens its step to ``dp_clip`` and adds noise;
- ``uploads: masked`` (secure aggregation): the server learns the sum of the uploads, and no upload.

In both, nothing but the step leaves a client: no trace, no score, no count. So there are no virtual rounds, whose
meta-loss needs them, and no method that keeps something of each client at the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from qfl_core.algorithm.client import TRACE, Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Aggregation, Memory, sample_size, weighted_sum
from qfl_core.algorithm.methods import Method
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import Trainer
from qfl_core.base.errors import ConfigError
from qfl_core.config import ExperimentConfig
from qfl_core.config.private import named
from qfl_core.extras.masked_sum import mean_of_sum, to_integers

#: The purpose of the random streams that the noise of a simulation comes from.
NOISE = "dp-noise"
#: Columns by table that come from single clients, or that are computed from such; a private run leaves them empty.
FROM_CLIENTS = {
    "global_accuracies": (
        *("client_train_accuracy", "client_test_accuracy", "client_test_accuracy_min", "client_test_accuracy_max"),
        *("train_test_gap", "fairness_gap", "global_fairness_gap", "drift_from_broadcast", "upload_spread"),
        *(f"circuits_{purpose}" for purpose in ("train", "calibration", "monitor", "validation")),
    ),
    "validation": ("client_val_loss", "meta_loss"),
    "outer_meta": ("meta_loss", "omega_fair", "omega_stab"),
}


#: The clients that something is about.
Ids = Sequence[int] | np.ndarray


class Noise(Protocol):
    """Where a client's noise comes from: a generator of NumPy, or the operating system."""

    def normal(self, mean: float, scale: float, size: int, /) -> np.ndarray:
        """Return independent Gaussian numbers (size,)."""


def uniform(attendance: Attendance, learned: Memory) -> np.ndarray:
    """Return w_i = 1 / m: with equal weights one client changes the mean of m steps by at most C / m."""
    return np.full(len(attendance.client_ids), 1 / len(attendance.client_ids))


def the_sum(uploads: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the first upload (P,): where uploads are masked, every row holds the round's weighted mean."""
    return uploads[0]


def with_privacy(method: Method, config: ExperimentConfig) -> Method:
    """Return the method with the aggregation of a private run; the method itself where the run is not private.

    Raises
    ------
    ConfigError
        When the method needs more of the clients than their steps.
    """
    if not config.is_private:
        return method
    own = method.aggregation
    if method.optimizer.init(1, 1) or method.optimizer.candidates(config, 1) or own.init(1):
        raise ConfigError(
            f"method={config.method!r} keeps something of each client, or tunes or learns with their scores: "
            f"{named(config)} lets a client send its step alone"
        )
    if own.weights is not sample_size or own.combine is not weighted_sum:
        raise ConfigError(
            f"method={config.method!r} has an aggregation of its own: {named(config)} needs the weighted mean"
        )
    weights = own.weights if config.dp_noise is None else uniform
    combine = the_sum if config.uploads == "masked" else weighted_sum
    return replace(method, aggregation=Aggregation(weights, combine=combine))


def shortened(steps: np.ndarray, length: float) -> np.ndarray:
    """Return steps (clients, P) of at most this Euclidean length; shorter ones keep their bits."""
    norms = np.sqrt((steps**2).sum(axis=1))
    long = norms > length
    found = np.where(long[:, None], steps * (length / np.where(long, norms, 1.0))[:, None], steps)
    # Rounding may leave a step longer than allowed, by its last bit.
    over = np.sqrt((found**2).sum(axis=1)) > length
    return np.where(over[:, None], found * (1 - 1e-15), found)


def released_steps(federation: Federation, sent: Broadcast, local: LocalResult, rngs: Sequence[Noise]) -> np.ndarray:
    """Return what leaves the clients, (clients, P): theta_i - theta^(t), shortened and with noise where DP is on.

    Each of the m participants of the round adds noise of the standard deviation z C / sqrt(m) to every entry, so that
    the noise of their sum has the standard deviation z C. ``rngs`` holds one source of noise per client.
    """
    config, steps = federation.config, local.theta - sent.theta
    if config.dp_noise is None:
        return steps
    steps = shortened(steps, config.dp_clip)
    scale = config.dp_noise * config.dp_clip / np.sqrt(len(federation.participants(sent.t)))
    return steps + np.array([rng.normal(0.0, scale, steps.shape[1]) for rng in rngs])


def multiplicities(federation: Federation, t: int, client_ids: Ids) -> np.ndarray:
    """Return how often each step counts in a masked sum: n_i times, and once where DP asks for equal weights."""
    if federation.config.dp_noise is not None:
        return np.ones(len(client_ids), dtype=np.int64)
    return np.array([federation.size(t, int(i)) for i in client_ids], dtype=np.int64)


def received(
    federation: Federation,
    sent: Broadcast,
    theta: np.ndarray,
    client_ids: Ids,
    absent: tuple[tuple[int, str], ...] = (),
) -> LocalResult:
    """Return the uploads theta (clients, P) as a round's results, with zeros for all that the server is not told.

    The zeros go nowhere: :func:`without_client_values` takes what is computed from them out of the records.
    """
    count, (unfolds, _) = len(client_ids), federation.blocks
    sizes = np.array([federation.size(sent.t, int(i)) for i in client_ids])
    roll = Attendance(sent.t, np.array(client_ids), sizes, np.zeros(count, dtype=int), np.zeros(count), absent)
    trace = {name: np.zeros((count, unfolds)) for name in TRACE}
    circuits = dict.fromkeys(("train", "calibration", "monitor", "validation"), 0)
    return LocalResult(theta, np.full(count, unfolds), trace, circuits, roll, {})


def summed(
    federation: Federation,
    sent: Broadcast,
    total: np.ndarray,
    client_ids: Ids,
    absent: tuple[tuple[int, str], ...] = (),
) -> LocalResult:
    """Return a round's results of the sum (P,) of integers that masked uploads give: every row is their mean."""
    count = int(multiplicities(federation, sent.t, client_ids).sum())
    model = sent.theta + mean_of_sum(total, count)
    return received(federation, sent, np.repeat(model[None], len(client_ids), axis=0), client_ids, absent)


class Private:
    """Trains by another trainer in this process, and lets through what private clients would send.

    The noise comes from named streams, so that a simulation can be repeated. Whoever knows the seed could take it away
    again; a client on a network draws it from its operating system instead.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.transport = trainer, trainer.transport

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Train the participants of a round, and return what the server learns."""
        local = self.trainer.train(federation, sent)
        ids = local.attendance.client_ids
        steps = released_steps(federation, sent, local, federation.generators(NOISE, sent.t, ids))
        if federation.config.uploads == "masked":
            integers = to_integers(steps, multiplicities(federation, sent.t, ids))
            return summed(federation, sent, integers.sum(axis=0), ids)
        return received(federation, sent, sent.theta + steps, ids)

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return zeros (clients,): nobody is asked for a score."""
        return np.zeros(len(attendance.client_ids))


def without_client_values(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a round without what comes from single clients: private clients do not send it."""
    kept = {
        table: [{name: value for name, value in row.items() if name not in columns} for row in record[table]]
        for table, columns in FROM_CLIENTS.items()
        if table in record
    }
    return record | kept | {"client_trace": []}
