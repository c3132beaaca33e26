"""Datasets: where they come from, how they become angles, how clients share them."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from qfl_core.base.registry import DATASETS, resolve
from qfl_core.config import ExperimentConfig
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.standin.common import announce

__all__ = ["DataSource", "Split", "Splits", "load_splits"]


def load_splits(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return the config's training, validation and test parts, in angles.

    Files are looked for in ``QFL_DATA_DIR``, then the cache, then by download; the stand-in takes their place where
    ``config.source`` allows it. The choice is printed once and is part of the result (``.source``,
    ``.provenance``). ``order`` shuffles the order in which the encoder meets the rows; the parts stay the same.
    """
    load = resolve(DATASETS[config.dataset].loader)  # imports SciPy's BLAS, which the limit must find loaded
    # BLAS adds in an order that follows its number of threads: with one, a seed gives the same bits everywhere.
    with threadpool_limits(1):
        splits = load(config, order)
    announce(splits.provenance)
    return splits


def data_source(config: ExperimentConfig) -> DataSource:
    """Return where the config's data come from."""
    return load_splits(config).provenance
