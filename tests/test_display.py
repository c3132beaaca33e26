"""What a notebook shows of a config, a run, splits and the methods: the right values, every one escaped."""

import shutil
import warnings
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import pytest
from planted import planted_splits, small

from qfl_core import METHODS, ExperimentConfig
from qfl_core.base.display import SHOWN_ROUNDS, ShownTable, html_table, run_html
from qfl_core.base.errors import ChangedResults
from qfl_core.runs import RunResult, run_experiment

HOSTILE = "<script>alert('x')</script>&\""
SPLITS = planted_splits()


class Cells(HTMLParser):
    """The rows of all tables of a page; a tag that is not closed, or not a table's, is an error."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open, self.seen = [], [], set()
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_experiment(small(), tmp_path_factory.mktemp("shown"), splits=SPLITS)


def test_a_value_is_text_and_never_a_tag():
    page = html_table((HOSTILE,), [(HOSTILE,), ((HOSTILE, 1),)], HOSTILE)
    found = Cells(page)
    assert found.rows == [[HOSTILE], [HOSTILE], [f"{HOSTILE}, 1"]]
    assert "script" not in found.seen
    assert "<script" not in page


def test_a_config_marks_what_differs_from_its_defaults():
    config = ExperimentConfig(dataset="genome", encoding="kmer", mu=0.5, shots=None)
    rows = Cells(config._repr_html_()).rows
    assert [row[:4] for row in rows if row[0] == "●"] == [
        ["●", "dataset", "genome", "baf"],
        ["●", "encoding", "kmer", "word-id"],
        ["●", "mu", "0.5", "0.01"],
        ["●", "shots", "none", "1024"],
    ]
    # What the encoding brings along was not chosen; every field is shown once.
    assert ["angle_range", "0, 1", ExperimentConfig.describe()["angle_range"]] in rows
    named = [row[1] for row in rows if row[0] == "●"] + [
        row[0] for row in rows if row[0] in ExperimentConfig.describe()
    ]
    assert sorted(named) == sorted(ExperimentConfig.describe())


def test_an_untouched_config_marks_nothing():
    assert "●" not in ExperimentConfig()._repr_html_()


def test_a_run_shows_its_rounds_and_their_origin(run):
    page = run._repr_html_()
    rows = Cells(page).rows
    assert [row[0] for row in rows] == ["round", "0", "1", "2"]
    assert rows[-1][1] == f"{run.rounds['global_accuracy'].iloc[-1]:.4g}"
    for told in ("duqfl-prox", "seed 0", "data: stand-in", "statevector, shots", run.path.name):
        assert told in page
    assert "CHANGED" not in page


def test_a_long_run_shows_its_first_and_last_rounds(tmp_path):
    run = run_experiment(small(rounds=20, clients=2, unfolds=1, spsa_iterations=1), tmp_path, splits=SPLITS)
    shown = [row[0] for row in Cells(run._repr_html_()).rows[1:]]
    assert len(shown) == SHOWN_ROUNDS
    assert (shown[:3], shown[-1]) == (["0", "...", "11"], "20")


def test_a_changed_run_says_so_and_its_texts_are_escaped(run, tmp_path):
    changed = RunResult(tmp_path / "run")
    shutil.copytree(run.path, changed.path)
    origin = changed.path / "environment.json"
    origin.write_text(origin.read_text().replace("stand-in", "<script>alert(1)</script>"))
    with pytest.warns(ChangedResults, match=r"environment\.json changed"):
        page = run_html(changed)
    assert "CHANGED since the run was sealed: environment.json" in page
    assert "script" not in Cells(page).seen
    with warnings.catch_warnings(record=True) as again:
        changed._repr_html_()
    assert again == []  # said once per run


def test_splits_show_their_parts_source_and_what_was_removed():
    source = replace(SPLITS.provenance, name=HOSTILE)
    page = replace(SPLITS, provenance=source, notes={"rows with NaN": 3, HOSTILE: 1})._repr_html_()
    found = Cells(page)
    assert [row[:2] for row in found.rows[1:]] == [["train", "160"], ["val", "40"], ["test", "30"]]
    assert "rows with NaN: 3" in page
    assert "stand-in data" in page
    assert "script" not in found.seen


def test_methods_are_a_dict_that_shows_every_switch():
    assert isinstance(METHODS, dict)
    rows = Cells(METHODS._repr_html_()).rows
    assert [row[0] for row in rows[1:]] == list(METHODS)
    prox = dict(zip(rows[0], rows[list(METHODS).index("duqfl-prox") + 1], strict=True))
    assert (prox["label"], prox["proximal"], prox["projection"]) == ("DUQFL-Prox", "✓", "×")


def test_a_table_of_anything_is_escaped_and_may_be_empty():
    @dataclass(frozen=True)
    class Row:
        note: str

    assert Cells(ShownTable({HOSTILE: Row(HOSTILE)})._repr_html_()).rows[1] == [HOSTILE, HOSTILE]
    assert Cells(ShownTable()._repr_html_()).rows == [[""]]


def test_values_are_shown_by_what_they_mean():
    @dataclass(frozen=True)
    class Rule:
        of: object
        learned: bool

    told = [True, float("nan"), 1 / 3, None, (0.0, 1), Rule(len, False), "text"]
    assert Cells(html_table("abcdefg", [told])).rows[1] == ["✓", "–", "0.3333", "none", "0, 1", "Rule(len, ×)", "text"]
