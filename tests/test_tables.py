"""Tables: marks follow the stated rule, intervals stand beside the paper's numbers, three formats say the same."""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import judge, tables, write_claims
from qfl_core.analysis.paper import PAPER, QUALITATIVE
from qfl_core.config import load_profile
from qfl_core.runs.schema import SCHEMA


def planted(values: dict[str, float], seeds: int = 4) -> pd.DataFrame:
    """Return two rounds of runs in which every metric of a method is its planted value, give or take a seed's part."""
    rows = []
    for method, value in values.items():
        for seed in range(seeds):
            for t in (1, 2):
                noise = 0.001 * (seed - (seeds - 1) / 2)
                metrics = dict.fromkeys(
                    (
                        "global_accuracy",
                        "client_test_accuracy",
                        "train_test_gap",
                        "fairness_gap",
                        "drift_from_broadcast",
                    ),
                    value + noise + 0.05 * (t == 1),
                )
                rows.append({"method": method, "seed": seed, "round": t, **metrics})
    table = pd.DataFrame(rows)
    return table.assign(test_balanced_accuracy=0.5, test_roc_auc=0.5)


VALUES = {"duqfl-prox": 0.9, "fedprox-qfl": 0.75, "adam-qfl": 0.69, "default-qfl": 0.5}


def test_marks_follow_the_stated_rule_in_both_directions():
    table = tables.qualitative_table({"baf": planted(VALUES)}).set_index("Method")
    ours = table.map(lambda cell: str(cell).split(" ")[0])
    accuracy, gap = ours["Final global accuracy"], ours["Low train-test gap"]
    assert accuracy.to_dict() == {"DUQFL-Prox": "✓✓", "FedProx-QFL": "✓", "Adam-QFL": "−", "Default-QFL": "−"}
    assert gap.to_dict() == {"DUQFL-Prox": "−", "FedProx-QFL": "−", "Adam-QFL": "✓", "Default-QFL": "✓✓"}
    assert table.loc["DUQFL-Prox", "Low client drift"] == "− (✓✓)"


def test_a_negative_gap_is_no_better_than_a_positive_one():
    rounds = planted(VALUES)
    rounds.loc[rounds["method"] == "adam-qfl", "train_test_gap"] = -0.8
    marks = tables.qualitative_table({"baf": rounds}).set_index("Method")["Low train-test gap"]
    assert marks["Default-QFL"].startswith("✓✓")
    assert marks["Adam-QFL"].startswith("−")


def test_the_last_round_stands_beside_the_papers_number():
    table = tables.beside_paper({"baf": planted(VALUES)})
    mine = table[(table["metric"] == "global accuracy") & (table["method"] == "DUQFL-Prox")].iloc[0]
    assert mine["mean"] == pytest.approx(0.9)
    assert mine["low"] < 0.9 < mine["high"]
    # Four seeds lie 0.001 apart around 0.9: 95 % of the way from the lowest to the highest, in the middle.
    assert mine["2.5 % of runs"] == pytest.approx(0.9 - 0.95 * 0.0015)
    assert mine["97.5 % of runs"] == pytest.approx(0.9 + 0.95 * 0.0015)
    assert mine["paper"] == 0.6504
    assert not mine["paper in interval of mean"]
    assert not mine["paper in range of runs"]
    assert table[table["method"] == "Adam-QFL"]["paper"].isna().all()


def test_the_papers_numbers_name_metrics_and_methods_that_exist():
    columns = {column for names in SCHEMA.values() for column in names}
    for (track, metric), numbers in PAPER.items():
        assert track in ("baf", "genome")
        assert metric in columns
        assert set(numbers) <= set(METHODS)
    assert all(set(rows) <= set(METHODS) for rows in QUALITATIVE.values())


def test_what_has_no_published_number_is_not_called_within_its_tolerance():
    table = pd.DataFrame(
        {
            "quantity": ["fraud prior", "fraud rate", "spread"],
            "published": [0.011, 0.02, np.nan],
            "measured": [0.012, 0.05, 0.86],
            "difference": [0.001, 0.03, np.nan],
            "tolerance": [0.01, 0.01, np.nan],
            "ok": [True, False, True],
        }
    )
    shown = tables.compared_with_published(table)
    assert shown["within tolerance"].tolist() == ["yes", "no", "no published number"]
    assert shown.loc["spread", ["published", "measured", "tolerance"]].tolist() == ["", "0.860", ""]
    assert "nan" not in shown.to_string().lower()


def test_configuration_and_datasets_tell_what_the_profile_runs_with():
    settings = load_profile("paper")
    found = tables.configuration_table(settings).set_index("Setting")["Here"]
    assert found["Proximal coefficient mu"] == str(settings.config("baf").mu)
    assert found["Shots"] == "1024"
    # The oldest version that the package takes, whatever runs here: the table is the same on every machine.
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found["Programming language"] == f"Python {project['requires-python'].removeprefix('>=')} or newer"
    table = tables.datasets_table(settings, {"baf": "stand-in", "genome-clean": "local"})
    assert table["Data"].tolist() == ["stand-in", "local"]
    assert table["Encoding"].tolist() == ["pca", "kmer"]
    assert table["QNN features"].tolist() == [4, 2]


def test_three_formats_say_the_same(tmp_path):
    table = pd.DataFrame({"name": ["a|b", "50 % & more"], "value": [1 / 3, np.nan], "mark": ["✓✓ (−)", "×"]})
    tables.write_table(table, "table", tmp_path, note="origin: stand-in")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.csv", "table.md", "table.tex"]
    assert pd.read_csv(tmp_path / "table.csv")["value"].iloc[0] == 0.333333
    markdown = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert markdown[2] == r"| a\|b | 0.333 | ✓✓ (−) |"
    assert markdown[3] == "| 50 % & more |  | × |"
    assert markdown[-1] == "origin: stand-in"
    latex = (tmp_path / "table.tex").read_text(encoding="utf-8")
    assert latex.startswith("% origin: stand-in\n\\begin{tabular}{lll}\n\\toprule\n")
    assert r"50 \% \& more &  & $\times$ \\" in latex
    assert r"$\checkmark$$\checkmark$ ($-$)" in latex


def test_every_table_of_the_paper_becomes_latex():
    for table in (tables.roles_table(), tables.notation_table(), tables.configuration_table(load_profile("smoke"))):
        text = tables.latex(table)
        assert text.count(r"\\") == len(table) + 1
        assert r"$\theta^{(t)}$" in text or "Symbol" not in table


def test_tables_of_numbers_that_differ_in_the_twelfth_digit_are_the_same_files(tmp_path):
    values = np.array([0.0625, 0.0625, 1 / 3, 0.6125, 0.5, 123_456.5, 0.0, -0.25, 1e-6])
    marks = ["✓✓ (−)"] * len(values)
    for name, sign in (("one", 1), ("two", -1)):
        noisy = values * (1 + sign * 4e-13) + sign * 1e-16
        tables.write_table(pd.DataFrame({"value": noisy, "mark": marks}), "table", tmp_path / name)
    for ending in ("csv", "md", "tex"):
        one, two = ((tmp_path / name / f"table.{ending}").read_bytes() for name in ("one", "two"))
        assert one == two, ending


def test_marks_and_intervals_of_rounds_that_differ_in_the_twelfth_digit_are_the_same():
    rounds = planted(VALUES | {"fedprox-qfl": 0.9})  # two methods are equally good
    columns = rounds.select_dtypes("float").columns
    noise = np.random.default_rng(0).uniform(-1e-12, 1e-12, (len(rounds), len(columns)))
    again = rounds.assign(**{name: rounds[name] * (1 + noise[:, n]) for n, name in enumerate(columns)})
    for made in (tables.qualitative_table, tables.beside_paper):
        one, two = (tables.csv_text(made({"baf": table})) for table in (rounds, again))
        assert one == two


def test_claims_that_differ_in_the_twelfth_digit_are_the_same_files(tmp_path):
    values = {"estimate": 0.0625, "low": -1 / 3, "high": 2 / 3, "p": 0.0078125, "p_corrected": 0.0625, "effect": 1.5}
    for name, sign in (("one", 1), ("two", -1)):
        noisy = {key: value * (1 + sign * 4e-13) for key, value in values.items()}
        verdicts = [
            dataclasses.replace(
                verdict, parts=tuple(dataclasses.replace(part, verdict="holds", **noisy) for part in verdict.parts)
            )
            for verdict in judge({})
        ]
        write_claims(verdicts, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    assert pd.read_csv(tmp_path / "one" / "claims.csv")["low"].iloc[0] == -0.333333
