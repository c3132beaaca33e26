"""One run, round by round: a pure function of its config, told in records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfl_core.algorithm.controller import FEATURES, initial_phi
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.meta import is_due, refine_controller, virtual_rounds
from qfl_core.algorithm.methods import Memory
from qfl_core.algorithm.metrics import classification, spread
from qfl_core.algorithm.server import Broadcast, RoundResult, evaluate_global, federated_rounds, tune_adam


@dataclass(frozen=True, eq=False)
class State:
    """What the next round needs: ``theta`` (P,), ``phi`` (2, features), Adam's rate, rounds done.

    ``logits`` (N,) are a learned aggregation's, empty for others; ``memory`` is what the method's correction remembers.
    """

    theta: np.ndarray
    phi: np.ndarray
    adam_rate: float
    done: int
    logits: np.ndarray
    memory: Memory

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and numbers; floats survive to the bit."""
        return {
            "theta": self.theta.tolist(),
            "phi": self.phi.tolist(),
            "adam_rate": self.adam_rate,
            "done": self.done,
            "logits": self.logits.tolist(),
            "memory": {name: values.tolist() for name, values in self.memory.items()},
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> State:
        """Rebuild a state."""
        return cls(
            theta=np.array(values["theta"]),
            phi=np.array(values["phi"]),
            adam_rate=values["adam_rate"],
            done=values["done"],
            logits=np.array(values["logits"]),
            memory={name: np.array(array) for name, array in values["memory"].items()},
        )


#: A round's rows by file, plus its state and seconds.
Record = dict[str, Any]


def start(federation: Federation) -> tuple[State, int]:
    """Return the state before round 0, and the circuits that tuning spent."""
    config = federation.config
    theta, phi = federation.initial_theta(), initial_phi(config.learning_rate, config.perturbation)
    rate, circuits = tune_adam(federation, theta, phi)
    correction = federation.method.correction
    memory = correction.start(config.clients, federation.num_weights) if correction else {}
    return State(theta, phi, rate, 0, federation.method.aggregation.start(config.clients), memory), circuits


def train(federation: Federation, state: State | None = None) -> Iterator[Record]:
    """Yield one record a round, from the beginning or from a state; the same state gives the same records."""
    if state is None:
        begun = time.perf_counter()
        state, tuning = start(federation)
        record = _initial_record(federation, state, tuning)
        yield record | {"state": state.to_json(), "seconds": time.perf_counter() - begun}
    for t in range(state.done, federation.config.rounds):
        begun = time.perf_counter()
        due, correction = is_due(federation, t), federation.method.correction
        shift = correction.shift(state.memory) if correction else None
        sent = [Broadcast(state.phi, state.adam_rate, shift=shift, logits=state.logits)]
        if due:
            sent += virtual_rounds(federation, state.phi, t, state.logits, shift)[1]
        result, *virtual = federated_rounds(federation, state.theta, t, sent)
        outer = refine_controller(federation, state.theta, state.phi, t, virtual, state.logits) if due else None
        phi, logits = (outer.phi, outer.logits) if outer else (state.phi, state.logits)
        memory = state.memory
        if correction:  # of the real round alone
            memory = correction.update(memory, result.local.attendance.clients, result.local.pull)
        circuits = result.local.circuits | {"virtual": outer.circuits if outer else 0, "tuning": 0}
        record = _round_record(federation, result, t, circuits)
        record["outer_meta"] = [_outer_row(result, outer, phi, t)]
        state = State(result.theta, phi, state.adam_rate, t + 1, logits, memory)
        yield record | {"state": state.to_json(), "seconds": time.perf_counter() - begun}


def _initial_record(federation: Federation, state: State, tuning: int) -> Record:
    """Score the initial weights as round 0 of the global files; tuning was spent before round 1."""
    metrics = _global_metrics(federation, state.theta, 0)
    row = {"round": 0, **_accuracy_columns(metrics), "circuits_tuning": tuning}
    return {
        "global_accuracies": [row],
        "validation": [{"round": 0, "val_loss": metrics["val"]["loss"]}],
        "classification_metrics": _metric_rows(metrics, 0),
        "client_trace": [],
        "outer_meta": [],
    }


def _round_record(federation: Federation, result: RoundResult, t: int, circuits: dict[str, int]) -> Record:
    metrics = _global_metrics(federation, result.theta, t + 1)
    uploaded = result.local.selected - 1
    clients = np.arange(len(uploaded))
    client_train = result.local.trace["train_accuracy"][clients, uploaded]
    client_test = result.local.trace["test_accuracy"][clients, uploaded]
    row = {
        "round": t + 1,
        **_accuracy_columns(metrics),
        "client_train_accuracy": client_train.mean(),
        "client_test_accuracy": client_test.mean(),
        "client_test_accuracy_min": client_test.min(),
        "client_test_accuracy_max": client_test.max(),
        "train_test_gap": (client_train - client_test).mean(),
        "fairness_gap": spread(client_test),
        "global_fairness_gap": result.meta.fair,
        "clients": len(clients),
        "drift": float(np.sqrt(((result.local.theta - result.theta) ** 2).sum(axis=1)).mean()),
        **{f"circuits_{purpose}": count for purpose, count in circuits.items()},
        "shots": federation.config.shots or 0,
    }
    return {
        "global_accuracies": [row],
        "validation": [
            {
                "round": t + 1,
                "val_loss": metrics["val"]["loss"],
                "client_val_loss": result.local.trace["val_loss"][clients, uploaded].mean(),
                "meta_loss": result.meta.total,
            }
        ],
        "classification_metrics": _metric_rows(metrics, t + 1),
        "client_trace": _trace_rows(result, t + 1),
        "exclusions": [{"round": t + 1, "client": i, "reason": reason} for i, reason in result.batch.absent],
    }


def _global_metrics(federation: Federation, theta: np.ndarray, t: int) -> dict[str, dict[str, float]]:
    found = {}
    for part, p in evaluate_global(federation, theta, t).items():
        y = federation.splits.parts[part].y
        found[part] = classification(y, p) | {"loss": float(cross_entropy(p, y, federation.margin).mean())}
    return found


def _accuracy_columns(metrics: dict[str, dict[str, float]]) -> dict[str, float]:
    return {
        # A server far from its clients does not hold their training rows.
        "global_train_accuracy": metrics["train"]["accuracy"] if "train" in metrics else float("nan"),
        "global_val_accuracy": metrics["val"]["accuracy"],
        "global_accuracy": metrics["test"]["accuracy"],
    }


def _metric_rows(metrics: dict[str, dict[str, float]], t: int) -> list[dict[str, Any]]:
    return [{"round": t, "part": part, **metrics[part]} for part in ("val", "test")]


def _trace_rows(result: RoundResult, t: int) -> list[dict[str, Any]]:
    """Return one row a client and unfold, with every column that the paper's section on trace logging names."""
    batch, local = result.batch, result.local
    rows = []
    for i, client in enumerate(batch.clients):
        for k in range(local.trace["eta"].shape[1]):
            rows.append(
                {
                    "round": t,
                    "client": int(client),
                    "unfold": k + 1,
                    **{name: values[i, k].item() for name, values in local.trace.items()},
                    "selected_unfold": int(local.selected[i]),
                    "is_selected": bool(local.selected[i] == k + 1),
                    "client_size": int(batch.sizes[i]),
                    "val_size": int(batch.val_sizes[i]),
                    "aggregation_weight": float(result.weights[i]),
                    "heterogeneity": float(batch.heterogeneity[i]),
                }
            )
    return rows


def _outer_row(result: RoundResult, outer, phi: np.ndarray, t: int) -> dict[str, Any]:
    """Return the meta-loss with its terms, the outer step (NaN where none was due) and the controller after it."""
    missing = float("nan")
    row = {
        "round": t + 1,
        "meta_loss": result.meta.total,
        "meta_val_loss": result.meta.val_loss,
        "omega_fair": result.meta.fair,
        "omega_comm": result.meta.comm,
        "omega_stab": result.meta.stab,
        "updated": outer is not None,
        "meta_loss_plus": outer.loss_plus if outer else missing,
        "meta_loss_minus": outer.loss_minus if outer else missing,
        "controller_gradient_norm": outer.gradient_norm if outer else missing,
    }
    for name, values in zip(("eta", "delta"), phi, strict=True):
        row |= {f"phi_{name}_{feature}": float(v) for feature, v in zip(FEATURES, values, strict=True)}
    return row
