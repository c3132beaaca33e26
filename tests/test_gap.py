"""The train-test gap: what the mix of classes explains of it, on planted models and on runs."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted import planted_splits, planted_study, small

from qfl_core.analysis import gap
from qfl_core.analysis.sides import SIDES, side_rates
from qfl_core.analysis.untrained import UNTRAINED, level, level_facts, untrained_rounds
from qfl_core.base.errors import DataError, RunError
from qfl_core.config import load_profile
from qfl_core.data import load_splits
from qfl_core.data.partition import make_partition
from qfl_core.figures import apply_style
from qfl_core.figures.gap import train_test_gap_shift
from qfl_core.runs.run import run_experiment
from qfl_core.runs.study import get_study

SMALL = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return get_study(load_profile("smoke"), "baf", ["duqfl-prox", UNTRAINED], [0, 1], folder, **SMALL)


def uploads(**columns) -> pd.DataFrame:
    return pd.DataFrame({"train_share": [0.2, 0.8, 0.7], "test_share": [0.01, 0.01, 0.01]} | columns)


def test_a_model_that_calls_everything_positive_has_a_gap_of_shift_alone():
    planted = uploads(test_accuracy=0.01, test_recall=1.0)
    train_accuracy = planted["train_share"]  # it is right wherever the label is 1
    assert gap.explained_by_shift(planted).to_numpy() == pytest.approx(train_accuracy - 0.01)


def test_a_model_that_memorises_and_guesses_elsewhere_has_no_part_by_shift():
    planted = uploads(test_accuracy=0.5, test_recall=0.5)  # 1.0 on its own chunk
    assert gap.explained_by_shift(planted).to_numpy() == pytest.approx(0.0)


def test_any_model_that_answers_by_class_alone_has_a_gap_of_shift_alone():
    rng = np.random.default_rng(0)
    r1, r0, m, test = rng.uniform(size=(4, 20))
    planted = pd.DataFrame(
        {"train_share": m, "test_share": test, "test_recall": r1, "test_accuracy": test * r1 + (1 - test) * r0}
    )
    whole = (m * r1 + (1 - m) * r0) - planted["test_accuracy"]
    assert gap.explained_by_shift(planted).to_numpy() == pytest.approx(whole)


def test_a_test_part_of_one_class_leaves_the_part_unknown():
    planted = uploads(test_share=[1.0, 0.0, 0.5], test_accuracy=[0.7, 0.7, 0.5], test_recall=[0.7, np.nan, 0.5])
    assert gap.explained_by_shift(planted).isna().tolist() == [True, True, False]


def test_the_mixes_are_those_of_the_rows_that_clients_hold():
    config = load_profile("smoke").config("baf", **SMALL, client_test="split")
    splits, mixes = load_splits(config), gap.class_mixes(config)
    partition = make_partition(splits, config)
    assert len(mixes) == config.rounds * config.clients
    for row in mixes.itertuples():
        mine = partition.round(row.round - 1)[row.client]
        assert row.train_share == splits.train.y[mine.train].mean()
        assert row.test_share == splits.test.y[mine.test].mean()


def test_the_gap_of_a_run_is_the_recorded_one_and_its_parts_add_up(study):
    parts = gap.gap_parts(study)
    recorded = study.rounds[study.rounds["round"] > 0]
    both = parts.merge(recorded, on=["method", "seed", "round"])
    assert len(both) == len(parts) == 2 * 2 * 2
    assert both["gap"].to_numpy() == pytest.approx(both["train_test_gap"])
    assert (both["shift"] + both["rest"]).to_numpy() == pytest.approx(both["gap"])


def test_other_data_than_the_runs_are_refused(tmp_path):
    run = run_experiment(small(source="stand-in"), tmp_path, splits=planted_splits())
    with pytest.raises(DataError, match="was trained on other data"):
        gap.gap_parts(planted_study([run], tmp_path))


def test_the_table_and_the_figure_show_every_method_of_every_track(study):
    apply_style(final=False)
    parts = gap.gap_parts(study)
    table = gap.gap_table({"baf": parts, "genome": parts})
    assert set(table["part"]) == set(gap.PARTS)
    sheet = gap.gap_sheet(table)
    assert sheet["method"].tolist() == ["DUQFL-Prox", "untrained"] * 2
    last = parts[(parts["round"] == 2) & (parts["method"] == UNTRAINED)]
    assert sheet["explained by the class mix"][1] == pytest.approx(last["shift"].mean())
    figure = train_test_gap_shift(table, study.facts).draw()
    assert [axis.get_title() for axis in figure.axes] == [f"What the gap is made of, {t}" for t in ("BAF", "genome")]
    plt.close(figure)


def test_untrained_rounds_keep_the_initial_weights_and_vary_by_shots_and_chunks_only(study):
    rounds = untrained_rounds(study)
    assert set(rounds["method"]) == {UNTRAINED}
    assert rounds["drift_from_broadcast"].dropna().eq(0).all()
    assert level(study.rounds, "client_test_accuracy") == pytest.approx(rounds["client_test_accuracy"].mean())
    assert np.isnan(level(study.of("duqfl-prox").rounds, "global_accuracy"))


def test_a_study_without_the_untrained_model_says_so(study):
    ours = study.of("duqfl-prox")
    assert level_facts(ours) == ours.facts
    assert level_facts(study) == (*study.facts, "untrained: mean over seeds and rounds")
    with pytest.raises(RunError, match="track 'baf' has no run of method 'untrained'; its methods are duqfl-prox"):
        untrained_rounds(replace(study, runs=ours.runs))


def test_a_client_that_learns_its_own_class_mix_is_on_the_side_of_that_class(study, monkeypatch):
    """Models that say no or yes to everything are right by the mix of the test set alone."""
    mixes = [(0.2, 0.99, 0.0), (0.8, 0.01, 1.0)]  # share of label 1 in the chunk, accuracy, recall
    rows = [
        {"method": "duqfl-prox", "seed": seed, "round": 2, "train_share": m, "test_share": 0.01}
        | {"test_accuracy": accuracy, "test_recall": recall}
        for seed in (0, 1)
        for m, accuracy, recall in mixes
    ]
    monkeypatch.setattr("qfl_core.analysis.sides.with_mixes", lambda _: pd.DataFrame(rows))
    found = side_rates(study).set_index("side")
    assert found.loc[SIDES[False], ["accuracy", "recall", "specificity", "yes"]].tolist() == pytest.approx(
        [0.99, 0, 1, 0]
    )
    assert found.loc[SIDES[True], ["accuracy", "recall", "specificity", "yes"]].tolist() == pytest.approx(
        [0.01, 1, 0, 1]
    )


def test_the_sides_of_a_study_average_to_its_client_accuracy(study):
    found = side_rates(study)
    last = study.rounds[study.rounds["round"] == study.rounds["round"].max()]
    for name, label in (("duqfl-prox", "DUQFL-Prox"),):
        mine = found[found["method"] == label]
        assert len(mine) == 2  # two clients, one per side
        assert mine["accuracy"].mean() == pytest.approx(last[last["method"] == name]["client_test_accuracy"].mean())
