"""Algorithm 1: client-side deep-unfolded proximal training, for all clients of a round as one batch.

One client alone is a batch of one and gives the same bits. Baselines replace the unfolded SPSA by a library optimiser:
one block on the same objective, with the same number of evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qfl_core.algorithm.controller import Summary, gamma, psi, standardised
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Block, BlockResult, Memory, checked
from qfl_core.algorithm.losses import correct, cross_entropy, hit
from qfl_core.algorithm.model import Model
from qfl_core.algorithm.samples import Attendance, Batch, Samples
from qfl_core.engines.base import Descent, Drawing

#: Columns of a trace, each (clients, unfolds). ``test_recall`` is the share of positive test samples that are found.
TRACE = (
    *("eta", "delta", "loss_before", "loss_after", "task_loss_before", "task_loss_after"),
    *("train_accuracy", "test_accuracy", "test_recall", "val_loss", "val_accuracy", "displacement", "clipped"),
)


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends to the clients of round t (Algorithm 2, line 1).

    ``theta`` (P,) is the global model and ``phi`` (2, 7) the controller. ``purpose`` names the random streams: a
    virtual round draws from streams of its own and leaves those of the real one untouched. ``state`` holds what the
    local optimiser remembers of the clients: one row per client. ``client_ids`` names who trains; None asks all
    participants of the round.
    """

    t: int
    theta: np.ndarray
    phi: np.ndarray
    purpose: str = "round"
    state: Memory = field(default_factory=dict)
    client_ids: np.ndarray | None = None

    def part(self, clients: slice) -> Broadcast:
        """Return the broadcast to some of the clients."""
        return replace(self, state={name: values[clients] for name, values in self.state.items()})

    @property
    def is_real(self) -> bool:
        """Whether the round's result becomes the global model; a virtual round only measures something."""
        return self.purpose == "round"


@dataclass(frozen=True, eq=False)
class LocalResult:
    """What clients upload and what they recorded.

    ``theta`` (clients, P) is the selected model, ``selected`` (clients,) its unfold k* in 1..K, ``trace`` maps each of
    :data:`TRACE` to (clients, K), ``circuits`` counts circuit executions of all clients by purpose, ``state`` is what
    the local optimiser remembers.
    """

    theta: np.ndarray
    selected: np.ndarray
    trace: Mapping[str, np.ndarray]
    circuits: Mapping[str, int]
    attendance: Attendance
    state: Memory


def joined(parts: Sequence[LocalResult]) -> LocalResult:
    """Put the uploads of several groups of clients one after the other."""
    rolls, first = [part.attendance for part in parts], parts[0]
    columns = ("client_ids", "sizes", "val_sizes", "heterogeneity")
    roll = {name: np.concatenate([getattr(roll, name) for roll in rolls]) for name in columns}
    return LocalResult(
        np.concatenate([part.theta for part in parts]),
        np.concatenate([part.selected for part in parts]),
        {name: np.concatenate([part.trace[name] for part in parts]) for name in first.trace},
        {name: sum(part.circuits[name] for part in parts) for name in first.circuits},
        Attendance(rolls[0].t, **roll, absent=tuple(one for roll in rolls for one in roll.absent)),
        {name: np.concatenate([part.state[name] for part in parts]) for name in first.state},
    )


@dataclass(frozen=True, eq=False)
class Measured:
    """One measurement of every client's training samples, (clients,) each: task loss, proximal loss, accuracy."""

    task: np.ndarray
    proximal: np.ndarray
    accuracy: np.ndarray


@dataclass(frozen=True, eq=False)
class Objective:
    """The proximal objective of Eq. (prox local objective) for every client of a batch (Algorithm 1, line 7).

        L_prox(theta) = L(theta) + (mu / 2) |theta - theta_t|^2

    ``anchor`` (P,) is theta_t; client i draws its shots from ``rngs[i]``.
    """

    model: Model
    samples: Samples
    anchor: np.ndarray
    mu: float
    rngs: Sequence[np.random.Generator]

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """Return the proximal losses: (clients, S, P) -> (clients, S)."""
        return self.model.means(self.samples, theta, self.rngs, self.model.loss.value)[0] + self.penalty(theta)

    def penalty(self, theta: np.ndarray) -> np.ndarray:
        """Return (mu / 2) |theta - theta_t|^2: (clients, S, P) -> (clients, S)."""
        # A running sum adds from the first to the last, as compiled code does.
        return 0.5 * self.mu * np.cumsum((theta - self.anchor) ** 2, axis=2)[:, :, -1]

    def measure(self, theta: np.ndarray) -> Measured:
        """Measure every client once, at its own theta (clients, P)."""
        task, accuracy = self.model.means(self.samples, theta[:, None], self.rngs, self.model.loss.value, correct)
        return Measured(task[:, 0], (task + self.penalty(theta[:, None]))[:, 0], accuracy[:, 0])

    def descend(
        self, theta: np.ndarray, eta: np.ndarray, delta: np.ndarray, directions: np.ndarray, shift: np.ndarray | None
    ) -> np.ndarray | None:
        """Run :func:`~qfl_core.algorithm.optimizers.spsa_block` in compiled code; None where there is none."""
        model, descent = self.model, Descent(theta, self.anchor, self.mu, eta, delta, directions, shift)
        asked = Drawing(self.samples.encoded, self.samples.y, self.rngs, (model.loss.value,), model.margin)
        return model.compiled.descend(asked, descent) if model.compiled else None

    def of_client(self, i: int) -> Objective:
        """Return the objective of the i-th client of the batch alone."""
        one = slice(i, i + 1)
        return Objective(self.model, self.samples.part(one), self.anchor, self.mu, self.rngs[one])

    def at_points(self, points: np.ndarray) -> np.ndarray:
        """Return the proximal losses (S,) of points (S, P), for a batch of one."""
        return self(points[None])[0]

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the exact gradient (P,) for a batch of one: grad L + mu (theta - theta_t), Eq. (prox gradient)."""
        return self.model.gradient(self.samples, theta) + self.mu * (theta - self.anchor)


def train_locally(federation: Federation, sent: Broadcast, batch: Batch) -> LocalResult:
    """Train every client of the batch from the broadcast model and return the uploads (Algorithm 1)."""
    config, method, optimizer = federation.config, federation.method, federation.method.optimizer
    rngs = federation.generators(f"{sent.purpose}-shots", sent.t, batch.client_ids)
    draws = federation.generators(f"{sent.purpose}-directions", sent.t, batch.client_ids)
    unfolds, iterations = federation.blocks

    theta = np.repeat(sent.theta[None], len(batch.client_ids), axis=0)  # line 1
    s = Summary.before_training(*theta.shape)  # line 2
    objective = Objective(federation.model, batch.train, sent.theta, federation.mu, rngs)  # line 7
    state, path, rows, blocks = sent.state, [], [], []
    for k in range(unfolds):  # line 4
        z = psi(k / config.unfolds, sent.t / config.rounds, s, batch.data_fraction, batch.heterogeneity)  # line 5
        if config.controller_features == "standardised":
            z = standardised(z, len(federation.participants(sent.t)))
        eta, delta = gamma(z, sent.phi, config.eta_bounds, config.delta_bounds)  # line 6
        before = objective.measure(theta)  # line 8
        block, state = optimizer.update(Block(theta, eta, delta, iterations, draws), objective, state)  # line 9
        end, clipped = checked("the local optimiser", block.theta, theta.shape), np.zeros(len(theta), bool)
        if method.projection:
            end, clipped = project(theta, end, config.drift_radius)
        after = objective.measure(end)  # line 10
        validated = _validate(federation.model, batch.val, end, rngs)  # line 12
        s = Summary(before.proximal, after.proximal, validated["val_loss"], end - theta)  # lines 11, 16
        rows.append(_trace_row(block, before, after, s.displacement, clipped) | validated)
        path.append(end)
        blocks.append(block)
        theta = end
    models = np.stack(path, axis=1)  # (clients, K, P)
    trace = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    if sent.is_real:  # nobody reads the test accuracy of a virtual round
        trace |= _test(federation, batch, models)
    selected = select(trace["val_loss"], method.best_unfold)  # lines 3, 13 to 15
    uploads = models[np.arange(len(models)), selected - 1]  # line 18
    attendance = Attendance(sent.t, batch.client_ids, batch.train.sizes, batch.val.sizes, batch.heterogeneity)
    return LocalResult(uploads, selected, trace, _circuits(batch, blocks), attendance, state)  # line 19


def _trace_row(
    block: BlockResult, before: Measured, after: Measured, displacement: np.ndarray, clipped: np.ndarray
) -> dict[str, np.ndarray]:
    """Return what the paper's section on trace logging records of one unfold, (clients,) each."""
    return {
        "eta": block.eta,
        "delta": block.delta,
        "loss_before": before.proximal,
        "loss_after": after.proximal,
        "task_loss_before": before.task,
        "task_loss_after": after.task,
        "train_accuracy": after.accuracy,
        "displacement": displacement,
        "clipped": clipped,
    }


def _validate(
    model: Model, samples: Samples, theta: np.ndarray, rngs: Sequence[np.random.Generator]
) -> dict[str, np.ndarray]:
    """Return validation loss and accuracy, (clients,) each, of theta (clients, P); the loss is always the log loss."""
    loss, accuracy = model.means(samples, theta[:, None], rngs, cross_entropy, correct)
    return {"val_loss": loss[:, 0], "val_accuracy": accuracy[:, 0]}


def _test(federation: Federation, batch: Batch, models: np.ndarray) -> dict[str, np.ndarray]:
    """Return test accuracy and recall, (clients, K) each, of every unfold in models (clients, K, P)."""
    rngs = federation.generators("client-test-shots", batch.t, batch.client_ids)
    accuracy, hits = federation.model.means(batch.test, models, rngs, correct, hit)
    positives = batch.test.means(batch.test.y[None].astype(float))
    recall = np.divide(hits, positives, out=np.full_like(hits, np.nan), where=positives > 0)
    return {"test_accuracy": accuracy, "test_recall": recall}


def select(val_loss: np.ndarray, best: bool) -> np.ndarray:
    """Return k* in 1..K (clients,): the first unfold of lowest validation loss (clients, K), or the last unfold."""
    clients, unfolds = val_loss.shape
    return np.argmin(val_loss, axis=1) + 1 if best else np.full(clients, unfolds)


def project(start: np.ndarray, end: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold each step from ``start`` to ``end``, both (clients, P), inside a ball; tell which steps were cut.

    K such steps move a client by at most K times the radius. This is DUQFL-drift's limit.
    """
    step = end - start
    length = np.sqrt((step**2).sum(axis=1))
    clipped = length > radius
    scale = np.where(clipped, radius / np.maximum(length, radius), 1.0)
    return np.where(clipped[:, None], start + scale[:, None] * step, end), clipped


def validate_locally(
    federation: Federation, theta: np.ndarray, t: int, client_ids: np.ndarray, purpose: str = "round"
) -> np.ndarray:
    """Return the validation accuracy (clients,) of these clients in round t under one model theta (P,)."""
    samples = federation.validation_samples(t, client_ids)
    everywhere = np.broadcast_to(theta, (len(client_ids), 1, len(theta)))
    rngs = federation.generators(f"{purpose}-fair-shots", t, client_ids)
    return federation.model.means(samples, everywhere, rngs, correct)[0][:, 0]


def _circuits(batch: Batch, blocks: Sequence[BlockResult]) -> dict[str, int]:
    """Count the circuit executions of all clients; each is repeated ``shots`` times."""
    spent = {name: sum(b.evaluations.get(name, 0) for b in blocks) for name in ("train", "calibration", "monitor")}
    spent["monitor"] += 2 * len(blocks)  # before and after each
    counts = {name: count * len(batch.train.y) for name, count in spent.items()}
    return counts | {"validation": len(blocks) * len(batch.val.y)}
