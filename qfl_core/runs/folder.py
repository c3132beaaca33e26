"""The files of a run, and the only place that writes them.

While a run goes on, its rounds are in the journal. When the last round is in, the six files of the paper are written
from the journal, and ``DONE`` seals them with their digests.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from qfl_core.base.errors import RunError
from qfl_core.base.files import remove_leftovers, write_bytes, write_text, writing
from qfl_core.runs.experiment import Record
from qfl_core.runs.journal import Journal
from qfl_core.runs.schema import EXCLUSIONS, SCHEMA, to_csv

DONE, PARAMS = "DONE", "global_params.npz"


@dataclass(frozen=True)
class RunFolder:
    """One run's folder: create it, seal it, read it back."""

    path: Path

    @property
    def journal(self) -> Journal:
        """The rounds of a run that goes on."""
        return Journal(self.path / "journal.jsonl")

    @property
    def is_done(self) -> bool:
        """Whether the run is complete and sealed."""
        return (self.path / DONE).is_file()

    @property
    def is_begun(self) -> bool:
        """Whether config and environment are there; the environment is written last."""
        return (self.path / "environment.json").is_file()

    def create(self, config: str, environment: dict[str, Any]) -> None:
        """Make the folder with its config and environment."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "config.json", config)
            write_text(self.path / "environment.json", json.dumps(environment, indent=2, sort_keys=True) + "\n")

    def mend(self) -> None:
        """Remove what a killed process left half-written; for the holder of the run's lock only."""
        with writing(self.path):
            remove_leftovers(self.path)
        self.journal.mend()

    def seal(self) -> None:
        """Write the paper's six files and the timings from the journal, then DONE with every file's SHA-256."""
        records = self.journal.records()
        tables = {name: [row for record in records for row in record[name]] for name in SCHEMA}
        texts = {name: to_csv(rows, SCHEMA[name]) for name, rows in tables.items()}
        excluded = [row for record in records for row in record.get("exclusions", [])]
        if excluded:
            texts["exclusions"] = to_csv(excluded, EXCLUSIONS)
        seconds = [{"round": r["state"]["done"], "seconds": r["seconds"]} for r in records]
        texts["timings"] = to_csv(seconds, ("round", "seconds"))
        with writing(self.path):
            for name, text in texts.items():
                write_text(self.path / f"{name}.csv", text)
            write_bytes(self.path / PARAMS, _learnt(records))
            write_text(self.path / DONE, json.dumps(self.digests(), indent=2, sort_keys=True) + "\n")
        self.journal.drop()

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every result file that exists, except the timings."""
        names = ["config.json", "environment.json", PARAMS, "exclusions.csv", *(f"{name}.csv" for name in SCHEMA)]
        paths = [self.path / name for name in names]
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}

    def sealed(self) -> dict[str, str] | None:
        """Return the digests in DONE, or None where it cannot be read."""
        try:
            digests = json.loads((self.path / DONE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return digests if isinstance(digests, dict) else None

    def table(self, name: str) -> pd.DataFrame:
        """Read one of the tables of :data:`qfl_core.runs.schema.SCHEMA`."""
        return pd.read_csv(self.path / f"{name}.csv")

    def parameters(self) -> dict[str, np.ndarray]:
        """Read what was learnt, (T + 1, ...) each: the global ``weights``, ``phi``, and what a hook remembered."""
        try:
            with np.load(self.path / PARAMS, allow_pickle=False) as stored:
                return {"weights": stored["weights"]} | {name: stored[name] for name in stored.files}
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise RunError(f"{PARAMS} of run {self.path.name} cannot be read: {error}") from None


def _learnt(records: Sequence[Record]) -> bytes:
    """Return the arrays of all rounds as an npz file.

    ``weights`` and ``phi`` are always there; ``phi_*``, ``memory_*`` and ``server_*`` hold what the method's hooks
    learnt or remembered.
    """
    states = [record["state"] for record in records]
    arrays = {"weights": [state["theta"] for state in states]}
    for kind in ("phi", "memory", "server"):
        for name in states[0][kind]:
            key = "phi" if (kind, name) == ("phi", "controller") else f"{kind}_{name}"
            arrays[key] = [state[kind][name] for state in states]
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{name: np.array(values) for name, values in arrays.items()})
    return file.getvalue()
