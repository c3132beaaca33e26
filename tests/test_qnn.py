"""The model is one circuit: feature map, ansatz, parity."""

import numpy as np
import pytest
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector
from qiskit.circuit.library import real_amplitudes, zz_feature_map

from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import ANSATZE, FEATURE_MAPS
from qfl_core.config import ExperimentConfig
from qfl_core.engines.qnn import QNN, odd_parity


def test_paper_model_has_sixteen_weights_at_four_features():
    qnn = QNN(4)
    assert (qnn.num_qubits, qnn.num_weights, qnn.num_features) == (4, 16, 4)
    # Circuits with fresh parameters are never equal, so compare them bound.
    feature_map = zz_feature_map(4, reps=2, entanglement="full")
    ansatz = real_amplitudes(4, reps=3, entanglement="reverse_linear")
    x, w = np.linspace(0.1, 2, 4), np.linspace(-1, 1, 16)
    assert qnn.feature_map.assign_parameters(x) == feature_map.assign_parameters(x)
    assert qnn.ansatz.assign_parameters(w) == ansatz.assign_parameters(w)


def test_circuit_is_the_feature_map_followed_by_the_ansatz():
    qnn = QNN(3, feature_map_reps=1, ansatz_reps=2)
    expected = QuantumCircuit(3)
    expected.compose(qnn.feature_map, inplace=True)
    expected.compose(qnn.ansatz, inplace=True)
    assert qnn.circuit == expected
    assert qnn.circuit.num_parameters == 3 + qnn.num_weights


def test_measured_circuit_reads_every_logical_qubit_in_order():
    measured = QNN(3).measured()
    pairs = [
        (measured.find_bit(i.qubits[0]).index, measured.find_bit(i.clbits[0]).index)
        for i in measured.data
        if i.operation.name == "measure"
    ]
    assert pairs == [(0, 0), (1, 1), (2, 2)]


def test_bind_leaves_no_parameter():
    qnn = QNN(2)
    assert qnn.bind(np.zeros(2), np.zeros(qnn.num_weights)).num_parameters == 0
    with pytest.raises(ValueError, match=r"shorter|longer"):
        qnn.bind(np.zeros(3), np.zeros(qnn.num_weights))


def test_odd_parity_counts_bits():
    assert odd_parity(3).tolist() == [bin(z).count("1") % 2 == 1 for z in range(8)]


def test_user_circuits_are_taken_as_they_are():
    x, w = ParameterVector("a", 3), ParameterVector("b", 2)
    feature_map, ansatz = QuantumCircuit(2), QuantumCircuit(2)
    feature_map.rx(x[0], 0)
    feature_map.ry(x[1] * x[2], 1)
    ansatz.crx(w[0], 0, 1)
    ansatz.rz(w[1], 0)
    qnn = QNN(3, feature_map=feature_map, ansatz=ansatz)
    assert (qnn.num_qubits, qnn.num_weights) == (2, 2)
    assert list(qnn.input_parameters) == list(x)


def test_text_drawing_shows_the_circuit():
    drawing = str(QNN(2).draw("text"))
    assert "H" in drawing
    assert "Ry(θ[0])" in drawing


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0}, "num_features must be an integer >= 1, got 0"),
        ({"num_features": 2.0}, "num_features must be an integer >= 1, got 2.0"),
        ({"num_features": 2, "feature_map_reps": 0}, "feature_map_reps must be an integer >= 1, got 0"),
        ({"num_features": 2, "ansatz_reps": -1}, "ansatz_reps must be an integer >= 0, got -1"),
        ({"num_features": 1}, "use 'z' for 1"),
        ({"num_features": 2, "feature_map": "yy"}, "unknown feature_map 'yy'; expected one of zz, z or a"),
        ({"num_features": 2, "ansatz": "deep"}, "unknown ansatz 'deep'; expected one of real_amplitudes or a"),
        ({"num_features": 2, "ansatz": "real_amplitude"}, "did you mean 'real_amplitudes'"),
        ({"num_features": 2, "feature_map": 3}, "a known name or a QuantumCircuit, got int"),
        ({"num_features": 3, "feature_map": zz_feature_map(2)}, "has 2 parameters, expected num_features=3"),
        ({"num_features": 2, "ansatz": real_amplitudes(3)}, "acts on 3 qubits, expected the feature map's 2"),
        ({"num_features": 2, "ansatz": zz_feature_map(2)}, "share the parameter names"),
    ],
)
def test_bad_models_are_named(arguments, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        QNN(**arguments)


# Circuits by name


def rotations(num_features, reps):
    circuit, x = QuantumCircuit(num_features), ParameterVector("x", num_features)
    for _ in range(reps):
        for qubit in range(num_features):
            circuit.rx(x[qubit], qubit)
    return circuit


def chain(num_qubits, reps, entanglement="linear"):
    return real_amplitudes(num_qubits, reps=reps, entanglement=entanglement)


def test_a_registered_circuit_is_built_by_its_name(monkeypatch):
    monkeypatch.setitem(FEATURE_MAPS, "rotations", rotations)
    monkeypatch.setitem(ANSATZE, "chain", chain)
    qnn = QNN(3, 2, 1, feature_map="rotations", ansatz="chain", ansatz_entanglement="full")
    assert qnn.feature_map.count_ops() == {"rx": 6}
    w = np.linspace(-1, 1, 6)
    assert qnn.ansatz.assign_parameters(w) == real_amplitudes(3, reps=1, entanglement="full").assign_parameters(w)


@pytest.mark.parametrize(
    ("table", "field", "builder", "message"),
    [
        (FEATURE_MAPS, "feature_map", lambda n, reps: [n], "feature_map must be .* a QuantumCircuit, got list"),
        (
            FEATURE_MAPS,
            "feature_map",
            lambda n, reps: rotations(n + 1, reps),
            "has 3 parameters, expected num_features=2",
        ),
        (ANSATZE, "ansatz", lambda n, reps: None, "ansatz must be .* a QuantumCircuit, got NoneType"),
        (ANSATZE, "ansatz", lambda n, reps: chain(n + 1, reps), "acts on 3 qubits, expected the feature map's 2"),
    ],
)
def test_a_builder_that_returns_the_wrong_circuit_is_named(monkeypatch, table, field, builder, message):
    monkeypatch.setitem(table, "mine", builder)
    with pytest.raises(ValueError, match=message):
        QNN(2, **{field: "mine"})


def test_a_config_takes_the_names_that_the_tables_have_when_it_is_built(monkeypatch):
    with pytest.raises(ConfigError, match="ansatz='chain' is not valid: expected one of real_amplitudes"):
        ExperimentConfig(ansatz="chain")
    monkeypatch.setitem(ANSATZE, "chain", chain)
    monkeypatch.setitem(FEATURE_MAPS, "rotations", rotations)
    config = ExperimentConfig(ansatz="chain", feature_map="rotations")
    assert (config.ansatz, config.feature_map) == ("chain", "rotations")
    with pytest.raises(ConfigError, match="loss='hinge' is not valid: expected one of cross_entropy, squared_error"):
        ExperimentConfig(loss="hinge")
