"""The stages of the search, one after the other, and what they say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import student_half
from qfl_core.base.numbers import counted
from qfl_core.config import Profile
from qfl_core.studies.protocol.distance import GRADE, TOTAL, Stage
from qfl_core.studies.protocol.plan import DEFAULTS, Levels, Plan
from qfl_core.studies.protocol.stages import STAND_IN, Bench, Variants
from qfl_core.studies.protocol.statements import ADAM, PRINTED, PROX


@dataclass(frozen=True, eq=False)
class Search:
    """A finished search; stages that the plan does not have are None.

    ``profile`` is the candidate that equals the profile's own settings. ``refined`` holds DUQFL-Prox's refinements of
    the winner as candidates, ``adam`` the grades of Adam-QFL's.
    """

    plan: Plan
    screening: Stage
    final: Stage | None
    facts: tuple[str, ...]
    profile: str = DEFAULTS
    refined: Stage | None = None
    adam: pd.DataFrame | None = None

    @property
    def best(self) -> Stage:
        """The stage that decides."""
        return self.final or self.screening

    @property
    def winner(self) -> str:
        """The candidate of the deciding stage with the lowest total whose untrained model is below the limit."""
        return self.best.ranked()[0]

    @property
    def runner_up(self) -> str:
        """The second."""
        return self.best.ranked()[1]

    @property
    def roles(self) -> dict[str, str]:
        """What each candidate of the deciding stage is there for, in words."""
        found: dict[str, list[str]] = {self.winner: ["winner"]}
        found.setdefault(self.runner_up, []).append("runner-up")
        for candidate, names in named_roles(self.plan, self.profile, readings=self.final is not None).items():
            found.setdefault(candidate, []).extend(names)
        for track in self.plan.tracks:
            found.setdefault(self.best.ranked(track)[0], []).append(f"closest on {track}")
        return {candidate: ", ".join(roles) for candidate, roles in found.items()}

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """The candidates with levels and scores, closest first, the final above the screening.

        Of the screened candidates that differ in the factors of single methods alone, the closest is shown.
        """
        tables = []
        for name, stage in (("final", self.final), ("screening", self.screening)):
            if stage is None:
                continue
            shown = stage.ranked()
            if name == "screening":
                shown = list({self.plan.shared(c): c for c in reversed(stage.ranked(marked=True))}.values())
            levels = pd.DataFrame([self.plan.levels(c) for c in shown], index=pd.Index(shown, name="candidate"))
            table = levels.join(stage.table).assign(stage=name, seeds=stage.seeds)
            roles = self.roles if stage is self.best else {}
            table.insert(0, "role", [roles.get(c, "") for c in shown])
            tables.append(table.sort_values(["marked", TOTAL], kind="stable"))
        return pd.concat(tables).fillna(dict.fromkeys(self.plan.every, DEFAULTS))

    @cached_property
    def effects(self) -> pd.DataFrame:
        """The mean change of every score from a factor's first level to another, over the screened candidates.

        One row per factor, level and score: effect, low, high (95 %, Student). For shared factors the standard error
        comes from the residuals of the additive model over the screened combinations; for a factor of a single method
        it comes from the paired differences of the two levels under the same combination.
        """
        plan, stage = self.plan, self.screening
        shared = np.array([plan.shared(c) for c in stage.candidates])
        rows = []
        design, names = _one_hot(plan.factors, plan.screened)
        inverse = np.diag(np.linalg.pinv(design.T @ design))
        for part in stage.parts:
            scores = stage.table[part]
            y = scores.groupby(shared).mean().loc[plan.screened].to_numpy()
            solution = np.linalg.lstsq(design, y, rcond=None)[0]
            free = len(y) - design.shape[1]
            variance = ((y - design @ solution) ** 2).sum() / free if free > 0 else np.nan
            half = student_half(np.sqrt(variance * inverse), free)
            rows += [
                _effect(plan, factor, level, part, effect, wide)
                for (factor, level), effect, wide in list(zip(names, solution, half, strict=True))[1:]
            ]
            for factor in plan.owner:
                place = list(plan.every).index(factor)
                digits = np.array([c[place] for c in stage.candidates])
                means = scores.groupby([shared, digits]).mean().unstack()
                for number, level in list(enumerate(plan.every[factor]))[1:]:
                    gaps = (means[str(number)] - means["0"]).to_numpy()
                    wide = student_half(gaps.std(ddof=1) / np.sqrt(len(gaps)), len(gaps) - 1)
                    rows.append(_effect(plan, factor, level, part, gaps.mean(), float(wide)))
        return pd.DataFrame(rows)

    @cached_property
    def refinement(self) -> pd.DataFrame:
        """The refinements of the winner: method, name, scores, and whether it is chosen (the lowest total)."""
        tables = []
        if self.refined is not None:
            first = self.refined.candidates[0]
            gaps = [self.refined.difference(c, first) for c in self.refined.candidates]
            table = self.refined.table.drop(columns=["untrained", "marked"]).rename_axis("refinement").reset_index()
            table = table.assign(change=[g for g, _ in gaps], **{"change ±": [h for _, h in gaps]})
            tables.append(
                table.assign(method=PROX, chosen=table[TOTAL] == table[TOTAL].min(), seeds=self.refined.seeds)
            )
        if self.adam is not None:
            table = self.adam.rename_axis("refinement").reset_index()
            chosen = table.index == table[GRADE].idxmax()
            tables.append(table.assign(method=ADAM, chosen=chosen, seeds=len(self.plan.refinement_seeds)))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def named_roles(plan: Plan, profile: str, readings: bool = True) -> dict[str, list[str]]:
    """Return the roles that candidates have before anything runs: the profile's own settings and named readings."""
    found = {profile: ["profile"]}
    for name in plan.readings if readings else ():
        found.setdefault(plan.reading(name), []).append(f"reading {name}")
    return found


def _effect(plan: Plan, factor: str, level: str, part: str, effect: float, half: float) -> dict[str, object]:
    first = next(iter(plan.every[factor]))
    found = {"factor": factor, "from": first, "level": level, "score": part, "effect": effect}
    return {**found, "low": effect - half, "high": effect + half}


def _one_hot(factors: Mapping[str, Levels], candidates: Sequence[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return the design (candidates, columns) of the additive model and its columns; first levels are the reference."""
    columns, names = [np.ones(len(candidates))], [("", "")]
    for position, (factor, levels) in enumerate(factors.items()):
        digits = np.array([int(c[position]) for c in candidates])
        for number, level in list(enumerate(levels))[1:]:
            columns.append((digits == number).astype(float))
            names.append((factor, level))
    return np.stack(columns, axis=1), names


def predicted(plan: Plan, screening: Stage) -> Stage:
    """Return all combinations with their scores under the additive model of every number and every grade.

    The untrained model's accuracy is the mean over the screened candidates that agree in the factors that decide it.
    """
    design, _ = _one_hot(plan.every, screening.candidates)
    everywhere, _ = _one_hot(plan.every, plan.combinations)

    def additive(values: np.ndarray) -> np.ndarray:
        return (everywhere @ np.linalg.lstsq(design, values.mean(axis=1), rcond=None)[0])[:, None]

    places = [list(plan.every).index(name) for name in plan.untrained]
    keys = ["".join(c[place] for place in places) for c in screening.candidates]
    groups = pd.DataFrame(screening.untrained.mean(axis=1)).groupby(keys).mean()
    untrained = groups.reindex(["".join(c[place] for place in places) for c in plan.combinations]).to_numpy()
    return Stage(
        tuple(plan.combinations),
        additive(screening.numbers),
        screening.paper,
        additive(screening.grades).clip(0, 1),
        screening.statements,
        untrained[:, None],
        screening.limits,
    )


def finalists(plan: Plan, screening: Stage, profile: str = DEFAULTS) -> list[str]:
    """Return who goes to the final.

    They are the profile's own settings, the named readings, the closest screened candidate, and the closest predicted
    combinations by the total and, half as many, by each track's numbers. Candidates whose untrained model already has
    the final accuracy are left out, but for the profile's own settings and the named readings.
    """
    everywhere = predicted(plan, screening)
    best = [everywhere.ranked()[: plan.finalists]]
    best += [everywhere.ranked(track)[: max(1, plan.finalists // 2)] for track in plan.tracks]
    named = [plan.reading(name) for name in plan.readings]
    return list(dict.fromkeys([profile, *named, screening.ranked()[0], *itertools.chain.from_iterable(best)]))


def profile_candidate(settings: Profile, plan: Plan) -> str:
    """Return the combination that equals the profile's own settings on every track; :data:`DEFAULTS` if none does.

    The plan's base settings do not count, because the refinement decides them.
    """
    for candidate in plan.combinations:
        changed = plan.settings(candidate)
        if all(settings.config(track, **changed) == settings.config(track, **plan.base) for track in plan.tracks):
            return candidate
    return DEFAULTS


def variants_of(plan: Plan, candidates: Sequence[str]) -> Variants:
    """Return the settings of each candidate for each method with printed numbers."""
    return {c: {method: plan.settings(c, method) for method in PRINTED} for c in candidates}


def protocol_search(settings: Profile, plan: Plan, folder: Path | None = None, *, train: bool = True) -> Search:
    """Search in all stages of the plan, on the stand-in data.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    bench = Bench(settings, plan.tracks, STAND_IN, folder, train)
    screening = bench.stage(variants_of(plan, plan.candidates), plan.seeds)
    profile = profile_candidate(settings, plan)
    told = [f"{counted(len(plan.screened), 'candidate')} screened with {counted(len(plan.seeds), 'seed')}"]
    if not plan.finalists:
        return Search(plan, screening, None, (*bench.facts, *told), profile)
    final = bench.stage(variants_of(plan, finalists(plan, screening, profile)), plan.final_seeds)
    told.append(f"{counted(len(final.candidates), 'finalist')} with {counted(len(plan.final_seeds), 'seed')}")
    refined, adam = _refined(bench, plan, final.ranked()[0])
    return Search(plan, screening, final, (*bench.facts, *told), profile, refined, adam)


def _refined(bench: Bench, plan: Plan, winner: str) -> tuple[Stage | None, pd.DataFrame | None]:
    """Try what concerns one method alone on the winner."""
    seeds = plan.refinement_seeds
    mine = {method: plan.settings(winner, method) for method in (*PRINTED, ADAM)}
    prox = {name: {**mine, PROX: {**mine[PROX], **more}} for name, more in plan.refinements(PROX).items()}
    adam = {name: {**mine, ADAM: {**mine[ADAM], **more}} for name, more in plan.refinements(ADAM).items()}
    return (
        bench.stage(prox, seeds) if PROX in plan.refinement else None,
        bench.adam(adam, seeds) if ADAM in plan.refinement else None,
    )
