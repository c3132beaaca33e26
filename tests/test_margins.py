"""Margins: the smallest effect worth claiming of each part follows the stated rules, and the page lists them all."""

import numpy as np
import pytest
from planted_claims import device_table, planted_run

from qfl_core.analysis import CLAIMS, Part
from qfl_core.analysis import measures as m
from qfl_core.analysis.margins import UNITS, smallest_effect
from qfl_core.base.errors import AnalysisError
from tools.claims_page import PAGE, filled, parts_and_margins

PARTS = {label: part for claim in CLAIMS for label, part in zip(claim.labels, claim.parts, strict=True)}


@pytest.mark.parametrize(
    ("label", "margin"),
    [
        ("1a", (0.6504 - 0.5344) / 2),  # the paper prints both numbers
        ("4b", 0.2854 / 2),
        ("9a", (0.85 - 0.825) / 2),
        ("9d", 0.05),  # closeness: the bound
        ("11d", 0.05),
        ("2a", 0.02),  # accuracies, gaps and scores
        ("9e", 0.02),
        ("12a", 0.02),
        ("6c", 0.02),
        ("7h", 0.02),
        ("7f", 0.0055),  # scores of a rare class
        ("7i", 0.0055),
        ("7b", 0.002),  # unsteadiness
        ("7d", 0.00055),
        ("8a", 0.00055),
        ("15b", 0.002),
        ("20a", 0.002),
        ("15a", 0.09),  # a tenth of the room above the bound
        ("17c", 0.005),
        ("17h", 0.1),
        ("18a", 0.05),
        ("T3", 0.1),
        ("17d", 0.001),  # a tenth of the bound
        ("18b", 0.25 / 250 / 10),
        ("T2", 0.0),  # checked for every value
    ],
)
def test_a_margin_follows_its_rule(label, margin):
    assert PARTS[label].margin == pytest.approx(margin, abs=1e-9)


def test_every_part_that_is_tested_has_a_margin_and_every_unit_a_rule():
    assert {label for label, part in PARTS.items() if not part.margin} == {"T1a", "T1b", "T2"}
    assert {part.unit for part in PARTS.values()} == set(UNITS)
    assert all(part.margin == part.bound for part in PARTS.values() if part.claimed == "within")


def test_a_part_without_a_margin_or_with_an_unknown_unit_is_refused():
    measure = m.final("global_accuracy")
    with pytest.raises(AnalysisError, match="'x' needs a margin above 0, got 0"):
        Part("x", "baf", ("duqfl-prox",), measure, margin=0.0)
    with pytest.raises(AnalysisError, match="'x' names 'acuracy' .did you mean 'accuracy'"):
        Part("x", "baf", ("duqfl-prox",), measure, unit="acuracy")
    with pytest.raises(AnalysisError, match="unknown unit 'shares' .did you mean 'share'..; units: accuracy"):
        smallest_effect("shares", "above", 0.5)


def test_the_page_lists_the_parts_and_margins_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, "parts", parts_and_margins()) == page, "run: python -m tools.claims_page"
    assert parts_and_margins().count("\n") == len(PARTS) + 2
    with pytest.raises(AnalysisError, match="must have '<!-- nothing -->'"):
        filled(page, "nothing", "")


# What the parts on the course of training measure


def test_rates_vary_across_what_is_named_alone():
    run = planted_run("baf", "duqfl-prox", 0)
    run.clients["eta"] = 0.1 * np.exp(0.3 * run.clients["client"])
    run.clients["delta"] = 0.1
    steps = np.arange(run.clients["client"].nunique()) * 0.3
    assert m.log_variation_across("eta", "client")(run) == pytest.approx(steps.std())
    assert m.log_variation_across("eta", "unfold")(run) == pytest.approx(0, abs=1e-12)
    assert m.log_variation_across("delta", "client")(run) == pytest.approx(0, abs=1e-12)
    with pytest.raises(AnalysisError, match="unknown metric 'clients' .did you mean 'client'"):
        m.log_variation_across("eta", "clients")


def test_displacement_follows_eta_where_it_grows_with_it():
    run = planted_run("baf", "duqfl-prox", 0)
    run.clients["displacement"] = 2 * run.clients["eta"]
    assert m.displacement_follows_eta(run) == pytest.approx(1)
    run.clients["displacement"] = 1 - run.clients["eta"]
    assert m.displacement_follows_eta(run) == pytest.approx(-1)
    run.clients["eta"] = 0.13
    assert np.isnan(m.displacement_follows_eta(run))


def test_the_rise_on_a_device_is_the_last_third_minus_the_first():
    table = device_table().query("method == 'duqfl-prox' and seed == 0 and kind == 'exact'")
    checkpoints = table.assign(device=[0.1, 0.2, 0.3, 9, 9, 9, 0.5, 0.7])
    assert m.device_rise(checkpoints) == pytest.approx(0.6 - 0.2)
    assert np.isnan(m.device_rise(checkpoints.head(2)))
