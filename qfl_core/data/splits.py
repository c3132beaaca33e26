"""What a dataset becomes: three splits of angles and labels, in which every row names its origin."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.base.display import splits_html
from qfl_core.base.errors import DataError
from qfl_core.data.store import Entry, compact

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class DataSource:
    """Where rows came from.

    Attributes
    ----------
    dataset : the dataset's name.
    kind : ``"official"`` (identical to the published file), ``"local"`` (the user's file in the official format),
        ``"bundled"`` (a library brings it) or ``"stand-in"`` (generated).
    name : the file's name, or words for what is no file.
    sha256 : the digest of the file, of the bundled values, or of the generator and its facts.
    reason : why this source was taken.
    """

    dataset: str
    kind: str
    name: str
    sha256: str
    reason: str

    def __str__(self) -> str:
        return f"{self.dataset}: {self.kind} data ({self.name}; {self.reason})"


@dataclass(frozen=True)
class Split:
    """The rows of the training, the validation or the test split.

    The arrays are read-only, and nobody else can write to them: an array that can still be written to is copied.

    Attributes
    ----------
    X : (n, features) angles.
    y : (n,) labels, 0 or 1.
    origin : (n,) ids of the rows in the source.
    """

    X: np.ndarray
    y: np.ndarray
    origin: np.ndarray

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.ndim != 1:
            raise DataError(f"X must be (rows, features) and y (rows,), got the shapes {self.X.shape}, {self.y.shape}")
        if not len(self.X) == len(self.y) == len(self.origin):
            raise DataError(
                f"X, y and origin must have one row each, got {len(self.X)}, {len(self.y)}, {len(self.origin)}"
            )
        if not np.isfinite(self.X).all():
            raise DataError("features contain NaN or infinite values")
        if not np.isin(self.y, (0, 1)).all():
            raise DataError(f"labels must be 0 or 1, got {np.unique(self.y)[:5].tolist()}")
        for name in ("X", "y", "origin"):
            object.__setattr__(self, name, _own(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.y)


def _own(array: np.ndarray) -> np.ndarray:
    """Return a read-only array that changes with no other: a copy, unless neither it nor what it views is writable."""
    behind: object = array
    while isinstance(behind, np.ndarray):
        if behind.flags.writeable:
            array = array.copy(order="K")
            array.setflags(write=False)
            return array
        behind = behind.base
    return array


@dataclass(frozen=True)
class Splits:
    """The training, validation and test split of a dataset, with the source they came from.

    ``notes`` counts what the stated rules removed, e.g. ``{"rows with NaN": 3}``.
    """

    train: Split
    val: Split
    test: Split
    provenance: DataSource
    notes: Mapping[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """``"official"``, ``"local"``, ``"bundled"`` or ``"stand-in"``."""
        return self.provenance.kind

    @property
    def parts(self) -> dict[str, Split]:
        """The three splits by name, in order: ``train``, ``val``, ``test``."""
        return {"train": self.train, "val": self.val, "test": self.test}

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the source's digest and of every bit of X, y and origin of the three splits."""
        digest = hashlib.sha256(self.provenance.sha256.encode())
        for split in self.parts.values():
            for array in (split.X, split.y, split.origin):
                plain = array.astype(str) if array.dtype.hasobject else array  # because object arrays hold addresses
                digest.update(f"\n{plain.dtype.str} {plain.shape}\n".encode() + plain.tobytes())
        return digest.hexdigest()

    def table(self) -> pd.DataFrame:
        """Return one row per split: its number of rows, its rows of label 1, its range of angles."""
        import pandas as pd  # here, because training needs no table

        rows = {
            name: {
                "rows": len(split),
                "label 1": int(split.y.sum()),
                "share of label 1": split.y.mean(),
                "lowest angle": split.X.min(),
                "highest angle": split.X.max(),
            }
            for name, split in self.parts.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("part")

    def _repr_html_(self) -> str:
        return splits_html(self)


def packed(splits: Splits) -> Entry:
    """Return splits in the form in which they are kept on disk; :func:`unpacked` gives back the same bits."""
    arrays: dict[str, np.ndarray] = {}
    for name, split in splits.parts.items():
        is_text = split.origin.dtype.kind == "U"
        origin = np.char.encode(split.origin, "utf-8") if is_text else compact(split.origin)
        arrays |= {f"{name}.X": split.X, f"{name}.y": compact(split.y), f"{name}.origin": origin}
    types = {name: [split.y.dtype.str, split.origin.dtype.str] for name, split in splits.parts.items()}
    return Entry(arrays, {"notes": dict(splits.notes), "types": types})


def unpacked(entry: Entry, provenance: DataSource) -> Splits:
    """Return the splits of :func:`packed`; ``provenance`` is their source."""
    parts = {}
    for name, (labels, names) in entry.facts["types"].items():
        X, y, origin = (entry.arrays[f"{name}.{array}"] for array in ("X", "y", "origin"))
        origin = np.char.decode(origin, "utf-8") if np.dtype(names).kind == "U" else origin
        parts[name] = Split(X, y.astype(labels), origin.astype(names))
    return Splits(**parts, provenance=provenance, notes=entry.facts["notes"])
