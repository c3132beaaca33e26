"""Mixtures of stand-in and real BAF rows: whose rows make the margin between methods differ?"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qfl_core.__main__ import main
from qfl_core.base.errors import DataError
from qfl_core.config import load_profile
from qfl_core.data import baf, load_splits
from qfl_core.data.standin.baf import generate_baf
from qfl_core.studies.real import hybrids as study
from qfl_core.studies.real.hybrids import (
    MEASURES,
    REAL,
    STAND_IN,
    hybrids,
    hybrids_table,
    hybrids_text,
    leverage,
    mixed,
    rows_facts,
    splits_of,
)

SMOKE = load_profile("smoke")


@pytest.fixture(scope="module")
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """A stand-in, and other generated rows that play the real file: their incomes say which they are."""
    stand_in, real = generate_baf(9_000, seed=5), generate_baf(6_000, seed=6)
    return stand_in, real.assign(income=real["income"] + 10)


def test_rows_of_a_frame_become_the_splits_of_a_file_with_these_rows():
    config = SMOKE.config("baf", seed=3, source="stand-in")
    found, expected = splits_of(baf.standin_frame(), config), load_splits(config)
    for name, part in expected.parts.items():
        np.testing.assert_array_equal(found.parts[name].X, part.X)
        np.testing.assert_array_equal(found.parts[name].y, part.y)


def test_a_population_has_the_asked_rows_and_the_size_of_the_real_file(frames):
    stand_in, real = frames
    for legit, frauds in ((STAND_IN, REAL), (REAL, STAND_IN), (REAL, REAL), (STAND_IN, STAND_IN)):
        found = mixed(stand_in, real, legit, frauds, sample=1)
        assert found[baf.TARGET].value_counts().to_dict() == real[baf.TARGET].value_counts().to_dict()
        of_real = found["income"] > 5
        assert of_real[found[baf.TARGET] == 0].unique().tolist() == [legit == REAL]
        assert of_real[found[baf.TARGET] == 1].unique().tolist() == [frauds == REAL]
    first, again, other = (mixed(stand_in, real, STAND_IN, REAL, sample) for sample in (1, 1, 2))
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)


def test_wide_frauds_and_shifted_frauds_are_seen():
    config = SMOKE.config("baf", seed=0, source="stand-in", train_size=2_999)
    splits = load_splits(config)
    y, rng = splits.train.y, np.random.default_rng(0)
    plain = {name: rng.normal(size=part.X.shape) for name, part in splits.parts.items()}

    def planted(wide, shift):
        parts = {
            name: type(part)(
                np.where(part.y[:, None] == 1, wide * plain[name] + shift, plain[name]), part.y, part.origin
            )
            for name, part in splits.parts.items()
        }
        return rows_facts(type(splits)(**parts, provenance=splits.provenance))

    assert (y == 1).sum() == 33
    wide, shifted = planted(2.0, 0.0), planted(1.0, 3.0)
    assert wide["spread"] == pytest.approx(2, abs=0.4)
    assert wide["quadratic"] > wide["linear"]  # width alone is no straight line
    assert shifted["spread"] == pytest.approx(1, abs=0.2)
    assert shifted["linear"] > 0.95


def test_rows_that_are_alike_give_the_weights_more_leverage():
    config = SMOKE.config("baf", seed=0, source="stand-in")
    splits = load_splits(config)

    def narrowed(share):
        X = splits.train.X.mean(axis=0) + share * (splits.train.X - splits.train.X.mean(axis=0))
        return replace(splits, train=replace(splits.train, X=X))

    one, some, plain = (leverage(config, narrowed(share)) for share in (0.0, 0.5, 1.0))
    assert one > some > plain > 0
    assert leverage(config, splits) == pytest.approx(plain)  # the same weights every time


def test_all_populations_run_with_the_same_seeds_and_the_tables_tell_planted_effects(frames):
    found = hybrids(SMOKE, *frames, samples=2, seeds=1, jobs=1)
    assert list(found) == ["legit", "frauds", "sample", "seed", *MEASURES]
    assert len(found) == 8
    assert found.groupby("sample")["seed"].agg(["nunique", "size"]).values.tolist() == [[1, 4], [1, 4]]
    assert found[list(MEASURES)].notna().all(axis=None)
    planted = found.assign(margin=0.07 - 0.02 * (found["legit"] == REAL) + 0.001 * found["sample"])
    told = hybrids_table(planted).set_index("").loc[MEASURES["margin"]]
    assert told["stand-in"].startswith("0.07") and told["real"].startswith("0.05")  # noqa: PT018
    assert told["real legitimate rows change"] == "-0.020 [-0.020, -0.020]"
    assert told["real frauds change"].replace("-0", "+0") == "+0.000 [+0.000, +0.000]"
    assert "over 2 samples of the stand-in, 2 seeds in all" in hybrids_text(planted)


def test_a_file_that_is_too_small_is_refused(frames):
    with pytest.raises(DataError, match="has 100 usable rows, a run takes"):
        hybrids(SMOKE, frames[0], frames[1].head(100))


def test_no_profile_uses_the_seeds():
    settings = load_profile("paper")
    last = study.FIRST_SEED + study.SAMPLES * study.SEEDS
    numbers = str(settings)
    assert all(str(seed) not in numbers for seed in range(study.FIRST_SEED, last))


def test_the_command_writes_the_tables_with_the_digest_of_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path))
    asked = ["real", "--profile", "smoke", "--hybrids", "--out", str(tmp_path / "out")]
    assert main(asked) == 1
    assert "refuses the stand-in for baf" in capsys.readouterr().err
    # Here generated rows play the file.
    monkeypatch.setattr("qfl_core.studies.real.study.OFFICIAL", "stand-in")
    monkeypatch.setattr(baf, "official_frame", lambda source: generate_baf(6_000, seed=6))
    monkeypatch.setattr(study.hybrids, "__defaults__", (1, 1, 1))
    assert main(asked) == 0
    assert "tables:" in capsys.readouterr().out
    assert len(pd.read_csv(tmp_path / "out" / "hybrids.csv")) == 4
    told = (tmp_path / "out" / "hybrids.md").read_text(encoding="utf-8")
    assert baf.baf_source(SMOKE.config("baf", source="stand-in")).sha256 in told


def test_the_page_shows_the_table_that_the_command_wrote():
    folder = Path(__file__).resolve().parent.parent / "figures" / "tables" / "real"
    rows = pd.read_csv(folder / "hybrids.csv")
    assert set(rows["seed"]) == set(range(study.FIRST_SEED, study.FIRST_SEED + study.SAMPLES * study.SEEDS))
    assert (folder / "hybrids.md").read_text(encoding="utf-8").startswith(hybrids_text(rows))
