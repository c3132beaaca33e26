"""The claims on real samples, beside those on the stand-ins: tables that were written earlier.

They lie in the folder ``real`` beside the tables of the stand-ins, in the same format. Nothing is judged here.
"""

from __future__ import annotations

from pathlib import Path

from qfl_core.analysis.other_claims import COLUMNS, OtherClaims, read_columns

FOLDER = "real"


class RealClaims(OtherClaims):
    """The claims on real samples."""


def read_real(tables: Path) -> RealClaims | None:
    """Read the claims on real samples that lie beside the tables of a folder; None where there are none.

    Raises
    ------
    AnalysisError
        When a table lacks a column.
    """
    needed = {"claims": ("id", "verdict"), "claim_parts": ("part", *COLUMNS)}
    paths = {name: tables / FOLDER / f"{name}.csv" for name in needed}
    if not all(path.is_file() for path in paths.values()):
        return None
    claims, parts = (read_columns(path, f"{FOLDER}/{name}.csv", needed[name]) for name, path in paths.items())
    return RealClaims(claims.set_index("id")["verdict"], parts.set_index("part")[list(COLUMNS)])
