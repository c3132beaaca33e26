"""Train all methods on real files, judge the claims, and set the verdicts beside the stand-ins'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.kept import kept
from qfl_core.analysis.tables import beside_paper, markdown
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.analysis.verdicts import MISSING, Verdict, judge
from qfl_core.base.errors import AnalysisError
from qfl_core.base.numbers import interval, number
from qfl_core.config import Profile
from qfl_core.data import data_source, load_splits
from qfl_core.runs.study import Study, facts_by_track, get_study
from qfl_core.studies.theory import check_theory

#: Files alone: a stand-in never takes the place of one that is missing.
OFFICIAL = "official"
#: Computing the theory points needs no data, and ten federations are what the notebooks take.
_THEORY_SEEDS = 10


@dataclass(frozen=True, eq=False)
class RealResults:
    """All methods on real files: the study of each track, the verdicts on the claims, and the facts of the files."""

    studies: Mapping[str, Study]
    verdicts: list[Verdict]
    files: pd.DataFrame

    @property
    def final_metrics(self) -> pd.DataFrame:
        """The last round's metrics beside the paper's, see :func:`qfl_core.analysis.tables.beside_paper`."""
        return beside_paper({track: study.rounds for track, study in self.studies.items()})

    @property
    def note(self) -> str:
        """What stands below every table: the files, the runs, and what the intervals speak of."""
        files = "; ".join(
            f"{row['track']}: {row['file']} ({row['kind']}, SHA-256 {row['sha256']}), of which a seed takes "
            f"{row['rows of a seed']:,} rows and two seeds share {number(100 * row['shared by two seeds'], 0)} %"
            for row in self.files.to_dict("records")
        )
        return (
            f"Files: {files}. Because seeds share rows, they are not independent samples of the population: the "
            f"intervals speak of these files. Runs: {facts_by_track(self.studies)}. "
            "`python -m qfl_core real` writes this page."
        )


def real_results(settings: Profile, seeds: Sequence[int], folder: Path) -> RealResults:
    """Return the results of all methods on real files; runs that ``folder`` does not hold yet are trained."""
    files = file_facts(settings, seeds)  # first, because a missing file must stop the command before any training
    studies = {
        track: kept(get_study(settings, track, [*METHODS, UNTRAINED], seeds, folder, source=OFFICIAL))
        for track in settings.datasets
    }
    runs = {track: study.runs for track, study in studies.items()}
    verdicts = judge(runs, theory=check_theory(min(len(seeds), _THEORY_SEEDS)))
    return RealResults(studies, verdicts, files)


def file_facts(settings: Profile, seeds: Sequence[int]) -> pd.DataFrame:
    """Return one row per track: its file with digest, how many rows a seed takes, and the share that two seeds have."""
    rows = []
    for track in settings.datasets:
        configs = [settings.config(track, seed=seed, source=OFFICIAL) for seed in seeds]
        found = data_source(configs[0])
        taken = [np.concatenate([part.origin for part in load_splits(config).parts.values()]) for config in configs]
        rows.append(
            {
                "track": track,
                "file": found.name,
                "kind": found.kind,
                "sha256": found.sha256,
                "rows of a seed": len(taken[0]),
                "shared by two seeds": shared_rows(taken),
                "seeds": len(seeds),
            }
        )
    return pd.DataFrame(rows)


def shared_rows(taken: Sequence[Iterable[object]]) -> float:
    """Return the share of a seed's rows that another seed takes, too: the mean over all pairs of seeds.

    ``taken`` holds the ids of each seed's rows; all seeds take the same number. One seed alone gives NaN.
    """
    sets = [frozenset(ids) for ids in taken]
    pairs = [len(a & b) / len(a) for place, a in enumerate(sets) for b in sets[:place]]
    return float(np.mean(pairs)) if pairs else float("nan")


def compared(stand_in: pd.DataFrame, real: pd.DataFrame) -> pd.DataFrame:
    """Return the stand-ins' numbers beside the real ones: one row per part of a claim that both could judge.

    Parameters
    ----------
    stand_in, real : two tables of :func:`qfl_core.analysis.parts_table`.

    Returns
    -------
    DataFrame with id, part, text, verdict and estimate, low, high of both, ``same_verdict``, and ``overlap``, which
    tells whether the two 95 % intervals have a value in common.
    """
    if not stand_in["source"].fillna("").str.contains("stand-in").any():
        raise AnalysisError("the table to compare with is not one of the stand-ins: its column source never says so")
    columns = ["part", "verdict", "estimate", "low", "high", "seeds"]
    both = real[["id", "text", "track", *columns]].merge(stand_in[columns], on="part", suffixes=("_real", "_stand_in"))
    both = both[(both["verdict_real"] != MISSING) & (both["verdict_stand_in"] != MISSING)]
    both = both[both["track"] != "theory"].reset_index(drop=True)
    return both.assign(
        same_verdict=both["verdict_real"] == both["verdict_stand_in"],
        overlap=(both["low_real"] <= both["high_stand_in"]) & (both["low_stand_in"] <= both["high_real"]),
    )


def compared_text(parts: pd.DataFrame, stand_in: pd.DataFrame, real: pd.DataFrame) -> str:
    """Return the comparison in Markdown: claim by claim from the two tables of claims, then part by part."""
    claims = real[["id", "claim", "verdict"]].merge(stand_in[["id", "verdict"]], on="id", suffixes=("_real", "_stand"))
    claims = claims[claims["id"].isin(parts["id"])]
    agreeing = int((claims["verdict_real"] == claims["verdict_stand"]).sum())
    by_claim = pd.DataFrame(
        {
            "": claims["id"],
            "claim": claims["claim"],
            "stand-in": claims["verdict_stand"],
            "real": claims["verdict_real"],
            "same": np.where(claims["verdict_real"] == claims["verdict_stand"], "yes", "**no**"),
        }
    )
    by_part = pd.DataFrame(
        [
            {
                "": row["part"],
                "number": row["text"],
                "stand-in [95 %]": _told(row, "stand_in"),
                "real [95 %]": _told(row, "real"),
                "verdicts": row["verdict_real"]
                if row["same_verdict"]
                else f"{row['verdict_stand_in']}, real **{row['verdict_real']}**",
                "intervals overlap": "yes" if row["overlap"] else "**no**",
            }
            for row in parts[parts["low_real"].notna()].to_dict("records")
        ]
    )
    opposed = {("holds", "fails"), ("fails", "holds")}
    contrary = sum(pair in opposed for pair in zip(parts["verdict_real"], parts["verdict_stand_in"], strict=True))
    return (
        f"{agreeing} of {len(claims)} claims and theory points have the same verdict on stand-in and real data; of "
        f"{len(parts)} parts {int(parts['same_verdict'].sum())} have, {contrary} have contrary ones (*holds* and "
        f"*fails*), and for {int((~parts['overlap'] & parts['low_real'].notna()).sum())} the intervals do not "
        "overlap.\n\n"
        f"{markdown(by_claim)}\n{markdown(by_part)}"
    )


def _told(row: Mapping[Any, Any], kind: str) -> str:
    return interval(row[f"estimate_{kind}"], row[f"low_{kind}"], row[f"high_{kind}"], signed=True)
