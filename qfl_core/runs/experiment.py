"""One run, round by round: a pure function of its config, told in records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from qfl_core.algorithm.controller import FEATURES
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.losses import cross_entropy
from qfl_core.algorithm.meta import OuterStep, is_due, refine_controller
from qfl_core.algorithm.metrics import classification, spread
from qfl_core.algorithm.server import (
    IN_PROCESS,
    RoundResult,
    State,
    Trainer,
    evaluate_global,
    federated_round,
    tune,
)
from qfl_core.base.registry import CONTROLLERS, resolve
from qfl_core.extras.accountant import charged, nothing_spent, privacy_row
from qfl_core.extras.attacks import attacked
from qfl_core.extras.privacy import Private, without_client_values
from qfl_core.extras.screening import Screened

#: A round's rows by table, plus its state and seconds.
Record = dict[str, Any]
#: One row of a table: values by column.
Row = dict[str, Any]


def train(federation: Federation, state: State | None = None, trainer: Trainer = IN_PROCESS) -> Iterator[Record]:
    """Yield one record per round, from the beginning or from a state; the same state gives the same records.

    Uploads are screened before they count, and where the config says so, some clients attack. The server of a private
    run has nothing to screen.
    """
    config = federation.config
    if not config.is_private:
        trainer = Screened(attacked(trainer, config))
    elif trainer.transport == IN_PROCESS.transport:  # clients elsewhere are private by themselves
        trainer = Private(trainer)
    if state is None:
        begun = time.perf_counter()
        state, tuning = tune(federation, initial_state(federation), trainer)
        yield _finished(_initial_record(federation, state, tuning), state, begun)
    for t in range(state.t, config.rounds):
        begun = time.perf_counter()
        result = federated_round(federation, state, trainer)
        outer = refine_controller(federation, state, trainer) if is_due(federation, t) else None
        record = _round_record(federation, state, result, outer)
        state = replace(result.state, phi=outer.phi, outer=outer.memory) if outer else result.state
        record["outer_meta"] = [_outer_row(result, outer, state.phi["controller"])]
        if config.is_private:
            record, state = _private(federation, record, state, result)
        yield _finished(record, state, begun)


def _private(federation: Federation, record: Record, state: State, result: RoundResult) -> tuple[Record, State]:
    """Return the record without values of single clients, and with what the round has spent of their privacy.

    The account is kept where an outer optimiser would keep its memory, because a private run has none.
    """
    config, record = federation.config, without_client_values(record)
    if config.dp_noise is None:
        return record, state
    asked, arrived = federation.participants(result.attendance.t), len(result.attendance.client_ids)
    spent = charged(config, state.outer or nothing_spent(config.clients), asked, arrived)
    return record | {"privacy": [privacy_row(config, state.t, spent)]}, replace(state, outer=spent)


def initial_state(federation: Federation) -> State:
    """Return the state before round 0, with the controller that the config starts from."""
    state, begin = State.initial(federation), resolve(CONTROLLERS[federation.config.controller])
    return replace(state, phi={**state.phi, "controller": begin(federation.config)}) if begin else state


def _finished(record: Record, state: State, begun: float) -> Record:
    return record | {"state": state_to_json(state), "seconds": time.perf_counter() - begun}


#: The parts of a state that are arrays by name.
_MEMORIES = ("phi", "memory", "server", "outer")


def state_to_json(state: State) -> dict[str, Any]:
    """Return plain lists and numbers; floats survive to the bit."""
    arrays = {
        name: {key: np.asarray(values).tolist() for key, values in getattr(state, name).items()} for name in _MEMORIES
    }
    return {"done": state.t, "theta": state.theta.tolist(), **arrays}


def state_from_json(values: Mapping[str, Any]) -> State:
    """Rebuild a state."""
    arrays = {name: {key: np.array(array) for key, array in values[name].items()} for name in _MEMORIES}
    return State(t=values["done"], theta=np.array(values["theta"]), **arrays)


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


def _mean_distance(models: np.ndarray, theta: np.ndarray) -> float:
    """Return the mean over clients of |theta_i - theta|, from models (clients, P) and theta (P,)."""
    return float(np.sqrt(((models - theta) ** 2).sum(axis=1)).mean())


def _round_record(federation: Federation, start: State, result: RoundResult, outer: OuterStep | None) -> Record:
    """Return the rows of one round; rounds count from 1 in the files, because row 0 holds the initial weights."""
    local, theta, done = result.local, result.state.theta, result.state.t
    metrics = _global_metrics(federation, theta, done)
    uploaded = local.selected - 1
    each = np.arange(len(uploaded))
    client_train = local.trace["train_accuracy"][each, uploaded]
    client_test = local.trace["test_accuracy"][each, uploaded]
    circuits = {**local.circuits, "virtual": outer.circuits if outer else 0, "tuning": 0}
    row = {
        "round": done,
        **_accuracy_columns(metrics),
        "client_train_accuracy": client_train.mean(),
        "client_test_accuracy": client_test.mean(),
        "client_test_accuracy_min": client_test.min(),
        "client_test_accuracy_max": client_test.max(),
        "train_test_gap": (client_train - client_test).mean(),
        "fairness_gap": spread(client_test),
        "global_fairness_gap": result.meta.fair,
        "clients": len(each),
        "drift_from_broadcast": _mean_distance(local.theta, start.theta),
        "upload_spread": _mean_distance(local.theta, theta),
        **{f"circuits_{purpose}": count for purpose, count in circuits.items()},
        "shots": federation.config.shots or 0,
    }
    return {
        "global_accuracies": [row],
        "validation": [
            {
                "round": done,
                "val_loss": metrics["val"]["loss"],
                "client_val_loss": local.trace["val_loss"][each, uploaded].mean(),
                "meta_loss": result.meta.total,
            }
        ],
        "classification_metrics": _metric_rows(metrics, done),
        "client_trace": _trace_rows(result),
        "exclusions": [{"round": done, "client": i, "reason": reason} for i, reason in result.attendance.absent],
    }


def _global_metrics(federation: Federation, theta: np.ndarray, t: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, p in evaluate_global(federation, theta, t).items():
        y = federation.splits[name].y
        if name == "train":  # no file has more of it, and the other metrics sort the whole split
            found[name] = {"accuracy": int(((p >= 0.5) == (y == 1)).sum()) / len(y)}
        else:
            found[name] = classification(y, p) | {"loss": float(cross_entropy(p, y, federation.model.margin).mean())}
    return found


def _accuracy_columns(metrics: Mapping[str, Mapping[str, float]]) -> Row:
    return {
        # A server far from its clients does not hold their training rows.
        "global_train_accuracy": metrics["train"]["accuracy"] if "train" in metrics else float("nan"),
        "global_val_accuracy": metrics["val"]["accuracy"],
        "global_accuracy": metrics["test"]["accuracy"],
    }


def _metric_rows(metrics: Mapping[str, Mapping[str, float]], t: int) -> list[Row]:
    return [{"round": t, "part": part, **metrics[part]} for part in ("val", "test")]


def _trace_rows(result: RoundResult) -> list[Row]:
    """Return one row per client and unfold, with every column that the paper's section on trace logging names."""
    attendance, local = result.attendance, result.local
    trace = {name: values.tolist() for name, values in local.trace.items()}
    selected, weights = local.selected.tolist(), result.weights.tolist()
    sizes, val_sizes = attendance.sizes.tolist(), attendance.val_sizes.tolist()
    heterogeneity = attendance.heterogeneity.tolist()
    rows = []
    for i, client_id in enumerate(attendance.client_ids.tolist()):
        for k in range(len(trace["eta"][i])):
            rows.append(
                {
                    "round": result.state.t,
                    "client": client_id,
                    "unfold": k + 1,
                    **{name: values[i][k] for name, values in trace.items()},
                    "selected_unfold": selected[i],
                    "is_selected": selected[i] == k + 1,
                    "client_size": sizes[i],
                    "val_size": val_sizes[i],
                    "aggregation_weight": weights[i],
                    "heterogeneity": heterogeneity[i],
                }
            )
    return rows


def _outer_row(result: RoundResult, outer: OuterStep | None, controller: np.ndarray) -> Row:
    """Return the meta-loss with its terms, the outer step (NaN where none was due) and the controller after it."""
    missing = float("nan")
    row = {
        "round": result.state.t,
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
    for name, values in zip(("eta", "delta"), controller, strict=True):
        row |= {f"phi_{name}_{feature}": float(v) for feature, v in zip(FEATURES, values, strict=True)}
    return row
