"""Verdicts as tables: one row per claim or one row per part, also written as CSV and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pandas as pd

from qfl_core.analysis.fresh_claims import FreshClaims, read_fresh
from qfl_core.analysis.part_tests import HOLDS
from qfl_core.analysis.real_claims import RealClaims, read_real
from qfl_core.analysis.single_run import SingleRun
from qfl_core.analysis.tables import as_written, csv_text, markdown
from qfl_core.analysis.verdicts import MISSING, UNDECIDED, PartResult, Verdict, counted_verdicts
from qfl_core.base.errors import AnalysisError
from qfl_core.base.files import write_text
from qfl_core.base.numbers import interval, number, rounded, significant

#: Marks a verdict that is conditional on the reading of the paper which the protocol search chose.
CONDITIONAL = "†"
#: One run is called likely to show a claim above this share of the seeds.
_MOST = 0.8
PAGE = "claims.md"
#: Columns of text, of which some begin with digits or are empty.
_WORDS = ("id", "part", "untrained", "source", "rule", "note", "interval", "parts_holding")
_SECOND_LOOK = (
    " Fresh seeds: the verdict of the second look, on seeds of its own and with another 5 % of its own, on claims that "
    "are undecided here ([numbers](follow_up.md))."
)


class NumbersRow(Protocol):
    """What a row of both tables holds, as ``itertuples`` gives it."""

    verdict: str
    conditional: bool
    note: str
    source: str
    claimed: str
    bound: float
    margin: float
    small: bool
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
    single_run: float
    single_run_low: float
    single_run_high: float
    untrained: str


class PartRow(NumbersRow, Protocol):
    """A row of :func:`parts_table`."""

    id: str
    part: str
    untrained: str
    text: str


def claims_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Return one row per claim: its verdict, and the estimate, interval, margin and paper's value of one part.

    That part decides: of the parts with the claim's verdict it supports the claim least (it has the smallest d_z).
    ``p_corrected`` is the claim's own.
    """
    rows = []
    for verdict in verdicts:
        holding = sum(result.verdict == HOLDS for result in verdict.parts)
        rows.append(
            {
                "id": verdict.claim.id,
                "claim": verdict.claim.text,
                "verdict": verdict.verdict,
                "conditional": verdict.claim.conditional,
                "parts_holding": f"{holding}/{len(verdict.parts)}",
                "deciding_part": verdict.deciding.part.text,
                **_numbers(verdict.deciding) | {"p_corrected": verdict.p_corrected},
                **_single(verdict.single),
                "untrained": _passing(verdict.parts),
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
        for label, result in zip(verdict.claim.labels, verdict.parts, strict=True):
            part = result.part
            rows.append(
                {
                    "id": verdict.claim.id,
                    "part": label,
                    "text": part.text,
                    "track": part.track,
                    "methods": " ".join(part.methods),
                    "unit": part.unit,
                    "verdict": result.verdict,
                    "conditional": part.conditional,
                    **_numbers(result),
                    "untrained": result.untrained,
                    "source": result.source,
                    "note": result.note,
                }
            )
    return pd.DataFrame(rows)


def values_table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Return the numbers that the verdicts rest on: one row per seed, one column per part that is tested on runs."""
    columns = {
        label: pd.Series(result.values, result.seeds, dtype=float)
        for verdict in verdicts
        for label, result in zip(verdict.claim.labels, verdict.parts, strict=True)
        if result.part.track != "theory" and result.part.claimed != "always"
    }
    return pd.DataFrame(columns).rename_axis("seed").reset_index()


def _numbers(result: PartResult) -> dict[str, object]:
    part = result.part
    return {
        "claimed": part.claimed,
        "bound": part.bound,
        "margin": part.margin if part.margin else np.nan,
        "small": result.small,
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


def _single(found: SingleRun) -> dict[str, float]:
    low, high = found.interval
    return {"single_run": found.share, "single_run_low": low, "single_run_high": high}


def _passing(results: Sequence[PartResult]) -> str:
    """Return how many parts the untrained model passes, of those that can be asked; empty where none can."""
    asked = [result for result in results if result.untrained and not result.untrained.startswith("n/a")]
    return f"{sum(result.untrained == HOLDS for result in asked)}/{len(asked)}" if asked else ""


def claims_markdown(verdicts: Sequence[Verdict], real: RealClaims | None = None) -> str:
    """Return the claims and then their parts as Markdown, with lines that count the verdicts and say how to read them.

    ``real`` puts the verdicts and numbers on real samples beside ours.
    """
    return page(claims_table(verdicts), parts_table(verdicts), real)


def page(
    claims: pd.DataFrame, parts: pd.DataFrame, real: RealClaims | None = None, fresh: FreshClaims | None = None
) -> str:
    """Return the tables of claims and of parts as Markdown, see :func:`claims_markdown`.

    ``fresh`` puts the verdicts and numbers on fresh seeds beside those of claims that are undecided.
    """
    verdicts = dict(zip(claims["id"], claims["verdict"], strict=True))
    told = [f"{counted_verdicts(list(verdicts.values()))}."]
    if fresh is not None:
        told.append(fresh.told(verdicts))
    if real is not None:
        told.append(f"On the real samples: {counted_verdicts([real.verdict(claim) for claim in verdicts])}.")
    told.append(_likely_shown(claims))
    rows = [
        {
            "": row.id,
            "claim": row.claim,
            "verdict": f"**{row.verdict}**{CONDITIONAL if row.conditional else ''}",
            **({} if fresh is None else {"fresh seeds": fresh.of(row.id, row.verdict)}),
            **({} if real is None else {"real sample": real.verdict(row.id)}),
            "parts": row.parts_holding,
            "deciding part": row.deciding_part,
            **shown_numbers(row),
            "one run": _share(row),
            "untrained": row.untrained,
            "data": row.source,
        }
        for row in cast(Iterable[ClaimRow], claims.itertuples())
    ]
    second = "" if fresh is None else _SECOND_LOOK
    return (
        f"{' '.join(told)}\n\nOurs is the mean over paired seeds of the deciding part with its 95 % interval; p is the "
        "test's for the verdict, corrected so that all verdicts together keep 5 %. The margin is the "
        "smallest effect worth claiming; *absent* means that an effect as large is excluded. "
        "One run: the share of seeds in which one run alone shows the whole pattern. Untrained: how many parts the "
        "initial weights pass in DUQFL-Prox's place, of those that they have a number for. "
        f"{CONDITIONAL} conditional on the reading: the protocol search used numbers that this claim tests.{second}\n\n"
    ) + f"{markdown(pd.DataFrame(rows))}\n## All parts\n\n{_parts_markdown(parts, verdicts, real, fresh)}"


def _likely_shown(claims: pd.DataFrame) -> str:
    """Return one sentence on what a reader of one run would have concluded."""
    asked = claims[claims["single_run"].notna()]
    if asked.empty:
        return ""
    holding, others = asked[asked["verdict"] == HOLDS], asked[asked["verdict"] != HOLDS]
    return (
        f"One run alone shows the whole pattern in more than {_MOST:.0%} of the seeds for "
        f"{(holding['single_run'] > _MOST).sum()} of the {len(holding)} claims on runs that hold; of the {len(others)} "
        f"others, one run shows {number(others['single_run'].sum(), 1)} on average by luck."
    )


def _parts_markdown(
    parts: pd.DataFrame, verdicts: Mapping[str, str], real: RealClaims | None, fresh: FreshClaims | None
) -> str:
    rows: list[dict[str, object]] = []
    for row in cast(Iterable[PartRow], parts.itertuples()):
        beside: dict[str, object] = {}
        if fresh is not None:
            asked = verdicts[row.id] == UNDECIDED
            beside |= {
                "fresh seeds [95 %]": fresh.shown(row.part) if asked else "",
                "on fresh seeds": fresh.part_verdict(row.part) if asked else "",
            }
        if real is not None:
            beside |= {"real [95 %]": real.shown(row.part), "on real": real.part_verdict(row.part)}
        small = " (small)" if row.small else ""
        rows.append(
            {
                "": row.part,
                "what is measured": row.text,
                "verdict": f"{row.verdict}{small}{CONDITIONAL if row.conditional else ''}",
                **shown_numbers(row),
                **beside,
                "untrained": row.untrained,
            }
        )
    return markdown(pd.DataFrame(rows))


def shown_numbers(row: NumbersRow) -> dict[str, object]:
    """Return the numbers of a row of either table, as text that a reader sees."""
    return {
        "claimed": claimed_text(row.claimed, row.bound),
        "ours [95 %]": row.note if row.verdict == MISSING else _ours(row),
        "margin": significant(row.margin, missing=""),
        "paper": number(row.paper, signed=True, missing=""),
        "p": number(row.p_corrected, missing=""),
        "seeds": row.seeds,
    }


def _share(row: ClaimRow) -> str:
    if np.isnan(row.single_run):
        return ""
    return interval(row.single_run, row.single_run_low, row.single_run_high, 2)


def claimed_text(claimed: str, bound: float) -> str:
    """Return what is claimed of a number: ``above 0``, ``within ±0.05``."""
    sign = {"within": "±", "always": "≤ "}.get(claimed, "")
    return f"{claimed} {sign}{significant(bound)}"


def _ours(row: NumbersRow) -> str:
    if np.isnan(row.low):
        return significant(rounded(row.estimate), 3)
    return interval(row.estimate, row.low, row.high, signed=True)


def write_claims(verdicts: Sequence[Verdict], folder: str | Path) -> list[Path]:
    """Write the tables of claims, parts and values as CSV, and claims.md, whole or not at all; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    claims, parts = as_written(claims_table(verdicts)), as_written(parts_table(verdicts))
    texts = {
        "claims.csv": csv_text(claims),
        "claim_parts.csv": csv_text(parts),
        "claim_values.csv": csv_text(values_table(verdicts)),
        PAGE: page(claims, parts, read_real(folder), read_fresh(folder)),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def read_claims(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the tables of claims and of parts that :func:`write_claims` wrote; a word that is missing is empty.

    Raises
    ------
    AnalysisError
        When one of them is not there.
    """
    found = []
    for name in ("claims.csv", "claim_parts.csv"):
        if not (folder / name).is_file():
            raise AnalysisError(f"{folder / name} is not there; `make reproduce` writes it")
        table = pd.read_csv(folder / name, dtype=dict.fromkeys(_WORDS, str))
        found.append(table.fillna({word: "" for word in _WORDS if word in table}))
    return found[0], found[1]


def rewrite_page(folder: Path) -> Path:
    """Write claims.md anew from the tables beside it, with what now stands beside them; return its path."""
    write_text(folder / PAGE, page(*read_claims(folder), read_real(folder), read_fresh(folder)))
    return folder / PAGE
