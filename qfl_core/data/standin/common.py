"""The choice between real files and the built-in stand-ins, made and announced in one place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from importlib import resources
from multiprocessing import parent_process

from qfl_core.base.errors import DataError
from qfl_core.base.source_code import kept_digest
from qfl_core.data.sources import FoundFile
from qfl_core.data.splits import DataSource

#: The modules whose code decides what a stand-in holds.
GENERATOR_CODE = ("baf_facts.py", "baf.py", "curves.py", "discrete.py", "genome.py")


def choose_source(source: str, dataset: str, find: Callable[[], FoundFile | str]) -> FoundFile | str:
    """Return a real file, or the reason why the stand-in takes its place.

    Parameters
    ----------
    source : the config's setting. ``"official"`` accepts real files only (the published file, or the user's own file
        in its format), ``"stand-in"`` looks for no file, ``"auto"`` takes the stand-in where no file is found.
    dataset : the dataset's name, for the error message.
    find : looks for the file.
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


def describe_source(dataset: str, found: FoundFile | str, standin: str) -> DataSource:
    """Describe what :func:`choose_source` returned.

    Parameters
    ----------
    dataset : the dataset's name.
    found : the real file, or the reason why the stand-in takes its place.
    standin : the size and the seed of the stand-in, in words. The digest of a stand-in covers them, the code of the
        generators (:data:`GENERATOR_CODE`) and the published facts.
    """
    if isinstance(found, FoundFile):
        return DataSource(dataset, found.kind, found.path.name, found.sha256, found.reason)
    return DataSource(dataset, "stand-in", f"generated, {standin}", generator_digest(standin), found)


@lru_cache(maxsize=8)
def generator_digest(standin: str) -> str:
    """Return the SHA-256 of what decides a stand-in: its size and seed, the generators' code, the facts.

    The code counts as a syntax tree: a new docstring or comment in a generator changes no digest.
    """
    package = resources.files("qfl_core.data")
    code = {name: (package / "standin" / name).read_text(encoding="utf-8") for name in GENERATOR_CODE}
    tables = {
        entry.name: hashlib.sha256(entry.read_bytes()).hexdigest()
        for entry in (package / "facts").iterdir()
        if entry.name.endswith(".csv")
    }
    deciding = {"stand-in": standin, "code": kept_digest(code), "tables": tables}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode("ascii")).hexdigest()


@lru_cache(maxsize=64)
def announce(provenance: DataSource) -> None:
    """Print a data source the first time it is used; the workers of a sweep leave that to their parent process."""
    if parent_process() is None:
        print(f"[data] {provenance}")
