"""Numbers as text: one set of formats, and a dash where a number is not known."""

import math

import numpy as np

from qfl_core.base.numbers import count, interval, number, plus_minus, rounded, significant, span


def test_a_number_has_a_fixed_count_of_decimals():
    assert [number(0.6196, 2), number(np.float64(2), 3), number(1, 0)] == ["0.62", "2.000", "1"]
    assert [number(0.5, signed=True), number(-0.5, signed=True)] == ["+0.500", "-0.500"]


def test_the_last_digits_which_differ_between_machines_do_not_count():
    assert number(0.0625 * (1 + 1e-12)) == number(0.0625 * (1 - 1e-12)) == "0.062"
    assert number(-1e-16) == number(1e-16) == "0.000"
    assert significant(0.0625 * (1 + 1e-12), 2) == significant(0.0625 * (1 - 1e-12), 2)
    assert count(2.5 + 1e-10) == count(2.5 - 1e-10)


def test_numbers_in_files_have_six_digits_and_large_ones_are_whole():
    assert [rounded(v) for v in (0.010800000000000004, 2 / 3, -4e-17, 1e-6)] == [0.0108, 0.666667, 0.0, 1e-6]
    assert [rounded(v) for v in (1_234_567.8, 12_345_678_901.0, math.inf)] == [1_234_568.0, 12_345_678_901.0, math.inf]
    assert math.isnan(rounded(math.nan))


def test_significant_digits_and_counts():
    assert [significant(1 / 3), significant(12.0), significant(math.pi, 3)] == ["0.3333", "12", "3.14"]
    assert [count(12_345.4), count(math.inf)] == ["12,345", "inf"]


def test_intervals():
    assert interval(0.62, 0.59, 0.65, 2) == "0.62 [0.59, 0.65]"
    assert interval(0.1, -0.1, 0.3, signed=True) == "+0.100 [-0.100, +0.300]"
    assert span(0, math.pi) == "[0, 3.14]"
    assert plus_minus(0.62, 0.03, 2) == "0.62 ± 0.03"
    assert plus_minus(0.62, 0.03, 2, signed=True) == "+0.62 ± 0.03"


def test_what_is_not_known_is_a_dash():
    unknown = math.nan
    assert {number(unknown), significant(unknown), count(unknown)} == {"–"}
    assert number(unknown, missing="") == ""
    assert plus_minus(0.62, unknown, 2) == "0.62"
    assert plus_minus(unknown, unknown, 2, missing="nan") == "nan"
    assert interval(0.62, unknown, unknown, 2) == "0.62 [–, –]"
