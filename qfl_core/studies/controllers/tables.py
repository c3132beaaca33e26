"""The tables of the comparison: written by the command, read by the page, the notebooks and the figures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import intervals
from qfl_core.analysis.tables import csv_text
from qfl_core.base.errors import AnalysisError
from qfl_core.base.files import write_text
from qfl_core.base.numbers import rounded
from qfl_core.base.paths import repository_root, results_dir
from qfl_core.config import Profile
from qfl_core.studies.controllers.collect import Measured, measured
from qfl_core.studies.controllers.features import ablation, client_rates, steps
from qfl_core.studies.controllers.goals import judge, parts
from qfl_core.studies.controllers.network import network_gain, network_probes
from qfl_core.studies.controllers.plan import BOTH, CONSTANT, GRID, OFFLINE, ONLINE, PAPER, TUNED, Plan
from qfl_core.studies.controllers.score import heights, in_order, values, with_tuned

#: The folder of the tables below the documentation.
NAME = "controller"
#: Where curves are read off: shares of the circuits of constant 0.13, up to one and a half of its runs.
PLACES = np.linspace(0.0, 1.5, 61)


@dataclass(frozen=True, eq=False)
class Tables:
    """What the comparison says, one file ``<name>.csv`` each, with the origin of the numbers.

    Attributes
    ----------
    scores : one row per task, method and start: area, final score, circuits.
    statements, parts : the verdicts on the goal.
    curves : score over circuits with 95 % intervals over seeds; methods with several starts as the mean over those of
        the goal, for each seed.
    rates : mean eta and delta by round and unfold, on one task.
    features : what each feature of the offline controller adds.
    clients : how its rates differ between clients.
    networks : how far a small neural network gets beside its linear twin, both trained with a small budget.
    values : area, final score and circuits of every single run, which all verdicts rest on.
    """

    scores: pd.DataFrame
    statements: pd.DataFrame
    parts: pd.DataFrame
    curves: pd.DataFrame
    rates: pd.DataFrame
    features: pd.DataFrame
    clients: pd.DataFrame
    networks: pd.DataFrame
    values: pd.DataFrame

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says of all runs."""
        return told(self.scores)

    @property
    def rate_facts(self) -> tuple[str, ...]:
        """What a figure's footer says of the runs behind :attr:`rates`."""
        return told(self.rates)

    def write(self, folder: Path) -> None:
        """Write one CSV file per table."""
        folder.mkdir(parents=True, exist_ok=True)
        for field in fields(self):
            write_text(folder / f"{field.name}.csv", csv_text(getattr(self, field.name)))

    @classmethod
    def read(cls, folder: Path) -> Tables:
        """Read what :meth:`write` wrote; a missing file is an error that names the command."""
        found = []
        for field in fields(cls):
            path = folder / f"{field.name}.csv"
            if not path.is_file():
                raise AnalysisError(f"{path.name} is not in {folder.name}/: make controllers writes it")
            texts = {"start": str, "chosen": str, "against": str, "worst": str}
            table = pd.read_csv(path, dtype=texts)
            found.append(table.fillna({name: "" for name in texts if name in table}))
        return cls(*found)


def told(table: pd.DataFrame) -> tuple[str, ...]:
    """Return what a table's column ``origin`` says of its runs, which is the same in every row."""
    return tuple(str(table["origin"].iloc[0]).split("; "))


def complete_comparison() -> Tables:
    """Return the tables that the documentation shows."""
    root = repository_root()
    if root is None:
        raise AnalysisError("the comparison is in the repository's docs/; this is an installed copy")
    return Tables.read(root / "docs" / NAME)


def compare(settings: Profile, plan: Plan, folder: Path | None = None, jobs: int = -1) -> Tables:
    """Train what is missing, score it, judge the goal and return the tables; ``jobs`` -1 is one process per core."""
    folder = folder or results_dir(settings.name)
    found = measured(settings, plan, folder)
    rounds, chosen = with_tuned(found.rounds)
    # As the file will have them: whoever reads it comes to the same verdicts.
    by_run = values(rounds, found.goals).map(lambda value: rounded(value) if isinstance(value, float) else value)
    statements, judged = judge(parts(by_run, plan), plan)
    exact = {task.name: found.studies[task.name][OFFLINE, ""] for task in plan.tasks if not task.noisy}
    scores = {task.name: task.score for task in plan.tasks}
    by_level = ablation(exact, scores, plan.ablation_seeds, folder / "controllers", jobs)
    constant = {name: found.studies[name][CONSTANT, ""] for name in exact}
    networks = network_probes(constant, scores, plan.ablation_seeds, folder / "controllers", jobs, plan.budget)
    origin = "; ".join(found.facts)
    return Tables(
        score_table(by_run, scores, chosen).assign(origin=origin),
        statements,
        judged,
        curve_table(rounds, plan),
        rate_table(found, plan),
        steps(by_level),
        client_rates(exact),
        network_gain(networks),
        by_run,
    )


def score_table(by_run: pd.DataFrame, scores: dict[str, str], chosen: dict[str, str]) -> pd.DataFrame:
    """Return one row per task, method and start: means with 95 % intervals, and the circuits as medians.

    ``reached`` is the median share of constant 0.13's circuits up to the goal, infinite where most seeds never reach
    it; ``seeds_reached`` counts those that do. ``chosen`` is the value that the grid chose.
    """
    key = ["task", "method", "start"]
    table = by_run[key].drop_duplicates()
    for name in ("area", "final"):
        columns = {"mean": name, "low": f"{name}_low", "high": f"{name}_high"}
        found = intervals(by_run, name, key).rename(columns=columns)
        table = table.merge(found if name == "final" else found.drop(columns="seeds"), on=key)
    groups = by_run.assign(never=by_run["reached"].fillna(np.inf)).groupby(key, sort=False)
    spent = groups.agg(
        seeds_reached=("reached", "count"), reached=("never", "median"), spent=("spent", "mean"), goal=("goal", "mean")
    )
    table = table.merge(spent.reset_index(), on=key)
    picked = table["task"].map(chosen).where(table["method"] == "tuned constant", "")
    return in_order(table.assign(score=table["task"].map(scores), chosen=picked))


def curve_table(rounds: pd.DataFrame, plan: Plan) -> pd.DataFrame:
    """Return mean, low and high of the score at every place of :data:`PLACES`, one row per task and method.

    The grid and the constant that it tunes have none, because the grid ends far to the right of all places.
    """
    goal = {(task.name, start) for task in plan.tasks for start in [*plan.goal_starts(task), ""]}
    inside = pd.Series(list(zip(rounds["task"], rounds["start"], strict=True)), rounds.index).isin(list(goal))
    every = heights(rounds[inside & ~rounds["method"].isin([GRID, TUNED])], PLACES)
    by_seed = every.groupby(["task", "method", "seed", "circuits"], sort=False)["score"].mean().reset_index()
    return intervals(by_seed, "score", ["task", "method", "circuits"])


def rate_table(found: Measured, plan: Plan) -> pd.DataFrame:
    """Return the geometric means of eta and delta over clients and seeds by start, method, round and unfold."""
    studies, rows = found.studies[plan.rates_task], []
    for start in plan.rates_starts:
        for method in (PAPER, ONLINE, OFFLINE, BOTH):
            study = studies.get((method, start)) or studies.get((method, ""))
            if study is not None:
                trace = study.table("client_trace")
                logs = trace.assign(eta=np.log(trace["eta"]), delta=np.log(trace["delta"]))
                rates = logs.groupby(["round", "unfold"])[["eta", "delta"]].mean().reset_index()
                rates = rates.assign(eta=np.exp(rates["eta"]), delta=np.exp(rates["delta"]))
                rates["unfolds"] = study.runs[0].config.unfolds
                origin = "; ".join(study.facts)
                rows.append(rates.assign(task=plan.rates_task, method=method, start=start, origin=origin))
    columns = ["task", "start", "method", "round", "unfold", "unfolds", "eta", "delta", "origin"]
    return pd.concat(rows, ignore_index=True)[columns]
