"""The measurements: every engine and peer on the same inputs, in one process, with agreement checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.qnn import QNN
from tools.bench.peers import aer_estimator, pennylane_peer, qiskit_peers, qiskit_statevector
from tools.bench.report import machine
from tools.bench.timing import once, seconds
from tools.bench.training import measure_training

SHOTS = 1024
EXACT = 1e-9
# Five standard deviations of a fraction of 1,024 shots, at most.
SAMPLED = 5 * 0.5 / np.sqrt(SHOTS)


@dataclass(frozen=True)
class Target:
    """A ratio that the engine is to reach: at least, or at most, a limit."""

    name: str
    limit: float
    at_least: bool = True

    def holds(self, value: float) -> bool:
        """Whether ``value`` reaches the target."""
        return value >= self.limit if self.at_least else value <= self.limit


TARGETS = (
    Target("exact: rate / bare matrix product's", 0.5),
    Target("exact: rate / EstimatorQNN on Aer", 10_000),
    Target("exact: rate / PennyLane broadcast", 300),
    Target("shots: time / bare binomial draws'", 1.5, at_least=False),
    Target("SPSA iteration: time / its draws'", 10, at_least=False),
    Target("density: rate / AerSimulator.from_backend", 200),
    Target("density: rate / SamplerV2 local mode", 1_000),
    Target("10 qubits: rate / Aer EstimatorV2", 5),
    Target("training: rate / the same code on Aer", 1_000),
    Target("training: time / its binomial draws'", 10, at_least=False),
)


class Bench:
    """Collects rows (name, evaluations, seconds, difference from the exact values) and ratios."""

    def __init__(self, quick: bool) -> None:
        self.quick = quick
        self.rounds = 5 if quick else 60
        self.rows: list[dict] = []
        self.ratios: dict[str, float] = {}
        self.scaling: dict[str, list[dict]] = {}

    def row(
        self,
        case: str,
        name: str,
        count: int,
        time: float,
        difference: float | None = None,
        limit: float = 0.0,
    ) -> None:
        """Add a measured row; a peer that disagrees stops the bench, because its speed would mean nothing."""
        if difference is not None and not difference <= limit:
            raise ValueError(f"{name} differs by {difference:.3g} from the exact values, expected <= {limit:.3g}")
        self.rows.append(
            {
                "case": case,
                "name": name,
                "evaluations": count,
                "seconds": time,
                "rate": count / time,
                "difference": difference,
            }
        )

    def rate(self, name: str) -> float:
        """Return the evaluations a second of the row ``name``."""
        return next(r["rate"] for r in self.rows if r["name"] == name)


def run_bench(quick: bool = False) -> dict:
    """Measure everything and return rows, ratios against their targets, scaling and the machine.

    Parameters
    ----------
    quick : fewer repetitions and circuits, for a test; the ratios are then rough.
    """
    bench = Bench(quick)
    _four_qubits(bench)
    _density(bench)
    _ten_qubits(bench)
    _scaling(bench)
    training = measure_training(quick)
    _training(bench, training)
    targets = [
        {
            "name": t.name,
            "limit": t.limit,
            "at_least": t.at_least,
            "value": bench.ratios.get(t.name),
            "reached": None if t.name not in bench.ratios else t.holds(bench.ratios[t.name]),
        }
        for t in TARGETS
    ]
    return {
        "quick": quick,
        "machine": machine(),
        "rows": bench.rows,
        "targets": targets,
        "scaling": bench.scaling,
        "training": training,
    }


def _training(bench: Bench, found: dict) -> None:
    """Add a whole run at the paper's setting; an evaluation is one SPSA iteration of one client."""
    case, name = "duqfl-prox on BAF, client-iterations", "statevector, the whole run"
    bench.row(case, name, found["client_iterations"], found["run_seconds"])
    bench.row(case, "primitives engine, aer, SPSA block", found["aer_client_iterations"], found["aer_seconds"])
    bench.row(case, "limit: the run's binomial draws", found["draws"], found["draw_seconds"])
    bench.ratios[TARGETS[8].name] = bench.rate(name) / bench.rate("primitives engine, aer, SPSA block")
    bench.ratios[TARGETS[9].name] = found["run_seconds"] / found["draw_seconds"]


def _four_qubits(bench: Bench) -> None:
    """The paper's model beside its limits, a matrix product and binomial draws, and its peers."""
    qnn = QNN(4)
    n, thetas = 3000, 20
    rng = stream(0, "bench")
    X, W = rng.uniform(0, np.pi, (n, 4)), rng.uniform(-np.pi, np.pi, (thetas, 16))
    exact = make_engine("statevector", qnn)
    shots = make_engine("statevector", qnn, shots=SHOTS)
    encoded = exact.encode(X)
    p = np.ascontiguousarray(exact.probabilities(encoded, W))
    off = float(np.abs(p[:1, :50] - qiskit_statevector(qnn, X[:50], W[:1])).max())
    features, entries = encoded.rows, rng.normal(size=(136, thetas))
    count = n * thetas
    pair = {"limit": lambda: features @ entries, "ours": lambda: exact.probabilities(encoded, W)}
    case, name = "4 qubits, 3,000 samples x 20 thetas", "statevector, exact"
    time = seconds(pair, 5 * bench.rounds)
    bench.row(case, "limit: (3000, 136) @ (136, 20)", count, time["limit"])
    bench.row(case, name, count, time["ours"], off, EXACT)
    bench.ratios[TARGETS[0].name] = time["limit"] / time["ours"]
    with threadpool_limits(1, user_api="blas"):
        time = seconds(pair, 5 * bench.rounds)
    bench.row(case, "limit: the same product, one thread", count, time["limit"])
    bench.row(case, "statevector, exact, one thread", count, time["ours"], off, EXACT)
    time = seconds(
        {
            "limit": lambda: rng.binomial(SHOTS, p),
            "ours": lambda: shots.probabilities(encoded, W, rng),
        },
        max(3, bench.rounds // 2),
    )
    drawn = float(np.abs(shots.probabilities(encoded, W[:1], rng) - p[:1])[:, :300].max())
    bench.row(case, "limit: binomial draws", count, time["limit"])
    bench.row(case, "statevector, 1024 shots", count, time["ours"], drawn, SAMPLED)
    bench.ratios[TARGETS[3].name] = time["ours"] / time["limit"]
    clients = [encoded.take(np.arange(50) + 50 * i) for i in range(10)]
    rngs = [stream(0, "bench-client", i) for i in range(10)]
    few = np.ascontiguousarray(p[:2, :500])
    time = seconds(
        {
            "limit": lambda: rng.binomial(SHOTS, few),
            "ours": lambda: shots.probabilities_ragged(clients, W.reshape(10, 2, 16), rngs),
        },
        5 * bench.rounds,
    )
    ragged = shots.probabilities_ragged(clients, W.reshape(10, 2, 16), rngs)
    wanted = [p[2 * i : 2 * i + 2, 50 * i : 50 * i + 50] for i in range(10)]
    drawn = max(float(np.abs(a - b).max()) for a, b in zip(ragged, wanted, strict=True))
    case = "4 qubits, 10 clients x 50 samples x 2 signs, 1024 shots"
    bench.row(case, "limit: 1,000 binomial draws", 1000, time["limit"])
    bench.row(case, "statevector, SPSA iteration", 1000, time["ours"], drawn, SAMPLED)
    bench.ratios[TARGETS[4].name] = time["ours"] / time["limit"]
    time = seconds({"encode": lambda: exact.encode(X)}, max(3, bench.rounds // 10))
    bench.row("4 qubits, encoding", "statevector, encode", n, time["encode"])
    _peers(bench, qnn, X, W[0], p[0], bench.rate(name))


def _peers(bench: Bench, qnn: QNN, X: np.ndarray, theta: np.ndarray, p: np.ndarray, ours: float) -> None:
    count = 30 if bench.quick else 300
    case = "4 qubits, samples x 1 theta"
    for name, peer in qiskit_peers(qnn, SHOTS, seed=7).items():
        peer(X[:2], theta)
        elapsed, values = once(lambda peer=peer: peer(X[:count], theta))
        limit = SAMPLED if name.startswith("Sampler") else EXACT
        bench.row(case, name, count, elapsed, float(np.abs(values - p[:count]).max()), limit)
    bench.ratios[TARGETS[1].name] = ours / bench.rate("EstimatorQNN, Aer")
    for sampler in ("statevector", "aer"):
        engine = make_engine("primitives", qnn, SHOTS, sampler=sampler)
        encoded, rng = engine.encode(X[:count]), stream(0, "bench-primitives")
        elapsed, values = once(lambda e=engine, x=encoded, r=rng: e.probabilities(x, theta, r))
        off = float(np.abs(values - p[:count]).max())
        bench.row(case, f"primitives engine, {sampler}", count, elapsed, off, SAMPLED)
    peer = pennylane_peer(qnn)
    if peer is not None:
        elapsed = seconds({"peer": lambda: peer(X, theta)}, 3)["peer"]
        name = "PennyLane default.qubit, broadcast"
        bench.row(case, name, len(X), elapsed, float(np.abs(peer(X, theta) - p).max()), EXACT)
        bench.ratios[TARGETS[2].name] = ours / bench.rate(name)


def _density(bench: Bench) -> None:
    from qiskit_aer import AerSimulator
    from qiskit_ibm_runtime.fake_provider import FakeFez

    qnn = QNN(4)
    rng = stream(1, "bench")
    X, theta = rng.uniform(0, np.pi, (200, 4)), rng.uniform(-np.pi, np.pi, 16)
    backend = FakeFez()
    simulator = AerSimulator.from_backend(backend)
    engine = make_engine("density", qnn, SHOTS, backend=backend, noise_model=simulator.options.noise_model)
    exact = make_engine(
        "density",
        qnn,
        backend=backend,
        noise_model=simulator.options.noise_model,
        transpiled=engine.transpiled,
    )
    p = exact.probabilities(exact.encode(X), theta)
    ours = seconds({"ours": lambda: engine.probabilities(engine.encode(X), theta, rng)}, max(3, bench.rounds // 6))
    drawn = float(np.abs(engine.probabilities(engine.encode(X), theta, rng) - p).max())
    case, name = "4 qubits on FakeFez, 200 circuits, 1,024 shots", "density, encode included"
    bench.row(case, name, 200, ours["ours"], drawn, SAMPLED)
    count = 10 if bench.quick else 200
    values = [dict(zip(qnn.input_parameters, x, strict=True)) for x in X]
    fixed = dict(zip(qnn.weight_parameters, theta, strict=True))
    circuits = [engine.transpiled.assign_parameters(v | fixed) for v in values[:count]]
    elapsed, result = once(lambda: simulator.run(circuits, shots=SHOTS, seed_simulator=3).result())
    odd = [sum(v for k, v in result.get_counts(i).items() if k.count("1") % 2) for i in range(count)]
    difference = float(np.abs(np.array(odd) / SHOTS - p[:count]).max())
    bench.row(case, "AerSimulator.from_backend", count, elapsed, difference, SAMPLED)
    bench.ratios[TARGETS[5].name] = bench.rate(name) / bench.rate("AerSimulator.from_backend")
    sampler = make_engine("primitives", qnn, SHOTS, sampler="fake", backend=backend, optimization_level=3)
    matched = make_engine(
        "density",
        qnn,
        backend=backend,
        noise_model=simulator.options.noise_model,
        transpiled=sampler.transpiled,
    )
    count = 2 if bench.quick else 20
    encoded = sampler.encode(X[:count])
    elapsed, measured = once(lambda: sampler.probabilities(encoded, theta, rng))
    difference = float(np.abs(measured - matched.probabilities(matched.encode(X[:count]), theta)).max())
    bench.row(case, "SamplerV2, local mode", count, elapsed, difference, SAMPLED)
    bench.ratios[TARGETS[6].name] = bench.rate(name) / bench.rate("SamplerV2, local mode")


def _ten_qubits(bench: Bench) -> None:
    qnn = QNN(10)
    n = 64 if bench.quick else 1000
    rng = stream(2, "bench")
    X, theta = rng.uniform(0, np.pi, (n, 10)), rng.uniform(-np.pi, np.pi, qnn.num_weights)
    engine = make_engine("statevector", qnn)
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
    off = float(np.abs(p[:5] - qiskit_statevector(qnn, X[:5], theta[None])[0]).max())
    bench.row(case, f"statevector ({engine.strategy}), encode included", n, time["all"], off, EXACT)
    bench.row(case, f"statevector ({engine.strategy}), encoded before", n, time["cached"], off, EXACT)
    bench.row(case, "Aer EstimatorV2", n, elapsed, float(np.abs(values - p).max()), EXACT)
    bench.ratios[TARGETS[7].name] = elapsed / time["all"]


def _scaling(bench: Bench) -> None:
    """Seconds of one exact call as one number grows and the others stay, with one BLAS thread."""
    rng = stream(3, "bench")
    qnn = QNN(4)
    engine = make_engine("statevector", qnn, threads=1)
    encoded = engine.encode(rng.uniform(0, np.pi, (30_000, 4)))
    W = rng.uniform(-np.pi, np.pi, (1024, 16))
    rounds = 3 if bench.quick else 15

    def timed(call) -> float:
        return seconds({"call": call}, rounds)["call"]

    bench.scaling["samples"] = []
    for n in (10, 100, 1000, 3000, 10_000, 30_000):
        part = encoded.take(np.arange(n))
        time = timed(lambda part=part: engine.probabilities(part, W[:20]))
        bench.scaling["samples"].append({"value": n, "seconds": time, "evaluations": 20 * n})
    part = encoded.take(np.arange(3000))
    bench.scaling["thetas"] = []
    for b in (1, 4, 20, 64, 256, 1024):
        time = timed(lambda b=b: engine.probabilities(part, W[:b]))
        bench.scaling["thetas"].append({"value": b, "seconds": time, "evaluations": 3000 * b})
    bench.scaling["clients"] = []
    for c in (1, 5, 10, 50, 200):
        clients = [encoded.take(np.arange(50) + 50 * i) for i in range(c)]
        weights = W[: 2 * c].reshape(c, 2, 16)
        time = timed(lambda e=clients, w=weights: engine.probabilities_ragged(e, w))
        bench.scaling["clients"].append({"value": c, "seconds": time, "evaluations": 100 * c})
    bench.scaling["qubits"] = []
    for q in range(2, 7 if bench.quick else 13):
        model = QNN(q)
        wide = make_engine("statevector", model, threads=1)
        rows = wide.encode(rng.uniform(0, np.pi, (200, q)))
        theta = rng.uniform(-np.pi, np.pi, (2, model.num_weights))
        time = seconds({"call": lambda w=wide, r=rows, t=theta: w.probabilities(r, t)}, 3)["call"]
        row = {"value": q, "seconds": time, "evaluations": 400, "strategy": wide.strategy}
        bench.scaling["qubits"].append(row)
