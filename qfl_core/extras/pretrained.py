"""A controller that starts from what other federations taught: ``controller: pretrained`` in a config."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from qfl_core.base.errors import ConfigError
from qfl_core.config import ExperimentConfig

#: What ``python -m qfl_core metatrain`` writes: phi by the data that it has never seen, and where it comes from.
FILE = "pretrained.json"
#: The phi that was trained on everything, for datasets that are none of the package's.
ALL = "all"


def pretrained_phi(config: ExperimentConfig) -> np.ndarray:
    """Return phi (2, 7) for a config; for a dataset of the package it is one that was trained without that dataset."""
    found = read()["phi"]
    return np.array(found.get(f"without {config.dataset}", found[ALL]), dtype=float)


@lru_cache(maxsize=1)
def content() -> bytes:
    """Return the file's bytes."""
    file = resources.files(__package__) / FILE
    if not file.is_file():
        raise ConfigError("controller='pretrained': there is no trained controller yet; make metatrain trains one")
    return file.read_bytes()


def read() -> dict[str, Any]:
    """Return the file's content."""
    found: dict[str, Any] = json.loads(content())
    return found


def digest() -> str:
    """Return the SHA-256 of the file, which is part of the identity of every run that starts from it."""
    return hashlib.sha256(content()).hexdigest()
