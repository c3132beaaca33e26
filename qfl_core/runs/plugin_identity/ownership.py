"""Whose code it is: the package's, Python's, an installed library's, or the user's own."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Protocol, TypeGuard

_PACKAGE = Path(__file__).resolve().parents[2]
_PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
#: The names of folders that hold installed libraries, wherever they are: Python's, the user's, a shared environment's.
_INSTALLED = {"site-packages", "dist-packages"}


def is_package(module: str | None) -> bool:
    """Return whether a module is the package's."""
    return _top(module) == _PACKAGE.name


def is_standard(module: str | None) -> bool:
    """Return whether a module comes with Python, and is not a user's file of the same name."""
    if _top(module) not in sys.stdlib_module_names:
        return False
    file = loaded_file(_top(module))
    return file is None or not is_own(file)


def is_library(module: str | None) -> bool:
    """Return whether a module is the package's, Python's or an installed library's."""
    if is_package(module) or is_standard(module):
        return True
    name = str(module)
    while name:  # parts of a library in C have no file, but the library has
        if (file := loaded_file(name)) is not None:
            return not is_own(file)
        name = name.rpartition(".")[0]
    return False


def is_own_class(kind: type) -> bool:
    """Return whether a class is a user's own or the package's; the attributes of its objects are all their state."""
    return is_package(kind.__module__) or not is_library(kind.__module__)


def is_own(file: Path) -> bool:
    """Return whether a file is a user's own: not Python's, not an installed library's and not the package's."""
    return _INSTALLED.isdisjoint(file.parts) and not any(file.is_relative_to(root) for root in (*_PYTHON, _PACKAGE))


def existing(name: str | None) -> Path | None:
    """Return the file of this name, or None where there is none."""
    path = Path(name or "")
    return path.resolve() if path.is_file() else None


def loaded_file(module: str | None) -> Path | None:
    """Return the file of a module that Python has loaded, or None where it has none."""
    return existing(getattr(sys.modules.get(str(module)), "__file__", None))


def version(module: str | None) -> str:
    """Return the version of the library that a module belongs to, or an empty text."""
    return str(getattr(sys.modules.get(_top(module)), "__version__", ""))


class _Named(Protocol):
    __module__: str
    __qualname__: str


def is_named(value: object) -> TypeGuard[_Named]:
    """Return whether a value is what its module has under its name: no closure and no decorator's wrapper is."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return False
    found: object = sys.modules.get(str(getattr(value, "__module__", None)))
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _top(module: str | None) -> str:
    return str(module).partition(".")[0]
