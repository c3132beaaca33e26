"""The code of a user's file and of the user's files that it imports; docstrings, comments and layout do not count."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from qfl_core.base.source_code import tree_digest
from qfl_core.runs.plugin_identity.ownership import existing, is_own, is_package, is_standard, loaded_file

_tree = lru_cache(maxsize=256)(tree_digest)


def code_of(file: Path) -> str:
    """Return the digests of a file's code and of the code of the user's files that it imports.

    Raises
    ------
    OSError, SyntaxError, ValueError
        When one of the files cannot be read, or is not Python.
    """
    files = {file: ""}
    waiting = [file]
    for current in waiting:
        for name, found in _imported(current):
            if found not in files:
                files[found] = name
                waiting.append(found)
    return " ".join(f"{name}={_content(path)}" for path, name in files.items())


def module_file(name: str) -> Path | None:
    """Return the file of a module, whether it is loaded or not; None where it has none. Nothing is imported."""
    if name in sys.modules:
        return loaded_file(name)
    if is_standard(name) or is_package(name):
        return None
    top, _, rest = name.partition(".")
    with suppress(ImportError, ValueError):  # what cannot be found is not the user's file
        spec = importlib.util.find_spec(top)
        if spec is not None and not rest:
            return existing(spec.origin)
        places = (spec and spec.submodule_search_locations) or ()
        return next(filter(None, (_python_file(Path(place), rest) for place in places)), None)
    return None


def _content(file: Path) -> str:
    """Return the digest of one file: of its code, or of its bytes where it is a compiled module."""
    if file.suffix != ".py":
        return hashlib.sha256(file.read_bytes()).hexdigest()
    return _tree(_source(file))


def _source(file: Path) -> str:
    return importlib.util.decode_source(file.read_bytes())


def _imported(file: Path) -> Iterator[tuple[str, Path]]:
    """Yield the user's own files that a user's file imports, also inside functions, with the names it has for them.

    What is imported from a library is not followed.
    """
    if not is_own(file) or file.suffix != ".py":
        return
    for name in _import_names(_source(file)):
        found = _relative_file(name, file) if name.startswith(".") else module_file(name)
        if found is not None and is_own(found):
            yield name, found


@lru_cache(maxsize=256)
def _import_names(source: str) -> tuple[str, ...]:
    """Return the modules that a source text may import, sorted; dots in front are relative to its file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joint = "" if base.endswith(".") else "."
            names |= {base, *(f"{base}{joint}{alias.name}" for alias in node.names)}
    parents = {name[:at] for name in names for at, sign in enumerate(name) if sign == "." and name[:at].strip(".")}
    return tuple(sorted(names | parents))


def _relative_file(name: str, file: Path) -> Path | None:
    """Return the file of a module that another file names relative to itself."""
    rest = name.lstrip(".")
    height = len(name) - len(rest)
    return _python_file(file.parents[height - 1], rest) if height <= len(file.parents) else None


def _python_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module in a folder, by its dotted name."""
    target = folder.joinpath(*name.split("."))
    return existing(f"{target}.py") or existing(str(target / "__init__.py"))
