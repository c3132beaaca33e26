"""The journal of a run that goes on: every complete round is one line of ``journal.jsonl``.

Floats keep all their digits on the way, so a run that is resumed from its journal ends in the same bytes.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qfl_core.base.files import writing
from qfl_core.runs.experiment import Record


@dataclass(frozen=True)
class Journal:
    """The file that keeps the rounds of an unfinished run."""

    path: Path

    def append(self, record: Record) -> None:
        """Add one complete round; it is on disk when this returns."""
        line = json.dumps(record, default=_plain, separators=(",", ":")) + "\n"
        with writing(self.path.parent), self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[Record]:
        """Return the complete rounds; a last line that was cut off, or is being written, is left out."""
        return [json.loads(line) for line in self._complete_lines().splitlines()]

    def mend(self) -> None:
        """Remove a last line that a crash cut off; for the holder of the run's lock only."""
        with writing(self.path.parent):
            if self.path.is_file():
                os.truncate(self.path, len(self._complete_lines()))

    def drop(self) -> None:
        """Remove the file, also where a crash kept the journal of a sealed run."""
        with writing(self.path.parent):
            self.path.unlink(missing_ok=True)

    def _complete_lines(self) -> bytes:
        text = self.path.read_bytes() if self.path.is_file() else b""
        return text[: text.rfind(b"\n") + 1]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store {type(value).__name__} in a record")
