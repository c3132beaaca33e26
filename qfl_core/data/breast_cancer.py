"""Breast Cancer Wisconsin (Diagnostic): 569 tumours, 30 measurements; scikit-learn brings it, nothing is downloaded."""

from __future__ import annotations

import hashlib

import numpy as np
from sklearn.datasets import load_breast_cancer as bundled
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qfl_core.config import ExperimentConfig
from qfl_core.data.preprocess import angle_scaler, component_analysis, stratified_parts
from qfl_core.data.splits import DataSource, Split, Splits


def load_breast_cancer(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return three stratified parts as angles; label 1 is malignant (212 of 569).

    The parts are drawn first; standardisation, PCA and scaling are fitted on the training part alone, met in a shuffled
    order where ``order`` is given. There is one copy, so ``config.source`` has nothing to choose.
    """
    X, target = bundled(return_X_y=True)
    y = 1 - target  # scikit-learn's 1 is benign
    sizes = (config.train_size, config.val_size, config.test_size)
    parts = stratified_parts(y, sizes, config.seed, "breast-cancer-parts")
    met = parts[0] if order is None else order.permutation(parts[0])
    encoder = make_pipeline(StandardScaler(), component_analysis(config), angle_scaler(config)).fit(X[met])
    digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
    source = DataSource("breast-cancer", "bundled", "scikit-learn's copy", digest, "no file is needed")
    return Splits(*(Split(encoder.transform(X[rows]), y[rows], rows) for rows in parts), provenance=source)
