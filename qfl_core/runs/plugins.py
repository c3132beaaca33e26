"""Methods and datasets of your own, registered by name from your own file; EXTENDING.md shows how.

A run's identity covers the whole file that an extension's code is in, as it covers the package's training code: after a
change, finished runs are not taken for those of the new code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qfl_core.algorithm.methods import Method
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import DATASETS, EXTRA_METHODS, METHOD_NAMES, DatasetSpec, resolve
from qfl_core.config import CLEAN, ExperimentConfig

_TABLES = {"method": EXTRA_METHODS, "dataset": DATASETS}
_TAKEN = {"method": (*METHOD_NAMES, *EXTRA_METHODS), "dataset": tuple(DATASETS)}
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Extension:
    """A registered row of a table, with the SHA-256 of its values and code."""

    kind: str
    name: str
    row: Any
    sha256: str


#: What was registered in this process, by kind and name.
REGISTERED: dict[tuple[str, str], Extension] = {}


def register_method(name: str, method: Method) -> None:
    """Let ``ExperimentConfig(method=name)`` mean this row of switches; a name of one's own may be taken again."""
    if not isinstance(method, Method):
        raise ConfigError(f"method {name!r} must be a qfl_core.algorithm.methods.Method, got {type(method).__name__}")
    _register("method", name, method)


def register_dataset(name: str, spec: DatasetSpec) -> None:
    """Let ``ExperimentConfig(dataset=name)`` mean the data that the spec's loader returns."""
    if not isinstance(spec, DatasetSpec):
        raise ConfigError(f"dataset {name!r} must be a qfl_core.base.registry.DatasetSpec, got {type(spec).__name__}")
    if str(name).endswith(CLEAN):
        raise ConfigError(f"dataset {name!r}: names with {CLEAN!r} at the end are tracks of another dataset")
    _register("dataset", name, replace(spec, loader=resolve(spec.loader)))


def _register(kind: str, name: str, row: Any) -> None:
    # The name becomes a folder's.
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{kind} {name!r}: a name is of small letters, digits and single hyphens")
    if name in _TAKEN[kind]:
        raise ConfigError(f"{kind} {name!r} is the package's own: choose another name")
    digest = hashlib.sha256()
    for piece in _pieces(row):
        digest.update(hashlib.sha256(piece).digest())
    adopt([Extension(kind, name, row, digest.hexdigest())])


def adopt(extensions: list[Extension]) -> None:
    """Register extensions of another process here: a sweep's workers do."""
    for extension in extensions:
        _TABLES[extension.kind][extension.name] = extension.row
        REGISTERED[extension.kind, extension.name] = extension


def digests(config: ExperimentConfig) -> dict[str, str]:
    """Return the SHA-256 of each extension that a config names, by kind; none for what the package has."""
    named = (("method", config.method), ("dataset", config.dataset))
    return {key[0]: REGISTERED[key].sha256 for key in named if key in REGISTERED}


def _pieces(value: Any) -> list[bytes]:
    """Take a row apart: its plain values, and the whole file of every function and class that is not the package's."""
    if isinstance(value, Mapping):
        return [piece for key, item in value.items() for part in (key, item) for piece in _pieces(part)]
    if value is None or isinstance(value, (str, int, float, tuple, list)):
        return [repr(value).encode()]
    if isinstance(value, functools.partial):
        return _pieces(value.func) + _pieces(value.args) + _pieces(value.keywords)
    if not inspect.isfunction(value) and not inspect.isclass(value):
        return _pieces(type(value)) + _pieces(getattr(value, "__dict__", None))
    name = [f"{value.__module__}:{value.__qualname__}".encode()]
    if str(value.__module__).partition(".")[0] == "qfl_core":
        return name
    try:
        return [*name, Path(inspect.getsourcefile(value)).read_bytes()]
    except (OSError, TypeError):
        raise ConfigError(
            f"the code of {value.__qualname__} cannot be read: define it in a file and import it from there"
        ) from None
