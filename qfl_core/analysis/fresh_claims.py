"""The claims that were undecided, judged once more on fresh seeds alone: the table of ``make follow-up``.

It lies beside the tables of the first stage, one row per part. Nothing is judged here; the rule of the second stage is
in docs/claims.md, and :mod:`qfl_core.studies.follow_up` trains and judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from qfl_core.analysis.other_claims import COLUMNS, OtherClaims, read_columns
from qfl_core.analysis.part_tests import ABSENT, FAILS, HOLDS
from qfl_core.analysis.verdicts import UNDECIDED, counted_verdicts
from qfl_core.base.numbers import counted

NAME = "follow_up"
DECIDED = (HOLDS, FAILS, ABSENT)


class FreshClaims(OtherClaims):
    """The claims on fresh seeds; only those are in it that the first stage left undecided."""

    @property
    def seeds(self) -> int:
        """The number of fresh seeds."""
        return int(self.parts["seeds"].max())

    def of(self, claim: str, verdict: str) -> str:
        """Return the verdict on fresh seeds; empty where the first stage's own ``verdict`` is not undecided."""
        return self.verdict(claim) if verdict == UNDECIDED else ""

    def remaining(self, first: Mapping[str, str]) -> list[str]:
        """Return the claims that are undecided after both stages; ``first`` has the first stage's verdict by claim."""
        asked = [claim for claim, verdict in first.items() if verdict == UNDECIDED]
        return [claim for claim in asked if self.verdict(claim) not in DECIDED]

    def told(self, first: Mapping[str, str]) -> str:
        """Return one sentence on what the fresh seeds decide; ``first`` has the first stage's verdict by claim."""
        asked, left = list(first.values()).count(UNDECIDED), self.remaining(first)
        verdicts = [self.of(claim, verdict) for claim, verdict in first.items()]
        decided = counted_verdicts([verdict for verdict in verdicts if verdict in DECIDED])
        return (
            f"Of the {asked} undecided claims, {counted(self.seeds, 'fresh seed')} decide {asked - len(left)}"
            f"{f' ({decided})' if decided else ''}; {remaining_text(left)}."
        )


def remaining_text(left: Sequence[str]) -> str:
    """Return how many claims remain undecided, and which: ``1 remains undecided (4)``."""
    named = f" ({', '.join(left)})" if left else ""
    return f"{len(left) or 'none'} {'remains' if len(left) < 2 else 'remain'} undecided{named}"


def read_fresh(tables: Path) -> FreshClaims | None:
    """Read the claims on fresh seeds that lie in the folder of the tables; None where there are none.

    Raises
    ------
    AnalysisError
        When the table lacks a column.
    """
    path = tables / f"{NAME}.csv"
    if not path.is_file():
        return None
    parts = read_columns(path, path.name, ("id", "part", "claim_verdict", *COLUMNS))
    claims = parts.drop_duplicates("id").set_index("id")["claim_verdict"]
    return FreshClaims(claims, parts.set_index("part")[list(COLUMNS)])
