"""From candidates to a stage: train or read their runs, take the last round's numbers, grade the statements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.analysis.kept import kept
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_variants
from qfl_core.studies.protocol.distance import UNTRAINED_LIMIT, Stage, paper_numbers
from qfl_core.studies.protocol.statements import ADAM, PRINTED, PROX, Course, Statement, stated

#: Candidate -> method -> the settings that differ from the profile's.
Variants = Mapping[str, Mapping[str, Mapping[str, Any]]]
STAND_IN, REAL = "stand-in", "official"
_TRACE = ["client", "unfold", "eta", "delta", "loss_before", "loss_after", "displacement", "is_selected"]


@dataclass(frozen=True, eq=False)
class Bench:
    """Where candidates run: profile, tracks, the kind of data, the results folder, and whether missing runs train."""

    settings: Profile
    tracks: tuple[str, ...]
    source: str = STAND_IN
    folder: Path | None = None
    train: bool = True
    _facts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def stage(self, variants: Variants, seeds: Sequence[int]) -> Stage:
        """Return the stage of these candidates: numbers, grades, and the untrained model's accuracy."""
        paper, statements = paper_numbers(self.tracks), stated(self.tracks)
        courses = {track: self.courses(track, variants, PRINTED, seeds) for track in self.tracks}
        numbers = np.array(
            [
                [
                    [courses[track][c, method, seed].curve(metric)[-1] for track, metric, method in paper.index]
                    for seed in seeds
                ]
                for c in variants
            ]
        )
        limited = [track for track in self.tracks if track in UNTRAINED_LIMIT]
        untrained = np.array(
            [
                [[courses[track][c, PROX, seed].curve("global_accuracy")[0] for track in limited] for seed in seeds]
                for c in variants
            ]
        )
        return Stage(
            tuple(variants),
            numbers,
            paper,
            graded(courses, statements, variants, seeds),
            tuple((track, statement.name) for track, statement in statements),
            untrained,
            tuple(UNTRAINED_LIMIT[track] for track in limited),
        )

    def adam(self, variants: Variants, seeds: Sequence[int]) -> pd.DataFrame:
        """Return the grades of the statements about Adam-QFL: one row per candidate, one column per statement."""
        statements = stated(self.tracks, adam=True)
        courses = {track: self.courses(track, variants, (*PRINTED, ADAM), seeds) for track in self.tracks}
        grades = graded(courses, statements, variants, seeds).mean(axis=1)
        table = pd.DataFrame(grades, index=list(variants), columns=[statement.name for _, statement in statements])
        return table.assign(statements=grades.mean(axis=1) if len(statements) else np.nan)

    def courses(
        self, track: str, variants: Variants, methods: Iterable[str], seeds: Sequence[int]
    ) -> dict[tuple[str, str, int], Course]:
        """Return the course of every (candidate, method, seed); candidates with equal settings share a run."""
        found = {}
        for method in methods:
            keys = {c: json.dumps(variants[c][method], sort_keys=True) for c in variants}
            changed = {keys[c]: {**variants[c][method], "source": self.source} for c in variants}
            studies = get_variants(self.settings, track, [method], seeds, changed, self.folder, train=self.train)
            courses = _read(list(studies.values()), method == PROX)
            self._facts.setdefault(track, next(iter(studies.values())).facts)
            for c in variants:
                for seed, run in zip(seeds, studies[keys[c]].runs, strict=True):
                    found[c, method, seed] = courses[run.path.name]
        return found

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says of the runs so far, but for the number of seeds."""
        told = dict.fromkeys(fact for facts in self._facts.values() for fact in facts)
        return tuple(fact for fact in told if not fact.endswith(("seed", "seeds")))


def _read(studies: Sequence[Study], traced: bool) -> dict[str, Course]:
    """Return the course of every run by the name of its folder; all runs are read, and kept, as one table."""
    first = studies[0]
    runs = {run.path: run for study in studies for run in study.runs}
    joint = kept(Study(first.track, first.profile, tuple(runs.values()), first.folder))
    rounds = dict(tuple(joint.rounds.groupby("run", sort=False)))
    traces = {}
    if traced:
        traces = dict(tuple(joint.table("client_trace")[[*_TRACE, "run"]].groupby("run", sort=False)))
    return {str(name): Course(mine, traces.get(name)) for name, mine in rounds.items()}


def graded(
    courses: Mapping[str, Mapping[tuple[str, str, int], Course]],
    statements: Sequence[tuple[str, Statement]],
    candidates: Iterable[str],
    seeds: Sequence[int],
) -> np.ndarray:
    """Return the grades (candidates, seeds, statements); the same runs are graded once."""
    known: dict[tuple[str, tuple[int, ...]], float] = {}

    def grade(track: str, statement: Statement, candidate: str, seed: int) -> float:
        mine = [courses[track][candidate, method, seed] for method in statement.methods]
        key = statement.name, tuple(map(id, mine))
        if key not in known:
            known[key] = statement.grade(*mine)
        return known[key]

    return np.array([[[grade(t, s, c, seed) for t, s in statements] for seed in seeds] for c in candidates])
