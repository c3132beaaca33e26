"""Runs with a planted truth for the claims: a world as the paper tells it, and others in which it is not so."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.config import ExperimentConfig

ROUNDS, SEEDS = 12, 8
#: Final values as the paper orders them: global accuracy, client test accuracy, train-test gap, fairness gap.
TOLD = {
    "baf": {
        "duqfl-prox": (0.65, 0.64, 0.00, 0.02),
        "fedprox-qfl": (0.53, 0.55, 0.21, 0.10),
        "default-qfl": (0.46, 0.50, 0.29, 0.19),
        "adam-qfl": (0.50, 0.50, 0.20, 0.20),
        "duqfl-last": (0.55, 0.55, 0.15, 0.15),
        "duqfl-best": (0.60, 0.60, 0.10, 0.10),
        "duqfl-drift": (0.60, 0.60, 0.10, 0.10),
    },
    "genome": {
        "duqfl-prox": (0.825, 0.80, 0.00, 0.02),
        "fedprox-qfl": (0.85, 0.70, 0.15, 0.10),
        "default-qfl": (0.55, 0.50, 0.25, 0.20),
        "adam-qfl": (0.60, 0.55, 0.20, 0.20),
        "duqfl-last": (0.65, 0.60, 0.15, 0.15),
        "duqfl-best": (0.70, 0.70, 0.10, 0.10),
        "duqfl-drift": (0.70, 0.70, 0.10, 0.10),
    },
}
COLUMNS = ("global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap")
STEADY, UNSTEADY = 0.004, 0.04
#: The test metrics in which DUQFL-Prox improves over training.
IMPROVES = ("f1", "mcc", "roc_auc", "precision", "specificity")


@dataclass
class PlantedRun:
    """What claims read of a run."""

    config: ExperimentConfig
    environment: dict
    rounds: pd.DataFrame
    metrics: pd.DataFrame
    clients: pd.DataFrame

    @property
    def path(self) -> Path:
        return Path(f"{self.config.method}-{self.config.seed}")


def planted_run(dataset: str, method: str, seed: int, told=TOLD, acts_as: str | None = None) -> PlantedRun:
    """Return a run in which ``method`` behaves as the paper says of ``acts_as`` (itself by default)."""
    role = acts_as or method
    rng = np.random.default_rng([seed, list(METHODS).index(method), dataset == "baf"])
    noise = UNSTEADY if role in ("default-qfl", "duqfl-last") else STEADY
    jitter = lambda sigma: rng.normal(0, sigma, ROUNDS)  # noqa: E731 - a short name for noise
    rounds = pd.DataFrame({"round": np.arange(1, ROUNDS + 1)})
    for column, value in zip(COLUMNS, told[dataset][role], strict=True):
        wobble = jitter(noise) if column == "client_test_accuracy" else jitter(STEADY)
        wobble[-1] = rng.normal(0, 0.004)
        rounds[column] = value + wobble
    middle = slice(ROUNDS // 3, 2 * ROUNDS // 3)
    if role == "default-qfl":
        rounds.loc[rounds.index[middle], "global_accuracy"] += 0.2
    if role == "adam-qfl" and dataset == "genome":
        rounds.loc[rounds.index[middle], "global_accuracy"] += 0.35
    parts = []
    for part, sigma in (("test", noise), ("val", 0.15)):
        curves = {metric: 0.5 + jitter(sigma) for metric in CLASSIFICATION}
        table = pd.DataFrame({"round": rounds["round"], "part": part, **curves})
        if role == "duqfl-prox":
            for metric in IMPROVES:
                table[metric] += np.linspace(-0.2, 0.2, ROUNDS)
        if role == "adam-qfl":
            table["recall"] += 0.3
            table["specificity"] -= np.linspace(0, 0.4, ROUNDS)
        parts.append(table)
    metrics = pd.concat(parts, ignore_index=True)
    test = parts[0].drop(columns=["part", "round", "accuracy"]).add_prefix("test_")
    rounds = pd.concat([pd.DataFrame({"round": [0]}), rounds.join(test)], ignore_index=True)
    config = ExperimentConfig(dataset=dataset, method=method, seed=seed, rounds=ROUNDS)
    environment = {
        "data": {"source": "stand-in", "sha256": "d" * 64},
        "engine": {"kind": "exact"},
        "code_sha256": "c" * 64,
    }
    return PlantedRun(config, environment, rounds, metrics, planted_trace(rng, role))


def planted_trace(rng: np.random.Generator, role: str, clients: int = 3, unfolds: int = 5) -> pd.DataFrame:
    """Return a trace in which the told controller moves, early unfolds help most, and the last is not always taken."""
    told = role != "default-qfl"
    index = pd.MultiIndex.from_product(
        [range(1, ROUNDS + 1), range(clients), range(1, unfolds + 1)], names=["round", "client", "unfold"]
    )
    trace = index.to_frame(index=False)
    size = len(trace)
    place = 0.2 * (trace["client"] - 1) + 0.1 * (trace["unfold"] - 3) if told else 0.0
    for rate in ("eta", "delta"):
        trace[rate] = 0.13 * np.exp(place + rng.normal(0, 0.2 if told else 0.0005, size))
    trace["loss_before"] = 1.0
    gain = (0.05 / trace["unfold"] if told else 0.01 * trace["unfold"] - 0.05) + rng.normal(0, 0.002, size)
    trace["loss_after"] = 1.0 - gain
    selected = np.repeat(rng.integers(1, unfolds, ROUNDS * clients) if told else unfolds, unfolds if told else size)
    trace["selected_unfold"] = selected
    trace["is_selected"] = trace["unfold"] == selected
    trace["displacement"] = np.minimum(rng.uniform(0.1, 0.2, size) + (trace["eta"] / 2 if told else 0.0), 0.3)
    return trace


def world(acts_as: dict[str, str] | None = None, told=TOLD, seeds: int = SEEDS) -> dict[str, list[PlantedRun]]:
    """Return both tracks with all methods; ``acts_as`` exchanges roles."""
    acts_as = acts_as or {}
    return {
        dataset: [planted_run(dataset, m, s, told, acts_as.get(m)) for m in METHODS for s in range(seeds)]
        for dataset in ("baf", "genome")
    }


def device_table(steady: str = "duqfl-prox", unsteady: str = "default-qfl", kind: str = "fake") -> pd.DataFrame:
    """Return checkpoints on a device: near the exact ones, steady and rising for one method, nothing for the other."""
    rows = []
    for method, sigma in ((steady, 0.005), (unsteady, 0.2)):
        for seed in range(SEEDS):
            rng = np.random.default_rng([seed, int(method == steady)])
            for checkpoint in range(8):
                row = {"method": method, "seed": seed, "checkpoint": checkpoint}
                exact = 0.6 + 0.02 * checkpoint * (method == steady)
                rows.append({**row, "kind": "exact", "accuracy": exact})
                rows.append({**row, "kind": kind, "accuracy": exact + rng.normal(0, sigma)})
    return pd.DataFrame(rows)
