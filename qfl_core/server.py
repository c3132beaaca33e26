"""Algorithm 2: one federated round: broadcast, local training, aggregation, post-aggregation meta-loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.client import LocalResult, train_locally
from qfl_core.errors import DataError
from qfl_core.federation import Batch, Federation
from qfl_core.losses import cross_entropy
from qfl_core.metrics import spread
from qfl_core.streams import stream


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
    batch: Batch
    local: LocalResult
    meta: MetaLoss


def federated_round(
    federation: Federation,
    theta: np.ndarray,
    phi: np.ndarray,
    t: int,
    adam_rate: float = np.nan,
    purpose: str = "round",
) -> RoundResult:
    """Run round t from the global model theta (P,) under the controller phi (Algorithm 2).

    A round with another ``purpose`` is virtual: it draws from streams of its own.
    """
    batch = federation.batch(t)  # line 1: S(t) and its data
    local = train_locally(federation, theta, phi, batch, adam_rate, purpose)  # lines 2 to 4
    weights = aggregation_weights(batch.train.sizes)  # line 5
    updated = aggregate(local.theta, weights, batch.clients)  # line 6
    return RoundResult(updated, weights, batch, local, meta_loss(federation, updated, batch, local, purpose))


def aggregation_weights(sizes: np.ndarray) -> np.ndarray:
    """Return w_i = n_i / sum of n (clients,), Eq. (sample size weight)."""
    return sizes / sizes.sum()


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
    federation: Federation, theta: np.ndarray, batch: Batch, local: LocalResult, purpose: str = "round"
) -> MetaLoss:
    """Evaluate the new global model (Algorithm 2, line 7).

    L_meta = L_val(theta) + lambda_fair Omega_fair + lambda_comm Omega_comm + lambda_stab Omega_stab, with

    - Omega_fair: P90 - P10 of client validation accuracies under the new global model,
    - Omega_comm: parameters moved this round / (2 N P), down and up,
    - Omega_stab: mean over clients of the standard deviation over k of the proximal-loss change.
    """
    config, t = federation.config, batch.t
    p = _global_probabilities(federation, "val", theta, stream(config.seed, f"{purpose}-meta-shots", t))
    val_loss = float(cross_entropy(p, federation.splits.val.y, federation.margin).mean())
    everywhere = np.broadcast_to(theta, (len(batch.clients), 1, len(theta)))
    rngs = federation.generators(f"{purpose}-fair-shots", t, batch.clients)
    accuracy = federation.accuracies(batch.val, federation.probabilities(batch.val, everywhere, rngs))[:, 0]
    fair = spread(accuracy)
    moved = 2 * len(batch.clients) * len(theta)
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
    losses, circuits = [], 0
    for rate in federation.config.adam_rates:
        tried = federated_round(federation, theta, phi, 0, rate, purpose="tuning")
        losses.append(tried.meta.val_loss)
        circuits += sum(tried.local.circuits.values())
    return federation.config.adam_rates[int(np.argmin(losses))], circuits
