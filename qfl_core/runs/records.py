"""The files of a run: the only place that writes, always to a temporary name first.

While a run goes on, every complete round is one line of ``journal.jsonl``; a line cut off by a crash is dropped when
the run resumes. When the last round is in, the six files of the paper are written from the journal, and ``DONE`` seals
them with their digests. Floats keep all their digits on the way, so a resumed run ends in the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from qfl_core.algorithm.client import TRACE
from qfl_core.algorithm.controller import FEATURES
from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.base.errors import RunError

_PHI = tuple(f"phi_{rate}_{feature}" for rate in ("eta", "delta") for feature in FEATURES)
#: Every column of every table, in order. ``circuits_*`` count what clients execute for training and selection; scoring
#: a model for these records (global metrics, client test accuracy, meta-loss) is measurement, not cost, and left out.
SCHEMA: dict[str, tuple[str, ...]] = {
    "global_accuracies": (
        "round",
        "global_train_accuracy",
        "global_val_accuracy",
        "global_accuracy",
        "client_train_accuracy",
        "client_test_accuracy",
        "client_test_accuracy_min",
        "client_test_accuracy_max",
        "train_test_gap",
        "fairness_gap",
        "global_fairness_gap",
        "clients",
        "drift",
        "circuits_train",
        "circuits_calibration",
        "circuits_monitor",
        "circuits_validation",
        "circuits_virtual",
        "circuits_tuning",
        "shots",
    ),
    "validation": ("round", "val_loss", "client_val_loss", "meta_loss"),
    "client_trace": (
        "round",
        "client",
        "unfold",
        *TRACE,
        "selected_unfold",
        "is_selected",
        "client_size",
        "val_size",
        "aggregation_weight",
        "heterogeneity",
    ),
    "outer_meta": (
        "round",
        "meta_loss",
        "meta_val_loss",
        "omega_fair",
        "omega_comm",
        "omega_stab",
        "updated",
        "meta_loss_plus",
        "meta_loss_minus",
        "controller_gradient_norm",
        *_PHI,
    ),
    "classification_metrics": (
        "round",
        "part",
        *CLASSIFICATION,
        "loss",
    ),
}
#: Participants that a round had to do without; the file exists only where there were some.
EXCLUSIONS = ("round", "client", "reason")
JOURNAL, DONE, PARAMS = "journal.jsonl", "DONE", "global_params.npz"


class RunFolder:
    """One run's folder: append rounds, read them back, seal."""

    def __init__(self, path: Path):
        self.path = path

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
        with _clear_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "config.json", config)
            write_text(self.path / "environment.json", json.dumps(environment, indent=2, sort_keys=True) + "\n")

    def append(self, record: dict[str, Any]) -> None:
        """Add one complete round, on disk when this returns."""
        line = json.dumps(record, default=_plain, separators=(",", ":")) + "\n"
        with _clear_errors(self.path), (self.path / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(line)
            journal.flush()
            os.fsync(journal.fileno())

    def records(self) -> list[dict[str, Any]]:
        """Return the complete rounds; a last line that was cut off, or is being written, is left out."""
        return [json.loads(line) for line in self._complete_lines().splitlines()]

    def mend(self) -> None:
        """Remove a last line that a crash cut off; for the holder of the run's lock only."""
        journal = self.path / JOURNAL
        with _clear_errors(self.path):
            if journal.is_file():
                os.truncate(journal, len(self._complete_lines()))

    def _complete_lines(self) -> bytes:
        journal = self.path / JOURNAL
        text = journal.read_bytes() if journal.is_file() else b""
        return text[: text.rfind(b"\n") + 1]

    def seal(self) -> None:
        """Write the paper's six files and the timings from the journal, then DONE with every file's SHA-256."""
        records = self.records()
        with _clear_errors(self.path):
            for name, columns in SCHEMA.items():
                rows = [row for record in records for row in record[name]]
                write_text(self.path / f"{name}.csv", to_csv(rows, columns))
            excluded = [row for record in records for row in record.get("exclusions", [])]
            if excluded:
                write_text(self.path / "exclusions.csv", to_csv(excluded, EXCLUSIONS))
            seconds = [{"round": r["state"]["done"], "seconds": r["seconds"]} for r in records]
            write_text(self.path / "timings.csv", to_csv(seconds, ("round", "seconds")))
            states = [record["state"] for record in records]
            arrays = {"weights": [state["theta"] for state in states], "phi": [state["phi"] for state in states]}
            if states[0]["logits"]:
                arrays["logits"] = [state["logits"] for state in states]
            for name in states[0]["memory"]:
                arrays[f"memory_{name}"] = [state["memory"][name] for state in states]
            temporary = self.path / f".{PARAMS}.part"
            with temporary.open("wb") as file:
                np.savez(file, **{name: np.array(values) for name, values in arrays.items()})
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / PARAMS)
            write_text(self.path / DONE, json.dumps(self.digests(), indent=2, sort_keys=True) + "\n")
        self.drop_journal()

    def drop_journal(self) -> None:
        """Remove the journal of a sealed run, also where a crash kept it."""
        with _clear_errors(self.path):
            (self.path / JOURNAL).unlink(missing_ok=True)

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every result file that exists, but the timings."""
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
        """Read one of the tables of :data:`SCHEMA`."""
        return pd.read_csv(self.path / f"{name}.csv")

    def parameters(self) -> dict[str, np.ndarray]:
        """Read what was learnt, (T + 1, ...) each: the global ``weights``, ``phi``, an extra's own."""
        try:
            with np.load(self.path / PARAMS, allow_pickle=False) as stored:
                return {"weights": stored["weights"]} | {name: stored[name] for name in stored.files}
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise RunError(f"{PARAMS} of run {self.path.name} cannot be read: {error}") from None


def to_csv(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return rows as CSV with exactly these columns; a value without a column is an error."""
    unknown = {key for row in rows for key in row} - set(columns)
    if unknown:
        raise RunError(f"columns {sorted(unknown)} are not in the schema")
    return pd.DataFrame(rows, columns=list(columns)).to_csv(index=False, lineterminator="\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file for the duration; another process waits, and a killed one releases it."""
    import fcntl

    with _clear_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8")
    with file:
        with _clear_errors(path.parent):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _clear_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write results to {folder}: {reason}; complete rounds are kept") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store {type(value).__name__} in a record")
