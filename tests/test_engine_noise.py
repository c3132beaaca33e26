"""The measuring and the noisy engine agree with Qiskit's samplers, with Aer and with fake backends."""

import pickle

import numpy as np
import pytest
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector
from qiskit_aer import AerSimulator
from qiskit_aer.noise import NoiseModel, ReadoutError, depolarizing_error
from qiskit_ibm_runtime.fake_provider import FakeFez, FakeManilaV2
from scipy import stats

from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.qnn import QNN, odd_parity

# A correct engine fails such a test for one seed in ten thousand; the seeds here are fixed.
LEVEL = 1e-4


@pytest.fixture(scope="module")
def fez():
    """FakeFez, its Aer simulator and the simulator's noise model; built once, because it takes seconds."""
    backend = FakeFez()
    simulator = AerSimulator.from_backend(backend)
    return backend, simulator, simulator.options.noise_model


@pytest.fixture(scope="module")
def manila():
    backend = FakeManilaV2()
    simulator = AerSimulator.from_backend(backend)
    return backend, simulator, simulator.options.noise_model


def bound(engine, x, theta):
    qnn = engine.qnn
    values = dict(zip(qnn.input_parameters, x, strict=True))
    values.update(zip(qnn.weight_parameters, theta, strict=True))
    return engine.transpiled.assign_parameters({p: values[p] for p in engine.transpiled.parameters})


def odd_fractions(simulator, circuits, shots, seed):
    result = simulator.run(circuits, shots=shots, seed_simulator=seed).result()
    counts = [result.get_counts(i) for i in range(len(circuits))]
    return np.array([sum(v for k, v in c.items() if k.count("1") % 2) / shots for c in counts])


def chi_square_p_value(measured, p, shots):
    z = (measured - p) / np.sqrt(p * (1 - p) / shots)
    return stats.chi2.sf((z**2).sum(), df=z.size)


# --- shots ---


def test_shots_have_the_distribution_of_aers_parities():
    """A two-sample chi-square test compares the numbers of odd parities in 64 shots, 400 of them per engine."""
    qnn, shots, repeats = QNN(2), 64, 400
    rng = stream(3, "test-shots")
    x, theta = rng.uniform(0, 3, 2), rng.uniform(-3, 3, qnn.num_weights)
    ours = make_engine("statevector", qnn, shots=shots)
    aer = make_engine("primitives", qnn, shots=shots, sampler="aer")
    X = np.tile(x, (repeats, 1))
    a = np.rint(ours.probabilities(ours.encode(X), theta, rng) * shots)
    b = np.rint(aer.probabilities(aer.encode(X), theta, rng) * shots)
    edges = np.quantile(np.concatenate([a, b]), np.linspace(0, 1, 7))
    table = np.array([np.histogram(v, bins=np.unique(edges))[0] for v in (a, b)])
    assert stats.chi2_contingency(table).pvalue > LEVEL
    # The distribution itself has mean p and variance p (1 - p) / shots.
    exact = make_engine("statevector", qnn)
    p = exact.probabilities(exact.encode(x[None]), theta)[0]
    assert abs(a.mean() - shots * p) < 4 * np.sqrt(shots * p * (1 - p) / repeats)
    assert 0.7 < a.var() / (shots * p * (1 - p)) < 1.4


def test_certain_outcomes_survive_rounding():
    """If a state is |0> or |1>, P is 0 or 1 up to rounding; a P slightly outside [0, 1] must not stop the draws."""
    flip = QuantumCircuit(1)
    flip.x(0)
    w = ParameterVector("w", 1)
    flip.ry(w[0], 0)
    feature_map = QuantumCircuit(1)
    feature_map.rx(ParameterVector("x", 1)[0], 0)
    engine = make_engine("statevector", QNN(1, feature_map=feature_map, ansatz=flip), shots=1000)
    X = np.array([[0.0], [2 * np.pi], [np.pi], [3 * np.pi]])
    p = engine.probabilities(engine.encode(X), np.zeros(1), stream(0, "test"))
    assert p.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_one_generator_per_theta_makes_draws_independent_of_the_batch():
    qnn = QNN(2)
    engine = make_engine("statevector", qnn, shots=50)
    rng = stream(5, "test")
    encoded, W = engine.encode(rng.uniform(0, 3, (6, 2))), rng.uniform(-3, 3, (3, qnn.num_weights))
    whole = engine.probabilities(encoded, W, [stream(5, "theta", i) for i in range(3)])
    assert np.array_equal(whole[2], engine.probabilities(encoded, W[2], stream(5, "theta", 2)))
    with pytest.raises(ValueError, match="one for each row"):
        engine.probabilities(encoded, W, [rng])


# --- primitives ---


@pytest.mark.parametrize("sampler", ["statevector", "aer"])
def test_samplers_agree_with_the_exact_engine(sampler):
    qnn, shots = QNN(3), 4096
    rng = stream(11, "test-primitives")
    X, W = rng.uniform(0, 3, (6, 3)), rng.uniform(-3, 3, (2, qnn.num_weights))
    exact = make_engine("statevector", qnn)
    p = exact.probabilities(exact.encode(X), W)
    engine = make_engine("primitives", qnn, shots=shots, sampler=sampler)
    assert engine.kind == "shots"
    measured = engine.probabilities(engine.encode(X), W, rng)
    assert measured.shape == (2, 6)
    assert chi_square_p_value(measured, p, shots) > LEVEL
    assert engine.probabilities(engine.encode(X), W[0], rng).shape == (6,)


@pytest.mark.parametrize("sampler", ["statevector", "aer"])
def test_samples_and_calls_have_noise_of_their_own(sampler):
    qnn = QNN(2)
    engine = make_engine("primitives", qnn, shots=200, sampler=sampler)
    encoded, theta = engine.encode(np.tile([1.0, 2.0], (20, 1))), np.linspace(-1, 1, qnn.num_weights)
    rng = stream(1, "test")
    first, second = engine.probabilities(encoded, theta, rng), engine.probabilities(encoded, theta, rng)
    assert len(set(first.tolist())) > 3
    assert first.tolist() != second.tolist()
    again = engine.probabilities(encoded, theta, stream(1, "test"))
    assert again.tolist() == first.tolist()


def test_counts_hold_every_shot_and_give_the_parity():
    qnn = QNN(3)
    engine = make_engine("primitives", qnn, shots=100, sampler="aer")
    measured = engine.measure(engine.encode(np.ones((2, 3))), np.ones((2, qnn.num_weights)), stream(0, "t"))
    for b in range(2):
        for i in range(2):
            counts = measured.counts[b][i]
            assert sum(counts.values()) == 100
            assert sum(v for k, v in counts.items() if k.count("1") % 2) == measured.odd[b, i]


def test_a_fake_backend_agrees_with_the_density_engine(manila):
    backend, _, noise_model = manila
    qnn, shots = QNN(2, 1, 1), 4000
    rng = stream(2, "test-fake")
    X, W = rng.uniform(0, 3, (3, 2)), rng.uniform(-3, 3, (2, qnn.num_weights))
    fake = make_engine("primitives", qnn, shots=shots, sampler="fake", backend=backend)
    assert fake.kind == "fake"
    density = make_engine("density", qnn, backend=backend, noise_model=noise_model, transpiled=fake.transpiled)
    assert density.layout == fake.layout
    p = density.probabilities(density.encode(X), W)
    assert chi_square_p_value(fake.probabilities(fake.encode(X), W, rng), p, shots) > LEVEL


def test_aer_with_a_noise_model_says_noisy():
    model = NoiseModel()
    model.add_all_qubit_quantum_error(depolarizing_error(0.1, 1), ["sx"])
    engine = make_engine("primitives", QNN(2), shots=10, sampler="aer", backend=AerSimulator(noise_model=model))
    assert engine.kind == "noisy"
    assert engine.describe()["sampler"] == "aer"


def test_bad_primitives_are_named():
    qnn = QNN(2)
    with pytest.raises(ValueError, match="expected shots >= 1, got None"):
        make_engine("primitives", qnn)
    with pytest.raises(ValueError, match="unknown sampler 'qpu'"):
        make_engine("primitives", qnn, shots=1, sampler="qpu")
    with pytest.raises(ValueError, match="takes no backend"):
        make_engine("primitives", qnn, shots=1, backend=AerSimulator())
    with pytest.raises(ValueError, match="sampler='ibm' needs a backend"):
        make_engine("primitives", qnn, shots=1, sampler="ibm")
    engine = make_engine("primitives", qnn, shots=1)
    encoded = engine.encode(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="expected rng"):
        engine.probabilities(encoded, np.zeros(8))
    with pytest.raises(ValueError, match=r"weights must have shape \(8,\) or \(B, 8\), got \(1,\)"):
        engine.probabilities(encoded, np.zeros(1), stream(0, "t"))
    with pytest.raises(ValueError, match="this engine's encode"):
        engine.probabilities(np.zeros((1, 2)), np.zeros(8), stream(0, "t"))


# --- density ---


def test_density_agrees_with_aer_on_the_same_transpiled_circuit(fez):
    """A chi-square test at level 1e-4 of the paper's circuit on FakeFez: 6 measured fractions of 8,192 shots each.

    The values without noise must fail the same test; otherwise the test could not see the noise.
    """
    backend, simulator, noise_model = fez
    qnn, shots = QNN(4), 8192
    rng = stream(4, "test-density")
    X, W = rng.uniform(0, 3, (3, 4)), rng.uniform(-3, 3, (2, 16))
    engine = make_engine("density", qnn, backend=backend, noise_model=noise_model)
    assert engine.strategy == "products"
    p = engine.probabilities(engine.encode(X), W)
    circuits = [bound(engine, x, w) for w in W for x in X]
    measured = odd_fractions(simulator, circuits, shots, seed=17).reshape(p.shape)
    assert chi_square_p_value(measured, p, shots) > LEVEL
    ideal = make_engine("statevector", qnn)
    assert chi_square_p_value(measured, ideal.probabilities(ideal.encode(X), W), shots) < LEVEL


def test_density_equals_aers_exact_density_matrix(manila):
    backend, _, noise_model = manila
    qnn = QNN(3)
    rng = stream(6, "test-density")
    X, W = rng.uniform(0, 3, (3, 3)), rng.uniform(-3, 3, (2, qnn.num_weights))
    engine = make_engine("density", qnn, backend=backend, noise_model=noise_model)
    p = engine.probabilities(engine.encode(X), W)
    readout = {
        e["gate_qubits"][0][0]: np.array(e["probabilities"])
        for e in noise_model.to_dict()["errors"]
        if e["type"] == "roerror"
    }
    confusion = np.ones((1, 1))
    for q in engine.layout:
        confusion = np.kron(readout[q].T, confusion)
    exact = AerSimulator(method="density_matrix", noise_model=noise_model)
    for b, w in enumerate(W):
        for i, x in enumerate(X):
            circuit = bound(engine, x, w)
            circuit.remove_final_measurements()
            circuit.save_probabilities(list(engine.layout))
            before_readout = exact.run(circuit).result().data()["probabilities"]
            expected = (confusion @ before_readout)[odd_parity(3)].sum()
            # Aer's super-operator of a noisy two-qubit gate loses about 1e-9 of the trace; ours keeps 1e-15.
            assert abs(p[b, i] - expected) < 1e-7


def test_without_noise_density_equals_the_statevector_engine():
    backend = AerSimulator(basis_gates=["rz", "rx", "sx", "x", "cz", "rzz", "id"])
    rng = stream(8, "test-density")
    for qnn in (QNN(2), QNN(3, 1, 1)):
        X, W = rng.uniform(0, 3, (70, qnn.num_features)), rng.uniform(-3, 3, (3, qnn.num_weights))
        engine = make_engine("density", qnn, backend=backend, noise_model=NoiseModel())
        exact = make_engine("statevector", qnn)
        p = engine.probabilities(engine.encode(X), W)
        assert np.abs(p - exact.probabilities(exact.encode(X), W)).max() < 1e-12
        part = engine.encode(X[[69, 3]])
        assert np.array_equal(p[1:, [69, 3]], engine.probabilities(part, W[1:]))


def test_a_circuit_that_mixes_inputs_and_weights_is_walked_pair_by_pair():
    """A transpiler may join RZ(x) RZ(w) into one gate; then no cut between inputs and weights exists."""
    x, w = ParameterVector("x", 2), ParameterVector("w", 2)
    feature_map, ansatz, mixed = QuantumCircuit(2), QuantumCircuit(2), QuantumCircuit(2)
    feature_map.h([0, 1])
    mixed.h([0, 1])
    for q in range(2):
        feature_map.rz(x[q], q)
        ansatz.rz(w[q], q)
        mixed.rz(x[q] + w[q], q)
    for circuit in (ansatz, mixed):
        circuit.h(0)
        circuit.cx(0, 1)
        circuit.rx(0.3 * w[0], 1)
    qnn = QNN(2, feature_map=feature_map, ansatz=ansatz)
    engine = make_engine(
        "density",
        qnn,
        backend=AerSimulator(),
        noise_model=NoiseModel(),
        transpiled=mixed.measure_all(inplace=False),
    )
    assert engine.strategy == "pairs"
    rng = stream(8, "test-density")
    X, W = rng.uniform(0, 3, (70, 2)), rng.uniform(-3, 3, (3, 2))
    exact = make_engine("statevector", qnn)
    p = engine.probabilities(engine.encode(X), W)
    assert np.abs(p - exact.probabilities(exact.encode(X), W)).max() < 1e-12
    ragged = engine.probabilities_ragged([engine.encode(X[[69, 3]])], W[None, 1:])
    assert np.array_equal(p[1:, [69, 3]], ragged[0])


def test_two_qubit_rotations_and_general_errors_walk_too():
    """RZZ as a native gate, and errors that hold for all qubits, agree with Aer's exact density matrix."""
    x, w = ParameterVector("x", 2), ParameterVector("w", 2)
    feature_map, ansatz = QuantumCircuit(2), QuantumCircuit(2)
    feature_map.sx([0, 1])
    feature_map.rzz(x[0] * x[1], 0, 1)
    ansatz.rx(w[0], 0)
    ansatz.rzz(w[1], 1, 0)
    ansatz.sx([0, 1])
    qnn = QNN(2, feature_map=feature_map, ansatz=ansatz)
    model = NoiseModel(basis_gates=["sx", "rx", "rzz"])
    model.add_all_qubit_quantum_error(depolarizing_error(0.05, 2), ["rzz"])
    model.add_all_qubit_quantum_error(depolarizing_error(0.02, 1), ["sx", "rx"])
    model.add_all_qubit_readout_error(ReadoutError([[0.97, 0.03], [0.08, 0.92]]))
    backend = AerSimulator(noise_model=model)
    engine = make_engine("density", qnn, backend=backend, noise_model=model, transpiled=qnn.measured())
    X, W = np.array([[0.4, 1.1], [2.0, -0.3]]), np.array([[0.3, -1.2]])
    p = engine.probabilities(engine.encode(X), W)[0]
    confusion = np.kron([[0.97, 0.08], [0.03, 0.92]], [[0.97, 0.08], [0.03, 0.92]])
    for i, x in enumerate(X):
        circuit = qnn.bind(x, W[0])
        circuit.save_probabilities()
        result = AerSimulator(method="density_matrix", noise_model=model).run(circuit).result()
        expected = (confusion @ result.data()["probabilities"])[odd_parity(2)].sum()
        assert abs(p[i] - expected) < 1e-9


def test_noisy_clients_share_a_call_and_keep_their_bits(manila):
    backend, _, noise_model = manila
    qnn = QNN(2)
    engine = make_engine("density", qnn, shots=100, backend=backend, noise_model=noise_model)
    assert engine.kind == "noisy"
    rng = stream(9, "test-density")
    encoded = [engine.encode(rng.uniform(0, 3, (n, 2))) for n in (5, 70, 1)]
    weights = rng.uniform(-3, 3, (3, 2, qnn.num_weights))
    together = engine.probabilities_ragged(encoded, weights, [stream(9, "c", i) for i in range(3)])
    for i in range(3):
        assert np.array_equal(together[i], engine.probabilities(encoded[i], weights[i], stream(9, "c", i)))


def test_result_carries_circuit_layout_and_calibration(manila, fez):
    backend, _, noise_model = manila
    engine = make_engine("density", QNN(2), backend=backend, noise_model=noise_model)
    again = make_engine("density", QNN(2), backend=backend, noise_model=noise_model)
    other = make_engine("density", QNN(2), backend=fez[0], noise_model=fez[2])
    assert engine.calibration_hash == again.calibration_hash != other.calibration_hash
    description = engine.describe()
    assert description["kind"] == "noisy"
    assert description["backend"] == "fake_manila"
    assert description["layout"] == list(engine.layout)
    assert len(description["calibration_hash"]) == 64
    assert set(engine.layout) <= set(engine.active)
    assert engine.transpiled.count_ops()["measure"] == 2


def test_the_hash_and_the_encodings_follow_a_given_noise_model(manila):
    backend, _, noise_model = manila
    qnn = QNN(2)
    noisy = make_engine("density", qnn, backend=backend, noise_model=noise_model)
    ideal = make_engine("density", qnn, backend=backend, noise_model=NoiseModel(), transpiled=noisy.transpiled)
    assert noisy.calibration_hash != ideal.calibration_hash
    with pytest.raises(ValueError, match="another model or engine"):
        ideal.probabilities(noisy.encode(np.zeros((1, 2))), np.zeros(8))


def test_noisy_engines_and_encodings_travel_together(manila):
    backend, _, noise_model = manila
    engine = make_engine("density", QNN(2), backend=backend, noise_model=noise_model, threads=1)
    encoded = engine.encode(np.full((3, 2), 0.4))
    there, sent = pickle.loads(pickle.dumps((engine, encoded)))
    assert np.array_equal(there.probabilities(sent, np.ones(8)), engine.probabilities(encoded, np.ones(8)))


def test_a_readout_error_of_several_qubits_is_refused(manila):
    backend, *_ = manila
    correlated = NoiseModel()
    correlated.add_readout_error(ReadoutError(0.9 * np.eye(4) + 0.025), [0, 1])
    with pytest.raises(ValueError, match=r"unsupported readout error of qubits \(0, 1\)"):
        make_engine("density", QNN(2), backend=backend, noise_model=correlated)


def test_bad_density_input_is_named(manila):
    backend, _, noise_model = manila
    qnn = QNN(2)
    engine = make_engine("density", qnn, backend=backend, noise_model=noise_model)
    with pytest.raises(ValueError, match=r"X must have shape \(n, 2\), got \(1, 3\)"):
        engine.encode(np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"weights must have shape \(8,\) or \(B, 8\), got \(3,\)"):
        engine.probabilities(engine.encode(np.zeros((1, 2))), np.zeros(3))
    with pytest.raises(ValueError, match="shots must be an integer >= 1"):
        make_engine("density", qnn, shots=0, backend=backend, noise_model=noise_model)
    unmeasured = qnn.circuit.copy()
    with pytest.raises(ValueError, match=r"measures bits .*expected 0 to 1"):
        make_engine("density", qnn, backend=backend, noise_model=noise_model, transpiled=unmeasured)
    delayed = qnn.circuit.copy()
    delayed.delay(10, 0)
    with pytest.raises(ValueError, match="unsupported instruction 'delay'"):
        make_engine("density", qnn, backend=backend, noise_model=noise_model, transpiled=delayed.measure_all(False))
    controlled = QuantumCircuit(2)
    controlled.crx(ParameterVector("w", 1)[0], 0, 1)
    qnn = QNN(2, ansatz=controlled)
    with pytest.raises(ValueError, match="unsupported gate 'crx'"):
        make_engine("density", qnn, backend=backend, noise_model=noise_model, transpiled=qnn.measured())
