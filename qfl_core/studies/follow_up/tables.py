"""The second look as tables: both stages side by side, part by part and claim by claim."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from qfl_core.analysis.claim_tables import claimed_text, parts_table
from qfl_core.analysis.fresh_claims import NAME, read_fresh
from qfl_core.analysis.other_claims import COLUMNS
from qfl_core.analysis.tables import csv_text, markdown
from qfl_core.analysis.verdicts import Verdict
from qfl_core.base.files import write_text
from qfl_core.base.numbers import interval, number, significant
from qfl_core.runs.study import facts_by_track
from qfl_core.studies.follow_up.study import FollowUp


def both_stages(verdicts: Sequence[Verdict], first: pd.DataFrame) -> pd.DataFrame:
    """Return one row per part of the claims that are judged again.

    Parameters
    ----------
    verdicts : those on fresh seeds.
    first : the first stage's table of parts, see :func:`qfl_core.analysis.parts_table`.

    Returns
    -------
    DataFrame with the columns of :func:`qfl_core.analysis.parts_table` on fresh seeds; verdict and corrected p value of
    the claim; and verdict, estimate, low, high and seeds of the first stage, whose names end in ``_first``.
    """
    parts = parts_table(verdicts).drop(columns="untrained")
    told = parts["id"].map({verdict.claim.id: verdict.verdict for verdict in verdicts})
    parts.insert(1, "claim_verdict", told)
    parts.insert(2, "claim_p_corrected", parts["id"].map({v.claim.id: v.p_corrected for v in verdicts}))
    before = first[["part", *COLUMNS]]
    return parts.merge(before, on="part", suffixes=("", "_first"), validate="one_to_one")


def write_follow_up(found: FollowUp, folder: Path) -> list[Path]:
    """Write ``follow_up.csv`` and ``follow_up.md``; return their paths."""
    paths = [folder / f"{NAME}.{ending}" for ending in ("csv", "md")]
    table = both_stages(found.verdicts, found.first.parts)
    write_text(paths[0], csv_text(table))
    write_text(paths[1], follow_up_text(found, table, told(found, folder)))
    return paths


def told(found: FollowUp, folder: Path) -> str:
    """Return what the table in the folder decides, in one sentence."""
    fresh = read_fresh(folder)
    return "" if fresh is None else fresh.told(found.first.verdicts)


def follow_up_text(found: FollowUp, table: pd.DataFrame, sentence: str) -> str:
    """Return the page: the result in a sentence, how to read it, one table of claims and one of parts."""
    by_claim = pd.DataFrame(
        [
            {
                "": verdict.claim.id,
                "claim": verdict.claim.text,
                "first stage": found.first.verdicts[verdict.claim.id],
                "fresh seeds": f"**{verdict.verdict}**",
                "deciding part": verdict.deciding.part.text,
                "p": number(verdict.p_corrected, missing=""),
            }
            for verdict in found.verdicts
        ]
    )
    by_part = pd.DataFrame(
        [
            {
                "": row["part"],
                "what is measured": row["text"],
                "claimed": claimed_text(row["claimed"], row["bound"]),
                "margin": significant(row["margin"], missing=""),
                "first stage [95 %]": interval(row["estimate_first"], row["low_first"], row["high_first"], signed=True),
                "seeds, first": row["seeds_first"],
                "verdict, first": row["verdict_first"],
                "fresh seeds [95 %]": interval(row["estimate"], row["low"], row["high"], signed=True),
                "seeds": row["seeds"],
                "verdict": f"**{row['verdict']}**{' (small)' if row['small'] else ''}",
                "p": number(row["p_corrected"], missing=""),
            }
            for row in table.to_dict("records")
        ]
    )
    return (
        f"{sentence}\n\nThese claims were undecided at the first stage and are judged here once more, on fresh seeds "
        "alone, by the rule that was fixed before their runs (docs/claims.md, *A second look with fresh seeds*). p is "
        "the test's for the verdict on fresh seeds, corrected so that all verdicts of this page together keep 5 %, "
        "beside the 5 % of the first stage. The margin is the smallest effect worth claiming; *absent* means that an "
        f"effect as large is excluded.\n\n{markdown(by_claim)}\n## All parts\n\n{markdown(by_part)}\n"
        f"Runs of the fresh seeds: {facts_by_track(found.studies)}. `python -m qfl_core follow-up` writes this page.\n"
    )
