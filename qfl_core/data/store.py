"""Arrays that took time to compute, kept on disk for the next process.

An entry is one file, ``<cache folder>/<kind>/<key>.arrays``. The key is the SHA-256 of everything that decides the
arrays (:func:`kept`). The file starts with the SHA-256 of all bytes after it, so an entry that is damaged or not whole
is noticed and computed again. Files are written whole or not at all, so reading needs no lock. Where the cache folder
cannot be written, nothing is kept, and everything else works as before.

The entries of one kind take at most :data:`LIMIT` bytes: the oldest ones are removed when a new one is written.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from qfl_core.base.files import write_bytes
from qfl_core.base.paths import cache_dir
from qfl_core.base.source_code import package_digest

#: The most bytes that the entries of one kind take on disk.
LIMIT = 512 * 2**20
#: A temporary file is a leftover of a killed process when it is older than this, in seconds.
LEFTOVER_AGE = 3600.0

#: The code that decides what is read from files and how it is encoded.
CODE = ("base/streams.py", "data")
#: Files of the data room that only look at data.
ONLY_LOOKING = ("data/audit.py", "data/command.py", "data/standin/fidelity.py")
#: Packages that take part in the reading and encoding.
PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy")

_SUFFIX = ".arrays"
_ALIGNMENT = 64
_DIGEST = 64 + 1  # the hex digits and a line end


@dataclass(frozen=True, eq=False)
class Entry:
    """Arrays by name, and plain facts (of JSON types) that belong to them."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def kept(kind: str, deciding: Mapping[str, object], make: Callable[[], Entry]) -> Entry:
    """Return the entry of this kind and key, from the disk where it is there, otherwise from ``make``.

    Parameters
    ----------
    kind : the folder of the entry.
    deciding : what decides the entry, as JSON types. The code of the data room, the versions of the packages behind it
        and the kind of machine are added here.
    make : computes the entry.

    Returns
    -------
    The entry. Its arrays are read-only where they come from the disk.
    """
    path = cache_dir() / kind / f"{_key(deciding)}{_SUFFIX}"
    found = _load(path)
    if found is not None:
        return found
    made = make()
    with suppress(OSError):  # a folder that cannot be written costs time and nothing else
        _save(path, made)
    return made


def compact(values: np.ndarray) -> np.ndarray:
    """Return the same numbers in the smallest type that holds each of them to the bit."""
    for kind in (np.int8, np.int16, np.int32, np.float32):
        with np.errstate(over="ignore", invalid="ignore"):  # a number that does not fit is found by the comparison
            smaller = values.astype(kind)
            if smaller.astype(values.dtype).tobytes() == values.tobytes():
                return smaller
    return values


def _key(deciding: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps([dict(deciding), *_surroundings()], sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=1)
def _surroundings() -> tuple[object, ...]:
    """Return what decides every entry: code, versions of packages, kind of machine."""
    versions = {name: version(name) for name in PACKAGES}
    return package_digest(CODE, ONLY_LOOKING), versions, platform.system(), platform.machine()


def _load(path: Path) -> Entry | None:
    """Read an entry, or return None where there is none that is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    # One view of the bytes, because a slice of bytes is a copy.
    body = memoryview(data)[_DIGEST:]
    if data[:_DIGEST] != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return None
    header_end = data.index(b"\n", _DIGEST) + 1
    header = json.loads(data[_DIGEST:header_end])
    arrays, start = {}, _aligned(header_end)
    for name, kind, shape in header["arrays"]:
        dtype = np.dtype(kind)
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, dtype, count, start).reshape(shape)
        start = _aligned(start + count * dtype.itemsize)
    return Entry(arrays, header["facts"])


def _save(path: Path, entry: Entry) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in entry.arrays.items()}
    listed = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    header = json.dumps({"facts": dict(entry.facts), "arrays": listed}).encode() + b"\n"
    parts, size = [header], _DIGEST + len(header)
    for array in arrays.values():
        parts += [b"\0" * (_aligned(size) - size), array.tobytes()]
        size = _aligned(size) + array.nbytes
    if size > LIMIT:
        return
    body = b"".join(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    _prune(path.parent)


def _aligned(position: int) -> int:
    """Return the next position at which an array may start."""
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _prune(folder: Path) -> None:
    """Remove the oldest entries beyond the limit, and what killed processes left behind."""
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process may remove the same file
            state = path.stat()
            if path.suffix == _SUFFIX:
                entries.append((state.st_mtime_ns, state.st_size, path))
            elif path.suffix == ".part" and time.time() - state.st_mtime > LEFTOVER_AGE:
                path.unlink()
    total = 0
    for _, size, path in sorted(entries, key=lambda entry: entry[0], reverse=True):
        total += size
        if total > LIMIT:
            with suppress(OSError):
                path.unlink()
