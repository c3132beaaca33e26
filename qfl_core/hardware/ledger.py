"""The ledger of jobs: append-only JSON lines, each carrying the digest of the one before.

A line cut off by a crash is set aside with a notice. A changed, missing or reordered line breaks the chain, and the
ledger is refused: counts whose record was edited have lost their origin.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from qfl_core.base.errors import HardwareError
from qfl_core.base.files import write_bytes

START = "0" * 64


class LedgerNotice(UserWarning):
    """The ledger was mended, or a job was found again."""


@dataclass
class JobRecord:
    """What the ledger knows of one job: its last attempt, and how far it came."""

    key: str
    attempt: int = 0
    state: str = "planned"
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def job_id(self) -> str | None:
        """The service's name for the last attempt."""
        return self.facts.get("job_id")


class Ledger:
    """The events of one validation, on disk when :meth:`append` returns."""

    def __init__(self, path: Path):
        self.path = path

    def append(self, event: str, **facts: Any) -> dict[str, Any]:
        """Add one event and return it as written."""
        events = self.events()
        line = {
            "n": len(events),
            "previous": events[-1]["digest"] if events else START,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "event": event,
            **facts,
        }
        line["digest"] = _digest(line)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return line

    def events(self) -> list[dict[str, Any]]:
        """Return all events after checking the chain.

        Raises
        ------
        HardwareError
            When a line was edited, removed or moved.
        """
        if not self.path.is_file():
            return []
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            self._set_aside(whole, text[len(whole) :])
        previous, events = START, []
        for number, raw in enumerate(whole.splitlines(), start=1):
            try:
                line = json.loads(raw)
                sound = line["previous"] == previous and line["n"] == number - 1 and line["digest"] == _digest(line)
            except (ValueError, KeyError, TypeError):
                sound = False
            if not sound:
                raise HardwareError(
                    f"the ledger {self.path.name} in {self.path.parent.name} was edited at line {number}: its chain of "
                    "digests breaks there; restore it from a copy, or remove the folder to start anew"
                )
            events.append(line)
            previous = line["digest"]
        return events

    def _set_aside(self, whole: bytes, rest: bytes) -> None:
        """Move a last line without its end out of the ledger, into a file beside it."""
        with self.path.with_suffix(".cut").open("ab") as file:
            file.write(rest + b"\n")
        write_bytes(self.path, whole)
        warnings.warn(
            f"the last line of {self.path.name} was cut off and is now in {self.path.stem}.cut; a job that it "
            "recorded is found again by its tag",
            LedgerNotice,
            stacklevel=3,
        )

    def jobs(self) -> dict[str, JobRecord]:
        """Return every job that the events name, in order, as its last attempt stands."""
        found: dict[str, JobRecord] = {}
        for line in self.events():
            if "job" not in line:
                continue
            record = found.setdefault(line["job"], JobRecord(line["job"]))
            if line["attempt"] > record.attempt:
                record.attempt, record.facts = line["attempt"], {}
            record.state = line["event"]
            record.facts |= {k: v for k, v in line.items() if k not in ("n", "previous", "digest", "event", "job")}
        return found


def _digest(line: dict[str, Any]) -> str:
    content = {key: value for key, value in line.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
