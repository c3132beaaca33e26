"""What the features tell about the label: classical models on the QNN's own inputs, and the leak test."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.data.splits import Splits

#: An encoding leaks when the best model loses more balanced accuracy than this once the rows come in shuffled order.
LEAK_THRESHOLD = 0.1


def reference_models(seed: int) -> dict[str, ClassifierMixin]:
    """Return the classical models by name; they weigh both classes equally where they can."""
    return {
        "majority class": DummyClassifier(strategy="most_frequent"),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced")),
        "k nearest neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
        "random forest": RandomForestClassifier(100, min_samples_leaf=3, class_weight="balanced", random_state=seed),
        "gradient boosting": HistGradientBoostingClassifier(
            max_iter=100, learning_rate=0.05, max_bins=63, class_weight="balanced", random_state=seed
        ),
    }


def audit(splits: Splits, seed: int = 0, models: Collection[str] | None = None) -> pd.DataFrame:
    """Fit classical models on the training angles and score them on the test split.

    Parameters
    ----------
    splits : the data.
    seed : of the models that draw random numbers.
    models : names of :func:`reference_models`; None fits all of them.

    Returns
    -------
    One row per model with its accuracy, balanced_accuracy and roc_auc.
    """
    rows, y = {}, splits.test.y
    for name, model in reference_models(seed).items():
        if models is not None and name not in models:
            continue
        with threadpool_limits(1):  # small data: several threads would mostly wait for each other
            model.fit(splits.train.X, splits.train.y)
            predicted, score = model.predict(splits.test.X), model.predict_proba(splits.test.X)[:, 1]
        rows[name] = {
            "accuracy": accuracy_score(y, predicted),
            "balanced_accuracy": balanced_accuracy_score(y, predicted),
            "roc_auc": roc_auc_score(y, score),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


@dataclass(frozen=True, eq=False)
class LeakTest:
    """Two audits of one encoder, which met the same rows in file order and in shuffled order."""

    encoding: str
    file_order: pd.DataFrame
    shuffled_order: pd.DataFrame

    @property
    def model(self) -> str:
        """The model with the best balanced accuracy in file order."""
        return str(self.file_order["balanced_accuracy"].idxmax())

    @property
    def scores(self) -> tuple[float, float]:
        """The balanced accuracy of :attr:`model` in file order and in shuffled order."""
        in_file_order, shuffled = self.file_order["balanced_accuracy"], self.shuffled_order["balanced_accuracy"]
        return float(in_file_order[self.model]), float(shuffled[self.model])

    @property
    def leaks(self) -> bool:
        """Whether the order of the rows carries the label into the features."""
        in_file_order, shuffled = self.scores
        return in_file_order - shuffled > LEAK_THRESHOLD

    @property
    def verdict(self) -> str:
        """The outcome as one sentence."""
        outcome = "LEAKS the label" if self.leaks else "does not leak"
        in_file_order, shuffled = self.scores
        return (
            f"{self.encoding} {outcome}: {self.model} has balanced accuracy {in_file_order:.2f} when the encoder meets "
            f"the rows in file order, {shuffled:.2f} in shuffled order"
        )

    def table(self) -> pd.DataFrame:
        """Return both audits as one tidy table: encoding, model, order and the metrics."""
        both = {"file order": self.file_order, "shuffled order": self.shuffled_order}
        tidy = pd.concat(both, names=["order"]).reset_index()
        tidy.insert(0, "encoding", self.encoding)
        return tidy


def leak_test(config: ExperimentConfig) -> LeakTest:
    """Test whether the features depend on the order of the file list, which is sorted by class.

    The same encoder is fitted twice: it meets the same rows in file order and in shuffled order. The rows themselves
    are equal, so any difference of the features comes from the order, and in a class-sorted list the order tells the
    label.
    """
    shuffled = load_splits(config, order=stream(config.seed, "leak-test"))
    return LeakTest(config.encoding, audit(load_splits(config), config.seed), audit(shuffled, config.seed))
