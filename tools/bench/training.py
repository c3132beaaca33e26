"""Speed of a whole training run: beside its own binomial draws, and beside the same code on Aer."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from tempfile import TemporaryDirectory
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
from qfl_core.runs.run import run_experiment
from tools.bench.timing import once, one_thread, seconds

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
    return seconds({"run": lambda: deque(train(federation), maxlen=0)}, repeats, clock=one_thread)["run"]


def draw_seconds(drawn: list[np.ndarray], repeats: int) -> float:
    """Return the median seconds of drawing all these binomials, and nothing else."""
    rng, clipped = stream(0, "bench-draws"), [np.clip(p, 0, 1) for p in drawn]

    def draw() -> None:
        for p in clipped:
            rng.binomial(SHOTS, p)

    return seconds({"draws": draw}, repeats, clock=one_thread)["draws"]


def experiment_seconds(config: ExperimentConfig, repeats: int) -> float:
    """Return the median seconds of ``run_experiment`` in a folder of its own; the data were read before."""
    with TemporaryDirectory() as folder:
        run = partial(run_experiment, config, folder, repeat=True)
        return seconds({"run": run}, repeats, clock=one_thread)["run"]


def many_clients(clients: int, chunk: int, repeats: int) -> dict:
    """Measure one round of many clients beside its own draws."""
    config = PAPER.replace(clients=clients, chunk=chunk, rounds=1, outer_period=0, train_size=max(3000, 4 * clients))
    federation = make_federation(config)
    drawn = own_draws(federation)
    return {
        "clients": clients,
        "chunk": chunk,
        "client_iterations": client_iterations(config),
        "run_seconds": run_seconds(federation, repeats),
        "draws": int(sum(p.size for p in drawn)),
        "draw_seconds": draw_seconds(drawn, repeats),
    }


def processes(config: ExperimentConfig, runs: int) -> dict:
    """Return the seconds of some runs in one process, and of as many in each of two processes at the same time."""
    context = get_context("spawn")
    found = {}
    for name, count in (("one", 1), ("two", 2)):
        ready = context.Barrier(count + 1)
        workers = [context.Process(target=_work, args=(config, runs, ready)) for _ in range(count)]
        for worker in workers:
            worker.start()
        ready.wait()  # everyone has prepared and compiled
        found[name] = once(partial(_join, workers))[0]
    return found


def _join(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.join()


def _work(config: ExperimentConfig, runs: int, ready: Barrier) -> None:
    with threadpool_limits(1):
        federation = make_federation(config)
        deque(train(federation), maxlen=0)
        ready.wait()
        for _ in range(runs):
            deque(train(federation), maxlen=0)


def peak_megabytes(config: ExperimentConfig) -> float:
    """Return the largest memory of one round in a process of its own, above what the process held before it."""
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=_weigh, args=(config, there))
    worker.start()
    found = here.recv()
    worker.join()
    return found


def _weigh(config: ExperimentConfig, there: Connection) -> None:
    import resource

    federation = make_federation(config)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    deque(train(federation), maxlen=0)
    there.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


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
    return once(lambda: spsa_block(start, objective, rate, rate, directions), one_thread)[0]


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
        experiment = experiment_seconds(base, repeats)
        many = [many_clients(20 if quick else 1000, chunk, 1 if quick else 3) for chunk in (4, 50)]
        both = processes(base, 1 if quick else 5)
        scaling = {
            name: [_point(base.replace(**{field: value}), value) for value in values]
            for name, field, values in (
                ("rounds", "rounds", (2, 4) if quick else (5, 10, 20, 40)),
                ("clients", "clients", (2, 4) if quick else (5, 10, 20, 40)),
                ("samples", "chunk", (10, 20) if quick else (25, 50, 100, 200)),
            )
        }
        scaling["many clients"] = [_many(c) for c in ((20, 40) if quick else (100, 300, 1000, 3000, 10_000))]
    return {
        "run_seconds": run,
        "client_iterations": client_iterations(base),
        "draws": int(sum(p.size for p in drawn)),
        "draw_seconds": draws,
        "aer_seconds": aer,
        "aer_client_iterations": clients * iterations,
        "experiment_seconds": experiment,
        "many_clients": many,
        "processes": both,
        "scaling": scaling,
    }


def _many(clients: int) -> dict:
    """Measure one round of clients with 4 samples each: seconds, and the memory that the round needs."""
    config = PAPER.replace(clients=clients, chunk=4, rounds=1, outer_period=0, train_size=max(3000, 4 * clients))
    return _point(config, clients) | {"megabytes": peak_megabytes(config)}


def _point(config: ExperimentConfig, value: int) -> dict:
    config = config.replace(outer_period=0)  # virtual rounds would add steps to the curve
    time = run_seconds(make_federation(config), 1)
    return {"value": value, "seconds": time, "evaluations": client_iterations(config)}
