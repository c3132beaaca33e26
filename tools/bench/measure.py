"""The measurements: every engine and peer gets the same inputs in one process, and must agree with the exact values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.losses import SQUARED_ERROR
from qfl_core.algorithm.model import Model
from qfl_core.algorithm.optimizers import rademacher, spsa_block
from qfl_core.algorithm.samples import Samples
from qfl_core.base.streams import stream
from qfl_core.engines.density import DensityEngine
from qfl_core.engines.encoded import Encoded
from qfl_core.engines.primitives import PrimitivesEngine
from qfl_core.engines.qnn import QNN
from qfl_core.engines.statevector import StatevectorEngine
from tools.bench import record as targets
from tools.bench.around import measure_around
from tools.bench.peers import aer_estimator, pennylane_peer, qiskit_peers, qiskit_statevector
from tools.bench.record import Bench
from tools.bench.report import machine
from tools.bench.timing import once, one_thread, seconds
from tools.bench.training import measure_training

SHOTS = 1024
ITERATIONS = 50
EXACT = 1e-9
# Five standard deviations of a fraction of 1,024 shots, at most.
SAMPLED = 5 * 0.5 / np.sqrt(SHOTS)


def run_bench(quick: bool = False) -> dict:
    """Measure everything and return rows, ratios against their targets, scaling and the machine.

    Parameters
    ----------
    quick : fewer repetitions and circuits, for a test; the ratios are then rough.
    """
    bench = Bench(quick)
    model = PaperModel.draw()
    _exact(bench, model)
    _shots(bench, model)
    _spsa_iterations(bench, model)
    _encoding(bench, model)
    _peers(bench, model)
    _density(bench)
    _ten_qubits(bench)
    _scaling(bench)
    training = measure_training(quick)
    _training(bench, training)
    bench.ratios |= measure_around(quick)
    return {
        "quick": quick,
        "machine": machine(),
        "rows": bench.rows,
        "targets": bench.targets(),
        "scaling": bench.scaling,
        "training": training,
    }


@dataclass(frozen=True, eq=False)
class PaperModel:
    """The paper's model of four qubits with 3,000 samples, 20 weight vectors and their exact values ``p``."""

    qnn: QNN
    X: np.ndarray
    W: np.ndarray
    engine: StatevectorEngine
    encoded: Encoded
    p: np.ndarray
    rng: np.random.Generator

    @classmethod
    def draw(cls) -> PaperModel:
        """Draw samples and weights, and evaluate them."""
        qnn, rng = QNN(4), stream(0, "bench")
        X, W = rng.uniform(0, np.pi, (3000, 4)), rng.uniform(-np.pi, np.pi, (20, 16))
        engine = StatevectorEngine(qnn)
        encoded = engine.encode(X)
        return cls(qnn, X, W, engine, encoded, np.ascontiguousarray(engine.probabilities(encoded, W)), rng)


MANY = "4 qubits, 3,000 samples x 20 thetas"
ONE = "4 qubits, samples x 1 theta"
OURS = "statevector, exact"


def _largest(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference between two arrays."""
    return float(np.abs(a - b).max())


def _exact(bench: Bench, model: PaperModel) -> None:
    """Exact values beside their limit, one matrix product of the same size."""
    off = _largest(model.p[:1, :50], qiskit_statevector(model.qnn, model.X[:50], model.W[:1]))
    features, entries = model.encoded.rows, model.rng.normal(size=(136, len(model.W)))
    pair = {
        "limit": lambda: features @ entries,
        "ours": lambda: model.engine.probabilities(model.encoded, model.W),
    }
    time = seconds(pair, 5 * bench.rounds)
    bench.row(MANY, "limit: (3000, 136) @ (136, 20)", model.p.size, time["limit"])
    bench.row(MANY, OURS, model.p.size, time["ours"], off, EXACT)
    bench.ratios[targets.EXACT_VS_PRODUCT_THREADS] = time["limit"] / time["ours"]
    with threadpool_limits(1, user_api="blas"):
        time = seconds(pair, 5 * bench.rounds, clock=one_thread)
    bench.row(MANY, "limit: the same product, one thread", model.p.size, time["limit"])
    bench.row(MANY, "statevector, exact, one thread", model.p.size, time["ours"], off, EXACT)
    bench.ratios[targets.EXACT_VS_PRODUCT] = time["limit"] / time["ours"]


def _shots(bench: Bench, model: PaperModel) -> None:
    """Sampled values beside their limit, the binomial draws alone."""
    engine, rng = StatevectorEngine(model.qnn, SHOTS), model.rng
    time = seconds(
        {
            "limit": lambda: rng.binomial(SHOTS, model.p),
            "ours": lambda: engine.probabilities(model.encoded, model.W, rng),
        },
        max(3, bench.rounds // 2),
        clock=one_thread,
    )
    drawn = engine.probabilities(model.encoded, model.W[:1], rng)
    bench.row(MANY, "limit: binomial draws", model.p.size, time["limit"])
    off = _largest(drawn[:, :300], model.p[:1, :300])
    bench.row(MANY, "statevector, 1024 shots", model.p.size, time["ours"], off, SAMPLED)
    bench.ratios[targets.SHOTS_VS_DRAWS] = time["ours"] / time["limit"]


def _spsa_iterations(bench: Bench, model: PaperModel) -> None:
    """A block of SPSA iterations of ten clients beside its binomial draws alone; both use one thread.

    The draws are one call per client and iteration, with both signs, because each client has a generator of its own.
    """
    engine, rng = StatevectorEngine(model.qnn, SHOTS), model.rng
    clients = [model.encoded.take(np.arange(50) + 50 * i) for i in range(10)]
    rngs = [stream(0, "bench-client", i) for i in range(10)]
    few = [np.ascontiguousarray(model.p[:2, 50 * i : 50 * i + 50]) for i in range(10)]
    all_of_them = np.tile(model.p[:2, :500], (ITERATIONS, 1))
    tuned = Model(engine, SQUARED_ERROR)
    samples = Samples(clients, rng.integers(0, 2, 500), 50 * np.arange(10))
    objective = Objective(tuned, samples, model.W[0], 0.01, rngs)
    rate = np.full(10, 0.13)
    directions = rademacher(rng, (10, ITERATIONS, 16))

    def limit() -> None:
        for _ in range(ITERATIONS):
            for p in few:
                rng.binomial(SHOTS, p)

    calls = {
        "limit": limit,
        "together": lambda: rng.binomial(SHOTS, all_of_them),
        "ours": lambda: spsa_block(model.W[:10], objective, rate, rate, directions),
    }
    with threadpool_limits(1, user_api="blas"):
        time = seconds(calls, max(3, bench.rounds // 3), clock=one_thread)
    signs = model.W.reshape(10, 2, 16)
    drawn = engine.probabilities_ragged(clients, signs, rngs)
    expected = [model.p[2 * i : 2 * i + 2, 50 * i : 50 * i + 50] for i in range(10)]
    off = max(_largest(a, b) for a, b in zip(drawn, expected, strict=True))
    case, count = (
        f"4 qubits, 10 clients x 50 samples x 2 signs x {ITERATIONS} iterations, 1024 shots",
        1000 * ITERATIONS,
    )
    bench.row(case, "limit: draws, one call per client and iteration", count, time["limit"])
    bench.row(case, "stricter: all draws of the block in one call", count, time["together"])
    bench.row(case, "statevector, SPSA block", count, time["ours"], off, SAMPLED)
    bench.ratios[targets.SPSA_VS_DRAWS] = time["ours"] / time["limit"]
    bench.ratios[targets.SPSA_VS_ONE_CALL] = time["ours"] / time["together"]


def _encoding(bench: Bench, model: PaperModel) -> None:
    time = seconds({"encode": lambda: model.engine.encode(model.X)}, max(3, bench.rounds // 10))
    bench.row("4 qubits, encoding", "statevector, encode", len(model.X), time["encode"])


def _peers(bench: Bench, model: PaperModel) -> None:
    """The same model in other libraries, and in our engine on Qiskit's primitives."""
    count = 30 if bench.quick else 300
    X, theta, p = model.X[:count], model.W[0], model.p[0]
    for name, peer in qiskit_peers(model.qnn, SHOTS, seed=7).items():
        peer(X[:2], theta)
        elapsed, values = once(partial(peer, X, theta))
        limit = SAMPLED if name.startswith("Sampler") else EXACT
        bench.row(ONE, name, count, elapsed, _largest(values, p[:count]), limit)
    bench.ratios[targets.EXACT_VS_AER] = bench.rate(OURS) / bench.rate("EstimatorQNN, Aer")
    for sampler in ("statevector", "aer"):
        elapsed, values = _primitives(PrimitivesEngine(model.qnn, SHOTS, sampler=sampler), X, theta)
        bench.row(ONE, f"primitives engine, {sampler}", count, elapsed, _largest(values, p[:count]), SAMPLED)
    broadcast = pennylane_peer(model.qnn)
    if broadcast is not None:
        name = "PennyLane default.qubit, broadcast"
        elapsed = seconds({name: lambda: broadcast(model.X, theta)}, 3)[name]
        bench.row(ONE, name, len(model.X), elapsed, _largest(broadcast(model.X, theta), p), EXACT)
        bench.ratios[targets.EXACT_VS_PENNYLANE] = bench.rate(OURS) / bench.rate(name)


def _primitives(engine: PrimitivesEngine, X: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
    encoded, rng = engine.encode(X), stream(0, "bench-primitives")
    return once(lambda: engine.probabilities(encoded, theta, rng))


def _density(bench: Bench) -> None:
    """Values under a device's noise beside Aer's simulator and the runtime's local mode."""
    from qiskit_aer import AerSimulator
    from qiskit_ibm_runtime.fake_provider import FakeFez

    qnn, rng = QNN(4), stream(1, "bench")
    X, theta = rng.uniform(0, np.pi, (200, 4)), rng.uniform(-np.pi, np.pi, 16)
    backend = FakeFez()
    simulator = AerSimulator.from_backend(backend)
    noise = simulator.options.noise_model
    engine = DensityEngine(qnn, SHOTS, backend=backend, noise_model=noise)
    exact = DensityEngine(qnn, backend=backend, noise_model=noise, transpiled=engine.transpiled)
    p = exact.probabilities(exact.encode(X), theta)
    case, name = "4 qubits on FakeFez, 200 circuits, 1,024 shots", "density, encode included"
    time = seconds({name: lambda: engine.probabilities(engine.encode(X), theta, rng)}, max(3, bench.rounds // 6))
    drawn = engine.probabilities(engine.encode(X), theta, rng)
    bench.row(case, name, 200, time[name], _largest(drawn, p), SAMPLED)

    count = 10 if bench.quick else 200
    fixed = dict(zip(qnn.weight_parameters, theta, strict=True))
    bound = [dict(zip(qnn.input_parameters, x, strict=True)) | fixed for x in X[:count]]
    circuits = [engine.transpiled.assign_parameters(values) for values in bound]
    elapsed, result = once(lambda: simulator.run(circuits, shots=SHOTS, seed_simulator=3).result())
    odd = [sum(v for k, v in result.get_counts(i).items() if k.count("1") % 2) for i in range(count)]
    bench.row(case, "AerSimulator.from_backend", count, elapsed, _largest(np.array(odd) / SHOTS, p[:count]), SAMPLED)
    bench.ratios[targets.DENSITY_VS_AER] = bench.rate(name) / bench.rate("AerSimulator.from_backend")

    sampler = PrimitivesEngine(qnn, SHOTS, sampler="fake", backend=backend, optimization_level=3)
    matched = DensityEngine(qnn, backend=backend, noise_model=noise, transpiled=sampler.transpiled)
    count = 2 if bench.quick else 20
    encoded = sampler.encode(X[:count])
    elapsed, measured = once(lambda: sampler.probabilities(encoded, theta, rng))
    off = _largest(measured, matched.probabilities(matched.encode(X[:count]), theta))
    bench.row(case, "SamplerV2, local mode", count, elapsed, off, SAMPLED)
    bench.ratios[targets.DENSITY_VS_SAMPLER] = bench.rate(name) / bench.rate("SamplerV2, local mode")


def _ten_qubits(bench: Bench) -> None:
    """A wider circuit, where states no longer fit in small tables, beside Aer's estimator."""
    qnn, rng = QNN(10), stream(2, "bench")
    n = 64 if bench.quick else 1000
    X, theta = rng.uniform(0, np.pi, (n, 10)), rng.uniform(-np.pi, np.pi, qnn.num_weights)
    engine = StatevectorEngine(qnn)
    encoded = engine.encode(X)
    time = seconds(
        {
            "all": lambda: engine.probabilities(engine.encode(X), theta),
            "cached": lambda: engine.probabilities(encoded, theta),
        },
        3,
    )
    p = engine.probabilities(encoded, theta)
    peer = aer_estimator(qnn)
    peer(X[:2], theta)
    elapsed, values = once(lambda: peer(X, theta))
    case = f"10 qubits, {n:,} samples x 1 theta"
    off = _largest(p[:5], qiskit_statevector(qnn, X[:5], theta[None])[0])
    bench.row(case, f"statevector ({engine.strategy}), encode included", n, time["all"], off, EXACT)
    bench.row(case, f"statevector ({engine.strategy}), encoded before", n, time["cached"], off, EXACT)
    bench.row(case, "Aer EstimatorV2", n, elapsed, _largest(values, p), EXACT)
    bench.ratios[targets.TEN_QUBITS_VS_AER] = elapsed / time["all"]


def _scaling(bench: Bench) -> None:
    """Seconds of one exact call as one number grows and the others stay, with one BLAS thread."""
    rng = stream(3, "bench")
    engine = StatevectorEngine(QNN(4), threads=1)
    encoded = engine.encode(rng.uniform(0, np.pi, (30_000, 4)))
    W = rng.uniform(-np.pi, np.pi, (1024, 16))
    rounds = 3 if bench.quick else 15

    def point(value: int, evaluations: int, call: Callable[[], object], times: int = rounds) -> dict:
        return {"value": value, "seconds": seconds({"call": call}, times)["call"], "evaluations": evaluations}

    def samples(n: int) -> dict:
        part = encoded.take(np.arange(n))
        return point(n, 20 * n, lambda: engine.probabilities(part, W[:20]))

    def thetas(b: int) -> dict:
        part = encoded.take(np.arange(3000))
        return point(b, 3000 * b, lambda: engine.probabilities(part, W[:b]))

    def clients(c: int) -> dict:
        parts = [encoded.take(np.arange(50) + 50 * i) for i in range(c)]
        return point(c, 100 * c, lambda: engine.probabilities_ragged(parts, W[: 2 * c].reshape(c, 2, 16)))

    def qubits(q: int) -> dict:
        wide = StatevectorEngine(QNN(q), threads=1)
        rows = wide.encode(rng.uniform(0, np.pi, (200, q)))
        theta = rng.uniform(-np.pi, np.pi, (2, wide.qnn.num_weights))
        return point(q, 400, lambda: wide.probabilities(rows, theta), times=3) | {"strategy": wide.strategy}

    bench.scaling["samples"] = [samples(n) for n in (10, 100, 1000, 3000, 10_000, 30_000)]
    bench.scaling["thetas"] = [thetas(b) for b in (1, 4, 20, 64, 256, 1024)]
    bench.scaling["clients"] = [clients(c) for c in (1, 5, 10, 50, 200)]
    bench.scaling["qubits"] = [qubits(q) for q in range(2, 7 if bench.quick else 13)]


def _training(bench: Bench, found: dict) -> None:
    """Add whole runs at the paper's settings; an evaluation is one SPSA iteration of one client.

    A ratio is the larger one of the two tracks.
    """
    name = "statevector, the whole run"
    for track, run in found["runs"].items():
        case = f"duqfl-prox on {track}, client-iterations"
        bench.row(case, name, run["client_iterations"], run["run_seconds"])
        if track == "baf":
            aer = "primitives engine, aer, SPSA block"
            bench.row(case, aer, found["aer_client_iterations"], found["aer_seconds"])
            bench.ratios[targets.TRAINING_VS_AER] = bench.rate(name) / bench.rate(aer)
        bench.row(case, "run_experiment, with its data and files", run["client_iterations"], run["experiment_seconds"])
        _draw_rows(bench, case, run)
    for target, time, limit in (
        (targets.TRAINING_VS_DRAWS, "run_seconds", "draw_seconds"),
        (targets.TRAINING_VS_ONE_CALL, "run_seconds", "together_seconds"),
        (targets.EXPERIMENT_VS_DRAWS, "experiment_seconds", "draw_seconds"),
    ):
        bench.ratios[target] = max(run[time] / run[limit] for run in found["runs"].values())
    names = (targets.SMALL_CLIENTS_VS_DRAWS, targets.LARGE_CLIENTS_VS_DRAWS)
    for target, many in zip(names, found["many_clients"], strict=True):
        case = f"one round of {many['clients']:,} clients x {many['chunk']} samples"
        bench.row(case, "statevector, the whole round", many["client_iterations"], many["run_seconds"])
        _draw_rows(bench, case, many)
        bench.ratios[target] = many["run_seconds"] / many["draw_seconds"]
    curve = found["scaling"]["many clients"]
    per_client = [point["seconds"] / point["value"] for point in curve]
    bench.ratios[targets.LINEAR_IN_CLIENTS] = per_client[-1] / per_client[-3 if len(curve) > 2 else 0]
    both = found["processes"]
    bench.row("runs in processes of one thread", "1 process", 1, both["one"])
    bench.row("runs in processes of one thread", "2 processes", 2, both["two"])
    bench.ratios[targets.TWO_PROCESSES] = 2 * both["one"] / both["two"]


def _draw_rows(bench: Bench, case: str, found: dict) -> None:
    bench.row(case, "limit: its draws, one call per client", found["draws"], found["draw_seconds"])
    bench.row(case, "stricter: its draws in one call", found["draws"], found["together_seconds"])
