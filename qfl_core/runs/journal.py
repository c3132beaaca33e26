"""The journal of a run that goes on: every complete round is one line of ``journal.jsonl``.

Floats keep all their digits on the way, so a run that is resumed from its journal ends in the same bytes.

A line is ``{"sha256":"...","record":{...}}``. Its digest covers the record and the digest of the line before, and the
first line continues the digest of the run's config and environment. So a line that was changed, removed, repeated or
moved is noticed, and the run goes on from the last round before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qfl_core.base.errors import RunError
from qfl_core.base.files import writing
from qfl_core.runs.experiment import Record

_BEFORE_DIGEST, _BEFORE_RECORD, _END = b'{"sha256":"', b'","record":', b"}\n"
_RECORD_AT = len(_BEFORE_DIGEST) + 64 + len(_BEFORE_RECORD)


class _Whole(NamedTuple):
    """The part of a journal that is whole: its rounds, its number of bytes, and the digest of its last line."""

    records: list[Record]
    size: int
    digest: str


class Journal:
    """The file that keeps the rounds of an unfinished run.

    Parameters
    ----------
    path : the file.
    origin : the digest that the first line continues.
    """

    def __init__(self, path: Path, origin: str) -> None:
        self.path = path
        self._origin = origin
        self._last: str | None = None

    def append(self, record: Record) -> None:
        """Add one complete round; it is on disk when this returns."""
        body = json.dumps(record, default=_plain, separators=(",", ":")).encode()
        digest = _digest(self._whole().digest if self._last is None else self._last, body)
        with writing(self.path.parent), self.path.open("ab") as file:
            file.write(_line(digest, body))
            file.flush()
            os.fsync(file.fileno())
        self._last = digest

    def records(self) -> list[Record]:
        """Return the rounds 0, 1, ... up to the last one that is whole; what comes after it is left out."""
        return self._whole().records

    def mend(self) -> bool:
        """Cut off what is not whole, and return whether there was any; for the holder of the run's lock only."""
        whole = self._whole().size
        with writing(self.path.parent):
            if not self.path.is_file() or self.path.stat().st_size == whole:
                return False
            os.truncate(self.path, whole)
        return True

    def drop(self) -> None:
        """Remove the file."""
        with writing(self.path.parent):
            if self.path.is_file():
                self.path.unlink(missing_ok=True)

    def _whole(self) -> _Whole:
        records: list[Record] = []
        size, digest = 0, self._origin
        try:
            with self.path.open("rb") as file:
                for line in file:
                    body = line[_RECORD_AT : -len(_END)]
                    following = _digest(digest, body)
                    if line != _line(following, body):
                        break
                    record = json.loads(body)
                    if record["state"]["done"] != len(records):
                        break
                    records.append(record)
                    size, digest = size + len(line), following
        except FileNotFoundError:
            pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunError(f"the journal of run {self.path.parent.name} cannot be read: {reason}") from error
        return _Whole(records, size, digest)


def _digest(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + b"\n" + body).hexdigest()


def _line(digest: str, body: bytes) -> bytes:
    return _BEFORE_DIGEST + digest.encode() + _BEFORE_RECORD + body + _END


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store {type(value).__name__} in a record")
