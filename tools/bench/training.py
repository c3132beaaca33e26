"""Speed of a whole training run: beside its own binomial draws, and beside the same code on Aer."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.optimizers import rademacher, spsa_block
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.data import load_splits
from qfl_core.engines import make_engine
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import encode, make_federation
from qfl_core.runs.run import run_experiment
from tools.bench.draws import own_draws
from tools.bench.timing import once, one_thread, seconds

SHOTS = 1024
#: The tracks whose runs are measured, with the settings of the profile ``paper`` on generated data.
TRACKS = ("baf", "genome")


def paper_config(track: str) -> ExperimentConfig:
    """Return DUQFL-Prox's config of the profile ``paper``, on generated data."""
    return load_profile("paper").config(track, method="duqfl-prox", seed=0, source="stand-in")


def client_iterations(config: ExperimentConfig) -> int:
    """Return the SPSA iterations of all clients in a run, those of virtual rounds included."""
    outer = (config.rounds - 1) // config.outer_period if config.outer_period else 0  # none after the last round
    return config.clients * config.unfolds * config.spsa_iterations * (config.rounds + 2 * outer)


def run_seconds(federation: Federation, repeats: int) -> float:
    """Return the median seconds of a run."""
    return seconds({"run": lambda: deque(train(federation), maxlen=0)}, repeats, clock=one_thread)["run"]


def against_draws(federation: Federation, repeats: int) -> dict:
    """Return the median seconds of a run and of its own draws, call by call and all together; they take turns."""
    draws = own_draws(federation)
    calls: dict[str, Callable[[], object]] = {
        "run_seconds": lambda: deque(train(federation), maxlen=0),
        "draw_seconds": draws.call_by_call,
        "together_seconds": draws.together().call_by_call,
    }
    return {"draws": draws.count, **seconds(calls, repeats, clock=one_thread)}


def experiment_seconds(config: ExperimentConfig, repeats: int) -> float:
    """Return the median seconds of ``run_experiment`` in a folder of its own; the data were read before."""
    with TemporaryDirectory() as folder:
        run = partial(run_experiment, config, folder, repeat=True)
        return seconds({"run": run}, repeats, clock=one_thread)["run"]


def many_clients(clients: int, chunk: int, repeats: int) -> dict:
    """Measure one round of many clients beside its own draws."""
    config = _one_round(clients, chunk)
    found = against_draws(make_federation(config), repeats)
    return {"clients": clients, "chunk": chunk, "client_iterations": client_iterations(config), **found}


def _one_round(clients: int, chunk: int) -> ExperimentConfig:
    size = max(3000, 4 * clients)
    return paper_config("baf").replace(clients=clients, chunk=chunk, rounds=1, outer_period=0, train_size=size)


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


def peak_megabytes(config: ExperimentConfig) -> float | None:
    """Return the largest memory of a process during one round, encoded samples and libraries included.

    What the loading of the data needed before does not count. Systems other than Linux do not tell, which is None.
    """
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=_weigh, args=(config, there))
    worker.start()
    found: float | None = here.recv()
    worker.join()
    return found


def _weigh(config: ExperimentConfig, there: Connection) -> None:
    federation = make_federation(config)
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the largest memory so far
        deque(train(federation), maxlen=0)
        there.send(_status("VmHWM"))
    except (OSError, StopIteration):
        there.send(None)


def _status(name: str) -> float:
    """Return a memory of this process, in megabytes, as Linux tells it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


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
    """Measure runs at the paper's settings, and how the cost on BAF grows with rounds, clients and samples."""
    repeats = 1 if quick else 7
    configs = {track: paper_config(track) for track in TRACKS}
    if quick:
        configs = {track: config.replace(rounds=2) for track, config in configs.items()}
    base = configs["baf"]
    with threadpool_limits(1):
        runs = {track: _run(config, repeats) for track, config in configs.items()}
        clients, iterations = (1, 1) if quick else (4, 5)
        aer = aer_seconds(make_federation(base), clients, iterations)
        many = [many_clients(20 if quick else 1000, chunk, 1 if quick else 3) for chunk in (4, 50)]
        both = processes(base, 1 if quick else 20)
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
        "runs": runs,
        "aer_seconds": aer,
        "aer_client_iterations": clients * iterations,
        "many_clients": many,
        "processes": both,
        "scaling": scaling,
    }


def _run(config: ExperimentConfig, repeats: int) -> dict:
    """Measure a run, its draws, and ``run_experiment`` with its data and files."""
    found = against_draws(make_federation(config), repeats)
    return {
        "client_iterations": client_iterations(config),
        **found,
        "experiment_seconds": experiment_seconds(config, repeats),
    }


def _many(clients: int) -> dict:
    """Measure one round of clients with 4 samples each: seconds, and the memory that the round needs."""
    config = _one_round(clients, 4)
    return _point(config, clients, 3) | {"megabytes": peak_megabytes(config)}


def _point(config: ExperimentConfig, value: int, repeats: int = 1) -> dict:
    config = config.replace(outer_period=0)  # virtual rounds would add steps to the curve
    time = run_seconds(make_federation(config), repeats)
    return {"value": value, "seconds": time, "evaluations": client_iterations(config)}
