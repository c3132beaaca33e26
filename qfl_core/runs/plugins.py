"""Methods, datasets, losses, circuits and outer optimisers of your own, registered by name; EXTENDING.md shows how.

A run's identity covers a plugin's code and values (:mod:`qfl_core.runs.plugin_identity`), as it covers the package's
training code: after a change, finished runs are not taken for those of the new code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qfl_core.algorithm.hooks import OuterOptimizer
from qfl_core.algorithm.losses import Elementwise, Loss
from qfl_core.algorithm.methods import Method
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.base.registry import (
    PLUGIN_TABLES,
    REGISTERED,
    DatasetSpec,
    Plugin,
    names_for,
    plugin_sha256,
    resolve,
)
from qfl_core.config import CLEAN, ExperimentConfig
from qfl_core.runs.plugin_identity import identity

if TYPE_CHECKING:
    from qiskit import QuantumCircuit

#: Names that the package uses itself.
_TAKEN = {kind: names_for(kind) for kind in PLUGIN_TABLES}
_NAME = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*")
#: Names that no folder can have on Windows.
_RESERVED = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")


def register_method(name: str, method: Method) -> None:
    """Let ``ExperimentConfig(method=name)`` mean this row of switches and hooks."""
    if not isinstance(method, Method):
        raise ConfigError(f"method {name!r} must be a qfl_core.algorithm.methods.Method, got {type(method).__name__}")
    _register("method", name, method)


def register_dataset(name: str, spec: DatasetSpec) -> None:
    """Let ``ExperimentConfig(dataset=name)`` mean the data that the spec's loader returns."""
    if not isinstance(spec, DatasetSpec):
        raise ConfigError(f"dataset {name!r} must be a qfl_core.base.registry.DatasetSpec, got {type(spec).__name__}")
    if str(name).endswith(CLEAN):
        raise ConfigError(f"dataset {name!r}: names with {CLEAN!r} at the end are tracks of another dataset")
    loader, source = resolve(spec.loader), resolve(spec.source)
    if not callable(loader):
        raise ConfigError(f"dataset {name!r}: loader must be a function of (config, order=None), got {loader!r}")
    if source is not None and not callable(source):
        raise ConfigError(f"dataset {name!r}: source must be a function of (config), got {source!r}")
    _register("dataset", name, replace(spec, loader=loader, source=source))


def register_loss(name: str, value: Elementwise, slope: Elementwise | None = None) -> None:
    """Let ``ExperimentConfig(loss=name)`` mean this loss per sample.

    Both functions take ``(p, y, margin)`` and work elementwise; ``slope`` is the derivative in p. Without it, methods
    that need exact gradients (Adam-QFL) refuse the loss.
    """
    for what, function in (("value", value), ("slope", slope)):
        if not callable(function) and not (what == "slope" and function is None):
            raise ConfigError(f"loss {name!r}: {what} must be a function of (p, y, margin), got {function!r}")
    _register("loss", name, Loss(value, slope))


def register_feature_map(name: str, build: Callable[[int, int], QuantumCircuit]) -> None:
    """Let ``ExperimentConfig(feature_map=name)`` mean the circuit ``build(num_features, reps)``."""
    _register_circuit("feature_map", name, build)


def register_ansatz(name: str, build: Callable[[int, int], QuantumCircuit]) -> None:
    """Let ``ExperimentConfig(ansatz=name)`` mean the circuit ``build(num_qubits, reps)``."""
    _register_circuit("ansatz", name, build)


def _register_circuit(kind: str, name: str, build: Callable[[int, int], QuantumCircuit]) -> None:
    if not callable(build):
        raise ConfigError(f"{kind} {name!r} must be a function that builds a circuit, got {type(build).__name__}")
    _register(kind, name, build)


def register_outer_optimizer(name: str, optimizer: OuterOptimizer) -> None:
    """Let ``ExperimentConfig(outer_optimizer=name)`` mean this object with ``probes``, ``measure`` and ``update``."""
    has = [callable(getattr(optimizer, hook, None)) for hook in ("probes", "measure", "update")]
    if isinstance(optimizer, type) or not all(has):
        told = "must be an object with the methods probes, measure and update"
        raise ConfigError(f"outer_optimizer {name!r} {told}, got {type(optimizer).__name__}")
    _register("outer_optimizer", name, optimizer)


def _register(kind: str, name: str, row: Any) -> None:
    # A method's or a dataset's name becomes the name of a folder.
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{kind} {name!r}: a name is of small letters, digits and single hyphens")
    if _RESERVED.fullmatch(name):
        raise ConfigError(f"{kind} {name!r}: no folder on Windows can have this name, so choose another")
    if name in _TAKEN[kind]:
        raise ConfigError(f"{kind} {name!r} is the package's own: choose another name")
    _add(Plugin(kind, name, row, identity(row)))


def _add(plugin: Plugin) -> None:
    PLUGIN_TABLES[plugin.kind][plugin.name] = plugin.row
    REGISTERED[plugin.kind, plugin.name] = plugin


def adopt(plugins: Iterable[Plugin]) -> None:
    """Register plugins of another process here, as the workers of a sweep do.

    A function travels by its name, so a worker may have an older version of its file, or other values of its globals.

    Raises
    ------
    RunError
        Where a plugin is not the same here: its runs would be filed under the identity of another one.
    """
    for plugin in plugins:
        if plugin_sha256(plugin.kind, plugin.name) == plugin.sha256:
            continue
        if identity(plugin.row) != plugin.sha256:
            raise RunError(
                f"{plugin.kind} {plugin.name!r} differs between this worker and the process that registered it. If you "
                "changed one of its values, write the value into its file and register it again. If you edited its "
                "file while a cluster runs, start the workers again. sweep(..., jobs=1) needs no workers."
            )
        _add(plugin)


def digests(config: ExperimentConfig) -> dict[str, str]:
    """Return the SHA-256 of each plugin that a config names, by kind; none for what the package has."""
    found = {kind: plugin_sha256(kind, getattr(config, kind)) for kind in PLUGIN_TABLES}
    return {kind: sha256 for kind, sha256 in found.items() if sha256 is not None}
