"""Claims that were judged on other runs, set beside those of a table: tables that were written earlier.

:mod:`qfl_core.analysis.real_claims` reads those on real samples, :mod:`qfl_core.analysis.fresh_claims` those on fresh
seeds. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.base.errors import AnalysisError
from qfl_core.base.numbers import interval, number

#: What is shown of a part.
COLUMNS = ("verdict", "estimate", "low", "high", "seeds")


@dataclass(frozen=True, eq=False)
class OtherClaims:
    """The verdict on each claim by its id, and :data:`COLUMNS` of each part by its label."""

    claims: pd.Series
    parts: pd.DataFrame

    def verdict(self, claim: str) -> str:
        """Return the verdict on a claim; empty where it was not judged."""
        return str(self.claims.get(claim, ""))

    def part_verdict(self, label: str) -> str:
        """Return the verdict on a part; empty where it was not judged."""
        return str(self.parts.loc[label, "verdict"]) if label in self.parts.index else ""

    def shown(self, label: str) -> str:
        """Return a part's mean with its 95 % interval as text; empty where there is none."""
        if label not in self.parts.index:
            return ""
        estimate, low, high = (float(self.parts[name][label]) for name in ("estimate", "low", "high"))
        return number(estimate, signed=True, missing="") if pd.isna(low) else interval(estimate, low, high, signed=True)


def read_columns(path: Path, name: str, needed: Sequence[str]) -> pd.DataFrame:
    """Read a table of claims or parts; ``name`` is what an error calls it.

    Raises
    ------
    AnalysisError
        When the table lacks a column.
    """
    table = pd.read_csv(path, dtype={"id": str, "part": str})
    lacking = [column for column in needed if column not in table]
    if lacking:
        raise AnalysisError(f"{name} lacks {', '.join(lacking)}; it has {', '.join(table.columns)}")
    return table
