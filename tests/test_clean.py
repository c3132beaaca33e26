"""The clean track: the pooled reference learns what can be learnt, and reaching a reference is counted right."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted import planted_splits, small
from scipy import stats

from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.base.errors import RunError
from qfl_core.config import load_profile
from qfl_core.data.splits import Split, Splits
from qfl_core.figures import studies
from qfl_core.figures.style import REFERENCE_LINES
from qfl_core.runs.study import get_study
from qfl_core.studies.clean import POOLED, CleanStudy, _margin, _verdicts, clean_study, encoding_search, with_executions
from qfl_core.studies.pooled import Recipe, pooled_qnn, pooled_scores

QUICK = Recipe(starts=2, steps=40, rate=0.1)
SIZES = {"train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}


def narrow(splits: Splits) -> Splits:
    """Return the same data in [0, 1]: phases of 2 x in [0, 2 pi] would meet again."""
    parts = {name: Split(part.X / np.pi, part.y, part.origin) for name, part in splits.parts.items()}
    return Splits(**parts, provenance=splits.provenance)


def test_the_pooled_qnn_learns_a_planted_rule():
    scores = pooled_qnn(small(feature_map="z", feature_map_reps=1), narrow(planted_splits(train=300, test=200)), QUICK)
    assert scores["test"]["accuracy"] > 0.8
    assert scores["test"]["roc_auc"] > 0.85


def test_labels_without_a_rule_leave_it_at_chance():
    splits = narrow(planted_splits(train=300, test=400))
    rng = np.random.default_rng(3)
    parts = {n: Split(p.X, rng.permutation(p.y), p.origin) for n, p in splits.parts.items()}
    scores = pooled_qnn(small(feature_map="z"), Splits(**parts, provenance=splits.provenance), QUICK)
    assert abs(scores["test"]["roc_auc"] - 0.5) < 0.1


def test_a_rare_class_weighs_as_much_as_the_common_one():
    splits = narrow(planted_splits(train=2000, test=400))
    y = splits.train.y
    keep = np.sort(np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:30]]))
    train = Split(splits.train.X[keep], y[keep], splits.train.origin[keep])
    rare = Splits(train, splits.val, splits.test, splits.provenance)
    scores = pooled_qnn(small(feature_map="z", feature_map_reps=1), rare, QUICK)
    assert scores["test"]["recall"] > 0.75
    assert scores["test"]["specificity"] > 0.75


def test_pooled_scores_depend_on_data_and_model_alone_and_are_kept(tmp_path):
    config = load_profile("smoke").config("baf", **SIZES)
    with pytest.raises(RunError, match="1 pooled reference models are not in"):
        pooled_scores([config], tmp_path, QUICK, train=False)
    first = pooled_scores([config], tmp_path, QUICK)
    other_federation = config.replace(clients=3, rounds=7, method="default-qfl", mu=0.5)
    again = pooled_scores([other_federation], tmp_path, QUICK, train=False)
    pd.testing.assert_frame_equal(first, again)
    with pytest.raises(RunError):
        pooled_scores([config.replace(feature_map="z")], tmp_path, QUICK, train=False)


def test_an_encoding_is_compared_with_the_best_of_the_others():
    means = np.array([0.80, 0.795, 0.77, 0.70])
    assert _verdicts(means, 0.01) == ["absent", "absent", "lower", "lower"]
    assert _verdicts(means, 0.035) == ["undecided", "undecided", "undecided", "lower"]
    assert _verdicts(means, 0.004) == ["higher", "lower", "lower", "lower"]
    assert _verdicts(means, np.inf) == ["undecided"] * 4
    assert _verdicts(means[:1], 0.01) == ["absent"]


def test_the_encoding_search_ranks_by_validation_and_prefers_the_simplest_of_the_tied(tmp_path):
    profile = load_profile("smoke", experiment={"common": SIZES})
    section = {"choices": {"feature_map": ["z", "zz"], "angle_range": [(0.0, 1.0), (0.0, 3.0)]}, "seeds": [100, 101]}
    search = encoding_search(profile, "baf", section, tmp_path)
    found = search.table
    assert len(found) == 4
    assert found["mean"].is_monotonic_decreasing
    assert found.loc[0, "behind"] == 0
    assert found.loc[0, "tied"]
    assert found["tied"].is_monotonic_decreasing  # of two encodings, the lower is not tied where the higher is not
    chosen = found[found["preferred"]]
    order = [("z", (0.0, 1.0)), ("z", (0.0, 3.0)), ("zz", (0.0, 1.0)), ("zz", (0.0, 3.0))]
    tied = {(row.feature_map, row.angle_range) for row in found[found["tied"]].itertuples()}
    assert [(row.feature_map, row.angle_range) for row in chosen.itertuples()] == [next(e for e in order if e in tied)]
    pd.testing.assert_frame_equal(found, encoding_search(profile, "baf", section, tmp_path, train=False).table)
    figure = studies.encoding_validation(search, "encodings").draw()
    assert "exact" in figure.get_supxlabel()
    assert len(figure.axes[0].get_yticklabels()) == 4
    plt.close(figure)


def test_the_margin_of_two_encodings_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(8, 1)) + rng.normal(scale=0.1, size=(8, 2))
    interval = stats.ttest_rel(*scores.T).confidence_interval(0.95)
    assert _margin(scores) == pytest.approx((interval.high - interval.low) / 2)
    assert _margin(scores[:1]) == np.inf  # one seed tells nothing apart


def rounds_of(method: str, seed: int, accuracy: list[float], circuits: int) -> pd.DataFrame:
    count = len(accuracy)
    return pd.DataFrame(
        {
            "method": method,
            "seed": seed,
            "round": np.arange(count),
            "global_accuracy": accuracy,
            "circuits_train": [0, *[circuits] * (count - 1)],
            "circuits_tuning": [500, *[0] * (count - 1)],
        }
    )


class PlantedStudy:
    """Only what the count of rounds needs."""

    methods = ("duqfl-prox", "default-qfl")
    rounds = pd.concat(
        [
            rounds_of("duqfl-prox", 0, [0.99, 0.5, 0.76, 0.8], 100),
            rounds_of("duqfl-prox", 1, [0.1, 0.5, 0.7, 0.7], 100),
            rounds_of("default-qfl", 0, [0.1, 0.9, 0.2, 0.2], 40),
            rounds_of("default-qfl", 1, [0.1, 0.9, 0.2, 0.2], 40),
        ],
        ignore_index=True,
    )


def test_reaching_counts_the_first_trained_round_at_95_percent_of_the_same_seeds_reference():
    references = pd.DataFrame({"model": "logistic regression", "seed": [0, 1], "accuracy": [0.8, 0.9]})
    reached = CleanStudy(PlantedStudy(), "accuracy", references).reached.set_index(["method", "seed"])
    assert reached.loc[("duqfl-prox", 0)].tolist() == [2, 700]  # 0.76 of 0.8; round 0 is luck, not training
    assert reached.loc[("duqfl-prox", 1)].isna().all()
    assert reached.loc[("default-qfl", 1)].tolist() == [1, 540]


def test_executions_add_up_over_rounds_within_a_run():
    found = with_executions(PlantedStudy.rounds)
    mine = found[(found["method"] == "default-qfl") & (found["seed"] == 1)]
    assert mine["executions"].tolist() == [500, 540, 580, 620]


def test_the_clean_table_sets_methods_beside_the_references(tmp_path):
    profile = load_profile("smoke", experiment={"genome-clean": SIZES | {"rounds": 2}})
    study = get_study(profile, "genome-clean", ["fedprox-qfl", "duqfl-prox"], [0, 1], tmp_path)
    clean = clean_study(study, "accuracy")
    table = clean.table()
    expected = ["FedProx-QFL", "DUQFL-Prox", "logistic regression", "gradient boosting", POOLED]
    assert list(table.index) == expected
    assert table.loc[POOLED, "rounds to 95 %"] == ""
    assert table["accuracy"].str.fullmatch(r"\d\.\d{3} ± \d\.\d{3}").all()
    pd.testing.assert_frame_equal(table, clean_study(study, "accuracy", train=False).table())
    figure = studies.clean_track(clean, "genome_clean").draw()
    assert [axis.get_title() for axis in figure.axes][4] == "What it costs, genome clean"
    entries = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {POOLED, "majority class", "logistic regression", "95 % of logistic regression", "DUQFL-Prox"} <= entries
    for axis, metric in zip(figure.axes, ("accuracy", "balanced_accuracy", "roc_auc"), strict=False):
        drawn = {line.get_label(): line.get_ydata()[0] for line in axis.lines if line.get_label() in REFERENCE_LINES}
        assert drawn == pytest.approx(study.references(metric) | clean.means(metric)), metric
    plt.close(figure)


def test_score_axes_begin_at_round_1_and_tell_what_lies_far_below():
    rounds = pd.DataFrame({"round": [0, 1, 2], "mean": [0.48, 0.85, 0.93], "low": [0.4, 0.83, 0.92]})
    curves = rounds.assign(high=rounds["mean"] + 0.01, method="duqfl-prox")
    untrained = curves.assign(method=UNTRAINED, mean=0.48)
    references = {"majority class": 0.5, "logistic regression": 0.95}
    figure, (far, near) = plt.subplots(1, 2)
    studies._clean_curves(far, pd.concat([curves, untrained]), references, "far")
    assert 0.82 < far.get_ylim()[0] < 0.83
    assert 0.95 < far.get_ylim()[1] < 0.96
    assert [text.get_text() for text in far.texts] == ["below: majority class 0.50, untrained 0.48"]
    studies._clean_curves(near, curves, references | {"majority class": 0.82}, "near")
    assert near.get_ylim()[0] < 0.82
    assert not near.texts
    plt.close(figure)
