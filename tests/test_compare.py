"""Paired comparison: what is used, what is refused, and that intervals and p values mean what they say."""

import numpy as np
import pandas as pd
import pytest
from planted_claims import planted_run
from scipy import stats

import qfl_core
from qfl_core.analysis import Comparison, compare
from qfl_core.analysis.inference import (
    BOOTSTRAP,
    STUDENT,
    effect_size,
    mean_interval,
    sign_flip_p,
    sign_patterns,
)
from qfl_core.base.errors import AnalysisError


def rng(seed=0):
    return np.random.default_rng(seed)


def table(**values_by_method):
    """Return final values by method and seed; underscores stand for hyphens."""
    rows = [
        {"method": method.replace("_", "-"), "seed": seed, "round": t, "score": value if t == 2 else 99.0}
        for method, values in values_by_method.items()
        for seed, value in dict(values).items()
        for t in (0, 1, 2)
    ]
    return pd.DataFrame(rows)


A, B = {0: 0.5, 1: 0.7, 2: 0.6, 3: 0.8, 4: 0.65}, {0: 0.4, 1: 0.5, 2: 0.55, 3: 0.5, 4: 0.6}


# What is compared


def test_the_last_round_is_compared_and_pairs_are_seeds():
    found = compare(table(own=A, other=B), "score", "own", "other")
    d = np.array([A[s] - B[s] for s in range(5)])
    assert found.difference == pytest.approx(d.mean())
    assert found.effect == pytest.approx(d.mean() / d.std(ddof=1))
    assert found.p == pytest.approx(2 / 32)
    assert (found.n, found.seeds, found.unpaired, found.undefined) == (5, (0, 1, 2, 3, 4), (), ())
    assert found.low < found.difference < found.high
    assert "own - other = +0.1400" in str(found)


def test_exchanged_methods_give_the_mirrored_result():
    one, two = (compare(table(own=A, other=B), "score", *pair) for pair in (("own", "other"), ("other", "own")))
    assert (one.difference, one.p, one.effect) == pytest.approx((-two.difference, two.p, -two.effect))
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low), abs=1e-2)


def test_seeds_of_one_method_and_values_that_are_not_numbers_are_left_out_and_listed():
    found = compare(table(own=A | {7: 0.9, 3: np.nan}, other=B | {8: 0.1}), "score", "own", "other")
    assert (found.seeds, found.unpaired, found.undefined) == ((0, 1, 2, 4), (7, 8), (3,))


def test_a_round_can_be_named():
    assert compare(table(own=A, other=B), "score", "own", "other", at=1).difference == 0
    with pytest.raises(AnalysisError, match="no row of round 9; rounds go from 0 to 2"):
        compare(table(own=A, other=B), "score", "own", "other", at=9)


def test_runs_and_their_table_give_the_same_result():
    runs = [planted_run("baf", method, seed) for method in ("duqfl-prox", "default-qfl") for seed in range(6)]
    found = qfl_core.compare(runs, "global_accuracy", "duqfl-prox", "default-qfl", rng=3)
    again = compare(qfl_core.analysis.tidy(runs), "global_accuracy", "duqfl-prox", "default-qfl", rng=3)
    assert found == again
    assert found.difference == pytest.approx(0.19, abs=0.02)
    assert isinstance(found, Comparison)


def test_the_same_generator_gives_the_same_interval():
    calls = [compare(table(own=A, other=B), "score", "own", "other", rng=r) for r in (5, 5, rng(1), rng(1))]
    assert calls[0] == calls[1]
    assert calls[2] == calls[3]


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("scores", "own", "other"), "unknown metric 'scores' .did you mean 'score'"),
        (("seed", "own", "other"), "unknown metric 'seed'"),
        (("score", "owl", "other"), "no run of method 'owl' .did you mean 'own'..; runs of other, own"),
    ],
)
def test_unknown_names_are_refused_with_the_closest(arguments, message):
    with pytest.raises(AnalysisError, match=message):
        compare(table(own=A, other=B), *arguments)


def test_fewer_than_two_pairs_are_refused():
    with pytest.raises(AnalysisError, match=r"share 1 seeds .* at least 2 \(seeds of one method only: \[0, 2\]\)"):
        compare(table(own={0: 0.1, 1: 0.2}, other={1: 0.1, 2: 0.3}), "score", "own", "other")
    with pytest.raises(AnalysisError, match="no runs to compare"):
        compare([], "score", "own", "other")


@pytest.mark.parametrize("column", ["source", "kind", "dataset", "encoding", "mu", "part"])
def test_a_table_of_mixed_origin_is_refused(column):
    mixed = table(own=A, other=B)
    mixed[column] = np.where(mixed["method"] == "own", "one", "two")
    with pytest.raises(AnalysisError, match=f"rows of different {column} cannot be compared: one, two"):
        compare(mixed, "score", "own", "other")


def test_a_mixture_in_a_third_method_does_not_matter():
    mixed = table(own=A, other=B, third=B)
    mixed["source"] = np.where(mixed["method"] == "third", "official", "stand-in")
    assert compare(mixed, "score", "own", "other").n == 5


def test_two_runs_of_a_seed_and_runs_of_unequal_length_are_refused():
    twice = pd.concat([table(own=A, other=B), table(own={1: 0.3})])
    with pytest.raises(AnalysisError, match="own has more than one row for seed 1"):
        compare(twice, "score", "own", "other")
    longer = pd.concat([table(own=A, other=B), pd.DataFrame([{"method": "own", "seed": 0, "round": 3, "score": 1.0}])])
    with pytest.raises(AnalysisError, match=r"end in different rounds \(2, 3\)"):
        compare(longer, "score", "own", "other")


@pytest.mark.parametrize("what", ["mu", "data source", "data file", "code"])
def test_runs_of_other_settings_data_or_code_are_refused(what):
    runs = [planted_run("baf", method, seed) for method in ("duqfl-prox", "default-qfl") for seed in range(2)]
    odd = runs[-1]
    if what == "mu":
        odd.config = odd.config.replace(mu=0.5)
    elif what == "code":
        odd.environment["code_sha256"] = "e" * 64
    else:
        odd.environment["data"]["source" if what == "data source" else "sha256"] = "official"
    with pytest.raises(AnalysisError, match=f"runs of different {what} cannot be compared"):
        compare(runs, "global_accuracy", "duqfl-prox", "default-qfl")


# The interval


def coverage(draw, mean, n=10, trials=600, resamples=799):
    generator = rng(1)
    studentised = percentile = 0
    for _ in range(trials):
        x = draw(generator, n)
        low, high, _ = mean_interval(x, generator, resamples=resamples)
        studentised += low <= mean <= high
        drawn = x[generator.integers(0, n, (resamples, n))].mean(axis=1)
        percentile += np.quantile(drawn, 0.025) <= mean <= np.quantile(drawn, 0.975)
    return studentised / trials, percentile / trials


@pytest.mark.parametrize(
    ("draw", "mean", "least"),
    [
        (lambda g, n: g.normal(0.1, 1.0, n), 0.1, 0.93),
        (lambda g, n: g.exponential(1.0, n), 1.0, 0.91),
    ],
    ids=["normal", "skewed"],
)
def test_ten_seeds_are_covered_as_promised_where_the_percentile_interval_falls_short(draw, mean, least):
    studentised, percentile = coverage(draw, mean)
    # Two standard errors of 600 trials are 0.018.
    assert least <= studentised <= 0.975
    assert percentile < 0.93
    assert studentised > percentile


def test_few_or_tied_values_fall_back_on_student_s_interval():
    for values in ([0.1, 0.4], [0.1, 0.2, 0.4], [0.0] * 9 + [1.0]):
        x = np.array(values)
        low, high, kind = mean_interval(x, rng())
        assert kind == STUDENT
        assert (low, high) == pytest.approx(stats.t.interval(0.95, len(x) - 1, x.mean(), stats.sem(x)))
    assert mean_interval(np.array([0.1, 0.2, 0.4, 0.3, 0.35, 0.2]), rng())[2] == BOOTSTRAP


def test_equal_values_have_an_interval_without_width_and_no_division_by_zero():
    found = compare(
        table(own=dict.fromkeys(range(4), 0.7), other=dict.fromkeys(range(4), 0.7)), "score", "own", "other"
    )
    assert (found.difference, found.low, found.high, found.p, found.effect) == (0, 0, 0, 1, 0)
    constant = np.full(4, 0.5)
    assert mean_interval(constant, rng())[:2] == (0.5, 0.5)
    assert effect_size(-constant) == -np.inf


# The tests


def test_the_p_value_is_scipy_s_exact_permutation_test():
    x = rng(4).normal(0.4, 1, 9)
    reference = stats.permutation_test(
        (x,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_p(x, rng()) == pytest.approx(reference.pvalue)


def test_many_seeds_draw_sign_patterns_and_never_return_zero():
    patterns = sign_patterns(40, rng())
    assert patterns.shape == (2**14, 40)
    assert (patterns[0] == 1).all()
    assert set(np.unique(patterns)) == {-1, 1}
    assert sign_flip_p(np.full(40, 1.0), rng()) == pytest.approx(1 / 2**14)
