"""Where data files come from: the user's folder, the cache, or a download that was checked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from qfl_core.base import paths
from qfl_core.base.errors import DataError
from qfl_core.base.files import write_text

CONNECT_SECONDS = 5
READ_SECONDS = 60
RETRIES = 2


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
            return _checked(path, path.stat().st_mtime_ns, path.stat().st_size, official, "QFL_DATA_DIR")
    cache = paths.cache_dir()
    if path := _first_existing(cache, official.names):
        return _remembered(path, official)
    where = "no file in QFL_DATA_DIR or the cache" if folder else "no file in the cache"
    if paths.offline():
        return f"{where}, QFL_OFFLINE is set"
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
def _checked(file: Path, mtime: int, size: int, official: OfficialFile, where: str) -> FoundFile:
    """Check a file once per process; a file with another time stamp or size is checked again."""
    is_official, evidence = official.check(file)
    kind = "official" if is_official else "local"
    return FoundFile(file, kind, digest_of(file), f"{where}; {evidence}")


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
    found = _checked(path, path.stat().st_mtime_ns, path.stat().st_size, official, "cache")
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
    """Return a file's SHA-256 in hex, computed once per process; another time stamp or size computes it again."""
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _digest(path: Path, mtime: int, size: int) -> str:
    return file_sha256(path)


def git_blob_id(path: Path) -> str:
    """Return the id that git gives to the file's content: SHA-1 of ``"blob <size>\\0"`` and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
