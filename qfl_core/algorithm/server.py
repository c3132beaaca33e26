"""Algorithm 2: one federated round: broadcast, local training, aggregation, post-aggregation meta-loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from qfl_core.algorithm.aggregation import Attendance
from qfl_core.algorithm.client import LocalResult, train_locally, validate_locally
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.metrics import spread
from qfl_core.base.errors import DataError
from qfl_core.base.streams import stream


@dataclass(frozen=True, eq=False)
class MetaLoss:
    """The outer meta-loss of Eq. (meta loss), with its four terms unweighted."""

    total: float
    val_loss: float
    fair: float
    comm: float
    stab: float


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round produced: ``theta`` (P,) the new global model, ``weights`` (clients,) of the aggregation."""

    theta: np.ndarray
    weights: np.ndarray
    batch: Attendance
    local: LocalResult
    meta: MetaLoss


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What goes down beside the global model: the controller phi, Adam's rate, and the name of the random streams.

    A ``purpose`` other than ``"round"`` makes the round virtual: it draws from streams of its own. ``shift`` (N, P) is
    the method's correction of local gradients; ``logits`` (N,) of a learned aggregation stay at the server.
    """

    phi: np.ndarray
    adam_rate: float = np.nan
    purpose: str = "round"
    shift: np.ndarray | None = None
    logits: np.ndarray | None = None


class Clients(Protocol):
    """Who trains the clients: this process (:class:`Together`) or a network."""

    def train(self, federation: Federation, theta: np.ndarray, t: int, sent: Sequence[Broadcast]) -> list[LocalResult]:
        """Train the participants of round t from theta (P,) once for each broadcast."""

    def validate(
        self,
        federation: Federation,
        models: Sequence[np.ndarray],
        sent: Sequence[Broadcast],
        trained: Sequence[LocalResult],
    ) -> list[np.ndarray]:
        """Return the validation accuracies (clients,) of each broadcast's clients under its new global model (P,).

        NaN is a client that did not answer.
        """


class Together:
    """All clients in this process, as one batch that training and validation share."""

    def train(self, federation, theta, t, sent):  # noqa: D102 - see Clients
        batch = self._batch = federation.batch(t)
        return [
            train_locally(
                federation,
                theta,
                b.phi,
                batch,
                b.adam_rate,
                b.purpose,
                None if b.shift is None else b.shift[batch.clients],
            )
            for b in sent
        ]

    def validate(self, federation, models, sent, trained):  # noqa: D102 - see Clients
        return [validate_locally(federation, m, self._batch, b.purpose) for m, b in zip(models, sent, strict=True)]


def federated_round(
    federation: Federation,
    theta: np.ndarray,
    phi: np.ndarray,
    t: int,
    adam_rate: float = np.nan,
    purpose: str = "round",
) -> RoundResult:
    """Run round t from the global model theta (P,) under the controller phi (Algorithm 2)."""
    return federated_rounds(federation, theta, t, [Broadcast(phi, adam_rate, purpose)])[0]


def federated_rounds(federation: Federation, theta: np.ndarray, t: int, sent: Sequence[Broadcast]) -> list[RoundResult]:
    """Run round t from the global model theta (P,) once for each broadcast; over a network they travel together."""
    clients: Clients = federation.clients or Together()
    trained = clients.train(federation, theta, t, sent)  # Algorithm 2, lines 1 to 4
    weigh = federation.method.aggregation
    weights = [weigh(local.attendance, b.logits) for local, b in zip(trained, sent, strict=True)]  # line 5
    models = [aggregate(local.theta, w, local.attendance.clients) for local, w in zip(trained, weights, strict=True)]
    scored = clients.validate(federation, models, sent, trained)
    return [
        RoundResult(model, w, _silent(local, accuracy), local, meta_loss(federation, model, local, accuracy, b.purpose))
        for model, w, local, accuracy, b in zip(models, weights, trained, scored, sent, strict=True)
    ]


def _silent(local: LocalResult, accuracy: np.ndarray) -> Attendance:
    """Note the clients whose upload counts but which did not score the new model."""
    silent = local.attendance.clients[np.isnan(accuracy)]
    reasons = tuple((int(i), "trained, but did not score the new global model") for i in silent)
    return replace(local.attendance, absent=local.attendance.absent + reasons)


def aggregate(uploads: np.ndarray, weights: np.ndarray, clients: np.ndarray) -> np.ndarray:
    """Return sum_i w_i theta_i (P,) of uploads (clients, P), Eq. (fedavg); an upload that is not finite is refused."""
    broken = ~np.isfinite(uploads).all(axis=1)
    if broken.any():
        raise DataError(f"client {int(clients[broken][0])} uploaded weights that are not finite")
    # Added client by client: the sum does not depend on how a matrix product would order it.
    total = weights[0] * uploads[0]
    for weight, upload in zip(weights[1:], uploads[1:], strict=True):
        total = total + weight * upload
    return total


def meta_loss(
    federation: Federation, theta: np.ndarray, local: LocalResult, accuracy: np.ndarray, purpose: str = "round"
) -> MetaLoss:
    """Evaluate the new global model theta (P,), with the clients' validation accuracies (Algorithm 2, line 7).

    L_meta = L_val(theta) + lambda_fair Omega_fair + lambda_comm Omega_comm + lambda_stab Omega_stab, with

    - Omega_fair: P90 - P10 of client validation accuracies under the new global model,
    - Omega_comm: parameters moved this round / (2 N P), down and up,
    - Omega_stab: mean over clients of the standard deviation over k of the proximal-loss change.
    """
    config, attendance = federation.config, local.attendance
    p = _global_probabilities(federation, "val", theta, stream(config.seed, f"{purpose}-meta-shots", attendance.t))
    val_loss = float(cross_entropy(p, federation.splits.val.y, federation.margin).mean())
    fair = spread(accuracy[~np.isnan(accuracy)])
    moved = 2 * len(attendance.clients) * len(theta)
    comm = moved / (2 * config.clients * len(theta))
    stab = float((local.trace["loss_after"] - local.trace["loss_before"]).std(axis=1).mean())
    total = val_loss + config.lambda_fair * fair + config.lambda_comm * comm + config.lambda_stab * stab
    return MetaLoss(total, val_loss, fair, comm, stab)


def _global_probabilities(federation: Federation, part: str, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return federation.engine.probabilities(federation.encoded[part], theta, rng)


def evaluate_global(federation: Federation, theta: np.ndarray, t: int) -> dict[str, np.ndarray]:
    """Return P(class 1) of the global model on the train, validation and test parts, for round t's records."""
    return {
        part: _global_probabilities(federation, part, theta, stream(federation.config.seed, f"global-{part}-shots", t))
        for part in federation.encoded
    }


def tune_adam(federation: Federation, theta: np.ndarray, phi: np.ndarray) -> tuple[float, int]:
    """Choose Adam's learning rate on validation: one virtual round 0 for each candidate; also count its circuits."""
    if federation.method.optimizer != "library-adam":
        return np.nan, 0
    rates = federation.config.adam_rates
    tried = federated_rounds(federation, theta, 0, [Broadcast(phi, rate, "tuning") for rate in rates])
    circuits = sum(count for attempt in tried for count in attempt.local.circuits.values())
    return rates[int(np.argmin([attempt.meta.val_loss for attempt in tried]))], circuits
