"""The bench compares what agrees, and says what it found."""

import json
import re
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pytest

import tools.bench.__main__ as command
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.engines import make_engine
from qfl_core.engines.qnn import QNN
from qfl_core.figures.style import CLASS_COLOURS
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_federation
from tools.bench import TARGETS, cluster, draw, record, table
from tools.bench.draws import own_draws
from tools.bench.peers import aer_estimator, pennylane_peer, qiskit_peers, qiskit_statevector
from tools.bench.record import Bench
from tools.bench.timing import seconds


def results():
    points = [{"value": 2, "seconds": 0.5, "evaluations": 10, "strategy": "products"}]
    points.append({"value": 4, "seconds": 1.5, "evaluations": 10, "strategy": "unitary"})
    bench = Bench(quick=True)
    bench.row("a case", "limit", 1000, 0.5)
    bench.row("a case", "ours", 1000, 1.0, 1e-15, 1e-9)
    # Every target is reached but two: one is missed, one was not run.
    bench.ratios = {t.name: t.limit if t.limit is not None else 1.0 for t in TARGETS}
    bench.ratios[record.EXACT_VS_AER] = 9_000.0
    del bench.ratios[record.EXACT_VS_PENNYLANE]
    return {
        "quick": True,
        "machine": {
            "python": "3",
            "system": "s",
            "machine": "m",
            "cores": 2,
            "blas": [{"internal_api": "openblas", "version": "0", "architecture": "x", "num_threads": 2}],
            "packages": {"numpy": "2", "pennylane": None},
        },
        "rows": bench.rows,
        "targets": bench.targets(),
        "scaling": dict.fromkeys(("samples", "thetas", "clients", "qubits"), points),
        "training": {"scaling": dict.fromkeys(("rounds", "clients", "samples", "many clients"), points)},
    }


def test_targets_hold_on_the_right_side():
    by_name = {t.name: t for t in TARGETS}
    assert by_name[record.EXACT_VS_PRODUCT].holds(0.8)
    assert by_name[record.EXACT_VS_PRODUCT].holds(0.79) is False
    assert by_name[record.EXACT_VS_PRODUCT_THREADS].holds(0.01) is None
    assert by_name["shots: time / bare binomial draws'"].holds(1.5)
    assert not by_name["shots: time / bare binomial draws'"].holds(1.51)


def test_a_peer_that_disagrees_stops_the_bench():
    bench = Bench(quick=True)
    for difference in (0.1, float("nan")):
        with pytest.raises(ValueError, match="wrong differs by"):
            bench.row("case", "wrong", 1, 1.0, difference, 1e-9)
    assert bench.rows == []


def test_calls_take_turns():
    order = []
    time = seconds({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert set(time) == {"a", "b"}


class Counting(np.random.Generator):
    """A generator that tells how many numbers of which kind it drew, and in how many calls."""

    told: ClassVar[list] = []

    def binomial(self, n, p, size=None):
        self.told.append(("binomial", np.size(p)))
        return super().binomial(n, p, size)

    def random(self, size=None, **more):
        self.told.append(("uniform", int(np.prod(size))))
        return super().random(size, **more)


@pytest.mark.parametrize("method", ["duqfl-prox", "default-qfl"])
def test_the_draws_of_a_run_are_those_that_its_generators_make(method, monkeypatch):
    config = ExperimentConfig(
        dataset="genome", source="stand-in", method=method, clients=3, rounds=2, unfolds=2, spsa_iterations=2, chunk=6
    )
    federation = make_federation(config.replace(outer_period=1, shots=64, train_size=100, val_size=40, test_size=50))
    draws = own_draws(federation)
    monkeypatch.setenv("QFL_COMPILED", "off")
    monkeypatch.setattr(np.random, "Generator", Counting)
    monkeypatch.setattr(Counting, "told", [])
    list(train(federation))
    told = {kind: [count for name, count in Counting.told if name == kind] for kind in ("binomial", "uniform")}
    assert told["binomial"] == [p.size for p in draws.binomials]
    assert told["uniform"] == [int(np.prod(shape)) for shape in draws.uniforms]
    assert draws.count == sum(told["binomial"]) + sum(told["uniform"]) == draws.together().count


@pytest.mark.filterwarnings("ignore::DeprecationWarning:qiskit_machine_learning")
def test_every_peer_is_the_same_model():
    qnn = QNN(3)
    rng = stream(0, "test-bench")
    X, theta = rng.uniform(0, 3, (4, 3)), rng.uniform(-3, 3, qnn.num_weights)
    engine = make_engine("statevector", qnn)
    p = engine.probabilities(engine.encode(X), theta)
    peers = qiskit_peers(qnn, shots=4096, seed=1) | {"estimator": aer_estimator(qnn)}
    for name, peer in peers.items():
        limit = 5 * 0.5 / 64 if name.startswith("Sampler") else 1e-12
        assert np.abs(peer(X, theta) - p).max() < limit, name
    assert np.abs(qiskit_statevector(qnn, X, theta[None])[0] - p).max() < 1e-12
    if find_spec("pennylane") is not None:
        assert np.abs(pennylane_peer(qnn)(X, theta) - p).max() < 1e-12


def test_table_names_every_target_and_verdict():
    text = table(results())
    for target in TARGETS:
        assert target.name in text
    assert text.count("reached") == sum(t.limit is not None for t in TARGETS) - 2
    assert text.count("MISSED") == 1
    assert text.count("not run") == 1
    assert "Cost by qubits" in text
    assert "Training run by rounds" in text


def test_command_writes_json_and_figures_and_prints_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tools.bench.run_bench", lambda quick: results())
    command.main(["--out", str(tmp_path / "bench"), "--quick"])
    written = sorted(f.name for f in (tmp_path / "bench").iterdir())
    assert written == ["bench.json", "bench.pdf", "bench.png"]
    assert json.loads((tmp_path / "bench" / "bench.json").read_text()) == results()
    assert "MISSED" in capsys.readouterr().out


def test_figure_has_the_circuit_and_the_curves_of_calls_and_runs():
    figure = draw(results(), QNN(2))
    labels = ["samples", "thetas", "clients", "qubits", "rounds", "clients", "samples", "clients"]
    assert [a.get_xlabel().split()[0] for a in figure.axes[1:]] == labels


def test_figure_has_the_house_style_and_names_strategies_beside_their_points():
    figure = draw(results(), QNN(2))
    figure.canvas.draw()
    panel = figure.axes[4]
    assert {line.get_color() for axes in figure.axes[1:] for line in axes.lines} == {CLASS_COLOURS[0]}
    assert "engine: statevector" in figure.get_supxlabel()
    assert panel.texts
    for text in panel.texts:
        x, y = panel.transData.transform(text.xy)
        box = text.get_window_extent()
        assert box.x0 > x
        assert box.y1 < y


def test_the_table_of_workers_compares_with_one_worker(monkeypatch, capsys):
    monkeypatch.setattr(cluster, "measure_workers", lambda most, runs: {0: 10.0, 1: 12.0, 2: 6.0})
    cluster.main(["--workers", "2", "--runs", "24"])
    head, *table = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"24 runs, \d+ cores", head)
    assert table == [
        "| workers | seconds | runs per second | times one worker |",
        "|---|---|---|---|",
        "| none (one process) | 10.0 | 2.40 | 1.20 |",
        "| 1 | 12.0 | 2.00 | 1.00 |",
        "| 2 | 6.0 | 4.00 | 2.00 |",
    ]
