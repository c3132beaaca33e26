"""Kept tables are the tables of the runs, and a change of the runs is never missed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from qfl_core.analysis import kept as module
from qfl_core.analysis.kept import kept
from qfl_core.base.errors import ChangedResults
from qfl_core.base.paths import cache_dir
from qfl_core.config import load_profile
from qfl_core.runs.results import RunResult
from qfl_core.runs.study import Study, get_study

SMALL = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}


def reader(folder: Path) -> Callable[[], Study]:
    """Return a function that reads the study of this folder; what is missing is trained."""
    return lambda: get_study(load_profile("smoke"), "baf", ["default-qfl", "duqfl-prox"], [0, 1], folder, **SMALL)


@pytest.fixture(scope="module")
def get(tmp_path_factory):
    return reader(tmp_path_factory.mktemp("results"))


def same(study, plain) -> None:
    for table in ("classification_metrics", "client_trace"):
        pd.testing.assert_frame_equal(study.table(table), plain.table(table))
    pd.testing.assert_frame_equal(study.rounds, plain.rounds)
    pd.testing.assert_frame_equal(study.reference_scores, plain.reference_scores)
    for ours, run in zip(study.runs, plain.runs, strict=True):
        pd.testing.assert_frame_equal(ours.rounds, run.rounds)
        pd.testing.assert_frame_equal(ours.metrics, run.metrics)
        pd.testing.assert_frame_equal(ours.clients, run.clients)


def test_a_kept_study_has_the_same_tables_when_it_is_read_first_and_again(get):
    for _ in range(2):
        same(kept(get()), get())
        same(kept(get()).of("duqfl-prox", "default-qfl"), get().of("duqfl-prox", "default-qfl"))
        same(kept(get()).of("duqfl-prox").at(1), get().of("duqfl-prox").at(1))
        same(kept(kept(get())), get())


def test_the_runs_are_read_once(get, monkeypatch):
    first = kept(get())
    same(first, get())
    monkeypatch.setattr(RunResult, "table", None)  # reading a run would fail
    monkeypatch.setattr(module, "reference_scores", None)
    again = kept(get())
    pd.testing.assert_frame_equal(again.rounds, first.rounds)
    pd.testing.assert_frame_equal(again.table("client_trace"), first.table("client_trace"))
    pd.testing.assert_frame_equal(again.reference_scores, first.reference_scores)


def test_a_study_of_other_methods_reads_none_of_them_again(get, monkeypatch):
    plain = get().of("duqfl-prox").rounds
    same(kept(get()), get())
    monkeypatch.setattr(RunResult, "table", None)  # reading a run would fail
    pd.testing.assert_frame_equal(kept(get().of("duqfl-prox")).rounds, plain)


def test_nobody_can_change_what_others_get(get):
    study = kept(get())
    rounds, metrics = study.rounds, study.table("classification_metrics")
    rounds["global_accuracy"] = 0.0
    metrics["recall"] = 0.0
    same(kept(get()), get())
    assert study.runs[0].rounds["global_accuracy"].any()


def test_an_altered_run_is_read_from_its_own_files_with_the_warning(get, tmp_path):
    get = reader(shutil.copytree(get().folder, tmp_path / "copy"))
    same(kept(get()), get())
    path = get().runs[0].path / "global_accuracies.csv"
    path.write_text(path.read_text().replace("\n1,", "\n7,"))
    with pytest.warns(ChangedResults, match="global_accuracies.csv changed since the run was sealed"):
        assert 1 not in set(kept(get()).rounds["round"][:2])


def test_a_damaged_cache_file_is_made_again(get):
    same(kept(get()), get())
    stored = sorted((cache_dir() / "tables").iterdir())
    assert len(stored) == 2 * 3 + 1  # three tables per method, and the reference scores
    for path in stored:
        path.write_bytes(b"nothing that can be read")
    same(kept(get()), get())
    assert all(len(path.read_bytes()) > 100 for path in stored)


def test_a_cache_folder_that_cannot_be_written_costs_time_and_nothing_else(get, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    plain = get()
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path / "file"))
    pd.testing.assert_frame_equal(kept(plain).rounds, plain.rounds)
