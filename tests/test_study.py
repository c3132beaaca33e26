"""Studies: what was run is read back, what was not is named, and references are computed once."""

import pandas as pd
import pytest

import qfl_core.runs.study as study_module
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.data import audit, load_splits
from qfl_core.runs.study import REFERENCES, get_study

SMALL = {
    "rounds": 1,
    "clients": 2,
    "train_size": 300,
    "val_size": 100,
    "test_size": 100,
    "source": "stand-in",
    "unfolds": 1,
    "spsa_iterations": 1,
}
METHODS = ["duqfl-best", "duqfl-prox"]


@pytest.fixture(scope="module")
def settings():
    return load_profile("smoke")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def study(settings, folder):
    return get_study(settings, "baf", METHODS, [0, 1], folder, **SMALL)


def test_a_study_is_read_back_without_training(study, settings, folder, monkeypatch):
    monkeypatch.setattr(study_module, "sweep", None)
    again = get_study(settings, "baf", METHODS, [0, 1], folder, train=False, **SMALL)
    assert [run.path for run in again.runs] == [run.path for run in study.runs]
    pd.testing.assert_frame_equal(again.rounds, study.rounds)


@pytest.mark.parametrize("change", [{"mu": 0.5}, {"seeds": [0, 7]}, {"methods": ["duqfl-last"]}])
def test_what_was_not_run_is_named_and_nothing_else_is_taken_for_it(study, settings, folder, change):
    asked = {"methods": METHODS, "seeds": [0, 1], "folder": folder} | SMALL | change
    with pytest.raises(RunError, match=r"of track 'baf' are not in results/smoke .*make reproduce"):
        get_study(settings, "baf", train=False, **asked)


def test_runs_of_other_data_or_other_code_are_not_read(study, settings, folder, monkeypatch):
    monkeypatch.setattr("qfl_core.runs.identity.code_digest", lambda: "another")
    with pytest.raises(RunError, match="4 runs of"):
        get_study(settings, "baf", METHODS, [0, 1], folder, train=False, **SMALL)


def test_a_part_of_a_study_keeps_the_order_asked_for(study):
    assert study.methods == METHODS
    assert study.of("duqfl-prox", "duqfl-best").methods == METHODS[::-1]
    assert study.of("duqfl-prox").rounds["method"].unique().tolist() == ["duqfl-prox"]


def test_references_are_means_over_the_seeds_and_kept(study, folder, monkeypatch):
    expected = [audit.audit(load_splits(run.config), run.config.seed) for run in study.of("duqfl-prox").runs]
    mean = sum(table["roc_auc"] for table in expected) / len(expected)
    assert study.references("roc_auc") == pytest.approx({name: mean[name] for name in REFERENCES})
    assert len(list((folder / "references").glob("baf-pca-*.csv"))) == 2
    monkeypatch.setattr(study_module, "audit", None)
    assert study.of("duqfl-best").references("roc_auc") == study.references("roc_auc")


def test_the_clean_track_is_another_encoding_of_the_same_data(settings):
    paper, clean = settings.config("genome"), settings.config("genome-clean")
    assert (paper.dataset, clean.dataset) == ("genome", "genome")
    assert (paper.encoding, clean.encoding) == ("word-id", "kmer")
    with pytest.raises(ConfigError, match="has no track 'nothing-clean'"):
        settings.config("nothing-clean")
