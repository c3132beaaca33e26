"""The bench compares what agrees, and says what it found."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

import tools.bench.__main__ as command
from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.qnn import QNN
from qfl_core.figures.style import CLASS_COLOURS
from tools.bench import TARGETS, draw, table
from tools.bench.peers import aer_estimator, pennylane_peer, qiskit_peers, qiskit_statevector
from tools.bench.record import Bench
from tools.bench.timing import seconds


def results():
    points = [{"value": 2, "seconds": 0.5, "evaluations": 10, "strategy": "products"}]
    points.append({"value": 4, "seconds": 1.5, "evaluations": 10, "strategy": "unitary"})
    bench = Bench(quick=True)
    bench.row("a case", "limit", 1000, 0.5)
    bench.row("a case", "ours", 1000, 1.0, 1e-15, 1e-9)
    values = [0.9, 9_000.0, None, 1.4, 1.9, 250.0, 2_000.0, 6.0, 2_000.0, 1.7, 2.1, 2.5, 2.5, 1.9]
    bench.ratios = {t.name: v for t, v in zip(TARGETS, values, strict=True) if v is not None}
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
    assert by_name["exact: rate / bare matrix product's"].holds(0.8)
    assert not by_name["exact: rate / bare matrix product's"].holds(0.79)
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
    assert text.count("reached") == 12
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
