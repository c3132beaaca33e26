"""Where data files come from: the user's folder, the cache, or a download that was checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qfl_core.base import paths
from qfl_core.base.errors import DataError
from qfl_core.base.files import write_text
from qfl_core.data.store import Entry, kept

CONNECT_SECONDS = 5
READ_SECONDS = 60
RETRIES = 2
#: A file that has not changed for so long has its digest kept on disk.
SETTLED_NS = 2 * 10**9


@dataclass(frozen=True)
class OfficialFile:
    """A published file.

    Attributes
    ----------
    names : accepted file names, best first.
    url : its address.
    download_name : the name that a download gets in the cache.
    check : function ``path -> (is_official, evidence)`` that tells whether a file is the published one, and what shows
        it. It raises :class:`DataError` for a file that is damaged or not in the official format.
    """

    names: tuple[str, ...]
    url: str
    download_name: str
    check: Callable[[Path], tuple[bool, str]]


@dataclass(frozen=True)
class FoundFile:
    """A checked file: ``kind`` is ``"official"`` for the published file and ``"local"`` for another in its format."""

    path: Path
    kind: str
    sha256: str
    reason: str


def find_file(official: OfficialFile) -> FoundFile | str:
    """Look in ``QFL_DATA_DIR``, then in the cache, then download; return the file, or the reason why there is none.

    A damaged file is an error and not a reason to look further, because the user's data would be replaced silently.
    """
    folder = paths.data_dir()
    if folder is not None:
        if not folder.is_dir():
            raise DataError(f"QFL_DATA_DIR={str(folder)!r} is not a folder: correct it or unset it")
        if path := _first_existing(folder, official.names):
            return _checked(path, digest_of(path), official, "QFL_DATA_DIR")
    cache = paths.cache_dir()
    if path := _first_existing(cache, official.names):
        return _remembered(path, official)
    where = "no file in QFL_DATA_DIR or the cache" if folder else "no file in the cache"
    if reason := paths.offline():
        return f"{where}, {reason}"
    return _download(official, cache, where)


def _first_existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the first of the names that exists in the folder; it must be a file that can be read."""
    path = next((folder / name for name in names if os.path.lexists(folder / name)), None)
    if path is not None and not path.is_file():
        raise DataError(f"{path.name} in {folder} is not a file (a folder, or a link to nothing): replace or remove it")
    if path is not None and not os.access(path, os.R_OK):
        raise DataError(f"{path.name} in {folder} cannot be read: change its permissions or remove it")
    return path


@lru_cache(maxsize=16)
def _checked(file: Path, sha256: str, official: OfficialFile, where: str) -> FoundFile:
    """Check a file. The outcome is kept on disk for its content; a file with other content is checked again."""

    def check() -> Entry:
        is_official, evidence = official.check(file)
        return Entry(facts={"kind": "official" if is_official else "local", "evidence": evidence})

    # The ending counts, because a file in Parquet's format may have a damaged beginning.
    facts = kept("checks", {"sha256": sha256, "ending": file.suffix, "names": official.names}, check).facts
    return FoundFile(file, facts["kind"], sha256, f"{where}; {facts['evidence']}")


def _remembered(path: Path, official: OfficialFile) -> FoundFile:
    """Return a cached file. The first use checks it in full; later uses compare its SHA-256 with the remembered one."""
    memory = path.with_name(path.name + ".json")
    if known := _memory(memory):
        actual = digest_of(path)
        if actual != known["sha256"]:
            raise DataError(
                f"{path.name} in the cache has changed since it was checked: SHA-256 is {actual}, "
                f"was {known['sha256']}; delete it and {memory.name}, or restore it"
            )
        return FoundFile(path, known["kind"], actual, f"cache; {known['evidence']}")
    found = _checked(path, digest_of(path), official, "cache")
    _remember(found)
    return found


def _memory(file: Path) -> dict[str, str] | None:
    """Return what was remembered about a cached file, or None where that cannot be read."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    complete = isinstance(known, dict) and {"sha256", "kind", "evidence"} <= known.keys()
    return known if complete else None


def _remember(found: FoundFile) -> None:
    """Remember the outcome of a full check beside the cached file."""
    evidence = found.reason.partition("; ")[2]
    text = json.dumps({"sha256": found.sha256, "kind": found.kind, "evidence": evidence}, indent=2) + "\n"
    with suppress(OSError):  # a read-only cache still serves: the file is checked in full next time
        write_text(found.path.with_name(found.path.name + ".json"), text)


@lru_cache(maxsize=4)
def _download(official: OfficialFile, cache: Path, where: str) -> FoundFile | str:
    """Download into the cache, at most once per process; a file is checked before it gets its name."""
    import pooch
    import requests

    _require_writable(cache)
    fetch = pooch.HTTPDownloader(progressbar=True, timeout=(CONNECT_SECONDS, READ_SECONDS))

    def fetch_and_check(url: str, output_file: str, registry: pooch.Pooch) -> None:
        fetch(url, output_file, registry)
        is_official, evidence = official.check(Path(output_file))
        if not is_official:
            raise DataError(f"the download from {url} is not the published file: {evidence}")

    registry = pooch.create(
        path=cache,
        base_url="",
        registry={official.download_name: None},
        urls={official.download_name: official.url},
        retry_if_failed=RETRIES,
    )
    logger = pooch.get_logger()
    level = logger.level
    try:
        logger.setLevel("ERROR")
        path = Path(registry.fetch(official.download_name, downloader=fetch_and_check))
    except requests.exceptions.RequestException as error:
        return f"{where}, download failed ({type(error).__name__})"
    except DataError as error:
        return f"{where}, download refused ({error})"
    except OSError as error:
        raise DataError(f"cannot store the download in {cache}: {error.strerror or error}") from None
    finally:
        logger.setLevel(level)
    return _remembered(path, official)


def _require_writable(cache: Path) -> None:
    advice = "set QFL_CACHE_DIR to a folder you can write to, or QFL_OFFLINE=1 to use the stand-in"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the cache folder {cache}: {error.strerror or error}; {advice}") from None
    if not os.access(cache, os.W_OK):
        raise DataError(f"the cache folder {cache} is read-only; {advice}")


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(path: Path) -> str:
    """Return a file's SHA-256 in hex. It is computed once per state of the file and kept in the cache folder.

    The state is the path, the device and number of the file, its size, and the times of the last change of its content
    and of its entry in the file system. Whoever changes a file through the file system changes the state. The limits: a
    disk that returns other bytes without a change of the file is not noticed, and neither is a change within one tick
    of the file system's clock. So the digest of a file that changed less than two seconds ago is not kept on disk.
    """
    state = path.stat()
    times = (state.st_mtime_ns, state.st_ctime_ns)
    return _digest(path.absolute(), (state.st_dev, state.st_ino, state.st_size, *times))


@lru_cache(maxsize=16)
def _digest(path: Path, state: tuple[int, ...]) -> str:
    name = hashlib.sha256(json.dumps([str(path), *state]).encode()).hexdigest()
    memory = paths.cache_dir() / "digests" / f"{name}.txt"
    with suppress(OSError, ValueError):
        if re.fullmatch("[0-9a-f]{64}", known := memory.read_text(encoding="ascii")):
            return known
    settled = max(state[-2:]) < time.time_ns() - SETTLED_NS
    digest = file_sha256(path)
    if settled:
        with suppress(OSError):  # a folder that cannot be written costs time and nothing else
            memory.parent.mkdir(parents=True, exist_ok=True)
            write_text(memory, digest)
    return digest


def require_unchanged(path: Path, sha256: str) -> None:
    """Refuse a file that changed while it was read, because what was read is kept under the file's digest."""
    if digest_of(path) != sha256:
        raise DataError(f"{path.name} changed while it was read: start again")


def git_blob_id(path: Path) -> str:
    """Return the id that git gives to the file's content: SHA-1 of ``"blob <size>\\0"`` and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
