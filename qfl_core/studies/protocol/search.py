"""Both stages of the search, and what they say."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import student_half
from qfl_core.analysis.tables import csv_text
from qfl_core.base.files import write_text
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_variants
from qfl_core.studies.protocol.distance import ALL, Stage, paper_numbers
from qfl_core.studies.protocol.plan import DEFAULTS, Plan


@dataclass(frozen=True, eq=False)
class Search:
    """A finished search: the screening, the final (None if the plan has none), and what they say.

    ``profile`` is the candidate that equals the profile's own settings.
    """

    plan: Plan
    screening: Stage
    final: Stage | None
    facts: tuple[str, ...]
    profile: str = DEFAULTS

    @property
    def best(self) -> Stage:
        """The stage that decides."""
        return self.final or self.screening

    @property
    def winner(self) -> str:
        """The closest candidate of the deciding stage."""
        return self.best.ranked()[0]

    @property
    def runner_up(self) -> str:
        """The second closest."""
        return self.best.ranked()[1]

    @property
    def candidates(self) -> pd.DataFrame:
        """All candidates of both stages with levels and distances, closest first, the final above the screening."""
        tables = []
        for name, stage in (("final", self.final), ("screening", self.screening)):
            if stage is not None:
                levels = pd.DataFrame([self.plan.levels(c) for c in stage.candidates], index=stage.table.index)
                tables.append(
                    levels.join(stage.table).assign(stage=name, seeds=stage.numbers.shape[1]).sort_values(ALL)
                )
        return pd.concat(tables).fillna(dict.fromkeys(self.plan.factors, DEFAULTS))

    @cached_property
    def effects(self) -> pd.DataFrame:
        """The mean change of the distance from a factor's first level to its second, over the screened candidates.

        One row per factor and track, and one for all tracks: effect, low, high (95 %, Student). The standard error
        comes from the residuals of the additive model.
        """
        design, names = _one_hot(self.plan, self.screening.candidates)
        rows = []
        for track in (ALL, *self.plan.tracks):
            y = self.screening.table[track].to_numpy()
            solution = np.linalg.lstsq(design, y, rcond=None)[0]
            free = len(y) - design.shape[1]
            variance = ((y - design @ solution) ** 2).sum() / free if free > 0 else np.nan
            errors = np.sqrt(variance * np.diag(np.linalg.pinv(design.T @ design)))
            half = student_half(errors, free)
            for (factor, level), effect, wide in list(zip(names, solution, half, strict=True))[1:]:
                rows.append(
                    {
                        "factor": factor,
                        "level": level,
                        "track": track,
                        "effect": effect,
                        "low": effect - wide,
                        "high": effect + wide,
                    }
                )
        return pd.DataFrame(rows)


def _one_hot(plan: Plan, candidates: Sequence[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return the design (candidates, columns) of the additive model and its columns; first levels are the reference."""
    columns, names = [np.ones(len(candidates))], [("", "")]
    for position, (factor, levels) in enumerate(plan.factors.items()):
        digits = np.array([int(c[position]) for c in candidates])
        for number, level in list(enumerate(levels))[1:]:
            columns.append((digits == number).astype(float))
            names.append((factor, level))
    return np.stack(columns, axis=1), names


def predicted(plan: Plan, screening: Stage) -> pd.DataFrame:
    """Return the distances, overall and by track, of all combinations under the additive model of every number."""
    design, _ = _one_hot(plan, screening.candidates)
    everywhere, _ = _one_hot(plan, plan.combinations)
    numbers = everywhere @ np.linalg.lstsq(design, screening.numbers.mean(axis=1), rcond=None)[0]
    return Stage(tuple(plan.combinations), numbers[:, None], screening.paper).table


def finalists(plan: Plan, screening: Stage, profile: str = DEFAULTS) -> list[str]:
    """Return the profile's own settings, and for all numbers and each track the closest predicted combinations."""
    table = predicted(plan, screening)
    best = [table[track].sort_values(kind="stable").index[: plan.finalists] for track in (ALL, *plan.tracks)]
    return list(dict.fromkeys([profile, *itertools.chain.from_iterable(best)]))


def profile_candidate(settings: Profile, plan: Plan) -> str:
    """Return the combination that equals the profile's own settings on every track; :data:`DEFAULTS` if none does."""
    for candidate in plan.combinations:
        changed = plan.settings(candidate)
        if all(settings.config(track, **changed) == settings.config(track) for track in plan.tracks):
            return candidate
    return DEFAULTS


def protocol_search(settings: Profile, plan: Plan, folder: Path | None = None, *, train: bool = True) -> Search:
    """Search in both stages of the plan.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    get = partial(_stage, settings, plan, folder=folder, train=train)
    screening, facts = get(plan.candidates, plan.seeds)
    profile = profile_candidate(settings, plan)
    if not plan.finalists:
        return Search(plan, screening, None, facts, profile)
    final, facts = get(finalists(plan, screening, profile), plan.final_seeds)
    screened = f"{len(plan.candidates)} candidates screened with {len(plan.seeds)} seeds"
    return Search(plan, screening, final, (*facts, screened), profile)


def _stage(
    settings: Profile, plan: Plan, candidates: Sequence[str], seeds: Sequence[int], folder: Path | None, train: bool
) -> tuple[Stage, tuple[str, ...]]:
    """Return the stage of these candidates and seeds, and what a figure's footer says of its runs."""
    paper = paper_numbers(plan.tracks)
    variants = {candidate: plan.settings(candidate) for candidate in candidates}
    numbers = np.empty((len(candidates), len(seeds), len(paper)))
    facts: tuple[str, ...] = ()
    for track in plan.tracks:
        methods = list(paper[track].index.unique("method"))
        studies = get_variants(settings, track, methods, seeds, variants, folder, train=train)
        of = np.flatnonzero(paper.index.get_level_values("track") == track)
        for c, candidate in enumerate(candidates):
            numbers[c][:, of] = _last_round(studies[candidate], paper[track], seeds)
        facts = facts or studies[candidates[0]].facts
    return Stage(tuple(candidates), numbers, paper), facts


def _last_round(study: Study, paper: pd.Series, seeds: Sequence[int]) -> np.ndarray:
    """Return (seeds, numbers): the study's last round in the order of the paper's numbers of one track."""
    rounds = study.rounds
    last = rounds[rounds["round"] == rounds["round"].max()].set_index(["method", "seed"])
    return np.array([[last.loc[(method, seed), metric] for metric, method in paper.index] for seed in seeds])


def write_search(search: Search, folder: Path) -> list[Path]:
    """Write the candidates and the main effects as ``protocol_candidates.csv`` and ``protocol_effects.csv``."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = "; ".join(search.facts)
    tables = {"protocol_candidates": search.candidates.reset_index(), "protocol_effects": search.effects}
    for name, table in tables.items():
        write_text(folder / f"{name}.csv", csv_text(table.assign(origin=origin)))
    return [folder / f"{name}.csv" for name in tables]
