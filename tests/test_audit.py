"""The audit convicts word-id, acquits kmer and the rest, and its references agree with scikit-learn's metrics."""

import numpy as np
import pytest

from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.data.audit import audit, leak_test
from qfl_core.data.splits import DataSource, Split, Splits

SIZES = {"train_size": 1600, "val_size": 400, "test_size": 400}
CASES = [
    ("baf", "pca", False),
    ("genome", "word-id", True),
    ("genome", "word-id-shuffled", False),
    ("genome", "kmer", False),
]


@pytest.mark.parametrize(("dataset", "encoding", "leaks"), CASES)
@pytest.mark.parametrize("features", [2, 4])
def test_word_id_is_convicted_and_the_others_acquitted(dataset, encoding, leaks, features):
    test = leak_test(ExperimentConfig(dataset=dataset, encoding=encoding, features=features, **SIZES))
    assert test.leaks == leaks
    assert ("LEAKS" in test.verdict) == leaks
    assert encoding in test.verdict


@pytest.mark.real_data
@pytest.mark.parametrize(("dataset", "encoding", "leaks"), CASES)
def test_the_verdicts_hold_on_real_data(real_data, dataset, encoding, leaks):
    assert leak_test(ExperimentConfig(dataset=dataset, encoding=encoding, source="official")).leaks == leaks


def test_kmer_is_a_real_task_and_the_shuffled_dictionary_is_not():
    kmer = audit(load_splits(ExperimentConfig(dataset="genome", encoding="kmer", **SIZES)))
    shuffled = audit(load_splits(ExperimentConfig(dataset="genome", encoding="word-id-shuffled", **SIZES)))
    assert kmer.loc["logistic regression", "accuracy"] > 0.88
    assert (shuffled["accuracy"] < 0.6).all()


def test_never_fraud_scores_the_class_share_and_says_nothing():
    table = audit(load_splits(ExperimentConfig()))
    majority = table.loc["majority class"]
    assert majority["accuracy"] == pytest.approx(1236 / 1250)
    assert majority["balanced_accuracy"] == 0.5
    assert majority["roc_auc"] == 0.5
    assert table.loc["logistic regression", "roc_auc"] > 0.6


def planted(signal: float) -> Splits:
    rng = np.random.default_rng(0)

    def part(rows):
        y = np.arange(rows) % 2
        return Split(rng.normal(size=(rows, 2)) + signal * y[:, None], y, np.arange(rows))

    return Splits(part(600), part(100), part(400), DataSource("planted", "stand-in", "", "", ""))


def test_references_find_a_planted_signal_and_nothing_in_noise():
    learned = audit(planted(3.0)).drop("majority class")
    assert (learned["accuracy"] > 0.95).all()
    assert (learned["roc_auc"] > 0.98).all()
    assert (audit(planted(0.0))["accuracy"] < 0.6).all()
