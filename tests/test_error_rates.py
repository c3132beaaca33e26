"""Error rates: planted truths are what they say, wrong verdicts are counted, and skew does not make them frequent."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from qfl_core.analysis import CLAIMS
from qfl_core.analysis.inference import EXACT_SEEDS, Effort, flip_sums, pivots
from qfl_core.analysis.part_tests import ABSENT, FAILS, HOLDS
from qfl_core.analysis.statements import p_values, statement_p
from tools import error_rates as rates

QUICK = Effort(resamples=199, flips=256)
FEW = tuple(claim for claim in rates.TESTED if claim.id in ("1", "4", "9", "14"))


@pytest.mark.parametrize("shape", rates.SHAPES)
def test_shapes_have_mean_0_and_standard_deviation_1(shape):
    drawn = rates.SHAPES[shape](np.random.default_rng(0).normal(size=400_000))
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.05)
    assert (stats.skew(drawn) > 1.5) == (shape != "normal")


@pytest.mark.parametrize("name", rates.WORLDS)
@pytest.mark.parametrize("shape", [*rates.SHAPES, rates.RUNS])
def test_planted_means_lie_where_the_world_says(name, shape):
    effect = rates.effects(rates.TESTED, rates.WORLDS[name])
    values = rates.planted(rates.TESTED, effect, 4000, shape, np.random.default_rng(1))
    for claim in rates.TESTED:
        for label, part in zip(claim.labels, claim.parts, strict=True):
            mean = values[label].mean()
            found = part.bound - abs(mean) if part.claimed == "within" else part.support(np.array(mean))
            assert found == pytest.approx(effect[label], abs=0.15 * rates.SPREAD * part.margin), label


def test_a_repeated_number_is_planted_once():
    effect = rates.effects(rates.TESTED, rates.WORLDS["margin"])
    values = rates.planted(rates.TESTED, effect, 10, "normal", np.random.default_rng(0))
    pd.testing.assert_series_equal(values["14e"], -values["9c"])
    assert effect["14e"] == effect["9c"]


@pytest.mark.parametrize(
    ("verdict", "effect", "wrong"),
    [
        (HOLDS, 0.01, False),
        (HOLDS, 0.0, True),
        (FAILS, -0.01, False),
        (FAILS, 0.0, True),
        (ABSENT, 0.0, False),
        (ABSENT, 1.0, True),
        ("undecided", 1.0, False),
    ],
)
def test_a_verdict_is_wrong_where_it_contradicts_the_truth(verdict, effect, wrong):
    assert rates.is_wrong(CLAIMS[0].parts[0], verdict, effect) == wrong


def test_the_short_cut_finds_the_errors_that_judging_everything_finds():
    """Intervals are left out where no wrong verdict has a small p value: that must not lose an error."""
    effect = rates.effects(FEW, rates.WORLDS["bound"])
    found = []
    for seed in range(40):
        values = rates.planted(FEW, effect, 8, "lognormal", np.random.default_rng(seed))
        found.append(bool(rates.wrong_labels(FEW, values, effect, seed, QUICK)))
        assert rates.any_wrong(FEW, values, effect, seed, QUICK) == found[-1]
    assert 0 < sum(found) < 40  # both cases occur


def test_the_planted_verdict_is_found_with_enough_seeds_and_not_with_few():
    for name in ("margin", "opposite"):
        assert rates.right_share(name, 150, 2, FEW, QUICK) > 0.9
        assert rates.right_share(name, 6, 2, FEW, QUICK) < 0.3


@pytest.mark.parametrize("name", ["bound", "one part"])
@pytest.mark.parametrize("shape", rates.SHAPES)
def test_even_one_wrong_verdict_is_rare_beyond_14_seeds(name, shape):
    found = rates.error_rate(name, 30, shape, 60, FEW, QUICK)
    assert found["low"] < 0.05
    assert found["wrong"] <= 0.1


def test_flips_alone_would_be_wrong_often_where_numbers_are_skewed(monkeypatch):
    """The test above rests on the second test, which follows a skew."""
    monkeypatch.setattr("qfl_core.analysis.statements.EXACT_SEEDS", 1000)
    assert rates.error_rate("bound", 30, "lognormal", 40, FEW, QUICK)["low"] > 0.05


def test_coverage_is_counted_against_the_true_mean():
    found = rates.coverage("normal", 20, 200, resamples=399)
    assert found["low"] < 0.95 < found["high"] + 0.02
    assert found["coverage"] == pytest.approx(found["Student's t"], abs=0.05)


def test_pivots_are_those_of_the_studentised_bootstrap():
    values = np.random.default_rng(3).exponential(size=(30, 2)) - 0.8
    values[:5, 1] = np.nan  # a test that lacks seeds
    found = pivots(values, np.random.default_rng(7), 50)
    drawn = np.random.default_rng(7).multinomial(30, np.full(30, 1 / 30), 50)
    for j in range(2):
        present = np.isfinite(values[:, j])
        seen = values[present, j]
        assert found[0, j] == pytest.approx(seen.mean() / stats.sem(seen))
        for counts, statistic in zip(drawn[1:], found[1:, j], strict=True):
            sample = np.repeat(seen, counts[present])
            assert statistic == pytest.approx((sample.mean() - seen.mean()) / stats.sem(sample))


def test_numbers_without_spread_are_not_divided_by_it():
    values = np.column_stack([np.full(20, 0.3), np.zeros(20), np.full(20, -0.3)])
    assert statement_p(pivots(values, np.random.default_rng(0), 100), [[0], [1], [2]]) == pytest.approx([0.01, 1, 1])


def test_the_second_test_is_asked_beyond_14_seeds_alone():
    for seeds in (EXACT_SEEDS, EXACT_SEEDS + 1):
        values = np.random.default_rng(seeds).lognormal(size=(seeds, 40)) - np.exp(0.5)
        rng, each = np.random.default_rng(0), [[j] for j in range(40)]
        flips, pivoted = statement_p(flip_sums(values, rng), each), statement_p(pivots(values, rng), each)
        found = p_values(values, [each], np.random.default_rng(0))[0][0]
        np.testing.assert_array_equal(found, np.maximum(flips, pivoted) if seeds > EXACT_SEEDS else flips)
        assert (pivoted > flips).any()  # so that the larger one is not always the same
        assert (pivoted < flips).any()


def test_the_page_shows_the_tables():
    folder = rates.PAGE.with_suffix("")
    errors, covered = (pd.read_csv(folder / f"{name}.csv") for name in ("error_rates", "coverage"))
    page = rates.PAGE.read_text(encoding="utf-8")
    assert rates.filled(page, "error rates", rates.section(errors, covered)) == page
    assert list(errors["planted"].unique()) == [world.told for world in rates.WORLDS.values()]
    assert set(covered["seeds"]) == set(errors["seeds"]) == set(rates.SEEDS)
