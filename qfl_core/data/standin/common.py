"""The choice between real files and the built-in stand-ins, made and announced in one place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from multiprocessing import parent_process

from qfl_core.base.errors import DataError
from qfl_core.data.sources import FoundFile
from qfl_core.data.splits import DataSource

#: The modules whose code decides what a stand-in holds.
GENERATOR_CODE = ("baf_facts.py", "baf.py", "curves.py", "discrete.py", "genome.py")


def choose_source(source: str, dataset: str, find: Callable[[], FoundFile | str]) -> FoundFile | str:
    """Return a real file, or the reason why the stand-in takes its place.

    ``source="official"`` accepts real files only (the published one, or the user's in its format).
    """
    if source == "stand-in":
        return "chosen by source='stand-in'"
    found = find()
    if source == "official" and not isinstance(found, FoundFile):
        raise DataError(
            f"source='official' refuses the stand-in for {dataset}: {found}. Put the official file into a folder "
            "and name it with QFL_DATA_DIR (data/README.md tells where to get it), or allow source='auto'"
        )
    return found


def standin_source(dataset: str, reason: str, name: str) -> DataSource:
    """Describe a stand-in; its digest covers the code of the stand-ins, their facts and this one's size."""
    return DataSource(dataset, "stand-in", f"generated, {name}", _generator_digest(name), reason)


@lru_cache(maxsize=8)
def _generator_digest(name: str) -> str:
    package = resources.files("qfl_core.data")
    digest = hashlib.sha256(name.encode())
    code = [entry for entry in (package / "standin").iterdir() if entry.name in GENERATOR_CODE]
    tables = [entry for entry in (package / "facts").iterdir() if entry.name.endswith(".csv")]
    for entry in sorted([*code, *tables], key=lambda entry: entry.name):
        digest.update(entry.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=64)
def announce(provenance: DataSource) -> None:
    """Print a data source the first time it is used; workers of a sweep leave that to their parent."""
    if parent_process() is None:
        print(f"[data] {provenance}")
