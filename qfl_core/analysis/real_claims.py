"""The claims on real samples, beside those on the stand-ins: tables that were written earlier.

They lie in the folder ``real`` beside the tables of the stand-ins, in the same format. Nothing is judged here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.base.errors import AnalysisError
from qfl_core.base.numbers import interval, number

FOLDER = "real"
#: What is shown of a part on real samples.
COLUMNS = ("verdict", "estimate", "low", "high", "seeds")


@dataclass(frozen=True, eq=False)
class RealClaims:
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


def read_real(tables: Path) -> RealClaims | None:
    """Read the claims on real samples that lie beside the tables of a folder; None where there are none.

    Raises
    ------
    AnalysisError
        When a table lacks a column.
    """
    paths = {name: tables / FOLDER / f"{name}.csv" for name in ("claims", "claim_parts")}
    if not all(path.is_file() for path in paths.values()):
        return None
    claims, parts = (pd.read_csv(path, dtype={"id": str, "part": str}) for path in paths.values())
    for name, table, needed in (("claims", claims, ("id", "verdict")), ("claim_parts", parts, ("part", *COLUMNS))):
        lacking = [column for column in needed if column not in table]
        if lacking:
            raise AnalysisError(f"{FOLDER}/{name}.csv lacks {', '.join(lacking)}; it has {', '.join(table.columns)}")
    return RealClaims(claims.set_index("id")["verdict"], parts.set_index("part")[list(COLUMNS)])
