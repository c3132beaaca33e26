"""Where things live: resolved from the package, never from the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from qfl_core.base.errors import RunError


def repository_root() -> Path | None:
    """Return the clone this package runs from, or ``None`` for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "notebooks").is_dir() else None


def figures_dir(profile: str) -> Path:
    """Return where a profile's figures go: ``figures/`` for the paper's, ``build/figures/<profile>`` for others.

    A smoke run then never overwrites the figures that the repository shows.
    """
    root = repository_root() or Path.cwd()
    return root / "figures" if profile == "paper" else root / "build" / "figures" / profile


def results_dir(profile: str) -> Path:
    """Return where a profile's runs go: ``results/<profile>``."""
    return (repository_root() or Path.cwd()) / "results" / profile


def below(folder: Path, *names: str) -> Path:
    """Return the path of these names below a folder; one that would lead out of it is refused.

    Only the names are looked at, because a folder below may link to another disk.
    """
    for name in map(Path, names):
        if name.is_absolute() or not name.parts or ".." in name.parts:
            raise RunError(f"{str(name)!r} is not the name of something below {folder.name!r}")
    return folder.joinpath(*names)


def cache_dir() -> Path:
    """Return the folder for downloads: ``QFL_CACHE_DIR``, else ``data/cache`` of the clone."""
    if named := os.environ.get("QFL_CACHE_DIR"):
        return Path(named).expanduser()
    if root := repository_root():
        return root / "data" / "cache"
    import pooch

    return Path(pooch.os_cache("qfl_core"))


def data_dir() -> Path | None:
    """Return the user's own data folder, ``QFL_DATA_DIR``, or ``None`` where it is not set."""
    named = os.environ.get("QFL_DATA_DIR")
    return Path(named).expanduser() if named else None


_NO_NETWORK = ContextVar("no_network", default="")


@contextmanager
def no_network(reason: str) -> Iterator[None]:
    """Do not ask the network inside the ``with`` block, for a reason such as a download that failed before."""
    token = _NO_NETWORK.set(reason)
    try:
        yield
    finally:
        _NO_NETWORK.reset(token)


def offline() -> str:
    """Return why the network must not be asked: ``QFL_OFFLINE`` (anything but empty or 0), or :func:`no_network`."""
    forbidden = os.environ.get("QFL_OFFLINE", "") not in ("", "0")
    return _NO_NETWORK.get() or ("QFL_OFFLINE is set" if forbidden else "")
