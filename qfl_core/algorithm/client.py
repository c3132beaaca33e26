"""Algorithm 1: client-side deep-unfolded proximal training, for all clients of a round as one batch.

One client in a distributed run is a batch of one, and gives the same bits. Baselines replace the unfolded SPSA by a
library optimiser on the same objective with the same number of evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.algorithm.aggregation import Attendance
from qfl_core.algorithm.controller import gamma, psi
from qfl_core.algorithm.federation import Batch, Federation
from qfl_core.algorithm.losses import LOSSES
from qfl_core.algorithm.optimizers import CALIBRATION, SPSA_C, calibrated_spsa, library_adam, spsa_block

#: Columns of a trace, each (clients, unfolds).
TRACE = (
    "eta",
    "delta",
    "loss_before",
    "loss_after",
    "task_loss_before",
    "task_loss_after",
    "train_accuracy",
    "test_accuracy",
    "val_loss",
    "val_accuracy",
    "displacement",
    "clipped",
)


@dataclass(frozen=True, eq=False)
class LocalResult:
    """What clients upload and what they recorded.

    ``theta`` (clients, P) is the selected model, ``selected`` (clients,) its unfold k* in 1..K, ``trace`` maps each of
    :data:`TRACE` to (clients, K), ``circuits`` counts circuit executions of all clients by purpose. ``pull``
    (clients, P), which stays with the clients, is the mean of all K unfolds' steps weighted by their rates.
    """

    theta: np.ndarray
    selected: np.ndarray
    trace: dict[str, np.ndarray]
    circuits: dict[str, int]
    attendance: Attendance
    pull: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Objective:
    """The proximal objective of Eq. (prox local objective) for every client of a batch.

        L_prox(theta) = L(theta) + (mu / 2) |theta - theta_t|^2

    Task loss and penalised loss are kept as separate numbers.
    """

    federation: Federation
    batch: Batch
    anchor: np.ndarray
    rngs: list

    def penalty(self, theta: np.ndarray) -> np.ndarray:
        """Return (mu / 2) |theta - theta_t|^2: (clients, S, P) -> (clients, S)."""
        return 0.5 * self.federation.mu * ((theta - self.anchor) ** 2).sum(axis=2)

    def task(self, theta: np.ndarray) -> np.ndarray:
        """Return the task losses: (clients, S, P) -> (clients, S)."""
        p = self.federation.probabilities(self.batch.train, theta, self.rngs)
        return self.federation.task_losses(self.batch.train, p)

    def __call__(self, theta: np.ndarray) -> np.ndarray:
        """Return the penalised losses: (clients, S, P) -> (clients, S)."""
        return self.task(theta) + self.penalty(theta)

    def of_client(self, i: int) -> Objective:
        """Return the objective of the i-th client of the batch alone."""
        alone = self.federation.batch(self.batch.t, self.batch.clients[[i]])
        return Objective(self.federation, alone, self.anchor, self.rngs[i : i + 1])

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """Return the exact gradient (P,) for a batch of one: grad L + mu (theta - theta_t), Eq. (prox gradient)."""
        samples, federation = self.batch.train, self.federation
        slope = LOSSES[federation.config.loss][1]
        exact = federation.exact_engine.probabilities(samples.encoded[0], theta)
        rows = federation.exact_engine.gradient(samples.encoded[0], theta)
        weight = slope(exact, samples.y, federation.margin) / len(samples.y)
        return weight @ rows + federation.mu * (theta - self.anchor)


def train_locally(
    federation: Federation,
    theta: np.ndarray,
    phi: np.ndarray,
    batch: Batch,
    adam_rate: float = np.nan,
    purpose: str = "round",
    shift: np.ndarray | None = None,
) -> LocalResult:
    """Train every client of the batch from the broadcast model theta (P,) and return the uploads.

    ``purpose`` names the random streams: a virtual round draws from its own and leaves the real one untouched.
    ``shift`` (clients, P) is what the method's correction adds to every gradient.
    """
    rngs = federation.generators(f"{purpose}-shots", batch.t, batch.clients)
    objective = Objective(federation, batch, theta, rngs)
    start = np.repeat(theta[None], len(batch.clients), axis=0)  # Algorithm 1, line 1
    if federation.method.unfolded:
        path, trace = _unfold(objective, start, phi, purpose, shift)
        blocks = federation.config.unfolds
    else:
        path, trace = _library(objective, start, adam_rate, purpose)
        blocks = 1
    _evaluate(objective, path, trace, purpose)
    selected = _select(trace["val_loss"], federation.method.best_unfold)
    uploads = path[np.arange(len(path)), selected - 1]
    attendance = Attendance(batch.t, batch.clients, batch.train.sizes, batch.val.sizes, batch.heterogeneity)
    pull = _pull(federation, start, path, trace["eta"]) if federation.method.correction else None
    return LocalResult(uploads, selected, trace, _circuits(federation, batch, blocks), attendance, pull)


def validate_locally(federation: Federation, theta: np.ndarray, batch: Batch, purpose: str = "round") -> np.ndarray:
    """Return the validation accuracy (clients,) of every client of the batch under one model theta (P,)."""
    everywhere = np.broadcast_to(theta, (len(batch.clients), 1, len(theta)))
    rngs = federation.generators(f"{purpose}-fair-shots", batch.t, batch.clients)
    return federation.accuracies(batch.val, federation.probabilities(batch.val, everywhere, rngs))[:, 0]


def _pull(federation: Federation, start: np.ndarray, path: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Return (theta_t - theta_{i,K}) / (J sum_k eta_{i,k}), the mean step (clients, P) of path (clients, K, P)."""
    travelled = federation.config.spsa_iterations * eta.sum(axis=1)
    return (start - path[:, -1]) / travelled[:, None]


def _unfold(
    objective: Objective, theta: np.ndarray, phi: np.ndarray, purpose: str, shift: np.ndarray | None
) -> tuple[np.ndarray, dict]:
    """Run the K unfolds (Algorithm 1, lines 4 to 17); return the states (clients, K, P) and the trace."""
    federation, batch = objective.federation, objective.batch
    config, clients = federation.config, len(batch.clients)
    shape = (config.unfolds, config.spsa_iterations, theta.shape[1])
    draws = federation.generators(f"{purpose}-directions", batch.t, batch.clients)
    directions = np.array([1.0 - 2.0 * rng.integers(0, 2, shape) for rng in draws])
    loss_change, displacement = np.zeros(clients), np.zeros(clients)  # s_0, line 2
    states, rows = [], []
    task_before = objective.task(theta[:, None])[:, 0]
    before = task_before + objective.penalty(theta[:, None])[:, 0]  # line 8
    for k in range(config.unfolds):
        z = psi(
            k,
            config.unfolds,
            batch.t,
            config.rounds,
            loss_change,
            displacement,
            theta.shape[1],
            batch.data_fraction,
            batch.heterogeneity,
        )  # line 5
        eta, delta = gamma(z, phi, config.eta_bounds, config.delta_bounds)  # line 6
        updated = spsa_block(theta, objective, eta, delta, directions[:, k], shift)  # line 9
        clipped = np.zeros(clients, bool)
        if federation.method.projection:
            updated, clipped = project(theta, updated, config.drift_radius)
        displacement = np.sqrt(((updated - theta) ** 2).sum(axis=1))  # line 11
        theta = updated
        p = federation.probabilities(batch.train, theta[:, None], objective.rngs)
        task_after = federation.task_losses(batch.train, p)[:, 0]
        after = task_after + objective.penalty(theta[:, None])[:, 0]  # line 10
        loss_change = (before - after) / np.maximum(np.abs(before), 1e-12)  # summary, line 16
        accuracy = federation.accuracies(batch.train, p)[:, 0]
        states.append(theta)
        rows.append(
            {
                "eta": eta,
                "delta": delta,
                "loss_before": before,
                "loss_after": after,
                "task_loss_before": task_before,
                "task_loss_after": task_after,
                "train_accuracy": accuracy,
                "displacement": displacement,
                "clipped": clipped,
            }
        )
        before, task_before = after, task_after
    columns = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    return np.stack(states, axis=1), columns


def project(start: np.ndarray, end: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Hold each step from ``start`` to ``end``, both (clients, P), inside a ball; tell which were cut.

    K such steps move a client by at most K times the radius.
    """
    step = end - start
    length = np.sqrt((step**2).sum(axis=1))
    clipped = length > radius
    scale = np.where(clipped, radius / np.maximum(length, radius), 1.0)
    return np.where(clipped[:, None], start + scale[:, None] * step, end), clipped


def _library(objective: Objective, theta: np.ndarray, adam_rate: float, purpose: str) -> tuple[np.ndarray, dict]:
    """Train each client with a library optimiser: one block, so K = 1 in the trace."""
    federation, batch = objective.federation, objective.batch
    clients = len(batch.clients)
    task_before = objective.task(theta[:, None])[:, 0]
    if federation.method.optimizer == "library-adam":
        ends = [_adam(objective.of_client(i), start, adam_rate) for i, start in enumerate(theta)]
        end, eta, delta = np.array(ends), np.full(clients, adam_rate), np.full(clients, np.nan)
    else:
        draws = federation.generators(f"{purpose}-directions", batch.t, batch.clients)
        seeds = [int(rng.integers(2**31)) for rng in draws]
        end, eta = calibrated_spsa(theta, objective, federation.evaluations // 2, seeds)
        delta = np.full(clients, SPSA_C)
    p = federation.probabilities(batch.train, end[:, None], objective.rngs)
    task_after = federation.task_losses(batch.train, p)[:, 0]
    columns = {
        "eta": eta,
        "delta": delta,
        "loss_before": task_before,  # the penalty is 0 at the broadcast model
        "loss_after": task_after + objective.penalty(end[:, None])[:, 0],
        "task_loss_before": task_before,
        "task_loss_after": task_after,
        "train_accuracy": federation.accuracies(batch.train, p)[:, 0],
        "displacement": np.sqrt(((end - theta) ** 2).sum(axis=1)),
        "clipped": np.zeros(len(end), bool),
    }
    return end[:, None], {name: values[:, None] for name, values in columns.items()}


def _adam(alone: Objective, start: np.ndarray, rate: float) -> np.ndarray:
    """Return where the library's ADAM takes one client from ``start`` (P,)."""
    return library_adam(start, lambda points: alone(points[None])[0], alone.gradient, alone.federation.adam_steps, rate)


def _evaluate(objective: Objective, path: np.ndarray, trace: dict[str, np.ndarray], purpose: str) -> None:
    """Add validation loss (Algorithm 1, line 12), validation and test accuracy of every unfold to the trace."""
    federation, batch = objective.federation, objective.batch
    p = federation.probabilities(batch.val, path, objective.rngs)
    trace["val_loss"] = federation.val_losses(batch.val, p)
    trace["val_accuracy"] = federation.accuracies(batch.val, p)
    if purpose == "round":  # a virtual round has no use for the test set
        rngs = federation.generators("client-test-shots", batch.t, batch.clients)
        trace["test_accuracy"] = federation.accuracies(batch.test, federation.probabilities(batch.test, path, rngs))


def _select(val_loss: np.ndarray, best: bool) -> np.ndarray:
    """Return k* in 1..K (clients,): the first unfold of lowest validation loss, or the last (lines 13 to 18)."""
    clients, unfolds = val_loss.shape
    return np.argmin(val_loss, axis=1) + 1 if best else np.full(clients, unfolds)


def _circuits(federation: Federation, batch: Batch, blocks: int) -> dict[str, int]:
    """Count the circuit executions of all clients; each is repeated ``shots`` times."""
    samples, validation = len(batch.train.y), len(batch.val.y)
    used = federation.evaluations
    if federation.method.optimizer == "library-adam":
        used = (2 * federation.num_weights + 1) * federation.adam_steps
    calibration = CALIBRATION if federation.method.optimizer == "library-spsa" else 0
    # Before the first block and after each; a library optimiser also scores the point that it returns.
    monitored = blocks + (1 if federation.method.unfolded else 2)
    return {
        "train": used * samples,
        "calibration": calibration * samples,
        "monitor": monitored * samples,
        "validation": blocks * validation,
    }
