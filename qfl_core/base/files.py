"""How files are written: whole or not at all, and by one process at a time where a lock is held.

This is the only module that writes to a temporary name and renames.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from qfl_core.base.errors import RunError


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, whole or not at all; line ends stay as they are in ``text``.

    See :func:`write_bytes` for what happens when the writing fails.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all.

    The data go to a new file with a unique name in the same folder, which then takes the name ``path``. A reader
    therefore sees the old content or the new content, and several processes may write the same path at the same time.

    Raises
    ------
    OSError
        When the file cannot be written. The old content then stays, and the temporary file is removed.
    """
    temporary = unique_name(path)
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to tell
            temporary.unlink()
        raise


def unique_name(path: Path, ending: str = ".part") -> Path:
    """Return a name in the folder of ``path`` that no other writer has, for a file that is renamed when it is whole."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{ending}")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed writers left in a folder; nobody may be writing there."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, mode: int = 0o777) -> Iterator[None]:
    """Make a folder and its parents for the ``with`` block; where the block fails, remove those that are empty again.

    Raises
    ------
    OSError
        When the folder cannot be made.
    """
    made: list[Path] = []
    try:
        made += [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True, mode=mode)
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):  # a folder that holds something stays
                folder.rmdir()
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` inside the ``with`` block; create its folder where it is missing.

    Another process, or another thread, waits until the lock is free. When a process is killed, the operating system
    releases its lock. The lock file itself stays.

    Raises
    ------
    RunError
        When the folder or the lock file cannot be written.
    """
    lock = FileLock(path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a :class:`RunError` that names the results folder and the reason."""
    try:
        yield
    except (OSError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, RecursionError):  # Python makes the parents of a folder one inside the other
            reason = "its path has too many folders"
        raise RunError(f"cannot write results to {folder}: {reason}; complete rounds are kept") from error
