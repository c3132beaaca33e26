"""Which figures are drawn already: a figure is drawn again when its data, its code or the style changed.

Beside no figure lies a file of ours: the record is in the cache folder, one small file per figure. It holds the digest
of what the figure was drawn from, and the digests of the two files, so that a file that is missing or was edited is
drawn again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from qfl_core.base.files import write_text
from qfl_core.base.paths import cache_dir
from qfl_core.base.source_code import kept_digest

#: Files and rooms of the package that decide how given data are drawn.
DRAWING_CODE = ("figures", "analysis", "studies", "base/numbers.py", "base/registry.py", "algorithm/methods.py")
PACKAGES = ("matplotlib", "seaborn", "numpy", "pandas")
ENDINGS = ("pdf", "png")


def drawing_key(*drawn: object) -> str:
    """Return the SHA-256 (hex) of everything that decides a figure: the given values, the code and the style."""
    style = sorted((name, repr(value)) for name, value in plt.rcParams.items() if not name.startswith("backend"))
    versions = [(name, importlib.metadata.version(name)) for name in PACKAGES]
    return digest_of([drawn, style, versions, _code()])


@lru_cache(maxsize=1)
def _code() -> str:
    package = Path(__file__).resolve().parents[1]
    named = [package / name for name in DRAWING_CODE]
    files = [file for path in named for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return kept_digest({file.relative_to(package).as_posix(): file.read_text(encoding="utf-8") for file in files})


def digest_of(value: object) -> str:
    """Return the SHA-256 (hex) of plain data: tables, arrays, numbers, texts, and containers of them.

    Functions count by name, with the arguments that are bound to them.

    Raises
    ------
    TypeError
        When there is something else in it, e.g. a study: a figure's panels hold the tables that they draw.
    """
    found = hashlib.sha256()
    for piece in _pieces(value):
        found.update(len(piece).to_bytes(8, "big") + piece)
    return found.hexdigest()


def _pieces(value: object) -> Iterable[bytes]:
    """Yield the bytes of a value, beginning with its type."""
    yield type(value).__qualname__.encode()
    if value is None or isinstance(value, str | int | float | np.generic):
        yield repr(value).encode()
    elif isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        yield from _pieces(_axes(value))
        yield pd.util.hash_pandas_object(value, index=not isinstance(value, pd.Index)).to_numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield repr(value.tolist()).encode() if value.dtype == object else np.ascontiguousarray(value).tobytes()
    elif isinstance(value, partial):
        yield from _pieces([value.func, value.args, value.keywords])
    elif isinstance(value, FunctionType):
        yield f"{value.__module__}.{value.__qualname__}".encode()
    elif isinstance(value, Mapping):
        yield b"%d" % len(value)
        for item in value.items():
            yield from _pieces(item)
    elif isinstance(value, list | tuple):
        yield b"%d" % len(value)
        for item in value:
            yield from _pieces(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _pieces([field.name, getattr(value, field.name)])
    else:
        raise TypeError(f"a {type(value).__name__} has no digest: give the figure the table that it draws")


def _axes(table: pd.DataFrame | pd.Series | pd.Index) -> list[str]:
    """Return the names and types of a table's columns, which the hash of its rows leaves out."""
    if isinstance(table, pd.DataFrame):
        return [repr((name, str(kind))) for name, kind in table.dtypes.items()]
    return [repr((table.name, str(table.dtype)))]


@dataclass(frozen=True)
class Record:
    """The record of one figure: ``name`` may lie in a folder below ``folder``, e.g. ``panels/recall``."""

    folder: Path
    name: str

    @property
    def _path(self) -> Path:
        place = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        return cache_dir() / "drawn" / place / f"{self.name.replace('/', '-')}.json"

    def is_drawn(self, key: str) -> bool:
        """Tell whether both files are there, unchanged, and were drawn with this key."""
        with suppress(OSError, ValueError):
            found = {ending: (self.folder / f"{self.name}.{ending}").read_bytes() for ending in ENDINGS}
            return bool(json.loads(self._path.read_text(encoding="utf-8")) == self._facts(key, found))
        return False

    def store(self, key: str, drawn: Mapping[str, bytes]) -> None:
        """Remember the files that were drawn; ``drawn`` maps their endings to their content."""
        with suppress(OSError):  # without the record the figure is drawn again next time
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps(self._facts(key, drawn), sort_keys=True))

    def _facts(self, key: str, drawn: Mapping[str, bytes]) -> dict[str, str]:
        return {"key": key} | {ending: hashlib.sha256(content).hexdigest() for ending, content in drawn.items()}
