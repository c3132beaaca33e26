"""Numbers as text: one set of formats, and a dash where a number is not known."""

import math

import numpy as np

from qfl_core.base.numbers import count, interval, number, plus_minus, significant, span


def test_a_number_has_a_fixed_count_of_decimals():
    assert [number(0.6196, 2), number(np.float64(2), 3), number(1, 0)] == ["0.62", "2.000", "1"]
    assert [number(0.5, signed=True), number(-0.5, signed=True)] == ["+0.500", "-0.500"]


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
    assert plus_minus(0.62, unknown, 2) == "0.62 ± –"
    assert plus_minus(0.62, unknown, 2, missing="nan") == "0.62 ± nan"
    assert interval(0.62, unknown, unknown, 2) == "0.62 [–, –]"
