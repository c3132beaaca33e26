"""The files of a run, and the only place that writes them.

While a run goes on, its rounds are in the journal. When the last round is in, the six files of the paper are written
from the journal, and ``DONE`` seals them with their digests.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qfl_core.base.errors import RunError
from qfl_core.base.files import remove_leftovers, write_bytes, write_text, writing
from qfl_core.runs.experiment import Record
from qfl_core.runs.journal import Journal
from qfl_core.runs.schema import EXCLUSIONS, PRIVACY, SCHEMA, TIMINGS, read_csv, read_rows, to_csv

if TYPE_CHECKING:
    import pandas as pd

DONE, JOURNAL, PARAMS = "DONE", "journal.jsonl", "global_params.npz"
#: What a run writes before its first round, and what it writes after its last one; DONE holds their digests.
_ORIGIN = ("config.json", "environment.json")
_RESULTS = (PARAMS, "exclusions.csv", "privacy.csv", *(f"{name}.csv" for name in SCHEMA))
#: The columns of every table that can be read.
_COLUMNS = SCHEMA | {"exclusions": EXCLUSIONS, "privacy": PRIVACY, "timings": TIMINGS}


@dataclass(frozen=True)
class RunFolder:
    """One run's folder: create it, seal it, read it back."""

    path: Path

    @property
    def journal(self) -> Journal:
        """The rounds of a run that goes on; they belong to exactly these files of config and environment."""
        origin = hashlib.sha256()
        for name in _ORIGIN:
            with suppress(OSError):  # without the file, the journal does not match
                origin.update((self.path / name).read_bytes())
        return Journal(self.path / JOURNAL, origin.hexdigest())

    @property
    def is_done(self) -> bool:
        """Whether the run is complete and sealed; a damaged DONE counts, because reading the run tells of it."""
        return _exists(self.path / DONE)

    @property
    def lost_its_seal(self) -> bool:
        """Whether this was a finished run: it has result files, but neither DONE nor the journal to make them from."""
        if _exists(self.path / DONE) or _exists(self.path / JOURNAL):
            return False
        return any(_exists(self.path / name) for name in _RESULTS)

    @property
    def is_closed(self) -> bool:
        """Whether this user may not look into the folder, so that nobody can tell whether the run is finished."""
        try:
            (self.path / DONE).stat()
        except OSError as error:
            return isinstance(error, PermissionError)
        return False

    def create(self, config: str, environment: dict[str, Any]) -> None:
        """Make the folder with its config and environment, also where files of a damaged run are there."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.path / "config.json", config)
            write_text(self.path / "environment.json", _to_json(environment))

    def mend(self) -> bool:
        """Remove what is not whole, and return whether the journal lost something; for the lock's holder only."""
        with writing(self.path):
            remove_leftovers(self.path)
        return self.journal.mend()

    def seal(self) -> None:
        """Write the paper's six files and the timings from the journal, then DONE with every file's SHA-256.

        Whatever stops this, the journal stays until DONE is written, so the next start seals the same bytes.

        Raises
        ------
        RunError
            When the journal does not hold all rounds any more, or a file cannot be written.
        """
        records = self.journal.records()
        if not records or len(records) != json.loads((self.path / "config.json").read_bytes())["rounds"] + 1:
            raise RunError(f"the journal of run {self.path.name} changed while the run went on: start the run again")
        tables = {name: [row for record in records for row in record[name]] for name in SCHEMA}
        texts = {name: to_csv(rows, SCHEMA[name]) for name, rows in tables.items()}
        for name in ("exclusions", "privacy"):
            rows = [row for record in records for row in record.get(name, [])]
            if rows:
                texts[name] = to_csv(rows, _COLUMNS[name])
        texts["timings"] = to_csv([{"round": r["state"]["done"], "seconds": r["seconds"]} for r in records], TIMINGS)
        with writing(self.path):
            for name, text in texts.items():
                write_text(self.path / f"{name}.csv", text)
            for name in {"exclusions", "privacy"} - set(texts):  # the file may be there in a run that lost its seal
                (self.path / f"{name}.csv").unlink(missing_ok=True)
            write_bytes(self.path / PARAMS, _learnt(records))
            write_text(self.path / DONE, _to_json(self.digests()))
        self.drop_journal()

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every result file that exists, except the timings."""
        paths = [self.path / name for name in (*_ORIGIN, *_RESULTS)]
        return {path.name: _sha256(path) for path in paths if path.is_file()}

    def sealed(self) -> dict[str, str] | None:
        """Return the digests in DONE, or None where it is not as it was written."""
        try:
            text = (self.path / DONE).read_text(encoding="utf-8")
            digests = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return None
        is_whole = isinstance(digests, dict) and set(digests) <= {*_ORIGIN, *_RESULTS} and text == _to_json(digests)
        return digests if is_whole else None

    def lost_its_config(self) -> bool:
        """Tell whether config.json is missing or is not the one that DONE has sealed; without DONE, nobody knows."""
        sealed = self.sealed()
        if sealed is None:
            return False
        try:
            return sealed.get("config.json") != _sha256(self.path / "config.json")
        except OSError:
            return True

    def is_of_another(self, identity: str) -> bool:
        """Return whether environment.json names another identity.

        Folder names have only 8 digits of it, so two runs can share them. Where neither DONE nor the journal confirms
        the file, return False.
        """
        sealed = self.sealed()
        try:
            data = (self.path / "environment.json").read_bytes()
            if sealed is None:
                is_whole = bool(self.journal.records())
            else:
                is_whole = sealed.get("environment.json") == hashlib.sha256(data).hexdigest()
            return bool(is_whole and json.loads(data)["identity"] != identity)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def drop_journal(self) -> None:
        """Remove the journal of a sealed run, which a crash may have kept."""
        Journal(self.path / JOURNAL, "").drop()

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn any error while a file is read into a :class:`RunError` of one line that names run and file."""
        try:
            yield
        except Exception as error:  # because a damaged file can make its parser fail in any way
            told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = " ".join(told.split())[:200] or type(error).__name__
            raise RunError(f"{name} of run {self.path.name} cannot be read: {reason}") from None

    def table(self, name: str) -> pd.DataFrame:
        """Read one of the tables of :data:`qfl_core.runs.schema.SCHEMA`, the exclusions or the timings."""
        with self.reading(f"{name}.csv"):
            return read_csv(self.path / f"{name}.csv", _COLUMNS.get(name, ()))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Read the table of the same name as :meth:`table` does, without pandas."""
        with self.reading(f"{name}.csv"):
            return read_rows(self.path / f"{name}.csv", _COLUMNS[name])

    def parameters(self) -> dict[str, np.ndarray]:
        """Read what was learnt, (T + 1, ...) each: the global ``weights``, ``phi``, and what a hook remembered."""
        with self.reading(PARAMS):
            data = io.BytesIO((self.path / PARAMS).read_bytes())  # because np.load leaves a damaged file open
            with np.load(data, allow_pickle=False) as stored:
                return {"weights": stored["weights"]} | {name: stored[name] for name in stored.files}


def _exists(path: Path) -> bool:
    """Tell whether there is such a file or folder; nothing is found in a folder that cannot be read."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _to_json(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


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
