"""Verdicts as tables: one row per claim or one row per part, also written as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pandas as pd

from qfl_core.analysis.tables import csv_text, markdown
from qfl_core.analysis.verdicts import MISSING, VERDICTS, PartResult, Verdict
from qfl_core.base.files import write_text
from qfl_core.base.numbers import interval, number, rounded, significant


class NumbersRow(Protocol):
    """What a row of both tables holds, as ``itertuples`` gives it."""

    verdict: str
    note: str
    source: str
    claimed: str
    bound: float
    estimate: float
    low: float
    high: float
    p_corrected: float
    paper: float
    seeds: int


class ClaimRow(NumbersRow, Protocol):
    """A row of :func:`claims_table`."""

    id: str
    claim: str
    parts_holding: str
    deciding_part: str


class PartRow(NumbersRow, Protocol):
    """A row of :func:`parts_table`."""

    part: str
    text: str


def claims_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Return one row per claim: its verdict, and the estimate, interval, corrected p and paper's value of one part.

    That part decides: of the parts with the claim's verdict it supports the claim least (it has the smallest d_z).
    """
    rows = []
    for verdict in verdicts:
        holding = sum(result.verdict == "holds" for result in verdict.parts)
        rows.append(
            {
                "id": verdict.claim.id,
                "claim": verdict.claim.text,
                "verdict": verdict.verdict,
                "parts_holding": f"{holding}/{len(verdict.parts)}",
                "deciding_part": verdict.deciding.part.text,
                **_numbers(verdict.deciding),
                "source": "; ".join(dict.fromkeys(r.source for r in verdict.parts if r.source)),
                "rule": verdict.claim.rule,
                "note": "; ".join(dict.fromkeys(r.note for r in verdict.parts if r.note)),
            }
        )
    return pd.DataFrame(rows)


def parts_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Return one row per part of a claim, in order: what :func:`qfl_core.figures.claims.forest` draws."""
    rows = []
    for verdict in verdicts:
        letters = [chr(ord("a") + i) if len(verdict.parts) > 1 else "" for i in range(len(verdict.parts))]
        for letter, result in zip(letters, verdict.parts, strict=True):
            part = result.part
            rows.append(
                {
                    "id": verdict.claim.id,
                    "part": verdict.claim.id + letter,
                    "text": part.text,
                    "track": part.track,
                    "methods": " ".join(part.methods),
                    "unit": part.unit,
                    "verdict": result.verdict,
                    **_numbers(result),
                    "source": result.source,
                    "note": result.note,
                }
            )
    return pd.DataFrame(rows)


def _numbers(result: PartResult) -> dict[str, object]:
    part = result.part
    return {
        "claimed": part.claimed,
        "bound": part.bound,
        "estimate": result.estimate,
        "low": result.low,
        "high": result.high,
        "interval": result.interval,
        "p": result.p,
        "p_corrected": result.p_corrected,
        "effect_dz": result.effect,
        "paper": np.nan if part.paper is None else part.paper,
        "seeds": len(result.seeds),
    }


def claims_markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the table of claims as Markdown, with a line that counts the verdicts and one on how to read it."""
    counts = {name: sum(v.verdict == name for v in verdicts) for name in VERDICTS}
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    rows = [
        {
            "": row.id,
            "claim": row.claim,
            "verdict": f"**{row.verdict}**",
            "parts": row.parts_holding,
            "deciding part": row.deciding_part,
            **shown_numbers(row),
            "data": row.source,
        }
        for row in cast(Iterable[ClaimRow], claims_table(verdicts).itertuples())
    ]
    return (
        f"{counted}.\n\nOurs is the mean over paired seeds of the deciding part with its 95 % interval; p is the exact "
        "sign-flip test's, corrected for all parts of all claims.\n\n"
    ) + markdown(pd.DataFrame(rows))


def shown_numbers(row: NumbersRow) -> dict[str, object]:
    """Return the numbers of a row of either table, as text that a reader sees."""
    return {
        "claimed": f"{row.claimed} {_sign(row.claimed)}{significant(row.bound)}",
        "ours [95 %]": row.note if row.verdict == MISSING else _ours(row),
        "paper": number(row.paper, signed=True, missing=""),
        "p": number(row.p_corrected, missing=""),
        "seeds": row.seeds,
    }


def _sign(claimed: str) -> str:
    return {"within": "±", "always": "≤ "}.get(claimed, "")


def _ours(row: NumbersRow) -> str:
    if np.isnan(row.low):
        return significant(rounded(row.estimate), 3)
    return interval(row.estimate, row.low, row.high, signed=True)


def write_claims(verdicts: Sequence[Verdict], folder: str | Path) -> list[Path]:
    """Write claims.csv, claim_parts.csv and claims.md into a folder, whole or not at all; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "claims.csv": csv_text(claims_table(verdicts)),
        "claim_parts.csv": csv_text(parts_table(verdicts)),
        "claims.md": claims_markdown(verdicts),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]
