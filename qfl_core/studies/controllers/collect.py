"""Train what the plan names, and gather what every run scored and spent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.analysis.kept import keep, kept
from qfl_core.config import Profile
from qfl_core.data import load_splits
from qfl_core.data.audit import audit
from qfl_core.runs import RunResult
from qfl_core.runs.study import Study, get_variants
from qfl_core.studies.clean import SHARE, with_executions
from qfl_core.studies.controllers.plan import CONSTANT, Plan, Task

REFERENCE = "logistic regression"
#: A study per (method, start).
Studies = Mapping[tuple[str, str], Study]


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that was trained.

    Attributes
    ----------
    rounds : one row per task, method, start, seed and round, with ``score`` and ``val_score``, the ``circuits`` that
        were spent up to then, the ``fairness_gap`` and the ``worst`` client's accuracy.
    goals : task, seed and ``goal``, the share of logistic regression's score that counts as reaching it.
    studies : the runs by task.
    """

    rounds: pd.DataFrame
    goals: pd.DataFrame
    studies: Mapping[str, Studies]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says."""
        first = [next(iter(studies.values())) for studies in self.studies.values()]
        sources, engines = (sorted({study.facts[place] for study in first}) for place in (0, 1))
        kinds = [
            text.removeprefix(name) for name, texts in (("data: ", sources), ("engine: ", engines)) for text in texts
        ]
        counts = sorted({len(study.runs) for study in first}, reverse=True)
        return (
            f"data: {', '.join(kinds[: len(sources)])}",
            f"engine: {', '.join(kinds[len(sources) :])}",
            f"seeds: {' and '.join(map(str, counts))}",
            first[0].facts[-1],
        )


def measured(settings: Profile, plan: Plan, folder: Path | None = None, *, train: bool = True) -> Measured:
    """Return the runs of the plan; train those that are not finished yet, on all cores.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    rounds, goals, studies = [], [], {}
    for task in plan.tasks:
        variants = {(arm.method, arm.start): {**task.settings, **arm.settings} for arm in plan.arms(task)}
        found = get_variants(settings, task.track, None, task.seeds, variants, folder, train=train)
        studies[task.name] = {key: kept(study) for key, study in found.items()}
        for (method, start), study in studies[task.name].items():
            rounds.append(scored(study, task.score).assign(task=task.name, method=method, start=start))
        goals.append(goal_scores(task, studies[task.name][CONSTANT, ""]))
    return Measured(pd.concat(rounds, ignore_index=True), pd.concat(goals, ignore_index=True), studies)


def scored(study: Study, score: str) -> pd.DataFrame:
    """Return what one row per seed and round says of score, circuits and clients."""
    metrics = study.table("classification_metrics")
    by_part = metrics.pivot(index=["seed", "round"], columns="part", values=score)
    rounds = with_executions(study.rounds).join(by_part, on=["seed", "round"])
    names = {"test": "score", "val": "val_score", "executions": "circuits", "client_test_accuracy_min": "worst"}
    return rounds.rename(columns=names)[["seed", "round", *names.values(), "fairness_gap"]]


def goal_scores(task: Task, study: Study) -> pd.DataFrame:
    """Return task, seed and goal: 95 % of what logistic regression scores on the angles of the same seed."""
    identities = "\n".join(f"{run.config.seed} {run.environment['identity']}" for run in study.runs)
    digest = hashlib.sha256(identities.encode()).hexdigest()
    found = keep(digest, f"controllers-{task.score}", lambda: _references(study.runs, task.score))
    return found.assign(task=task.name, goal=SHARE * found["reference"])[["task", "seed", "goal"]]


def _references(runs: tuple[RunResult, ...], score: str) -> pd.DataFrame:
    rows = []
    for run in runs:
        scores = audit(load_splits(run.config), run.config.seed, models=[REFERENCE])
        rows.append({"seed": run.config.seed, "reference": float(scores[score].loc[[REFERENCE]].iloc[0])})
    return pd.DataFrame(rows)
