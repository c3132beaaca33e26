"""What a run is: the SHA-256 of everything that decides its numbers, and where the numbers come from."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import subprocess
from functools import lru_cache
from typing import Any

from qfl_core.algorithm.server import IN_PROCESS
from qfl_core.base import source_code
from qfl_core.base.paths import repository_root
from qfl_core.config import ExperimentConfig
from qfl_core.data.store import ONLY_LOOKING
from qfl_core.extras import pretrained
from qfl_core.runs.plugins import digests
from qfl_core.runs.prepare import Prepared

#: Files and folders that decide a run's numbers; a change in one of them makes old runs another code's.
TRAINING_CODE = (
    "base/streams.py",
    "engines",
    "data",
    "algorithm",
    "extras",
    "runs/experiment.py",
    "runs/prepare.py",
)
#: Files in these folders that only look at data.
NOT_TRAINING = ONLY_LOOKING
PACKAGES = ("numpy", "scipy", "pandas", "scikit-learn", "qiskit", "qiskit-machine-learning", "qiskit-aer")


def run_identity(config: ExperimentConfig, data_sha256: str, transport: str = IN_PROCESS.transport) -> str:
    """Return the SHA-256 of what decides the numbers: config, data, the code that trains and the plugins' code.

    The transport decides no number, but a run says what it ran on, so a run over another transport does not stand for
    it.
    """
    parts = [config.digest, data_sha256, code_digest(), *digests(config).values()]
    parts += [pretrained.digest()] if config.controller == "pretrained" else []
    parts += [transport] if transport != IN_PROCESS.transport else []
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return the SHA-256 of what the training code does: docstrings, comments and layout do not count."""
    return source_code.package_digest(TRAINING_CODE, NOT_TRAINING)


def environment(prepared: Prepared, identity: str, transport: str) -> dict[str, Any]:
    """Return where a run's numbers come from; no path and no name of a machine."""
    federation, source = prepared.federation, prepared.source
    own = digests(federation.config)
    handed_in = {"splits_sha256": prepared.splits_sha256} if prepared.splits_sha256 else {}
    return {
        **({"transport": transport} if transport != IN_PROCESS.transport else {}),
        **({"extensions": own} if own else {}),
        "identity": identity,
        "code_sha256": code_digest(),
        "commit": commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": versions(),
        "data": {"source": source.kind, "name": source.name, "sha256": source.sha256, **handed_in},
        "data_notes": dict(prepared.notes),
        "engine": federation.model.engine.describe(),
    }


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the installed versions of :data:`PACKAGES`; do not modify the result."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the checkout's commit, ``-dirty`` where files differ from it, or ``"unknown"``."""
    root = repository_root()
    if root is None:
        return "unknown"
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        asked = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return "unknown"
    return asked.stdout.strip() or "unknown"
