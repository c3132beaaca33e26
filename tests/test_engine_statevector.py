"""The compiled engine agrees with Qiskit to 1e-12, its gradients are right, and batches do not change its bits."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter, ParameterVector
from qiskit.circuit.library import efficient_su2, pauli_feature_map, real_amplitudes, z_feature_map
from qiskit.quantum_info import Statevector

from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.blas import blas_is_position_free
from qfl_core.engines.qnn import QNN, odd_parity
from qfl_core.engines.statevector import STRATEGIES

TOLERANCE = 1e-12
seeds = st.integers(0, 2**32 - 1)

FIXED = ["h", "x", "y", "z", "s", "sdg", "t", "tdg", "sx", "sxdg"]
FIXED_2 = ["cx", "cy", "cz", "ch", "swap", "iswap", "dcx", "ecr", "csx"]
ROTATIONS = ["rx", "ry", "rz", "p"]
ROTATIONS_2 = ["rxx", "ryy", "rzz", "rzx", "crx", "cry", "crz", "cp"]


def qiskit_probabilities(qnn, X, W):
    odd = odd_parity(qnn.num_qubits)
    return np.array([[Statevector(qnn.bind(x, w)).probabilities()[odd].sum() for x in X] for w in W])


def random_circuit(rng, num_qubits, name, num_parameters, num_gates):
    """Return a circuit of standard gates; every parameter appears, some more than once and inside expressions."""
    circuit = QuantumCircuit(num_qubits)
    parameters = ParameterVector(name, num_parameters)

    def angle():
        p, q = parameters[int(rng.integers(num_parameters))], parameters[int(rng.integers(num_parameters))]
        return [p, 2 * p - 0.3, p * q, (np.pi - p) * (np.pi - q), p.sin(), q / 3 + p, 0.7][int(rng.integers(7))]

    def place(kinds, count, *arguments):
        qubits = [int(q) for q in rng.choice(num_qubits, count, replace=False)]
        getattr(circuit, kinds[int(rng.integers(len(kinds)))])(*arguments, *qubits)

    for p in parameters:
        place(ROTATIONS, 1, p)
    for _ in range(num_gates):
        kind = int(rng.integers(7 if num_qubits > 2 else 5 if num_qubits > 1 else 3))
        if kind == 0:
            place(FIXED, 1)
        elif kind == 1:
            place(ROTATIONS, 1, angle())
        elif kind == 2:
            circuit.u(angle(), 0.4, angle(), int(rng.integers(num_qubits)))
        elif kind == 3:
            place(FIXED_2, 2)
        elif kind == 4:
            place(ROTATIONS_2, 2, angle())
        elif kind == 5:
            place(["ccx", "cswap", "ccz"], 3)
        else:
            circuit.barrier()
    return circuit


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_qubits=st.integers(1, 10), strategy=st.sampled_from(STRATEGIES))
def test_random_user_circuits_equal_qiskits_statevector(seed, num_qubits, strategy):
    strategy = "auto" if strategy == "products" and num_qubits > 6 else strategy
    rng = np.random.default_rng(seed)
    features, weights = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    qnn = QNN(
        features,
        feature_map=random_circuit(rng, num_qubits, "x", features, 12),
        ansatz=random_circuit(rng, num_qubits, "w", weights, 12),
    )
    X, W = rng.uniform(-7, 7, (3, features)), rng.uniform(-7, 7, (2, weights))
    engine = make_engine("statevector", qnn, strategy=strategy)
    assert np.abs(engine.probabilities(engine.encode(X), W) - qiskit_probabilities(qnn, X, W)).max() < TOLERANCE


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    num_qubits=st.integers(1, 10),
    kind=st.sampled_from(["zz", "z"]),
    reps=st.integers(1, 2),
    ansatz_reps=st.integers(0, 3),
)
def test_built_in_models_equal_qiskits_statevector(seed, num_qubits, kind, reps, ansatz_reps):
    rng = np.random.default_rng(seed)
    qnn = QNN(num_qubits, reps, ansatz_reps, feature_map="z" if num_qubits == 1 else kind)
    X, W = rng.uniform(-7, 7, (2, num_qubits)), rng.uniform(-7, 7, (2, qnn.num_weights))
    engine = make_engine("statevector", qnn)
    assert engine.strategy == ("products" if num_qubits <= 6 else "unitary")
    assert np.abs(engine.probabilities(engine.encode(X), W) - qiskit_probabilities(qnn, X, W)).max() < TOLERANCE


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_qubits", [2, 4, 7])
def test_complex_ansatz_and_pauli_map_equal_qiskits_statevector(strategy, num_qubits, rng):
    qnn = QNN(
        num_qubits,
        feature_map=pauli_feature_map(num_qubits, reps=1, paulis=["Z", "XX", "YZ"]),
        ansatz=efficient_su2(num_qubits, reps=1),
    )
    X, W = rng.uniform(-4, 4, (3, num_qubits)), rng.uniform(-4, 4, (2, qnn.num_weights))
    engine = make_engine("statevector", qnn, strategy=strategy)
    assert np.abs(engine.probabilities(engine.encode(X), W) - qiskit_probabilities(qnn, X, W)).max() < TOLERANCE


def test_eleven_qubits_walk_gate_by_gate_and_equal_qiskit(rng):
    qnn = QNN(11, 1, 1)
    X, W = rng.uniform(0, 3, (2, 11)), rng.uniform(-3, 3, (1, qnn.num_weights))
    engine = make_engine("statevector", qnn)
    assert engine.strategy == "gates"
    assert np.abs(engine.probabilities(engine.encode(X), W) - qiskit_probabilities(qnn, X, W)).max() < TOLERANCE


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chunks_do_not_change_the_values(strategy, rng):
    qnn = QNN(6, 1, 1)
    X, W = rng.uniform(0, 3, (40, 6)), rng.uniform(-3, 3, (9, qnn.num_weights))
    small = make_engine("statevector", qnn, strategy=strategy, memory=2**20)
    large = make_engine("statevector", qnn, strategy=strategy)
    p = small.probabilities(small.encode(X), W)
    assert np.array_equal(p, large.probabilities(large.encode(X), W))


@pytest.fixture
def rng():
    return stream(7, "test-engine")


# --- bits ---


@settings(max_examples=60, deadline=None)
@given(
    seed=seeds,
    samples=st.integers(1, 90),
    thetas=st.integers(1, 30),
    strategy=st.sampled_from(STRATEGIES),
    model=st.sampled_from(["real", "complex"]),
)
def test_a_probability_has_the_same_bits_alone_and_in_any_batch(seed, samples, thetas, strategy, model):
    rng = np.random.default_rng(seed)
    qnn = QNN(3, ansatz="real_amplitudes" if model == "real" else efficient_su2(3, reps=1))
    engine = make_engine("statevector", qnn, strategy=strategy)
    X, W = rng.uniform(-3, 3, (samples, 3)), rng.uniform(-3, 3, (thetas, qnn.num_weights))
    whole = engine.probabilities(engine.encode(X), W)
    rows = rng.choice(samples, int(rng.integers(1, samples + 1)), replace=False)
    columns = rng.choice(thetas, int(rng.integers(1, thetas + 1)), replace=False)
    expected = whole[np.ix_(columns, rows)]
    assert np.array_equal(engine.probabilities(engine.encode(X[rows]), W[columns]), expected)
    assert np.array_equal(engine.probabilities(engine.encode(X).take(rows), W[columns]), expected)
    assert np.array_equal(engine.probabilities(engine.encode(X[rows[:1]]), W[columns[0]]), expected[0, :1])


def test_thousands_of_samples_and_the_bits_of_a_few(rng):
    qnn = QNN(4)
    engine = make_engine("statevector", qnn)
    encoded, W = engine.encode(rng.uniform(0, 3, (3000, 4))), rng.uniform(-3, 3, (20, 16))
    whole = engine.probabilities(encoded, W)
    for size in (1, 7, 50, 333, 1501):
        rows = rng.choice(3000, size, replace=False)
        for count in (1, 2, 5, 13):
            assert np.array_equal(engine.probabilities(encoded.take(rows), W[:count]), whole[:count, rows])


@pytest.mark.parametrize("tiles_free", [True, False])
def test_seven_qubits_keep_their_bits_across_tiles(rng, monkeypatch, tiles_free):
    if not tiles_free:
        monkeypatch.setattr("qfl_core.engines.statevector.tiles_are_position_free", lambda *shape: False)
    qnn = QNN(7, 1, 2)
    engine = make_engine("statevector", qnn)
    assert engine.strategy == "unitary"
    encoded, W = engine.encode(rng.uniform(0, 3, (400, 7))), rng.uniform(-3, 3, (3, qnn.num_weights))
    whole = engine.probabilities(encoded, W)
    for size in (1, 63, 64, 65, 250):
        rows = rng.choice(400, size, replace=False)
        assert np.array_equal(engine.probabilities(encoded.take(rows), W[1:]), whole[1:, rows])


def test_the_slower_product_of_fixed_order_is_exact_too(rng, monkeypatch):
    qnn = QNN(3)
    engine = make_engine("statevector", qnn)
    encoded, W = engine.encode(rng.uniform(0, 3, (20, 3))), rng.uniform(-3, 3, (5, qnn.num_weights))
    fast = engine.probabilities(encoded, W)
    monkeypatch.setattr("qfl_core.engines.blas.blas_is_position_free", lambda width: False)
    slow = engine.probabilities(encoded, W)
    assert np.abs(slow - fast).max() < 1e-14
    assert np.array_equal(slow[2:3, 4:9], engine.probabilities(encoded.take(np.arange(4, 9)), W[2:3]))
    assert isinstance(blas_is_position_free(36), bool)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, sizes=st.lists(st.integers(1, 70), min_size=1, max_size=12), shots=st.sampled_from([None, 64]))
def test_clients_of_different_sizes_share_a_call_and_keep_their_bits(seed, sizes, shots):
    rng = np.random.default_rng(seed)
    qnn = QNN(2)
    engine = make_engine("statevector", qnn, shots=shots)
    encoded = [engine.encode(rng.uniform(0, 3, (n, 2))) for n in sizes]
    weights = rng.uniform(-3, 3, (len(sizes), 2, qnn.num_weights))
    together = engine.probabilities_ragged(encoded, weights, [stream(1, "c", i) for i in range(len(sizes))])
    assert [p.shape for p in together] == [(2, n) for n in sizes]
    for i in range(len(sizes)):
        alone = engine.probabilities(encoded[i], weights[i], stream(1, "c", i))
        single = engine.probabilities_ragged([encoded[i]], weights[i : i + 1], [stream(1, "c", i)])
        assert np.array_equal(alone, together[i])
        assert np.array_equal(single[0], together[i])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ragged_calls_work_in_every_strategy(strategy, rng):
    qnn = QNN(3)
    engine = make_engine("statevector", qnn, strategy=strategy)
    encoded = [engine.encode(rng.uniform(0, 3, (n, 3))) for n in (5, 1, 9)]
    weights = rng.uniform(-3, 3, (3, 2, qnn.num_weights))
    for e, w, p in zip(encoded, weights, engine.probabilities_ragged(encoded, weights), strict=True):
        assert np.array_equal(engine.probabilities(e, w), p)


# --- gradients ---


@settings(max_examples=20, deadline=None)
@given(seed=seeds, num_qubits=st.integers(1, 4), strategy=st.sampled_from(STRATEGIES))
def test_gradient_of_random_circuits_equals_central_differences(seed, num_qubits, strategy):
    rng = np.random.default_rng(seed)
    qnn = QNN(
        num_qubits,
        feature_map=z_feature_map(num_qubits, reps=1),
        ansatz=random_circuit(rng, num_qubits, "w", 3, 10),
    )
    engine = make_engine("statevector", qnn, strategy=strategy)
    encoded, W = engine.encode(rng.uniform(-3, 3, (4, num_qubits))), rng.uniform(-2, 2, (2, 3))
    gradient = engine.gradient(encoded, W)
    assert gradient.shape == (2, 4, 3)
    # Differences of fourth order: with h = 1e-3 their error is below 1e-8 for the frequencies of these angles.
    h = 1e-3 * np.eye(3)
    for j in range(3):
        p = [engine.probabilities(encoded, W + m * h[j]) for m in (-2, -1, 1, 2)]
        numeric = (p[0] - 8 * p[1] + 8 * p[2] - p[3]) / 12e-3
        assert np.abs(gradient[:, :, j] - numeric).max() < 1e-6


def test_gradient_of_the_paper_model_is_the_two_term_shift(rng):
    qnn = QNN(4)
    engine = make_engine("statevector", qnn)
    X, w = rng.uniform(0, 3, (3, 4)), rng.uniform(-3, 3, 16)
    shift = np.pi / 2 * np.eye(16)
    expected = (qiskit_probabilities(qnn, X, w + shift) - qiskit_probabilities(qnn, X, w - shift)).T / 2
    assert engine.gradient(engine.encode(X), w).shape == (3, 16)
    assert np.abs(engine.gradient(engine.encode(X), w) - expected).max() < TOLERANCE


@settings(max_examples=20, deadline=None)
@given(seed=seeds, num_qubits=st.integers(1, 4), strategy=st.sampled_from(STRATEGIES), count=st.integers(1, 20))
def test_the_pullback_is_the_weighted_sum_of_gradients(seed, num_qubits, strategy, count):
    rng = np.random.default_rng(seed)
    feature_map = z_feature_map(num_qubits, reps=1)
    ansatzes = (real_amplitudes(num_qubits, reps=2), random_circuit(rng, num_qubits, "w", 3, 10))
    for ansatz in ansatzes:
        qnn = QNN(num_qubits, feature_map=feature_map, ansatz=ansatz)
        engine = make_engine("statevector", qnn, strategy=strategy)
        encoded = engine.encode(rng.uniform(-3, 3, (count, num_qubits)))
        w, cotangent = rng.uniform(-2, 2, qnn.num_weights), rng.normal(size=count)
        expected = cotangent @ engine.gradient(encoded, w)
        assert np.abs(engine.pullback(encoded, w, cotangent) - expected).max() < 1e-11


# --- threads and memory ---


def test_threads_are_limited_inside_a_call_and_restored_after(rng, monkeypatch):
    from threadpoolctl import threadpool_info

    def blas():
        return [d["num_threads"] for d in threadpool_info() if d["user_api"] == "blas"]

    before = blas()
    qnn = QNN(2)
    engine = make_engine("statevector", qnn, threads=1)
    seen = []
    original = engine._exact
    monkeypatch.setattr(engine, "_exact", lambda *a: (seen.append(blas()), original(*a))[1])
    engine.probabilities(engine.encode(np.zeros((1, 2))), np.zeros(qnn.num_weights))
    assert seen == [[1] * len(before)]
    assert blas() == before


def test_bits_do_not_depend_on_the_number_of_threads(rng):
    qnn = QNN(4)
    X, W = rng.uniform(0, 3, (1500, 4)), rng.uniform(-3, 3, (20, 16))
    one, all_of_them = make_engine("statevector", qnn, threads=1), make_engine("statevector", qnn)
    p = one.probabilities(one.encode(X), W)
    assert np.array_equal(p, all_of_them.probabilities(all_of_them.encode(X), W))


def test_past_memory_is_a_clear_error():
    with pytest.raises(ValueError, match="15 qubits need at least 3,080,192 bytes, more than memory"):
        make_engine("statevector", QNN(15, 1, 0, feature_map="z"), memory=2**20)
    engine = make_engine("statevector", QNN(4), memory=2**20)
    with pytest.raises(ValueError, match="encoding 5000 samples needs 5,440,000 bytes"):
        engine.encode(np.zeros((5000, 4)))


# --- bad input ---


def make(**options):
    return make_engine("statevector", QNN(2), **options)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 3)), r"X must have shape \(n, 2\), got \(3, 3\)"),
        (np.zeros(2), r"X must have shape \(n, 2\), got \(2,\)"),
        (np.array([[0, np.nan]]), r"X must be finite angles, got nan at index \(0, 1\)"),
        (np.array([[0, np.inf]]), r"X must be finite angles, got inf at index \(0, 1\)"),
        (np.array([["a", "b"]]), "X must be real numbers, got dtype <U1"),
        (np.zeros((1, 2), complex), "X must be real numbers, got dtype complex128"),
    ],
)
def test_bad_features_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        make().encode(X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(7), r"weights must have shape \(8,\) or \(B, 8\), got \(7,\)"),
        (np.zeros((2, 1)), r"weights must have shape \(8,\) or \(B, 8\), got \(2, 1\)"),
        (np.zeros((8, 2)), r"got \(8, 2\)"),
        (np.zeros((1, 1, 8)), r"got \(1, 1, 8\)"),
        (np.float64(0.0), r"got \(\)"),
        (np.full(8, np.nan), r"weights must be finite angles, got nan at index \(0,\)"),
        (np.full(8, -np.inf), r"weights must be finite angles, got -inf at index \(0,\)"),
    ],
)
def test_bad_weights_are_named(weights, message):
    engine = make()
    encoded = engine.encode(np.zeros((3, 2)))
    for call in (engine.probabilities, engine.gradient):
        with pytest.raises(ValueError, match=message):
            call(encoded, weights)


@pytest.mark.parametrize("shots", [0, -1, 1.5, True, "many"])
def test_bad_shots_are_named(shots):
    with pytest.raises(ValueError, match=f"shots must be an integer >= 1 or None .exact., got {shots!r}"):
        make(shots=shots)


def test_more_shots_than_numpy_can_draw_are_named():
    with pytest.raises(ValueError, match="shots must be at most"):
        make(shots=10**30)


def test_shots_need_a_generator():
    engine = make(shots=8)
    with pytest.raises(ValueError, match="shots=8 draws at random: expected rng"):
        engine.probabilities(engine.encode(np.zeros((1, 2))), np.zeros(8))


def test_unknown_engine_strategy_and_options_are_named():
    with pytest.raises(ValueError, match="unknown engine 'qpu'; expected one of"):
        make_engine("qpu", QNN(2))
    with pytest.raises(ValueError, match="unknown strategy 'fast'"):
        make(strategy="fast")
    with pytest.raises(ValueError, match="threads must be an integer >= 1 or None, got 0"):
        make(threads=0)
    with pytest.raises(ValueError, match="memory must be at least"):
        make(memory=10)
    with pytest.raises(ValueError, match="qnn must be a QNN, got QuantumCircuit"):
        make_engine("statevector", QNN(2).circuit)


def test_foreign_encodings_are_refused():
    with pytest.raises(ValueError, match="another model or engine"):
        make().probabilities(make().encode(np.zeros((1, 2))), np.zeros(8))
    with pytest.raises(ValueError, match="got ndarray"):
        make().probabilities(np.zeros((1, 2)), np.zeros(8))


def test_engines_for_the_same_model_share_encodings():
    qnn = QNN(2)
    exact, shots = make_engine("statevector", qnn), make_engine("statevector", qnn, shots=8)
    encoded = exact.encode(np.ones((3, 2)))
    drawn = shots.probabilities(encoded, np.ones(8), stream(0, "t"))
    assert np.array_equal(drawn, shots.probabilities(shots.encode(np.ones((3, 2))), np.ones(8), stream(0, "t")))
    with pytest.raises(ValueError, match="another model or engine"):
        make_engine("statevector", qnn, strategy="gates").probabilities(encoded, np.ones(8))


def test_bad_ragged_calls_are_named():
    engine = make(shots=4)
    encoded = [engine.encode(np.zeros((1, 2)))] * 2
    with pytest.raises(ValueError, match="weights are for 3 clients, expected 2"):
        engine.probabilities_ragged(encoded, np.zeros((3, 2, 8)))
    with pytest.raises(ValueError, match=r"weights must have shape \(clients, S, 8\), got \(2, 8\)"):
        engine.probabilities_ragged(encoded, np.zeros((2, 8)))
    with pytest.raises(ValueError, match="one generator for each of the 2 clients"):
        engine.probabilities_ragged(encoded, np.zeros((2, 2, 8)), stream(0, "x"))
    with pytest.raises(ValueError, match="encoded must be a list of encoded datasets, one per client, got Encoded"):
        engine.probabilities_ragged(encoded[0], np.zeros((1, 2, 8)))


def test_bad_indices_are_named():
    encoded = make().encode(np.zeros((3, 2)))
    for indices in ([3], [-1], [0.5], [[0]]):
        with pytest.raises(ValueError, match="indices must"):
            encoded.take(indices)


def test_unsupported_instructions_are_named():
    x = Parameter("x")
    for name in ("measure", "reset"):
        feature_map = QuantumCircuit(1, 1)
        feature_map.rx(x, 0)
        feature_map.measure(0, 0) if name == "measure" else feature_map.reset(0)
        with pytest.raises(ValueError, match=f"unsupported instruction '{name}'"):
            make_engine("statevector", QNN(1, feature_map=feature_map, ansatz=real_amplitudes(1)))


def test_composite_gates_are_opened_and_known_by_content_not_by_name(rng):
    inner = QuantumCircuit(2, name="ry")
    w = ParameterVector("w", 2)
    inner.rx(w[0], 0)
    inner.crz(2 * w[1], 0, 1)
    ansatz = QuantumCircuit(3)
    ansatz.append(inner.to_gate(), [2, 0])
    ansatz.append(inner.to_instruction(), [1, 2])
    ansatz.h([0, 1, 2])
    qnn = QNN(3, 1, ansatz=ansatz)
    engine = make_engine("statevector", qnn)
    X, W = rng.uniform(0, 3, (4, 3)), rng.uniform(-3, 3, (2, 2))
    expected = qiskit_probabilities(qnn, X, W)
    assert np.abs(engine.probabilities(engine.encode(X), W) - expected).max() < TOLERANCE


def test_no_samples_and_no_weights_are_legal(rng):
    engine = make()
    assert engine.probabilities(engine.encode(np.zeros((0, 2))), np.zeros((3, 8))).shape == (3, 0)
    fixed = QuantumCircuit(2)
    fixed.cx(0, 1)
    qnn = QNN(2, ansatz=fixed)
    engine = make_engine("statevector", qnn)
    X = rng.uniform(0, 3, (4, 2))
    p = engine.probabilities(engine.encode(X), np.zeros((2, 0)))
    assert np.abs(p - qiskit_probabilities(qnn, X, np.zeros((2, 0)))).max() < TOLERANCE
    assert engine.gradient(engine.encode(X), np.zeros(0)).shape == (4, 0)


def test_describe_says_what_ran():
    assert make().describe() == {
        "engine": "statevector",
        "kind": "exact",
        "shots": None,
        "compiled": "no",
        "strategy": "products",
        "threads": None,
    }
    assert make(shots=8).kind == "shots"


@pytest.mark.parametrize("threads", [None, 1])
def test_engines_and_encodings_travel_together(rng, threads):
    engine = make_engine("statevector", QNN(2), threads=threads)
    encoded, theta = engine.encode(rng.uniform(size=(3, 2))), rng.uniform(size=(2, 8))
    there, sent = pickle.loads(pickle.dumps((engine, encoded)))
    assert np.array_equal(there.probabilities(sent, theta), engine.probabilities(encoded, theta))


def test_a_quotient_of_parameters_compiles_at_once(rng):
    x = ParameterVector("x", 2)
    circuit = QuantumCircuit(2)
    circuit.h([0, 1])
    circuit.ry(x[0] / (2 + x[1].sin()), 0)
    circuit.ry(x[1].arctan(), 1)
    circuit.cx(0, 1)
    qnn = QNN(2, feature_map=circuit, ansatz_reps=1)
    X, theta = rng.uniform(-3, 3, (4, 2)), rng.uniform(-3, 3, (2, 4))
    engine = make_engine("statevector", qnn)
    assert np.abs(engine.probabilities(engine.encode(X), theta) - qiskit_probabilities(qnn, X, theta)).max() < 1e-12


@pytest.mark.parametrize("angle", [lambda x: x.log(), lambda x: 1j * x, lambda x: 1 / (x - x.abs())])
def test_an_angle_that_is_no_finite_real_number_is_named(angle):
    x = Parameter("x")
    circuit = QuantumCircuit(1)
    circuit.ry(angle(x), 0)
    engine = make_engine("statevector", QNN(1, feature_map=circuit))
    with pytest.raises(ValueError, match="the angle .* is not a finite real number"):
        engine.encode([[-1.0], [1.0]])


@pytest.mark.parametrize("given", [5, "ab", [1, 2], np.random.RandomState(0)])
def test_what_is_no_generator_is_named(given):
    engine = make_engine("statevector", QNN(2), 10)
    with pytest.raises(ValueError, match="rng must be a Generator"):
        engine.probabilities(engine.encode(np.zeros((3, 2))), np.zeros((2, 8)), given)


def test_a_strategy_past_memory_is_refused_before_it_allocates():
    with pytest.raises(ValueError, match="strategy='products' with 13 qubits needs at least"):
        make_engine("statevector", QNN(13, feature_map="z", ansatz_reps=1), strategy="products")
