"""Speed of a whole training run: beside its own binomial draws, and beside the same code on Aer."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.optimizers import rademacher, spsa_block
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.engines import Engine, make_engine
from qfl_core.engines.base import Generators, sample
from qfl_core.engines.statevector import StatevectorEngine
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import encode, make_federation
from tools.bench.timing import once, seconds

SHOTS = 1024
PAPER = ExperimentConfig(dataset="baf", method="duqfl-prox", source="stand-in", shots=SHOTS)


class Recorder(Engine):
    """An engine that keeps every probability it draws from."""

    name = "recorder"
    kind = "shots"

    def __init__(self, noiseless: Engine) -> None:
        super().__init__(noiseless.qnn, SHOTS)
        self.noiseless = noiseless
        self.drawn: list[np.ndarray] = []

    def encode(self, X: np.ndarray) -> Any:
        """Encode as the engine behind it does."""
        return self.noiseless.encode(X)

    def probabilities(self, encoded: Any, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return shots of the exact values, which are kept."""
        p = self.noiseless.probabilities(encoded, weights)
        self.drawn.append(p)
        return sample(p, SHOTS, rng)


def own_draws(federation: Federation) -> list[np.ndarray]:
    """Return the probabilities (S, n) behind every binomial draw of a run."""
    recorder = Recorder(StatevectorEngine(federation.model.engine.qnn))
    model = dataclasses.replace(federation.model, engine=recorder)
    deque(train(dataclasses.replace(federation, model=model)), maxlen=0)
    return recorder.drawn


def client_iterations(config: ExperimentConfig) -> int:
    """Return the SPSA iterations of all clients in a run, those of virtual rounds included."""
    outer = config.rounds // config.outer_period if config.outer_period else 0
    return config.clients * config.unfolds * config.spsa_iterations * (config.rounds + 2 * outer)


def run_seconds(federation: Federation, repeats: int) -> float:
    """Return the median seconds of a run."""
    return seconds({"run": lambda: deque(train(federation), maxlen=0)}, repeats, warm_up=False)["run"]


def draw_seconds(drawn: list[np.ndarray], repeats: int) -> float:
    """Return the median seconds of drawing all these binomials, and nothing else."""
    rng, clipped = stream(0, "bench-draws"), [np.clip(p, 0, 1) for p in drawn]

    def draw() -> None:
        for p in clipped:
            rng.binomial(SHOTS, p)

    return seconds({"draws": draw}, repeats, warm_up=False)["draws"]


def aer_seconds(federation: Federation, clients: int, iterations: int) -> float:
    """Return the seconds of an SPSA block of the same code, data and shots on the primitives engine with Aer."""
    engine = make_engine("primitives", federation.model.engine.qnn, SHOTS, sampler="aer")
    measured = dataclasses.replace(
        federation,
        model=dataclasses.replace(federation.model, engine=engine),
        splits=encode(engine, load_splits(federation.config).parts),
    )
    batch = measured.batch(0, np.arange(clients))
    theta = measured.initial_theta()
    rngs = measured.generators("bench-aer", 0, batch.client_ids)
    objective = Objective(measured.model, batch.train, theta, measured.mu, rngs)
    rate = np.full(clients, federation.config.learning_rate)
    directions = rademacher(stream(0, "bench-directions"), (clients, iterations, len(theta)))
    start = np.repeat(theta[None], clients, axis=0)
    return once(lambda: spsa_block(start, objective, rate, rate, directions))[0]


def measure_training(quick: bool) -> dict:
    """Measure a run at the paper's setting on BAF, and how its cost grows with rounds, clients and samples."""
    repeats = 1 if quick else 5
    base = PAPER.replace(rounds=2, outer_period=1) if quick else PAPER
    with threadpool_limits(1):
        federation = make_federation(base)
        drawn = own_draws(federation)
        run = run_seconds(federation, repeats)
        draws = draw_seconds(drawn, repeats)
        clients, iterations = (1, 1) if quick else (4, 5)
        aer = aer_seconds(federation, clients, iterations)
        scaling = {
            name: [_point(base.replace(**{field: value}), value) for value in values]
            for name, field, values in (
                ("rounds", "rounds", (2, 4) if quick else (5, 10, 20, 40)),
                ("clients", "clients", (2, 4) if quick else (5, 10, 20, 40)),
                ("samples", "chunk", (10, 20) if quick else (25, 50, 100, 200)),
            )
        }
    return {
        "run_seconds": run,
        "client_iterations": client_iterations(base),
        "draws": int(sum(p.size for p in drawn)),
        "draw_seconds": draws,
        "aer_seconds": aer,
        "aer_client_iterations": clients * iterations,
        "scaling": scaling,
    }


def _point(config: ExperimentConfig, value: int) -> dict:
    config = config.replace(outer_period=0)  # virtual rounds would add steps to the curve
    time = run_seconds(make_federation(config), 1)
    return {"value": value, "seconds": time, "evaluations": client_iterations(config)}
