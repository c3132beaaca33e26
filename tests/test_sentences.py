"""The list of the paper's sentences: its numbers are those of figures/tables, and its answers follow by a rule."""

import re

import pandas as pd
import pytest

from tools import sentences
from tools.evidence import AGREES, NOT, OPEN, PARTLY, Change, Highest, Last, Marks, Part, Rest, Variation, answer
from tools.readme import ROOT, Tables

TABLES = Tables(ROOT / "figures" / "tables")


def test_the_page_is_made_from_the_tables():
    assert sentences.PAGE.read_text(encoding="utf-8") == sentences.page(TABLES), "run: make readme"


def test_every_part_of_every_claim_that_runs_decide_is_beside_a_sentence():
    evidence = [each for lines in sentences.SENTENCES.values() for _, found in lines for each in found]
    told = {each.name for each in evidence if isinstance(each, Part)}
    known = set(TABLES("claim_parts")["part"])
    assert told <= known
    # 1b and 3b compare the two other methods, and 7d, 7e are two more scores of the sentence with 7a to 7c.
    assert known - told == {"1b", "3b", "7d", "7e"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([AGREES, AGREES], AGREES),
        ([AGREES, OPEN], OPEN),
        ([AGREES, NOT], PARTLY),
        ([NOT, OPEN], NOT),
        ([AGREES, NOT, OPEN], PARTLY),
        ([PARTLY], PARTLY),
        ([OPEN], OPEN),
    ],
)
def test_a_sentence_agrees_where_all_its_evidence_does(found, expected):
    assert answer(found) == expected


@pytest.fixture
def planted(tmp_path):
    """Tables with numbers that a reader can check by eye."""

    def tables(**named: list[dict]) -> Tables:
        for name, rows in named.items():
            path = tmp_path / f"{name.replace('__', '/')}.csv"
            path.parent.mkdir(exist_ok=True)
            pd.DataFrame(rows).to_csv(path, index=False)
        return Tables(tmp_path)

    return tables


def test_a_part_tells_its_verdict_the_untrained_model_and_a_real_sample_that_differs(planted):
    row = {"part": "1a", "text": "gain", "verdict": "holds", "estimate": 0.1, "low": 0.05, "high": 0.2}
    tables = planted(claim_parts=[row | {"untrained": "holds"}], real__claim_parts=[row | {"verdict": "absent"}])
    told = "gain +0.100 [+0.050, +0.200] (1a; an untrained model passes, too; real sample: absent)"
    assert Part("1a").told(tables) == (told, AGREES)
    tables = planted(claim_parts=[row | {"verdict": "absent", "untrained": "absent"}])
    assert Part("1a").told(tables) == ("gain +0.100 [+0.050, +0.200] (1a)", NOT)
    with pytest.raises(ValueError, match="0 rows"):
        Part("1b").told(tables)


def test_a_printed_number_agrees_where_95_percent_of_the_runs_hold_it(planted):
    row = {"track": "baf", "metric": "m", "method": "A", "mean": 0.5, "2.5 % of runs": 0.4, "97.5 % of runs": 0.7}
    for paper, expected in ((0.69, AGREES), (0.41, AGREES), (0.71, NOT), (0.39, NOT)):
        text, found = Last("baf", "m", "A").told(planted(final_metrics=[row | {"paper": paper}]))
        assert (text, found) == (f"A 0.500, one run 0.400 to 0.700, paper {paper}", expected)


def test_no_range_of_runs_leaves_the_range_of_its_metric():
    """Accuracies and fairness gaps lie between 0 and 1, so single runs do, too."""
    columns = ["metric", "method", "2.5 % of runs", "97.5 % of runs"]
    for metric, method, low, high in TABLES("final_metrics")[columns].itertuples(index=False):
        assert low <= high
        if metric != "train-test gap":
            assert 0 <= low <= high <= 1, (metric, method)


@pytest.mark.parametrize(
    ("verdict", "expected"), [("higher", AGREES), ("lower", NOT), ("absent", NOT), ("undecided", OPEN)]
)
def test_a_change_agrees_where_its_sign_is_shown(planted, verdict, expected):
    row = {"track": "baf", "validation": "natural", "link": "x", "metric": "a_b", "mean": 0.1, "low": 0, "high": 0.2}
    other = row | {"validation": "skewed", "mean": 9.0}  # the other kind of validation is not the profile's
    tables = planted(attribution=[row | {"verdict": verdict}, other | {"verdict": "higher"}])
    assert Change("baf", "x", "a_b", "higher").told(tables) == ("baf, x: a b +0.100 [+0.000, +0.200]", expected)


@pytest.mark.parametrize(("low", "expected"), [(0.61, AGREES), (0.50, OPEN), (0.30, NOT)])
def test_the_highest_is_shown_by_intervals_that_do_not_meet(planted, low, expected):
    rows = [
        {"track": "baf", "metric": "m", "method": name, "mean": start + 0.05, "low": start, "high": start + 0.1}
        for name, start in (("A", low), ("B", 0.5))
    ]
    assert Highest("baf", "m", ("A", "B")).told(planted(final_metrics=rows))[1] == expected
    gaps = [
        {"track": "baf", "method": row["method"], "train-test gap": 0.3, "rest": -row["mean"]}
        | {"rest: low": -row["high"], "rest: high": -row["low"]}
        for row in rows
    ]
    assert Rest("baf", "A", "B").told(planted(train_test_gap_shift=gaps))[1] == expected


def test_marks_are_counted_and_variation_has_three_numbers(planted):
    marks = [{"Dataset": "baf", "Method": "A", "x": "✓ (✓)", "y": "✓✓ (−)"}, {"Dataset": "other", "x": "− (✓)"}]
    assert Marks("baf").told(planted(qualitative_comparison=marks)) == ("baf: 1 of 2 marks are the paper's", PARTLY)
    text, _ = Variation("baf").told(TABLES)
    assert len(re.findall(r"[\d.]+ % across (?:clients|unfolds|rounds)", text)) == 6


def test_a_page_that_is_not_current_is_told_and_written(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("old\n")
    monkeypatch.setattr(sentences, "PAGE", page)
    assert sentences.main(["--check"]) == 1
    assert "make readme" in capsys.readouterr().err
    assert sentences.main([]) == 0
    assert sentences.main(["--check"]) == 0
    assert page.read_text(encoding="utf-8").startswith("# The paper's sentences")
