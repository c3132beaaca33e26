"""The first stage as its tables tell it: its verdicts and numbers, its seeds, and the claims that it left undecided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.analysis.claim_tables import read_claims
from qfl_core.analysis.claims import Claim
from qfl_core.analysis.evidence import RUN_TRACKS
from qfl_core.analysis.paper_claims import CLAIMS
from qfl_core.analysis.verdicts import UNDECIDED
from qfl_core.base.errors import AnalysisError


@dataclass(frozen=True, eq=False)
class FirstStage:
    """The tables of claims and of their parts, and the seeds that they rest on."""

    claims: pd.DataFrame
    parts: pd.DataFrame
    seeds: frozenset[int]

    @classmethod
    def read(cls, tables: Path) -> FirstStage:
        """Read the tables that :func:`qfl_core.analysis.write_claims` wrote.

        Raises
        ------
        AnalysisError
            When one of them is not there.
        """
        claims, parts = read_claims(tables)
        values = tables / "claim_values.csv"
        if not values.is_file():
            raise AnalysisError(f"{values} is not there; `make reproduce` writes it")
        return cls(claims, parts, frozenset(int(seed) for seed in pd.read_csv(values, usecols=["seed"])["seed"]))

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict on each claim by its id."""
        return dict(zip(self.claims["id"], self.claims["verdict"], strict=True))

    @property
    def open_claims(self) -> tuple[Claim, ...]:
        """The undecided claims that are tested on runs alone.

        Claims on devices and theory points are left out, because they do not rest on the seeds of the runs.
        """
        verdicts = self.verdicts
        return tuple(
            claim
            for claim in CLAIMS
            if verdicts.get(claim.id) == UNDECIDED
            and all(part.track in RUN_TRACKS and part.claimed != "always" for part in claim.parts)
        )

    def source(self, track: str) -> str:
        """Return what the numbers of a track come from, e.g. ``baf pca: stand-in data, shots``."""
        return str(self.parts.loc[self.parts["track"] == track, "source"].iloc[0])
