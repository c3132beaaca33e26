"""A config becomes a federation: the data are loaded, shared among the clients and encoded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.losses import Loss
from qfl_core.algorithm.methods import Method, method_named
from qfl_core.algorithm.model import Model
from qfl_core.algorithm.optimizers import Adam
from qfl_core.algorithm.samples import EncodedSplit
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import ANSATZE, FEATURE_MAPS, LOSSES, PLUGIN_TABLES, plugin_sha256, resolve
from qfl_core.config import ExperimentConfig
from qfl_core.data import DataSource, Split, Splits, load_splits
from qfl_core.data.partition import make_partition
from qfl_core.engines import Engine, make_engine
from qfl_core.extras.privacy import with_privacy
from qfl_core.extras.robust import with_rule

if TYPE_CHECKING:
    from qfl_core.engines.qnn import QNN


@dataclass(frozen=True, eq=False)
class Prepared:
    """A federation that is ready to train, with the source of its data and what the loading rules removed.

    ``splits_sha256`` is the digest of the arrays where a caller handed in splits of their own, otherwise ``None``.
    """

    federation: Federation
    source: DataSource
    notes: Mapping[str, int]
    splits_sha256: str | None = None

    @property
    def data_sha256(self) -> str:
        """What stands for the data in the identity of a run."""
        return self.splits_sha256 or self.source.sha256


def make_qnn(config: ExperimentConfig) -> QNN:
    """Build the config's circuit."""
    from qfl_core.engines.qnn import QNN  # here, because Qiskit takes long to import and a finished run needs none

    return QNN(
        config.features,
        feature_map_reps=config.feature_map_reps,
        ansatz_reps=config.ansatz_reps,
        feature_map=config.feature_map,
        ansatz=config.ansatz,
    )


def make_model(config: ExperimentConfig) -> Model:
    """Build the config's circuit, engine and loss."""
    loss: Loss = resolve(LOSSES[config.loss])
    with _told_as_config_error():
        if config.engine != "statevector":
            return Model(make_engine(config.engine, make_qnn(config), shots=config.shots), loss)
        tables = {"feature_map": FEATURE_MAPS, "ansatz": ANSATZE}
        code = [_code(field, getattr(config, field), table) for field, table in tables.items()]
        settings = tuple(getattr(config, name) for name in _CIRCUIT_SETTINGS)
        plugins = (plugin_sha256(kind, getattr(config, kind)) for kind in PLUGIN_TABLES)
        return Model(_statevector(_Circuit((*settings, *code, *plugins), config)), loss)


def _code(field: str, name: str, table: Mapping[str, object]) -> object:
    """Return what stands for the function that builds a circuit: a plugin's digest, or the package's own function."""
    return plugin_sha256(field, name) or resolve(table[name])


#: The settings that decide a statevector engine.
_CIRCUIT_SETTINGS = ("features", "feature_map", "feature_map_reps", "ansatz", "ansatz_reps", "shots")


@dataclass(frozen=True)
class _Circuit:
    """What decides a statevector engine: settings, the code of its circuits, and all plugins of the config.

    The engine keeps tables of every function that is measured with it, and any plugin may bring such functions: a loss,
    or a local optimiser with a score of its own. The config itself is no key.
    """

    deciding: tuple[object, ...]
    config: ExperimentConfig = field(compare=False)


@lru_cache(maxsize=4)
def _statevector(circuit: _Circuit) -> Engine:
    """Compile a circuit once for all runs of this process that use it, because the engine remembers no run."""
    return make_engine("statevector", make_qnn(circuit.config), shots=circuit.config.shots)


def encode(engine: Engine, splits: Mapping[str, Split]) -> dict[str, EncodedSplit]:
    """Encode every sample once; splits without rows are left out."""
    with _told_as_config_error():
        return {name: EncodedSplit(engine.encode(split.X), split.y) for name, split in splits.items() if len(split)}


@contextmanager
def _told_as_config_error() -> Iterator[None]:
    """Turn the error of a circuit or an engine that cannot do what the config asks into a ConfigError.

    The config estimates the memory of the built-in circuits; only the engine knows that of another circuit.
    """
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def configured_method(config: ExperimentConfig, method: Method | None = None) -> Method:
    """Return the config's method (or take ``method``) with the local optimiser and the aggregation of the config."""
    configured = (method or method_named(config.method)).configured(config)
    return with_privacy(with_rule(configured, config), config)


def prepare(config: ExperimentConfig, splits: Splits | None = None) -> Prepared:
    """Load the data (or take ``splits``), share them among the clients, build the model and encode every sample.

    Raises
    ------
    ConfigError
        When the data have other sizes or another number of features than the config says, or when the method is
        trained by Adam and the loss or the engine has no exact gradients.
    """
    method = configured_method(config)
    handed_in = None if splits is None else splits.digest
    splits = load_splits(config) if splits is None else splits
    return Prepared(_federation(config, splits, method), splits.provenance, splits.notes, handed_in)


def make_federation(config: ExperimentConfig, splits: Splits | None = None, method: Method | None = None) -> Federation:
    """Return the federation of :func:`prepare`, or one that trains ``method`` instead of the config's.

    Another method than the config's has no name under which a run could be kept, so :func:`prepare` takes none.
    """
    method = configured_method(config, method)
    return _federation(config, load_splits(config) if splits is None else splits, method)


def _federation(config: ExperimentConfig, splits: Splits, method: Method) -> Federation:
    _check_splits(config, splits)
    model = make_model(config)
    if isinstance(method.optimizer, Adam):
        _ = model.exact  # so that a loss or an engine without gradients is refused before anything is written
    return Federation(
        config=config,
        method=method,
        model=model,
        splits=encode(model.engine, splits.parts),
        schedule=make_partition(splits, config),
    )


def _check_splits(config: ExperimentConfig, splits: Splits) -> None:
    """Refuse data whose shape contradicts the config, whether they were handed in or loaded."""
    wrong = []
    for name, split in splits.parts.items():
        size, (rows, features) = f"{name}_size", split.X.shape
        if rows != getattr(config, size):
            wrong.append(f"{size}={getattr(config, size)}, got {rows}")
        if features != config.features:
            wrong.append(f"features={config.features}, got {features} in {name}")
    if wrong:
        told = "; ".join(wrong)
        raise ConfigError(f"the splits are not those of the config, which says {told}: change the settings or the data")
