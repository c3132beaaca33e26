"""What a dataset becomes: angles and labels in three parts, every row traceable to its origin."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from qfl_core.base.display import splits_html
from qfl_core.base.errors import DataError


@dataclass(frozen=True)
class DataSource:
    """Where rows came from.

    ``kind`` is ``"official"`` (identical to the published file), ``"local"`` (the user's file in the official
    format), ``"bundled"`` (a library brings it) or ``"stand-in"`` (generated). ``sha256`` is the file's digest, or that
    of the bundled values or the generator.
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
    """Rows of one part: ``X`` (n, features) in angles, ``y`` (n,) in {0, 1}, ``origin`` (n,) row ids of the source."""

    X: np.ndarray
    y: np.ndarray
    origin: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.X) == len(self.y) == len(self.origin):
            raise DataError(
                f"X, y and origin must have one row each, got {len(self.X)}, {len(self.y)}, {len(self.origin)}"
            )
        if not np.isfinite(self.X).all():
            raise DataError("features contain NaN or infinite values")
        if not np.isin(self.y, (0, 1)).all():
            raise DataError(f"labels must be 0 or 1, got {np.unique(self.y)[:5].tolist()}")
        for array in (self.X, self.y, self.origin):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Splits:
    """Train, validation and test parts, with the source they came from.

    ``notes`` counts what the stated rules removed, e.g. ``{"rows with NaN": 3}``.
    """

    train: Split
    val: Split
    test: Split
    provenance: DataSource
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """``"official"``, ``"local"``, ``"bundled"`` or ``"stand-in"``."""
        return self.provenance.kind

    @property
    def parts(self) -> dict[str, Split]:
        """The parts by name, in order."""
        return {"train": self.train, "val": self.val, "test": self.test}

    def table(self) -> pd.DataFrame:
        """Return rows, positives and angle range of each part."""
        rows = {
            name: {
                "rows": len(part),
                "label 1": int(part.y.sum()),
                "share of label 1": part.y.mean(),
                "lowest angle": part.X.min(),
                "highest angle": part.X.max(),
            }
            for name, part in self.parts.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("part")

    def _repr_html_(self) -> str:
        return splits_html(self)
