"""An accuracy draws on which side of one half a frequency falls: the distribution of counts, one number per sample."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import federation
from scipy.stats import binom, chi2_contingency, chisquare

from qfl_core.algorithm.losses import SQUARED_ERROR, correct, cross_entropy, hit, margin_of
from qfl_core.algorithm.model import Model
from qfl_core.algorithm.samples import Samples
from qfl_core.base.streams import stream
from qfl_core.engines import inner_loop, make_engine
from qfl_core.engines.base import Drawing
from qfl_core.engines.encoded import Encoded
from qfl_core.engines.majority import MAX_MAJORITY, majority
from qfl_core.engines.qnn import QNN
from qfl_core.engines.statevector import StatevectorEngine
from qfl_core.runs.experiment import train


def exact(shots, p):
    """Return P(count / shots >= 1/2) by SciPy."""
    with np.errstate(all="ignore"):  # SciPy's own warnings at p = 0 and 1
        return binom.sf((shots + 1) // 2 - 1, shots, p)


# The table


@pytest.mark.parametrize("shots", [1, 2, 3, 16, 71, 72, 73, 100, 1023, 1024, 50_000, MAX_MAJORITY - 1, MAX_MAJORITY])
def test_the_table_is_the_binomial_tail(shots):
    table, near = majority(shots), np.linspace(-10, 10, 4001) / (2 * np.sqrt(shots))
    p = np.clip(np.concatenate([np.linspace(0, 1, 4001), 0.5 + near]), 0, 1)
    assert np.abs(table(p) - exact(shots, p)).max() < 1e-11
    assert table(np.array([0.0, -1e-16, 1.0, 1 + 1e-15])).tolist() == [0.0, 0.0, 1.0, 1.0]


@settings(deadline=None)
@given(st.integers(1, 5000), st.floats(0, 1))
def test_the_table_is_the_binomial_tail_for_any_number_of_shots(shots, p):
    assert abs(majority(shots)(np.array([p]))[0] - exact(shots, p)) < 1e-11


def test_a_tie_counts_as_class_1():
    p = np.array([0.3])
    assert abs(majority(2)(p)[0] - (1 - 0.7**2)) < 1e-15
    assert correct(np.array([0.5]), np.array([1]), 0.0) == 1


def test_too_many_shots_have_no_table():
    assert majority(MAX_MAJORITY + 1) is None


# The draws


def scored(engine, encoded, y, weights, rngs):
    return engine.accuracies(Drawing(encoded, y, rngs, (), 0.0), weights)


@pytest.mark.parametrize("setting", ["on", "off"])
@pytest.mark.parametrize("shots", [1, 2, 25, 1024])
def test_classes_are_distributed_as_those_of_counts(monkeypatch, setting, shots):
    monkeypatch.setenv(inner_loop.VARIABLE, setting)
    engine, thetas = make_engine("statevector", QNN(2), shots), stream(0, "theta").normal(size=(6, 8))
    whole = engine.encode(stream(0, "x").uniform(0, 3, (5, 2)))
    p, times = engine.exact().probabilities(whole, thetas), 1500
    label = np.array([1])
    drawn, counted = np.empty(p.shape), np.empty(p.shape)
    for i in range(5):
        one = [whole.take(np.array([i]))] * times
        rngs = [stream(shots, "side", i, k) for k in range(times)]
        weights = np.broadcast_to(thetas, (times, *thetas.shape))
        drawn[:, i] = scored(engine, one, np.repeat(label, times), weights, rngs)[0].sum(axis=0)
        rng = stream(shots, "count", i)
        counted[:, i] = (2 * rng.binomial(shots, p[:, i], (times, len(p))) >= shots).sum(axis=0)
    chance = exact(shots, p)
    certain = (chance < 1e-12) | (chance > 1 - 1e-12)
    assert np.array_equal(drawn[certain], counted[certain])
    for n, m, q in zip(drawn[~certain], counted[~certain], chance[~certain], strict=True):
        expected = times * np.array([q, 1 - q])
        if expected.min() >= 5:
            # Fixed seeds, about 100 comparisons: 1e-4 is not met by chance.
            assert chisquare([n, times - n], expected).pvalue > 1e-4
            assert chi2_contingency([[n, times - n], [m, times - m]]).pvalue > 1e-4


def test_one_uniform_number_is_drawn_per_sample_and_theta():
    engine = make_engine("statevector", QNN(2), 10)
    encoded, theta = engine.encode(stream(0, "x").uniform(0, 3, (7, 2))), stream(0, "theta").normal(size=(1, 3, 8))
    rng, other = stream(0, "draw"), stream(0, "draw")
    y = stream(0, "y").integers(0, 2, 7)
    found = scored(engine, [encoded], y, theta, [rng])
    odd = other.random((3, 7)) < majority(10)(engine.exact().probabilities(encoded, theta[0]))
    assert np.array_equal(found[:, 0], [(odd == (y == 1)).mean(axis=1), (odd & (y == 1)).mean(axis=1)])
    assert rng.bit_generator.state == other.bit_generator.state


def test_certain_classes_use_the_stream_too():
    engine = make_engine("statevector", QNN(2), 1024)
    sure = engine.encode(np.zeros((4, 2)))
    rng, other = stream(0, "draw"), stream(0, "draw")
    theta = np.zeros((1, 1, 8))
    assert not majority(1024)(engine.exact().probabilities(sure, theta[0])).any()
    scored(engine, [sure], np.zeros(4, dtype=int), theta, [rng])
    other.random(4)
    assert rng.bit_generator.state == other.bit_generator.state


ENGINES = {
    "rotations": lambda shots: make_engine("statevector", QNN(3), shots),
    "gates": lambda shots: StatevectorEngine(QNN(3), shots, strategy="gates"),
}


@pytest.mark.parametrize("name", ENGINES)
@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    thetas=st.integers(1, 5),
    shots=st.sampled_from([1, 2, 16, 64, 1024, 2**20]),
    seed=st.integers(0, 99),
)
def test_accuracies_have_the_same_bits_in_all_ways(name, sizes, thetas, shots, seed):
    engine, rng = ENGINES[name](shots), stream(seed, "shapes")
    whole = engine.encode(rng.uniform(0, 3, (60, engine.qnn.num_features)))
    parts = [whole.take(rng.integers(0, 60, n)) for n in sizes]
    if seed % 2:
        parts = [whole] * len(parts)
    ends = np.cumsum([len(e) for e in parts])
    y = rng.integers(0, 2, ends[-1])
    labels = np.split(y, ends[:-1])
    weights = rng.normal(size=(len(parts), thetas, engine.num_weights))

    def rngs():
        return [stream(seed, "client", i) for i in range(len(parts))]

    with pytest.MonkeyPatch.context() as patch:
        together = scored(engine, parts, y, weights, rngs())
        clients = zip(parts, labels, weights, rngs(), strict=True)
        alone = np.concatenate([scored(engine, [e], one, w[None], [g]) for e, one, w, g in clients], axis=1)
        copied = [Encoded(e.rows, len(e), e.owner, e.pad) for e in parts]
        apart = scored(engine, copied, y, weights, rngs())
        patch.setenv(inner_loop.VARIABLE, "off")
        numpys = scored(engine, parts, y, weights, rngs())
    for found in (alone, apart, numpys):
        assert np.array_equal(found, together)


# The model


def few_samples(engine, seed=0):
    encoded = engine.encode(stream(seed, "x").uniform(0, 3, (9, 2)))
    return Samples([encoded.take(np.arange(4)), encoded.take(np.arange(4, 9))], np.arange(9) % 2, np.array([0, 4]))


def test_the_model_asks_for_sides_only_where_nothing_but_the_accuracy_is_wanted():
    engine = make_engine("statevector", QNN(2), 1024)  # a count then takes two numbers or more
    model, samples, theta = Model(engine, SQUARED_ERROR), few_samples(engine), stream(0, "t").normal(size=(2, 3, 8))

    def means(*functions):
        rngs = [stream(0, "draw", i) for i in range(2)]
        return model.means(samples, theta, rngs, *functions), [rng.bit_generator.state for rng in rngs]

    rngs = [stream(0, "draw", i) for i in range(2)]
    expected = scored(engine, samples.encoded, samples.y, theta, rngs)
    found, after = means(correct)
    assert np.array_equal(found, expected[:1])
    assert np.array_equal(means(hit, correct)[0], expected[::-1])
    assert after == [rng.bit_generator.state for rng in rngs]
    counted, after_counts = means(correct, cross_entropy)
    assert np.array_equal(counted[::-1], means(cross_entropy, correct)[0])
    assert after_counts != after


@pytest.mark.parametrize("shots", [None, MAX_MAJORITY + 1])
def test_exact_engines_and_very_many_shots_go_the_way_of_probabilities(shots):
    engine = make_engine("statevector", QNN(2), shots)
    model, samples, theta = Model(engine, SQUARED_ERROR), few_samples(engine), stream(0, "t").normal(size=(2, 3, 8))
    rngs = [stream(0, "draw", i) for i in range(2)]
    again = [stream(0, "draw", i) for i in range(2)]
    p = model.probabilities(samples, theta, again)
    expected = samples.means(correct(p, samples.y, margin_of(shots)))
    assert np.array_equal(model.means(samples, theta, rngs, correct), [expected])


class Counting:
    """An engine of somebody else: it has shots, and no other method than probabilities."""

    def __init__(self, engine):
        self.shots, self.num_weights = engine.shots, engine.num_weights
        self.probabilities_ragged = engine.probabilities_ragged


def test_an_engine_without_accuracies_draws_counts():
    engine = make_engine("statevector", QNN(2), 40)
    samples, theta = few_samples(engine), stream(0, "t").normal(size=(2, 3, 8))
    rngs, again = ([stream(0, "draw", i) for i in range(2)] for _ in range(2))
    model = Model(Counting(engine), SQUARED_ERROR)
    expected = samples.means(correct(model.probabilities(samples, theta, again), samples.y, 0.0))
    assert np.array_equal(model.means(samples, theta, rngs, correct), [expected])


#: What of a round's record rests on clients' accuracies alone.
ACCURACIES = {"client_test_accuracy", "train_test_gap", "fairness_gap", "global_fairness_gap", "meta_loss"}


def test_training_does_not_depend_on_how_accuracies_are_drawn(monkeypatch):
    """Accuracies have streams of their own: weights, losses and selections keep their bits."""
    fed = federation(outer_period=0)  # the fairness gap of a virtual round moves the controller
    found = list(train(fed))
    monkeypatch.setattr(StatevectorEngine, "accuracies", lambda *_: None)
    changed = set()
    for ours, counted in zip(found, train(fed), strict=True):
        assert ours["state"] == counted["state"]
        for table in ("global_accuracies", "validation", "classification_metrics", "client_trace"):
            for one, other in zip(ours[table], counted[table], strict=True):
                changed |= {name for name in one if one[name] != other[name]}
    assert "test_accuracy" in changed
    scores = {"test_accuracy", "test_recall"}
    assert {name.removesuffix("_min").removesuffix("_max") for name in changed} <= ACCURACIES | scores


@pytest.mark.parametrize("wrong", ["weights", "rngs", "labels"])
def test_bad_arguments_are_refused(wrong):
    engine = make_engine("statevector", QNN(2), 8)
    asked = Drawing([engine.encode(np.ones((2, 2)))], np.array([0, 1]), [stream(0, "x")], (), 0.1)
    weights = np.zeros((1, 1, 8))
    if wrong == "weights":
        weights[0, 0, 3] = np.nan
    changed = {"rngs": {"rngs": []}, "labels": {"labels": np.array([0, 2])}}.get(wrong, {})
    with pytest.raises(ValueError, match="finite angles|one generator for each|labels must be 0 or 1"):
        engine.accuracies(dataclasses.replace(asked, **changed), weights)
