"""Algorithm 2: one federated round: broadcast, local training, aggregation, post-aggregation meta-loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from qfl_core.algorithm.client import Broadcast, LocalResult, joined, train_locally, validate_locally
from qfl_core.algorithm.controller import initial_phi
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Combine, Memory, checked, weighted_sum
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.metrics import spread
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import DataError
from qfl_core.base.streams import stream

#: phi by name: ``controller`` (2, 7) is the paper's; a method's aggregation may add arrays of its own.
Phi = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class State:
    """What round t starts from: the global model ``theta`` (P,), ``phi``, and what the method's hooks remember.

    ``memory`` belongs to the local optimiser, ``server`` to the server optimiser, ``outer`` to the outer optimiser; all
    are empty for most methods.
    """

    t: int
    theta: np.ndarray
    phi: Phi
    memory: Memory = field(default_factory=dict)
    server: Memory = field(default_factory=dict)
    outer: Memory = field(default_factory=dict)

    @classmethod
    def initial(cls, federation: Federation) -> State:
        """Return the state before round 0."""
        config, method, num_weights = federation.config, federation.method, federation.num_weights
        return cls(
            t=0,
            theta=federation.initial_theta(),
            phi={
                "controller": initial_phi(config.learning_rate, config.perturbation),
                **method.aggregation.init(config.clients),
            },
            memory=method.optimizer.init(config.clients, num_weights),
            server=method.server.init(num_weights) if method.server else {},
        )


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
    """What a round produced.

    ``state`` is what the next round starts from, ``weights`` (clients,) are those of the aggregation, ``attendance``
    tells who took part.
    """

    state: State
    weights: np.ndarray
    attendance: Attendance
    local: LocalResult
    meta: MetaLoss


class Trainer(Protocol):
    """Who runs Algorithm 1 for the clients: this process, or a network."""

    transport: str

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Train the participants of a round."""

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracy (clients,) of the clients that trained, under the new model theta (P,).

        NaN is a client that did not answer.
        """


#: Clients that train as one batch. Each holds the labels and row numbers of its samples only while its batch trains, so
#: the memory of a round does not grow with the number of clients, apart from what they upload.
COHORT = 512


def cohorts(count: int) -> list[slice]:
    """Return the batches in which so many clients train, one after the other; a client gives the same bits in any."""
    return [slice(i, i + COHORT) for i in range(0, count, COHORT)]


class InProcess:
    """All participants in this process, in batches of at most :data:`COHORT`."""

    transport = "in-process"

    def train(self, federation: Federation, sent: Broadcast) -> LocalResult:
        """Train the participants of a round."""
        ids = federation.participants(sent.t) if sent.client_ids is None else sent.client_ids
        parts = [train_locally(federation, sent.part(c), federation.batch(sent.t, ids[c])) for c in cohorts(len(ids))]
        return joined(parts)

    def validate(
        self, federation: Federation, theta: np.ndarray, attendance: Attendance, purpose: str = "round"
    ) -> np.ndarray:
        """Return the validation accuracy (clients,) of the clients that trained, under the new model theta (P,)."""
        ids = attendance.client_ids
        parts = [validate_locally(federation, theta, attendance.t, ids[c], purpose) for c in cohorts(len(ids))]
        return np.concatenate(parts)


IN_PROCESS = InProcess()


def federated_round(
    federation: Federation, start: State, trainer: Trainer = IN_PROCESS, purpose: str = "round"
) -> RoundResult:
    """Run round t from the global model theta^(t) under the controller phi^(t) (Algorithm 2).

    A ``purpose`` other than ``"round"`` makes the round virtual: it draws from random streams of its own.
    """
    method, t = federation.method, start.t
    remembered = method.optimizer.begin(start.memory, federation.participants(t))
    sent = Broadcast(t, start.theta, start.phi["controller"], purpose, remembered)  # line 1
    local = trainer.train(federation, sent)  # lines 2 to 4
    attendance = local.attendance
    weights = method.aggregation(attendance, start.phi)  # line 5
    theta = aggregate(local.theta, weights, attendance.client_ids, method.aggregation.combine)  # line 6
    server = start.server
    if method.server:  # the paper's methods take the average itself
        theta, server = method.server.update(start.theta, theta, server)
        theta = checked("the server optimiser", theta, start.theta.shape)
    accuracy = trainer.validate(federation, theta, attendance, purpose)
    meta = meta_loss(federation, theta, local, accuracy, purpose)  # line 7
    memory = method.optimizer.end(start.memory, attendance.client_ids, local.state)
    state = State(t + 1, theta, start.phi, memory, server, start.outer)
    return RoundResult(state, weights, _with_silent(attendance, accuracy), local, meta)  # line 8


def _with_silent(attendance: Attendance, accuracy: np.ndarray) -> Attendance:
    """Note the clients whose upload counts but which did not score the new model."""
    silent = attendance.client_ids[np.isnan(accuracy)]
    reasons = tuple((int(i), "trained, but did not score the new global model") for i in silent)
    return replace(attendance, absent=attendance.absent + reasons)


def aggregate(
    uploads: np.ndarray, weights: np.ndarray, client_ids: np.ndarray, combine: Combine = weighted_sum
) -> np.ndarray:
    """Make one model (P,) of the uploads (clients, P), Eq. (fedavg); an upload that is not finite is refused."""
    broken = ~np.isfinite(uploads).all(axis=1)
    if broken.any():
        raise DataError(f"client {int(client_ids[broken][0])} uploaded weights that are not finite")
    return checked("the aggregation", combine(uploads, weights), uploads.shape[1:])


def meta_loss(
    federation: Federation, theta: np.ndarray, local: LocalResult, accuracy: np.ndarray, purpose: str = "round"
) -> MetaLoss:
    """Evaluate the new global model theta (P,), with the clients' validation accuracies (Algorithm 2, line 7).

    L_meta = L_val(theta) + lambda_fair Omega_fair + lambda_comm Omega_comm + lambda_stab Omega_stab, with

    - Omega_fair: P90 - P10 of client validation accuracies under the new global model,
    - Omega_comm: parameters moved this round / (2 N P), down and up. A round of all clients moves the same number
      whatever the controller asks for, so this term is constant and cancels between the two virtual rounds,
    - Omega_stab: mean over clients of the standard deviation over k of the proximal-loss change.
    """
    config, attendance, split = federation.config, local.attendance, federation.splits["val"]
    rng = stream(config.seed, f"{purpose}-meta-shots", attendance.t)
    p = federation.model.split_probabilities(split, theta, rng)
    val_loss = float(cross_entropy(p, split.y, federation.model.margin).mean())
    fair = spread(accuracy[~np.isnan(accuracy)])
    moved = 2 * len(attendance.client_ids) * len(theta)
    comm = moved / (2 * config.clients * len(theta))
    stab = float((local.trace["loss_after"] - local.trace["loss_before"]).std(axis=1).mean())
    total = val_loss + config.lambda_fair * fair + config.lambda_comm * comm + config.lambda_stab * stab
    return MetaLoss(total, val_loss, fair, comm, stab)


def evaluate_global(federation: Federation, theta: np.ndarray, t: int) -> dict[str, np.ndarray]:
    """Return P(class 1) of the global model theta (P,) on every split that is held here, for the records of round t."""
    return {
        name: federation.model.split_probabilities(
            split, theta, stream(federation.config.seed, f"global-{name}-shots", t)
        )
        for name, split in federation.splits.items()
    }


def tune(federation: Federation, start: State, trainer: Trainer = IN_PROCESS) -> tuple[State, int]:
    """Let validation choose among the local optimiser's candidates, before round 0; also count the circuits spent.

    Each candidate trains one virtual round; the lowest loss on the server's validation split wins.
    """
    candidates = federation.method.optimizer.candidates(federation.config, federation.num_weights)
    if not candidates:
        return start, 0
    states = [replace(start, memory=memory) for memory in candidates]
    tried = [federated_round(federation, state, trainer, "tuning") for state in states]
    circuits = sum(sum(attempt.local.circuits.values()) for attempt in tried)
    return states[int(np.argmin([attempt.meta.val_loss for attempt in tried]))], circuits
