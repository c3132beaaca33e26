"""The folder of one validation: what replay needs, in formats that cannot carry code or secrets (no pickle).

plan.json     settings, origin, circuit size, backend, layout, calibration hash
inputs.npz    checkpoints, samples, labels, noiseless probabilities
circuits.qpy  the transpiled circuits that were run
curves.csv    the simulated curves
ledger.jsonl  every event of every job; counts/ holds what the jobs measured
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from qiskit import QuantumCircuit, qpy

from qfl_core.base.errors import HardwareError
from qfl_core.base.files import locked, write_bytes, write_text
from qfl_core.base.paths import below
from qfl_core.hardware.device import to_qpy
from qfl_core.hardware.ledger import Ledger


class Folder:
    """Reads and writes one validation's files."""

    def __init__(self, path: Path):
        self.path = path
        self.ledger = Ledger(path / "ledger.jsonl")

    def lock(self) -> AbstractContextManager[None]:
        """Hold the folder, because two processes must not both submit what neither finds in the ledger."""
        return locked(self.path.parent / f".{self.path.name}.lock")

    def save_plan(self, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Write the plan and its inputs."""
        self._write("inputs.npz", _npz(arrays))
        write_text(self.path / "plan.json", json.dumps(facts, indent=2, sort_keys=True) + "\n")

    def plan(self) -> dict[str, Any]:
        """Read the plan's facts."""
        path = self.path / "plan.json"
        if not path.is_file():
            raise HardwareError(f"{self.path.name} holds no validation: plan.json is missing")
        return json.loads(path.read_text(encoding="utf-8"))

    def inputs(self) -> dict[str, np.ndarray]:
        """Read the plan's arrays."""
        return _arrays((self.path / "inputs.npz").read_bytes())

    def save_circuits(self, circuits: list[QuantumCircuit]) -> str:
        """Write circuits as QPY, the first being the model's; return the file's SHA-256."""
        data, digest = to_qpy(circuits)
        self._write("circuits.qpy", data)
        return digest

    def circuit(self) -> QuantumCircuit | None:
        """Return the stored model circuit, or None in a new folder."""
        path = self.path / "circuits.qpy"
        if not path.is_file() or not (self.path / "plan.json").is_file():
            return None
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != self.plan()["circuits_sha256"]:
            raise HardwareError(f"circuits.qpy in {self.path.name} is not the file that the plan names")
        return qpy.load(io.BytesIO(data))[0]

    def save_curves(self, table: pd.DataFrame) -> None:
        """Write the simulated curves."""
        write_text(self.path / "curves.csv", table.to_csv(index=False, lineterminator="\n"))

    def curves(self) -> pd.DataFrame | None:
        """Read the simulated curves, or None before they are made."""
        path = self.path / "curves.csv"
        return pd.read_csv(path) if path.is_file() else None

    def save_counts(self, key: str, attempt: int, counts: list[np.ndarray]) -> tuple[str, str]:
        """Write a job's counts, one array (samples, 2**qubits) per PUB; return file name and SHA-256."""
        name = f"counts/{key}-{attempt}.npz"
        data = _npz({f"pub{i}": array for i, array in enumerate(counts)})
        self._write(name, data)
        return name, hashlib.sha256(data).hexdigest()

    def counts(self, name: str, digest: str) -> list[np.ndarray]:
        """Read a job's counts; a file that is not the one in the ledger is refused."""
        path = below(self.path, name)
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).hexdigest() != digest:
            raise HardwareError(f"{name} in {self.path.name} is missing or not the file that the ledger names")
        arrays = _arrays(data)
        return [arrays[f"pub{i}"] for i in range(len(arrays))]

    def _write(self, name: str, data: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)


def folders(root: Path) -> list[Folder]:
    """Return the validations below a results folder, the one that changed last at the end."""
    found = [Folder(path.parent) for path in (root / "hardware").glob("*/plan.json")]
    return sorted(found, key=lambda folder: max(file.stat().st_mtime for file in folder.path.iterdir()))


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the values for its flag
    return buffer.getvalue()


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
