"""Datasets: where they come from, how they become angles, how clients share them.

A *split* is the training, validation or test piece of a dataset (:class:`Split`); a *partition* is the sharing of the
training rows among clients (:mod:`qfl_core.data.partition`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from sys import modules

import numpy as np

from qfl_core.base.registry import DATASETS, plugin_sha256, resolve
from qfl_core.config import ExperimentConfig
from qfl_core.data.splits import DataSource, Split, Splits, packed, unpacked
from qfl_core.data.standin.common import announce
from qfl_core.data.store import kept

__all__ = ["DATA_SETTINGS", "DataSource", "Split", "Splits", "data_source", "load_splits"]

#: The settings that decide the splits of the package's own datasets; their loaders read no other setting.
DATA_SETTINGS = (
    "dataset",
    "encoding",
    "source",
    "features",
    "kmer",
    "angle_range",
    "tail_share",
    "train_size",
    "val_size",
    "test_size",
    "seed",
)

Loader = Callable[[ExperimentConfig, np.random.Generator | None], Splits]


def data_source(config: ExperimentConfig) -> DataSource:
    """Return where the config's data come from, with their digest, without splitting or encoding them.

    The result equals ``load_splits(config).provenance`` and is printed once, as there. For a dataset that does not
    tell its source by itself (:attr:`DatasetSpec.source`), the data are loaded.
    """
    provenance = _source(config)
    if provenance is None:
        return load_splits(config).provenance
    announce(provenance)
    return provenance


def load_splits(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return the config's training, validation and test splits, in angles.

    Files are looked for in ``QFL_DATA_DIR``, then in the cache, then by download. Where ``config.source`` allows it,
    the stand-in takes the place of a file that cannot be had. The choice is printed once and is part of the result
    (``.source``, ``.provenance``).

    Configs with the same data settings and the same source share one result in memory. The splits of the package's own
    datasets are also kept on disk, see :mod:`qfl_core.data.store`.

    Parameters
    ----------
    config : the experiment.
    order : shuffles the order in which the encoder meets the training rows; the splits hold the same rows. Such a
        result is not kept in memory.
    """
    load: Loader = resolve(DATASETS[config.dataset].loader)
    provenance = _source(config) if order is None else None
    keep = provenance is not None
    splits = _kept(_request(config, load, provenance)) if keep else _load(load, config, order)
    announce(splits.provenance)
    return splits


def _source(config: ExperimentConfig) -> DataSource | None:
    """Return the source that a dataset tells without loading, or None where it cannot."""
    source = DATASETS[config.dataset].source
    return None if source is None else resolve(source)(config)


@dataclass(frozen=True)
class _Request:
    """What decides splits: the settings, the source with its digest, and the loader's code.

    The config itself is no key. The code is the digest of a plugin, because a loader that was changed and registered
    again is often the same function; of what is no plugin it is the function.
    """

    settings: tuple[object, ...]
    provenance: DataSource | None
    code: object
    load: Loader = field(compare=False)
    config: ExperimentConfig = field(compare=False)


def _request(config: ExperimentConfig, load: Loader, provenance: DataSource | None) -> _Request:
    """Return what decides the splits of a config; a user's loader may read any setting."""
    settings = tuple(getattr(config, name) for name in DATA_SETTINGS) if _is_own(load) else (config,)
    return _Request(settings, provenance, plugin_sha256("dataset", config.dataset) or load, load, config)


def _is_own(load: Loader) -> bool:
    """Tell whether a loader is the package's own: what one of its modules has under the loader's name.

    A decorator gives a function of the user's the module and the name of the one that it wraps.
    """
    module, name = getattr(load, "__module__", None) or "", getattr(load, "__name__", "")
    return module.partition(".")[0] == "qfl_core" and getattr(modules.get(module), name, None) is load


@lru_cache(maxsize=32)
def _kept(request: _Request) -> Splits:
    """Load once per data settings and source; the splits of the package's own datasets are kept on disk, too."""
    if request.provenance is None or not _is_own(request.load):
        return _load(request.load, request.config, None)
    # The digest stands for the setting "source": a file or a stand-in gives the same splits however it was chosen.
    settings = {name: value for name, value in zip(DATA_SETTINGS, request.settings, strict=True) if name != "source"}
    deciding = {"settings": settings, "sha256": request.provenance.sha256}
    found = kept("splits", deciding, lambda: packed(_load(request.load, request.config, None)))
    return unpacked(found, request.provenance)


def _load(load: Loader, config: ExperimentConfig, order: np.random.Generator | None) -> Splits:
    # BLAS adds in an order that follows its number of threads: with one, a seed gives the same bits everywhere. The
    # limit finds the libraries that are loaded already, so the import of scikit-learn, which brings SciPy's BLAS, comes
    # first. Both imports are here because splits from the disk need neither.
    from threadpoolctl import threadpool_limits

    import qfl_core.data.preprocess  # noqa: F401

    with threadpool_limits(1):
        return load(config, order)
