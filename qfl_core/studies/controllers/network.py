"""A probe: how far does a controller get that is not linear? A tiny neural network gives the rates.

It reads what a local optimiser sees without a further circuit: the unfold, the round, the length of the step of the
unfold before, and how uneven the client's labels are. Its twin without a hidden layer is log-linear like the paper's
controller, reads the same four features, and is trained in the same way with the same small budget. Neither has seen a
track of the comparison: both are trained on scikit-learn's wine and digits and on generated clusters alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.hooks import Block, BlockResult, Memory
from qfl_core.algorithm.optimizers import Spsa
from qfl_core.analysis.differences import judge_differences
from qfl_core.analysis.margins import of_metric
from qfl_core.base.processes import in_processes
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.runs.journal import Journal
from qfl_core.runs.prepare import make_federation
from qfl_core.runs.study import Study
from qfl_core.studies.controllers.plan import PAPER_START, SMALL, Budget
from qfl_core.studies.controllers.probe import MEASURES, Probe, summary, train_probes
from qfl_core.studies.metatrain.curve import curve_mean
from qfl_core.studies.metatrain.search import evolved, search_origin
from qfl_core.studies.metatrain.tasks import FAMILIES, Task, tasks_of

INPUTS = 4
#: The families that no track of the comparison belongs to.
OUTSIDE = tuple(family for family in FAMILIES if not family.track)
LINEAR, NETWORK = "linear, 4 features", "network, 4 features"
#: Hidden units of each probe.
HIDDEN = {LINEAR: 0, NETWORK: 4}
_CENTRE, _SCALE = np.array([0.5, 0.5, 0.0, 0.3]), np.array([0.3, 0.3, 0.1, 0.1])


def rates(weights: Sequence[float], hidden: int, x: np.ndarray) -> np.ndarray:
    """Return log eta and log delta, (clients, 2), of features x (clients, 4).

    Without a hidden layer ``weights`` is (2, 5), else (hidden, 5) and then (2, hidden + 1), with constants last.
    """
    flat, inputs = np.asarray(weights, dtype=float), np.column_stack([x, np.ones(len(x))])
    if hidden:
        first, flat = flat[: hidden * (INPUTS + 1)].reshape(hidden, -1), flat[hidden * (INPUTS + 1) :]
        inputs = np.column_stack([np.tanh(inputs @ first.T), np.ones(len(x))])
    found: np.ndarray = inputs @ flat.reshape(2, -1).T
    return found


def initial_weights(hidden: int) -> np.ndarray:
    """Return weights that give the paper's rates whatever the features are.

    The hidden layer starts at random, because equal units would stay equal.
    """
    outer = np.zeros((2, (hidden or INPUTS) + 1))
    outer[:, -1] = np.log(PAPER_START)
    drawn = stream(0, "controllers-network").normal(scale=0.5, size=hidden * (INPUTS + 1))
    return np.concatenate([drawn, outer.ravel()])


@dataclass(frozen=True)
class NetworkSpsa(Spsa):
    """SPSA whose rates come from a small network; the paper's controller is not asked."""

    weights: tuple[float, ...] = ()
    hidden: int = 0
    unfolds: int = 1
    rounds: int = 1
    eta_bounds: tuple[float, float] = (1e-3, 1.0)
    delta_bounds: tuple[float, float] = (1e-3, 1.0)

    def init(self, clients: int, num_weights: int) -> Memory:
        """Remember rounds and unfolds that are done, and the length of the last step per root of the weights."""
        return {name: np.zeros(clients) for name in ("round", "unfold", "moved")}

    def begin(self, memory: Memory, client_ids: np.ndarray) -> Memory:
        """Start a round: no unfold is done and nothing has moved."""
        still = np.zeros(len(client_ids))
        return {"round": memory["round"][client_ids], "unfold": still, "moved": still}

    def update(self, block: Block, objective: Objective, state: Memory) -> tuple[BlockResult, Memory]:
        """Train a block with the network's rates."""
        positive = objective.samples.means(objective.samples.y[None].astype(float))[:, 0]
        x = [state["unfold"] / self.unfolds, state["round"] / self.rounds, state["moved"], np.abs(positive - 0.5)]
        asked = rates(self.weights, self.hidden, (np.stack(x, axis=1) - _CENTRE) / _SCALE)
        bounds = np.log([self.eta_bounds, self.delta_bounds])
        eta, delta = np.exp(np.clip(asked, bounds[:, 0], bounds[:, 1])).T
        result, _ = super().update(replace(block, eta=eta, delta=delta), objective, {})
        moved = np.sqrt(((result.theta - block.theta) ** 2).mean(axis=1))
        return result, {**state, "unfold": state["unfold"] + 1, "moved": moved}

    def end(self, memory: Memory, client_ids: np.ndarray, state: Memory) -> Memory:
        """Count the round for the clients that took part."""
        after = super().end(memory, client_ids, state)
        after["round"][client_ids] += 1
        return after


def network_of(weights: np.ndarray, hidden: int, config: ExperimentConfig) -> NetworkSpsa:
    """Return the local optimiser for the runs of a config."""
    fixed: dict[str, Any] = {
        name: getattr(config, name) for name in ("unfolds", "rounds", "eta_bounds", "delta_bounds")
    }
    return NetworkSpsa(weights=tuple(weights.tolist()), hidden=hidden, **fixed)


def losses_of(task: Task, candidates: Sequence[np.ndarray], hidden: int, profile: str, rounds: int) -> list[float]:
    """Return the mean validation loss over the rounds of one federation, one number per candidate."""
    config = task.config(load_profile(profile), rounds)
    federation = make_federation(config, task.splits(config))
    with np.errstate(all="ignore"):
        own = [replace(federation.method, optimizer=network_of(weights, hidden, config)) for weights in candidates]
        return [curve_mean(replace(federation, method=method)) for method in own]


def trained_weights(hidden: int, profile: str, folder: Path, jobs: int = -1, budget: Budget = SMALL) -> np.ndarray:
    """Return the weights that an evolution search ends with; a search that was interrupted goes on from its journal."""
    decides = {**asdict(budget), "hidden": hidden, "profile": profile}
    origin = search_origin(decides, OUTSIDE, profile, budget.rounds, "studies/controllers/network.py")
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / f"network-{hidden}-{origin[:12]}.jsonl", origin)
    journal.mend()

    def judge(generation: int, points: Sequence[np.ndarray]) -> list[list[float]]:
        tasks = tasks_of(OUTSIDE, budget.seed, generation, budget.tasks)
        return list(in_processes(losses_of, ((task, points, hidden, profile, budget.rounds) for task in tasks), jobs))

    rng, options = stream(budget.seed, f"controllers-network-{hidden}"), {"popsize": budget.population}
    return evolved(initial_weights(hidden), 0.4, options, budget.generations, judge, journal, rng).round(3)


def network_probes(
    studies: Mapping[str, Study],
    scores: Mapping[str, str],
    seeds: Sequence[int],
    folder: Path,
    jobs: int = -1,
    budget: Budget = SMALL,
) -> pd.DataFrame:
    """Train both probes, run them on every task, and return one row per task, controller and seed.

    ``studies`` holds the runs of the constant 0.13 by task; their configs, but for the rates, are those of the probes.
    """
    profile = next(iter(studies.values())).profile
    asked: list[tuple[str, str, Probe]] = []
    for name, hidden in HIDDEN.items():
        weights = trained_weights(hidden, profile, folder, jobs, budget)
        for task, study in studies.items():
            for run in study.runs:
                if run.config.seed in seeds:
                    optimizer = network_of(weights, hidden, run.config)
                    asked.append((task, name, Probe(run.config, run.environment["data"]["sha256"], None, optimizer)))
    train_probes([probe for *_, probe in asked], folder, jobs)
    return pd.DataFrame(
        [
            {"task": task, "level": name, "seed": probe.config.seed, **summary(probe.read(folder), scores[task])}
            for task, name, probe in asked
        ]
    )


def network_gain(table: pd.DataFrame) -> pd.DataFrame:
    """Return what the network adds to its linear twin, paired over seeds, with verdicts, and both means."""
    found, means = {}, []
    for task in table["task"].unique():
        mine = {name: table[(table["task"] == task) & (table["level"] == name)].set_index("seed") for name in HIDDEN}
        for measure in MEASURES:
            found[task, measure] = mine[NETWORK][measure] - mine[LINEAR][measure]
            means.append({name: float(rows[measure].mean()) for name, rows in mine.items()})
    differences = pd.DataFrame(found).rename_axis(columns=["task", "measure"])
    judged = judge_differences(differences, [of_metric(measure) for _, measure in found], "controllers-network")
    return pd.concat([pd.DataFrame(means), judged.reset_index()], axis=1)
