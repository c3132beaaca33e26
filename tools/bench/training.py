"""Speed of a whole training run: beside its own binomial draws, and beside the same code on Aer."""

from __future__ import annotations

import dataclasses
from time import perf_counter

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.optimizers import spsa_block
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.engines import Engine, make_engine
from qfl_core.engines.base import sample
from qfl_core.runs.experiment import train

PAPER = ExperimentConfig(dataset="baf", method="duqfl-prox", source="stand-in")


class Recorder(Engine):
    """An engine that keeps every probability it draws from."""

    name = "recorder"
    kind = "shots"

    def __init__(self, exact: Engine, shots: int):
        super().__init__(exact.qnn, shots)
        self.exact = exact
        self.drawn: list[np.ndarray] = []

    def encode(self, X: np.ndarray):
        """Encode as the engine behind it does."""
        return self.exact.encode(X)

    def probabilities(self, encoded, weights: np.ndarray, rng=None) -> np.ndarray:
        """Return shots of the exact values, which are kept."""
        p = self.exact.probabilities(encoded, weights)
        self.drawn.append(p)
        return sample(p, self.shots, rng)


def own_draws(federation: Federation) -> list[np.ndarray]:
    """Return the probabilities (S, n) behind every binomial draw of a run."""
    recorder = Recorder(federation.exact_engine, federation.config.shots)
    for _ in train(dataclasses.replace(federation, engine=recorder)):
        pass
    return recorder.drawn


def client_iterations(config: ExperimentConfig) -> int:
    """Return the SPSA iterations of all clients in a run, those of virtual rounds included."""
    outer = config.rounds // config.outer_period if config.outer_period else 0
    return config.clients * config.unfolds * config.spsa_iterations * (config.rounds + 2 * outer)


def run_seconds(federation: Federation, repeats: int) -> float:
    """Return the median seconds of a run."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        for _record in train(federation):
            pass
        times.append(perf_counter() - start)
    return float(np.median(times))


def draw_seconds(drawn: list[np.ndarray], shots: int, repeats: int) -> float:
    """Return the median seconds of drawing all these binomials, and nothing else."""
    rng, times = stream(0, "bench-draws"), []
    clipped = [np.clip(p, 0, 1) for p in drawn]
    for _ in range(repeats):
        start = perf_counter()
        for p in clipped:
            rng.binomial(shots, p)
        times.append(perf_counter() - start)
    return float(np.median(times))


def aer_seconds(federation: Federation, clients: int, iterations: int) -> float:
    """Return the seconds of an SPSA block of the same code, data and shots on the primitives engine with Aer."""
    engine = make_engine("primitives", federation.engine.qnn, federation.config.shots, sampler="aer")
    encoded = {name: engine.encode(part.X) for name, part in federation.splits.parts.items()}
    measured = dataclasses.replace(federation, engine=engine, encoded=encoded)
    batch = measured.batch(0, np.arange(clients))
    theta = measured.initial_theta()
    objective = Objective(measured, batch, theta, measured.generators("bench-aer", 0, batch.clients))
    rate = np.full(clients, federation.config.learning_rate)
    directions = 1.0 - 2.0 * stream(0, "bench-directions").integers(0, 2, (clients, iterations, len(theta)))
    start = perf_counter()
    spsa_block(np.repeat(theta[None], clients, axis=0), objective, rate, rate, directions)
    return perf_counter() - start


def measure_training(quick: bool) -> dict:
    """Measure a run at the paper's setting on BAF, and how its cost grows with rounds, clients and samples."""
    repeats = 1 if quick else 5
    base = PAPER.replace(rounds=2, outer_period=1) if quick else PAPER
    with threadpool_limits(1):
        federation = Federation.create(base)
        drawn = own_draws(federation)
        run = run_seconds(federation, repeats)
        draws = draw_seconds(drawn, base.shots, repeats)
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
    time = run_seconds(Federation.create(config), 1)
    return {"value": value, "seconds": time, "evaluations": client_iterations(config)}
