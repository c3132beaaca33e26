"""Breast Cancer Wisconsin (Diagnostic): 569 tumours, 30 measurements; scikit-learn brings it, nothing is downloaded."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from qfl_core.config import ExperimentConfig
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.store import Entry, kept


def load_breast_cancer(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return three stratified splits as angles; label 1 is malignant (212 of 569).

    The splits are drawn first. Standardisation, PCA and scaling are fitted on the training split alone, whose rows the
    encoder meets in a shuffled order where ``order`` is given.
    """
    from sklearn.pipeline import make_pipeline  # here, because scikit-learn takes seconds to import
    from sklearn.preprocessing import StandardScaler

    from qfl_core.data.preprocess import angle_scaler, component_analysis, stratified_parts

    X, y = _tumours()
    sizes = (config.train_size, config.val_size, config.test_size)
    parts = stratified_parts(y, sizes, config.seed, "breast-cancer-parts")
    met = parts[0] if order is None else order.permutation(parts[0])
    encoder = make_pipeline(StandardScaler(), component_analysis(config), angle_scaler(config)).fit(X[met])
    train, val, test = (Split(encoder.transform(X[rows]), y[rows], rows) for rows in parts)
    return Splits(train, val, test, breast_cancer_source(config))


def breast_cancer_source(config: ExperimentConfig) -> DataSource:
    """Return the source; there is one copy of the data, so ``config.source`` has nothing to choose."""
    X, y = _tumours()
    digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    return DataSource("breast-cancer", "bundled", "scikit-learn's copy", digest, "no file is needed")


@cache
def _tumours() -> tuple[np.ndarray, np.ndarray]:
    """Return the measurements (569, 30) and the labels (569,); they are kept on disk per version of scikit-learn."""

    def parse() -> Entry:
        from sklearn.datasets import load_breast_cancer as bundled

        X, target = bundled(return_X_y=True)
        return Entry({"X": X, "y": 1 - target})  # scikit-learn's 1 is benign

    found = kept("rows", {"dataset": "breast-cancer"}, parse).arrays
    for array in found.values():
        array.setflags(write=False)
    return found["X"], found["y"]
