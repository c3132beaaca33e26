"""Statements: their p values are the textbook's, and the chance of even one wrong statement keeps the level."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfl_core.analysis.differences import judge_differences, side_by_side
from qfl_core.analysis.inference import flip_sums
from qfl_core.analysis.statements import corrected_p, p_values, statement_p
from qfl_core.base.errors import AnalysisError


def rng(seed=0):
    return np.random.default_rng(seed)


def corrected(values, statements):
    return corrected_p(flip_sums(values, rng()), statements)


def singles(values):
    return [[j] for j in range(values.shape[1])]


def by_hand(values, statements):
    """Return the corrected p values as the module's docstring says, in plain loops."""
    n, tests = values.shape
    scale = [sum(row[j] ** 2 for row in values) ** 0.5 for j in range(tests)]
    flips = [
        [sum(s * row[j] for s, row in zip(signs, values, strict=True)) / scale[j] for j in range(tests)]
        for signs in itertools.product((1, -1), repeat=n)
    ]
    seen = [min(flips[0][j] for j in those) for those in statements]
    order = sorted(range(len(statements)), key=lambda s: -seen[s])
    found, largest = [0.0] * len(statements), 0.0
    for rank, s in enumerate(order):
        height, rest = seen[s] - 1e-9, [statements[k] for k in order[rank:]]
        anyone = sum(any(flip[j] >= height for those in rest for j in those) for flip in flips) / len(flips)
        one = sum(max(sum(flip[j] >= height for flip in flips) for j in those) for those in rest) / len(flips)
        largest = max(largest, min(anyone, one))
        found[s] = largest
    return found


@pytest.mark.parametrize(
    "statements", [[[0], [1], [2], [3]], [[0, 1], [2, 3]], [[1, 3], [0, 2, 3], [1]], [[0, 1, 2, 3]]]
)
def test_the_correction_is_what_the_docstring_says(statements):
    values = rng(2).normal([0.3, 1.5, 0.7, 3.0], 1.0, (6, 4))
    assert corrected(values, statements) == pytest.approx(by_hand(values, statements))


def test_one_test_alone_has_the_share_of_flips_that_reach_it():
    values = np.array([[0.1], [0.4], [0.3], [-0.2]])
    sums = [
        sum(s * v for s, v in zip(signs, values[:, 0], strict=True)) for signs in itertools.product((1, -1), repeat=4)
    ]
    share = np.mean([total >= 0.6 - 1e-9 for total in sums])
    assert corrected(values, [[0]])[0] == statement_p(flip_sums(values, rng()), [[0]])[0] == share
    assert corrected(-values, [[0]])[0] > 0.5  # one-sided: the other direction is no evidence


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 7), tests=st.integers(1, 6))
def test_corrected_values_are_never_below_the_plain_ones_and_copies_of_a_test_count_once(seed, n, tests):
    values = rng(seed).normal(0.7, 1.0, (n, tests))
    sums = flip_sums(values, rng())
    plain = statement_p(sums, singles(values))
    assert (corrected_p(sums, singles(values)) >= plain - 1e-12).all()
    copies = np.repeat(values[:, :1], 3, axis=1)
    assert corrected(copies, singles(copies)) == pytest.approx(plain[0])
    assert corrected(values, [list(range(tests))])[0] >= plain.max() - 1e-12


def test_a_conjunction_costs_about_its_worst_test_however_many_tests_it_has():
    values = rng(4).normal(0, 1, (10, 41)) + 2.5
    values[:, 0] -= 1.2
    sums = flip_sums(values, rng())
    worst = statement_p(sums, [[0]])[0]
    assert worst <= corrected_p(sums, [list(range(41))])[0] < 2 * worst
    noise = np.concatenate([values[:, :1], rng(5).normal(0, 1, (10, 40))], axis=1)
    assert corrected(noise, singles(noise))[0] > 5 * worst


def test_sixty_tests_at_ten_seeds_can_still_reject_which_holm_s_bound_cannot():
    values = rng(3).normal(0, 1, (10, 60))
    values[:, 0] += 6
    sums = flip_sums(values, rng())
    plain, found = statement_p(sums, singles(values)), corrected_p(sums, singles(values))
    assert 60 * plain[0] > 0.05
    assert found[0] < 0.05
    assert (found[1:] > 0.05).all()


def test_the_family_wise_error_is_held_with_dependent_tests():
    generator, trials, wrong = rng(5), 400, 0
    for _ in range(trials):
        values = generator.normal(0, 1, (7, 1)) + generator.normal(0, 1, (7, 15))
        wrong += (corrected_p(flip_sums(values, generator), singles(values)) <= 0.05).any()
    assert wrong / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)


def test_the_family_wise_error_is_held_where_each_statement_has_one_wrong_test_among_true_ones():
    """The case that costs most: all other tests of a statement are beyond doubt, and the wrong one decides."""
    generator, trials, wrong = rng(6), 400, 0
    statements = [[4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3] for k in range(12)]
    truth = np.tile([0.0, 5.0, 5.0, 5.0], 12)
    for _ in range(trials):
        values = truth + generator.normal(0, 1, (10, 48))
        wrong += (corrected_p(flip_sums(values, generator), statements) <= 0.05).any()
    assert wrong / trials <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / trials)
    assert wrong / trials > 0.01  # the bound is not so loose that nothing could ever be shown


def test_a_test_without_some_seeds_uses_the_others():
    values = rng(6).normal(1, 1, (8, 2))
    values[5:, 1] = np.nan
    assert corrected(values[:, 1:], [[0]]) == pytest.approx(corrected(values[:5, 1:], [[0]]))
    assert np.isfinite(corrected(values, [[0], [1]])).all()


def test_many_seeds_draw_the_same_flips_for_all_lists_and_never_return_zero():
    values = rng(7).normal(1, 0.1, (150, 3))
    first, second = (p_values(values, [[[0], [1]], [[0, 1, 2]]], rng(8)) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        for a, b in zip(one, two, strict=True):
            assert (a == b).all()
            assert (a == 2.0**-14).all()


# Differences without a claimed direction


def differences(**shifts):
    seeds = np.arange(8)
    return pd.DataFrame({name: shift + 0.004 * np.cos(3 * seeds + i) for i, (name, shift) in enumerate(shifts.items())})


def test_a_difference_is_higher_lower_absent_or_undecided():
    table = differences(up=0.1, down=-0.1, same=0.0, wide=0.0)
    table["wide"] = 0.3 * np.cos(table.index)
    found = judge_differences(table, [0.02] * 4)
    assert found["verdict"].to_dict() == {"up": "higher", "down": "lower", "same": "absent", "wide": "undecided"}
    assert (found["low"] <= found["mean"]).all()
    assert (found["mean"] <= found["high"]).all()
    assert (found["p"] <= 0.05).to_list() == [True, True, True, False]
    keys = pd.DataFrame({"row": list("aabb"), "column": list("yxyx")}, index=found.index)
    texts = side_by_side(found.assign(**keys), "row", "column")
    assert (list(texts.index), list(texts)) == (["a", "b"], ["y", "x"])  # as they first occur
    assert [text.split()[-1] for text in texts.to_numpy().ravel()] == ["higher", "lower", "absent", "undecided"]


def test_absence_needs_both_ends_inside_the_margin():
    table = differences(near=0.019)
    assert judge_differences(table, [0.05])["verdict"].item() == "higher"  # a sign that is shown is said first
    table["near"] = [0.03, -0.01, 0.035, -0.012, 0.031, 0.0, 0.036, -0.011]
    assert judge_differences(table, [0.05])["verdict"].item() == "absent"
    assert judge_differences(table, [0.02])["verdict"].item() == "undecided"


def test_more_differences_make_each_harder_to_show():
    noise = pd.DataFrame(rng(1).normal(0, 1, (8, 30)))
    weak = pd.DataFrame({"a": 0.05 + 0.045 * np.cos(3 * np.arange(8))})
    one, many = judge_differences(weak, [0.02]), judge_differences(pd.concat([weak, noise], axis=1), [0.02] * 31)
    assert one["verdict"].item() == "higher"
    assert many["verdict"].iloc[0] == "undecided"
    assert many["p"].iloc[0] > one["p"].item()


def test_differences_that_cannot_be_judged_are_refused():
    with pytest.raises(AnalysisError, match="'a' has fewer than 2 paired seeds"):
        judge_differences(pd.DataFrame({"a": [0.1, np.nan]}), [0.02])
    with pytest.raises(AnalysisError, match="no differences to judge"):
        judge_differences(pd.DataFrame(), [])
