"""Digests of what Python code does: of its syntax tree, without docstrings, comments and layout.

A finished result stays valid when somebody edits only a docstring or a comment of the code behind it. The digest of the
file's bytes would change with such an edit; these digests do not. They are equal under all Python versions from 3.11.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from qfl_core.base.files import write_text
from qfl_core.base.paths import cache_dir

#: Fields that do not change what code does: type comments, and the ``u`` in front of a text.
_SILENT = {"type_comment", "type_ignores", "kind"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def tree_digest(source: str) -> str:
    """Return the SHA-256 (hex) of the syntax tree of one source text.

    Raises
    ------
    SyntaxError
        When ``source`` is not Python.

    Examples
    --------
    >>> tree_digest("x = 1  # one") == tree_digest("x = 1")
    True
    >>> tree_digest("x = 1") == tree_digest("x = 2")
    False
    """
    return hashlib.sha256(_dump(ast.parse(source)).encode("ascii")).hexdigest()


def code_digest(files: Mapping[str, str]) -> str:
    """Return the SHA-256 (hex) of several source texts, by name; the order of the mapping does not matter."""
    digests = {name: tree_digest(source) for name, source in files.items()}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode("ascii")).hexdigest()


def kept_digest(files: Mapping[str, str]) -> str:
    """Return :func:`code_digest` of these source texts, and keep it in the cache folder under the digest of the texts.

    Parsing takes some tenths of a second, and every process of a sweep and every node of a federation needs the digest.
    """
    content = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    path = cache_dir() / "code" / f"{content}.txt"
    with suppress(OSError, ValueError):
        if re.fullmatch("[0-9a-f]{64}", known := path.read_text(encoding="ascii")):
            return known
    digest = code_digest(files)
    with suppress(OSError):  # a folder that cannot be written costs time and nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, digest)
    return digest


def package_digest(parts: Iterable[str], without: Collection[str] = ()) -> str:
    """Return :func:`kept_digest` of some of this package's own modules.

    Parameters
    ----------
    parts : files and folders, as paths from the package's folder, e.g. ``"data"`` or ``"base/streams.py"``.
    without : files of these folders that are left out.
    """
    package = Path(__file__).resolve().parents[1]
    files = {}
    for path in map(package.joinpath, parts):
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            files[file.relative_to(package).as_posix()] = file
    return kept_digest({name: file.read_text(encoding="utf-8") for name, file in files.items() if name not in without})


def _dump(value: object) -> str:
    """Write a node, a list of nodes or a plain value as ASCII text; different values give different texts.

    ``ast.dump`` is not used because its output differs between Python versions: later versions add fields. They are
    optional, so a field that is empty (None or no items) is left out here.
    """
    if isinstance(value, ast.Constant):
        return f"Constant({type(value.value).__name__} {_plain(value.value)})"
    if isinstance(value, ast.AST):
        fields = {name: item for name, item in ast.iter_fields(value) if name not in _SILENT}
        if isinstance(value, _DOCUMENTED) and ast.get_docstring(value, clean=False) is not None:
            fields["body"] = value.body[1:]
        if isinstance(value, ast.JoinedStr):
            fields["values"] = _joined(value.values)
        written = [f"{name}={_dump(item)}" for name, item in sorted(fields.items()) if item is not None and item != []]
        return f"{type(value).__name__}({', '.join(written)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    return _plain(value)


def _plain(value: object) -> str:
    """Write a constant or a name. ``repr`` of a text depends on the version's Unicode tables, ``ascii`` does not."""
    return hex(value) if type(value) is int else ascii(value)


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Merge neighbouring texts of an f-string and drop empty ones: versions cut the same f-string differently."""
    merged: list[ast.expr] = []
    text = ""
    for value in [*values, None]:
        if isinstance(value, ast.Constant):
            text += str(value.value)
            continue
        if text:
            merged.append(ast.Constant(text))
            text = ""
        if value is not None:
            merged.append(value)
    return merged
