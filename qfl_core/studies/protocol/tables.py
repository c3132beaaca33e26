"""The tables of a finished search: written by the command, read by notebooks, pages and figures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from qfl_core.analysis.tables import csv_text
from qfl_core.base.errors import AnalysisError
from qfl_core.base.files import write_text
from qfl_core.base.paths import repository_root
from qfl_core.studies.protocol.search import Search

#: The folder of the complete search below the documentation, and the name of its page.
NAME = "protocol-search"


@dataclass(frozen=True, eq=False)
class SearchTables:
    """What a search says, as tables: one file ``protocol_<name>.csv`` each, with the origin of the numbers.

    ``candidates`` and ``effects`` as in :class:`Search`; ``numbers`` and ``statements`` of the deciding stage, by
    candidate; ``refinement`` of the winner.
    """

    candidates: pd.DataFrame
    effects: pd.DataFrame
    numbers: pd.DataFrame
    statements: pd.DataFrame
    refinement: pd.DataFrame

    @classmethod
    def of(cls, search: Search) -> SearchTables:
        """Return the tables of a search."""
        best = search.best
        found = cls(
            search.candidates.reset_index(),
            search.effects,
            best.numbers_table(),
            best.statements_table(),
            search.refinement,
        )
        origin = "; ".join(search.facts)
        return cls(*(getattr(found, field.name).assign(origin=origin) for field in fields(cls)))

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says of the runs."""
        return tuple(str(self.candidates["origin"].iloc[0]).split("; "))

    @property
    def winner(self) -> str:
        """The winner's candidate name."""
        roles = self.candidates["role"].astype(str)
        return str(self.candidates["candidate"][roles.str.startswith("winner")].iloc[0])

    @property
    def factors(self) -> dict[str, list[str]]:
        """Each factor's levels, the first one first."""
        found: dict[str, list[str]] = {}
        for row in self.effects.drop_duplicates(["factor", "level"]).to_dict("records"):
            found.setdefault(str(row["factor"]), [str(row["from"])]).append(str(row["level"]))
        return found

    def write(self, folder: Path) -> list[Path]:
        """Write one CSV file per table."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for field in fields(self):
            paths.append(folder / f"protocol_{field.name}.csv")
            write_text(paths[-1], csv_text(getattr(self, field.name)))
        return paths

    @classmethod
    def read(cls, folder: Path) -> SearchTables:
        """Read what :meth:`write` wrote; a missing or older file is an error that names the command."""
        found = []
        for field in fields(cls):
            path = folder / f"protocol_{field.name}.csv"
            if not path.is_file():
                raise AnalysisError(f"{path.name} is not in {folder.name}/: make protocol-search writes it")
            text = {"candidate": str, "role": str, "from": str, "level": str, "refinement": str}
            found.append(pd.read_csv(path, dtype=text, keep_default_na=True))
        tables = cls(*found)
        for column in ("role", "total", "statements", "marked"):
            if column not in tables.candidates:
                raise AnalysisError(
                    f"protocol_candidates.csv in {folder.name}/ has no column {column!r}, because an older version "
                    "wrote it: make protocol-search writes it again"
                )
        levels = {name: tables.candidates[name].astype(str) for name in tables.factors}
        return cls(tables.candidates.fillna({"role": ""}).assign(**levels), *found[1:])


def complete_search() -> SearchTables:
    """Return the tables of the complete search that the documentation shows."""
    root = repository_root()
    if root is None:
        raise AnalysisError("the complete search is in the repository's docs/; this is an installed copy")
    return SearchTables.read(root / "docs" / NAME)
