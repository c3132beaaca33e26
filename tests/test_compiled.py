"""The compiled inner loop gives the bits of the NumPy one, and NumPy takes over where it cannot run."""

import dataclasses
import hashlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import federation
from qiskit.circuit.library import efficient_su2

from qfl_core.algorithm import server
from qfl_core.algorithm.client import Objective
from qfl_core.algorithm.losses import CROSS_ENTROPY, SQUARED_ERROR, Loss, correct, margin_of
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.optimizers import spsa_block
from qfl_core.base.errors import NotFiniteError
from qfl_core.base.registry import METHOD_NAMES
from qfl_core.base.streams import stream
from qfl_core.engines import compiled, inner_loop, make_engine, ordered
from qfl_core.engines.base import Descent, Drawing
from qfl_core.engines.encoded import KEPT, Arrangements, Encoded
from qfl_core.engines.qnn import QNN, odd_parity
from qfl_core.engines.statevector import StatevectorEngine
from qfl_core.engines.tables import MAX_TABLE, Tables, count_table
from qfl_core.runs.experiment import train

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def both(monkeypatch):
    """Return a function that calls another one twice: with compiled code, and with NumPy alone."""

    def call(function):
        found = []
        for setting, name in (("on", "numba"), ("off", "no")):
            monkeypatch.setenv(inner_loop.VARIABLE, setting)
            assert inner_loop.path_name().startswith(name)
            found.append(function())
        return found

    return call


def told(fed):
    """Return every record of a run as text, timings apart."""
    return [json.dumps({**r, "seconds": 0}, default=lambda v: v.item(), sort_keys=True) for r in train(fed)]


def drawn_by_compiled_code(rng, shots, p):
    """Return draws of compiled code: the stored rows are the probabilities, and the observable is 1."""
    out, n = np.empty((1, len(p))), len(p)
    samples = (np.array(p, dtype=float)[:, None], np.empty((0, 0)), np.arange(n), np.array([0, n]))
    nothing, labels = np.empty((0, 2, 1)), np.zeros(n, dtype=int)
    call = (samples, np.empty((1, 1, 0)), inner_loop.no_circuit(), np.ones((1, 1, 1)), shots)
    compiled.evaluate(*call, compiled.addresses([rng]), labels, nothing, inner_loop.NO_SIDES, np.empty((0, 1, 1)), out)
    return np.rint(out[0] * shots).astype(int)


# Draws


@pytest.mark.parametrize("shots", [1, 10, 1024, 10**6])
def test_draws_are_numpys_to_the_bit(shots):
    edges = [0.0, 1.0, 5e-324, 1e-300, 1e-17, 1 - 2**-53, 0.5, np.nextafter(0.5, 1), 30 / shots, 1 - 30 / shots]
    near = [np.nextafter(30 / shots, side) for side in (0, 1)]
    p = np.clip([*edges, *near, *stream(0, "p").uniform(size=200), *stream(1, "p").uniform(0, 60 / shots, 200)], 0, 1)
    ours, numpys = stream(2, "draws"), stream(2, "draws")
    for _ in range(3):
        assert np.array_equal(drawn_by_compiled_code(ours, shots, p), numpys.binomial(shots, p))
    assert ours.bit_generator.state == numpys.bit_generator.state


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 5000), st.integers(0, 2**32 - 1))
def test_draws_are_numpys_for_any_probability(p, shots, seed):
    assert np.array_equal(drawn_by_compiled_code(stream(seed, "x"), shots, p), stream(seed, "x").binomial(shots, p))


def test_code_that_draws_otherwise_is_not_used():
    class Other:
        addresses = staticmethod(compiled.addresses)

        @staticmethod
        def evaluate(*arguments):
            compiled.evaluate(*arguments)
            arguments[-1][0, -1] += 1 / 1024

    assert inner_loop._draws_like_numpy(compiled)
    assert not inner_loop._draws_like_numpy(Other)


# Observables and products


def test_sine_and_cosine_are_right():
    x = np.concatenate([stream(0, "x").uniform(-30, 30, 5000), np.arange(-8, 9) * np.pi / 4, [1e5, -3e5, 0.0]])
    sine, cosine = ordered.sincos(x)
    assert np.abs(sine - np.sin(x)).max() < 1e-15
    assert np.abs(cosine - np.cos(x)).max() < 1e-15
    sine, cosine = ordered.sincos(np.array([1e9, -1e100, 1.7e308]))
    assert np.abs(sine**2 + cosine**2 - 1).max() < 1e-15


@settings(deadline=None)
@given(st.integers(2, 5), st.integers(0, 3), st.sampled_from([0.0, 0.1, 3.0, 1e4, 1e9]), st.integers(0, 99))
def test_compiled_observables_and_products_have_numpys_bits(qubits, reps, scale, seed):
    engine, rng = StatevectorEngine(QNN(qubits, ansatz_reps=reps), 8), stream(seed, "theta")
    circuit = ordered.RyCircuit.of(engine._ansatz, np.flatnonzero(odd_parity(qubits)))
    theta = scale * rng.normal(size=(3, engine.num_weights))
    expected = circuit.observables(theta)
    found, scratch = np.empty_like(expected), compiled._scratch(circuit.arrays, theta.shape[1])
    for w, g in zip(theta, found, strict=True):
        compiled._observables(w, circuit.arrays, scratch, g)
    assert np.array_equal(found, expected)
    if scale < 1e4:
        assert np.abs(found - engine._entries(theta)).max() < 1e-12
    rows = rng.normal(size=(rng.integers(1, 300), found.shape[1]))
    p = np.empty((3, len(rows)))
    compiled._product(np.ascontiguousarray(rows.T), found, p)
    assert np.array_equal(p, np.clip(ordered.product(rows, found), 0, 1))


def test_a_product_adds_its_terms_from_the_first_to_the_last(monkeypatch):
    rows, G = stream(0, "rows").normal(size=(40, 136)), stream(0, "G").normal(size=(3, 136))
    expected = np.zeros((3, 40))
    for k in range(136):
        expected = expected + G[:, k, None] * rows[:, k]
    assert np.array_equal(ordered.product(rows, G), expected)
    assert np.array_equal(ordered.product(rows[:1], G[:1]), expected[:1, :1])
    monkeypatch.setattr(ordered, "MAX_PRODUCTS", 1)
    assert np.array_equal(ordered.product(rows, G), expected)


# Whole calls: shapes, batches and engines


def su2(num_qubits, reps):
    return efficient_su2(num_qubits, reps=reps)


ENGINES = {
    "rotations": lambda: make_engine("statevector", QNN(3), 50),
    "complex": lambda: make_engine("statevector", QNN(2, ansatz=su2(2, 1)), 50),
    "gates": lambda: StatevectorEngine(QNN(3), 50, strategy="gates"),
}


@pytest.mark.parametrize("name", ENGINES)
@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4), signs=st.integers(1, 5), seed=st.integers(0, 99))
def test_ragged_calls_have_the_same_bits_in_all_ways(name, sizes, signs, seed):
    engine, rng = ENGINES[name](), stream(seed, "shapes")
    whole = engine.encode(rng.uniform(0, 3, (60, engine.qnn.num_features)))
    parts = [whole.take(rng.integers(0, 60, n)) for n in sizes]
    parts[0] = whole if seed % 2 else parts[0]
    weights = rng.normal(size=(len(parts), signs, engine.num_weights))

    def rngs():
        return [stream(seed, "client", i) for i in range(len(parts))]

    with pytest.MonkeyPatch.context() as patch:
        together = engine.probabilities_ragged(parts, weights, rngs())
        alone = [engine.probabilities(e, w, g) for e, w, g in zip(parts, weights, rngs(), strict=True)]
        copied = [Encoded(e.rows, len(e), e.owner, e.pad) for e in parts]
        apart = engine.probabilities_ragged(copied, weights, rngs())
        patch.setenv(inner_loop.VARIABLE, "off")
        numpys = engine.probabilities_ragged(parts, weights, rngs())
    for i in range(len(parts)):
        for found in (together, alone, apart):
            assert np.array_equal(found[i], numpys[i])


def test_taken_samples_copy_nothing():
    engine = make_engine("statevector", QNN(2), 8)
    whole = engine.encode(np.ones((20, 2)) * np.arange(20)[:, None])
    part = whole.take(np.array([7, 3, 3])).take(np.array([2, 0]))
    assert part.base is whole.base
    assert np.array_equal(part.rows[:2], whole.rows[[3, 7]])
    assert part.rows.shape == (8, whole.rows.shape[1])
    assert not part.rows[2:].any()


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_run_has_the_same_records_compiled_and_in_numpy(both, name):
    fed = federation(method=METHODS[name], outer_period=1, mu=0.3, features=3)
    found, numpys = both(lambda: told(fed))
    assert found == numpys


@pytest.mark.parametrize(
    "changes", [{"engine": "density"}, {"loss": "squared_error", "shots": 1}, {"shots": 2**20 + 1}]
)
def test_a_run_of_another_kind_has_the_same_records_too(both, changes):
    fed = federation(outer_period=0, rounds=1, **changes)
    found, numpys = both(lambda: told(fed))
    assert found == numpys


def test_the_network_s_batches_of_one_have_the_bits_of_a_round(both, monkeypatch):
    fed = federation(mu=0.3)
    monkeypatch.setattr(server, "COHORT", 1)
    alone = both(lambda: told(fed))
    monkeypatch.setattr(server, "COHORT", 2)
    pairs = both(lambda: told(fed))
    monkeypatch.undo()
    assert {tuple(records) for records in (*alone, *pairs)} == {tuple(told(fed))}


def test_a_shift_and_changing_rates_are_part_of_the_block(both):
    engine, rng = make_engine("statevector", QNN(2), 30), stream(0, "block")
    encoded, y = engine.encode(rng.uniform(0, 3, (9, 2))), rng.integers(0, 2, 9)
    theta, shift = rng.normal(size=(2, 2, 8))
    rates = rng.uniform(0.1, 0.5, (2, 2, 4))
    directions = 1.0 - 2.0 * rng.integers(0, 2, (2, 4, 8))
    parts = [encoded.take(np.arange(4)), encoded.take(np.arange(4, 9))]

    def block(shift):
        rngs = [stream(1, "shots", i) for i in range(2)]
        asked = Drawing(parts, y, rngs, (CROSS_ENTROPY.value,), margin_of(30))
        return engine.descend(asked, Descent(theta, theta[0], 0.2, *rates, directions, shift))

    shifted, plain = block(shift), block(None)
    assert np.array_equal(plain, block(np.zeros((2, 8))))
    assert not np.array_equal(plain, shifted)


def test_weights_that_stop_being_finite_are_refused_in_both_ways(both):
    fed = federation()
    batch, rate = fed.batch(0), np.full(3, 1e308)
    objective = Objective(fed.model, batch.train, fed.initial_theta(), 0.0, fed.generators("x", 0, range(3)))

    def refused():
        with np.errstate(over="ignore"), pytest.raises(ValueError, match="weights must be finite angles, got") as error:
            spsa_block(np.full((3, 8), 1e308), objective, rate, rate, np.ones((3, 2, 8)))
        return type(error.value)

    assert both(refused) == [NotFiniteError, NotFiniteError]


def test_labels_other_than_0_and_1_are_refused():
    engine = make_engine("statevector", QNN(2), 8)
    asked = Drawing([engine.encode(np.ones((2, 2)))], np.array([0, 2]), [stream(0, "x")], (correct,), 0.1)
    with pytest.raises(ValueError, match="labels must be 0 or 1, got 0 to 2"):
        engine.means(asked, np.zeros((1, 1, 8)))


def test_samples_of_a_tuple_are_arranged_once_and_those_of_a_list_every_time():
    engine = make_engine("statevector", QNN(2), 8)
    whole, y = engine.encode(np.ones((6, 2))), np.array([0, 1, 1, 0])
    parts = (whole.take(np.arange(3)), whole.take(np.arange(3, 4)))
    kept, rngs = Arrangements(), [stream(0, "x")]
    samples, labels = kept.of(Drawing(parts, y, rngs, (), 0.1))
    assert kept.of(Drawing(parts, y, [], (correct,), 0.2))[0] is samples
    assert kept.of(Drawing(parts, y.copy(), rngs, (), 0.1))[0] is not samples
    assert kept.of(Drawing(list(parts), y, rngs, (), 0.1))[0] is not samples
    y[0] = 5
    assert labels.tolist() == [0, 1, 1, 0]  # an address that was checked cannot change any more
    for n in range(1, KEPT + 1):
        kept.of(Drawing((whole,) * n, np.zeros(6 * n, dtype=int), rngs, (), 0.1))
    assert len(kept._kept) == KEPT
    assert pickle.loads(pickle.dumps(kept))._kept == []


# Tables


@pytest.mark.parametrize("function", [CROSS_ENTROPY.value, SQUARED_ERROR.value, correct])
@pytest.mark.parametrize("shots", [1, 7, 1024])
def test_a_table_holds_the_functions_values(function, shots):
    counts = stream(0, "counts").integers(0, shots + 1, (3, 50))
    y = stream(0, "y").integers(0, 2, 50)
    table = count_table(function, shots, margin_of(shots))
    assert np.array_equal(table[y, counts], function(counts / shots, y, margin_of(shots)))


def centred(p, y, margin):
    return (p - p.mean()) ** 2


def too_strict(p, y, margin):
    if (p == 0).any():
        raise ValueError("p must be positive")
    return p


@pytest.mark.parametrize("function", [centred, too_strict, lambda p, y, margin: 1.0])
def test_a_function_that_has_no_table_is_computed_by_numpy(function):
    assert count_table(function, 64, margin_of(64)) is None
    assert Tables(64).of((correct, function), 0.1) is None
    assert count_table(correct, MAX_TABLE + 1, 0.1) is None


def test_a_loss_without_a_table_trains_all_the_same(both):
    fed = federation(rounds=1)
    fed = dataclasses.replace(fed, model=dataclasses.replace(fed.model, loss=Loss(centred)))
    found, numpys = both(lambda: told(fed))
    assert found == numpys


# Where there is no compiled code

HIDDEN = """
import hashlib, sys
sys.modules["numba"] = None
sys.path.insert(0, {tests!r})
from planted import federation
from test_client import told
from qfl_core.engines.inner_loop import path_name
print(path_name(), hashlib.sha256("".join(told(federation())).encode()).hexdigest())
"""


@pytest.mark.outside
def test_a_run_without_numba_gives_the_same_records():
    code = HIDDEN.format(tests=str(TESTS))
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS.parent)
    expected = hashlib.sha256("".join(told(federation())).encode()).hexdigest()
    assert asked.stdout.split() == ["no", expected]


def test_a_cache_that_fails_does_not_stop_the_compiler(monkeypatch):
    asked = []

    def njit(signature, **options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise OSError("read-only file system")
        return lambda function: function

    monkeypatch.setattr(compiled, "njit", njit)
    assert compiled._compiled(len, "signature") is len
    assert asked == [True, False]


@pytest.mark.outside
def test_exact_engines_do_not_load_numba():
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from test_client import federation, told\n"
        "told(federation(shots=None)); print('numba' in sys.modules)"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS.parent)
    assert asked.stdout == "False\n"


def test_the_record_says_which_way_made_the_run(both):
    engine = make_engine("statevector", QNN(2), 8)
    found, numpys = both(lambda: engine.describe()["compiled"])
    assert found.startswith("numba 0.")
    assert numpys == make_engine("statevector", QNN(2)).describe()["compiled"] == "no"
