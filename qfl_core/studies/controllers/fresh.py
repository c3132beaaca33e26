"""Tasks that nothing was developed or trained on: does the comparison of controllers come out alike there?

The rows are handed in, because the package has no such dataset. The offline controller is the one for data that are
none of the package's: it was trained on all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from qfl_core.analysis.tables import markdown
from qfl_core.base.numbers import interval, number, plus_minus, rounded
from qfl_core.base.processes import in_processes
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data.audit import audit
from qfl_core.data.preprocess import angle_scaler, component_analysis, stratified_parts
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.extras import pretrained
from qfl_core.runs.experiment import initial_state, train
from qfl_core.runs.prepare import make_federation
from qfl_core.studies.clean import SHARE
from qfl_core.studies.controllers.collect import REFERENCE
from qfl_core.studies.controllers.goals import AREA, FINAL, SPEED, judge, parts
from qfl_core.studies.controllers.plan import CONSTANT, FROZEN, METHODS, TUNED, Plan, Task, start_name
from qfl_core.studies.controllers.score import values, with_tuned
from qfl_core.studies.controllers.tables import score_table

#: Whose settings the tasks have: those of the package's other small table.
TRACK = "breast-cancer"
#: No other study uses these seeds.
SEEDS = range(2_700, 2_730)
#: The table of all runs, beside those of the comparison, and the name of the page's block.
FILE, BLOCK = "fresh.csv", "fresh"
#: Features (n, columns) and labels (n,) for a seed.
Rows = Callable[[int], tuple[np.ndarray, np.ndarray]]


def diabetes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's 442 patients; label 1 is a progression of the disease above the median."""
    from sklearn.datasets import load_diabetes  # here, because scikit-learn takes seconds to import

    X, progression = load_diabetes(return_X_y=True)
    return X, (progression > np.median(progression)).astype(int)


def moons(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 600 points on two half circles that reach into each other, with noise."""
    rng = stream(seed, "fresh-moons")
    y = np.repeat([0, 1], 300)
    angle = rng.uniform(0, np.pi, 600)
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    X[y == 1] = [1.0, 0.5] - X[y == 1]
    return X + 0.25 * rng.normal(size=X.shape), y


def waveform(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 600 noisy mixtures of two of three triangular waves at 21 places; the second wave tells the class."""
    rng, places = stream(seed, "fresh-waveform"), np.arange(1, 22)
    waves = np.maximum(6 - np.abs(places - np.array([[11], [7], [15]])), 0)
    y = np.repeat([0, 1], 300)
    share = rng.uniform(0, 1, (600, 1))
    return share * waves[0] + (1 - share) * waves[1 + y] + rng.normal(size=(600, 21)), y


@dataclass(frozen=True)
class Fresh:
    """A task: its rows, and what its runs change in the settings of the track."""

    rows: Rows
    settings: Mapping[str, Any]

    def splits(self, config: ExperimentConfig) -> Splits:
        """Return the data of a run, encoded as the package's own tables are."""
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        X, y = self.rows(config.seed)
        parts = stratified_parts(
            y, (config.train_size, config.val_size, config.test_size), config.seed, "breast-cancer-parts"
        )
        encoder = make_pipeline(StandardScaler(), component_analysis(config), angle_scaler(config)).fit(X[parts[0]])
        train_part, val, test = (Split(encoder.transform(X[rows]), y[rows], rows) for rows in parts)
        digest = hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()
        return Splits(train_part, val, test, DataSource("fresh", "bundled", "drawn", digest, "no file is needed"))


TASKS = {
    "diabetes": Fresh(diabetes, {"train_size": 264, "val_size": 89, "test_size": 89, "features": 4}),
    "moons": Fresh(moons, {"train_size": 300, "val_size": 100, "test_size": 200, "features": 2}),
    "waveform": Fresh(waveform, {"train_size": 300, "val_size": 100, "test_size": 200, "features": 4}),
}


def fresh_plan(settings: Profile, seeds: Sequence[int] = SEEDS) -> Plan:
    """Return what runs: the arms, grid and starts of the comparison's goal on the fresh tasks."""
    common = Plan.of(settings)
    first = common.tasks[0]
    goal = tuple(start for start in first.starts if start_name(start) not in common.outside)
    tasks = [
        Task(name, TRACK, tuple(seeds), goal, first.paper_starts, first.grid, {**first.settings, **fresh.settings})
        for name, fresh in TASKS.items()
    ]
    return Plan(tuple(tasks), (), (), "", ())


def compared_fresh(settings: Profile, plan: Plan, jobs: int = -1) -> pd.DataFrame:
    """Train everything; return area, final score and circuits of every run, and what the grid ``chose`` on its task."""
    asked = [(settings, plan, task, seed) for task in plan.tasks for seed in task.seeds]
    found = list(in_processes(_of_seed, asked, jobs))
    rounds, chosen = with_tuned(pd.concat([curves for curves, _ in found], ignore_index=True))
    by_run = values(rounds, pd.DataFrame([goal for _, goal in found]))
    by_run = by_run.map(lambda value: rounded(value) if isinstance(value, float) else value)
    return by_run.assign(chosen=by_run["task"].map(chosen).where(by_run["method"] == TUNED, ""))


def _of_seed(settings: Profile, plan: Plan, task: Task, seed: int) -> tuple[pd.DataFrame, dict[str, object]]:
    """Return the curves of all arms of a task with one seed, and the score that counts as reaching the goal."""
    with threadpool_limits(1):
        base = settings.config(task.track, seed=seed, **task.settings)
        splits, curves, before = TASKS[task.name].splits(base), [], {}
        for arm in plan.arms(task):
            if arm.method == FROZEN:  # no statement asks for it
                continue
            config = base.replace(**arm.settings)
            rows = _curve(config, splits)
            if arm.method == CONSTANT:
                before = rows[0]
            # A controller that is handed in begins after round 0, which every run of the method has alike.
            rows = rows if rows[0]["round"] == 0 else [before, *rows]
            labels: dict[str, Any] = {"task": task.name, "method": arm.method, "start": arm.start, "seed": seed}
            spent = np.cumsum([row["circuits"] for row in rows])
            curves.append(pd.DataFrame(rows).assign(circuits=spent, **labels))
        reference = audit(splits, seed, models=[REFERENCE])["accuracy"].loc[[REFERENCE]].iloc[0]
    return pd.concat(curves, ignore_index=True), {"task": task.name, "seed": seed, "goal": SHARE * float(reference)}


def _curve(config: ExperimentConfig, splits: Splits) -> list[dict[str, float]]:
    """Return one row per round: round, scores on both parts, and the circuits of this round."""
    federation = make_federation(config, splits)
    state = None
    if config.controller == "pretrained":
        phi = np.array(pretrained.read()["phi"][pretrained.ALL], dtype=float)
        state = replace(initial_state(federation), phi={"controller": phi})
    return [_row(record) for record in train(federation, state)]


def _row(record: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    (of_round,) = record["global_accuracies"]
    accuracy = {str(row["part"]): float(row["accuracy"]) for row in record["classification_metrics"]}
    circuits = sum(float(value) for name, value in of_round.items() if str(name).startswith("circuits_"))
    return {
        **{"round": float(of_round["round"]), "circuits": circuits},
        **{"score": accuracy["test"], "val_score": accuracy["val"]},
    }


def fresh_blocks(by_run: pd.DataFrame, plan: Plan) -> dict[str, str]:
    """Return the block of the page by name: final score and area of every method, then the verdicts on the goal."""
    scores = score_table(by_run, {}, {})
    rows = []
    for method in (name for name in METHODS if name in set(scores["method"])):
        row = {"method": method}
        for task in plan.tasks:
            mine = scores[(scores["method"] == method) & (scores["task"] == task.name)]
            shown = (("final", "final score"), ("area", "area"))
            row |= {f"{task.name}, {words}": _cell(mine, name) for name, words in shown}
        rows.append(row)
    statements, _ = judge(parts(by_run, plan), plan)
    verdicts = [
        {
            "controller": row["method"],
            "statement": {FINAL: "final score", SPEED: "half of the circuits", AREA: "not beaten"}[row["statement"]],
            "verdict": f"**{row['verdict']}**",
            "parts": ", ".join(
                f"{row[name]} {name}" for name in ("holds", "fails", "absent", "undecided", "missing") if row[name]
            ),
            "worst part": row["worst"],
            "its mean [95 %]": interval(row["mean"], row["low"], row["high"], signed=True),
        }
        for row in statements.to_dict("records")
    ]
    return {BLOCK: f"{markdown(pd.DataFrame(rows))}\n{markdown(pd.DataFrame(verdicts))}"}


def _cell(mine: pd.DataFrame, name: str) -> str:
    if len(mine) > 1:
        return f"{number(mine[name].min())} to {number(mine[name].max())}"
    (row,) = mine.to_dict("records")
    return plus_minus(row[name], row[f"{name}_high"] - row[name])
