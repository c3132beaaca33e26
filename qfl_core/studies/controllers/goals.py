"""Is the goal reached? Three statements about each controller that learns, judged by the rules of the claims.

1. **Final score**: its mean is less than ``tolerance`` below that of the tuned constant.
2. **Speed**: it needs at most half of the circuits of constant 0.13 to reach 95 % of logistic regression's score.
3. **Not beaten**: the area under its curve is less than ``tolerance`` below that of every method without tuning.

Each statement is asked on every task and from every start of the goal, and each of these questions is a *part*: one
number per seed, whose mean must lie above a bound. A part holds, fails, is absent or stays undecided as in
:mod:`qfl_core.analysis.verdicts`; a statement holds where all its parts do, shown by its worst part. The same three
lists share the level of 5 %: statements, parts that hold, parts that fail or are absent. Tasks on the noisy engine have
fewer seeds and are a family of their own. A part is missing where fewer than half of the seeds have a number.

A run that never reaches 95 % of logistic regression is counted with all its circuits, although it would need more. If
that happens to constant 0.13 with some seed, the true number of halvings is larger than counted, so the part may hold
but neither fails nor is absent. If it happens to the other method, the true number is smaller, so the part never holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import mean_interval
from qfl_core.analysis.margins import LEVEL as SCORE_MARGIN
from qfl_core.analysis.part_tests import ABSENT, FAILS, HOLDS, LISTS
from qfl_core.analysis.statements import p_values
from qfl_core.analysis.verdicts import LEVEL, MISSING, UNDECIDED
from qfl_core.base.streams import stream
from qfl_core.studies.controllers.plan import CONSTANT, JUDGED, PAPER_START, TUNED, UNTUNED, Plan, Task, start_name

FINAL, SPEED, AREA = "final score", "speed", "not beaten"
#: The smallest number of paired seeds that is tested, where half of them is less.
_FEWEST = 2


@dataclass(frozen=True)
class Bounds:
    """What is asked, fixed before the runs: bounds of the means, and the smallest effects worth claiming beyond them.

    ``tolerance`` is a difference of scores. ``halvings`` counts how often the circuits must be halved; its margin is a
    tenth of it, as for log rates.
    """

    tolerance: float = 0.01
    score_margin: float = SCORE_MARGIN
    halvings: float = 1.0
    halvings_margin: float = 0.1

    def of(self, statement: str) -> tuple[float, float]:
        """Return bound and margin of a statement's parts."""
        return (self.halvings, self.halvings_margin) if statement == SPEED else (-self.tolerance, self.score_margin)


BOUNDS = Bounds()


@dataclass(frozen=True, eq=False)
class Part:
    """One question: a number per seed, ``values``, whose mean must lie above the bound of its statement.

    ``never`` are the verdicts that these numbers cannot show, whatever they are.
    """

    method: str
    statement: str
    task: str
    start: str
    against: str
    values: pd.Series
    never: frozenset[str] = frozenset()


def parts(values: pd.DataFrame, plan: Plan) -> list[Part]:
    """Return all questions, from the table of :func:`qfl_core.studies.controllers.score.values`."""
    curves = {tuple(map(str, key)): rows.set_index("seed") for key, rows in values.groupby(["task", "method", "start"])}
    found = []
    for task in plan.tasks:
        for method in JUDGED:
            for start in plan.goal_starts(task) if (task.name, method, "") not in curves else [""]:
                found += list(_questions(curves, task, method, start))
    return found


def _questions(curves: Mapping[tuple[str, ...], pd.DataFrame], task: Task, method: str, start: str) -> Iterator[Part]:
    mine = curves[task.name, method, start]
    tuned, constant = curves[task.name, TUNED, ""], curves[task.name, CONSTANT, ""]
    yield Part(method, FINAL, task.name, start, TUNED, mine["final"] - tuned["final"])
    yield Part(method, SPEED, task.name, start, CONSTANT, halvings(mine, constant), unknown(mine, constant))
    for other in UNTUNED:
        # From the same start, where the other one has it; else from the paper's. Not every method runs on every task.
        choices = ((task.name, other, name) for name in ("", start, start_name(PAPER_START)))
        theirs = next((curves[key] for key in choices if key in curves), None)
        if other != method and theirs is not None:
            yield Part(method, AREA, task.name, start, other, mine["area"] - theirs["area"])


def halvings(mine: pd.DataFrame, constant: pd.DataFrame) -> pd.Series:
    """Return log2(circuits of the constant / circuits of mine) up to the goal, by seed.

    A run that never reaches the goal counts as reaching it with its last circuit, which is less than it would need.
    Seeds in which neither reaches the goal say nothing and are left out.
    """
    spent = [table["reached"].fillna(table["spent"]) for table in (constant, mine)]
    ratio = (spent[0] / spent[1]).map(np.log2)
    return ratio[constant["reached"].notna() | mine["reached"].notna()]


def unknown(mine: pd.DataFrame, constant: pd.DataFrame) -> frozenset[str]:
    """Return the verdicts that :func:`halvings` cannot show, because a run without the goal counts too little."""
    counted = constant["reached"].notna() | mine["reached"].notna()
    found = {FAILS, ABSENT} if constant.loc[counted, "reached"].isna().any() else set()
    return frozenset(found | ({HOLDS} if mine.loc[counted, "reached"].isna().any() else set()))


def judge(asked: Sequence[Part], plan: Plan, bounds: Bounds = BOUNDS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the verdicts on statements and on parts, one row each."""
    noisy = {task.name for task in plan.tasks if task.noisy}
    statements, rows = [], []
    for family, members in (
        ("", [p for p in asked if p.task not in noisy]),
        ("noisy", [p for p in asked if p.task in noisy]),
    ):
        if members:
            whole, of_parts = _judge_family(members, bounds, family)
            statements.append(whole.assign(engine=family or "noiseless"))
            rows.append(of_parts)
    return pd.concat(statements, ignore_index=True), pd.concat(rows, ignore_index=True)


def _judge_family(asked: Sequence[Part], bounds: Bounds, family: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    limits = [bounds.of(part.statement) for part in asked]
    # Resamples of two or three values are constant: such parts would drown all others in the joint bootstrap.
    seeds = len({seed for part in asked for seed in part.values.index})
    tested = [j for j, part in enumerate(asked) if part.values.notna().sum() >= max(_FEWEST, seeds / 2)]
    groups: dict[tuple[str, str], list[int]] = {}
    for j, part in enumerate(asked):
        groups.setdefault((part.method, part.statement), []).append(j)
    shown, whole = _p_values(asked, limits, tested, groups, family)
    rows = []
    for j, part in enumerate(asked):
        rows.append(_row(part, *limits[j], shown.get(j, {}), stream(0, f"controllers-{family}", j)))
    table = pd.DataFrame(rows)
    # What no number can show is not shown by the worst part either.
    whole = {key: p for key, p in whole.items() if not any(HOLDS in asked[j].never for j in groups[key])}
    statements = [_statement(key, table.loc[places], whole.get(key, np.nan)) for key, places in groups.items()]
    for key, places in groups.items():
        # Shown by its worst part, the statement shows every part.
        if whole.get(key, 1.0) <= LEVEL and (table.loc[places, "low"] > table.loc[places, "bound"]).all():
            table.loc[places, "verdict"] = HOLDS
    return pd.DataFrame(statements), table


def _p_values(
    asked: Sequence[Part],
    limits: Sequence[tuple[float, float]],
    tested: Sequence[int],
    groups: Mapping[tuple[str, str], Sequence[int]],
    family: str,
) -> tuple[dict[int, dict[str, float]], dict[tuple[str, str], float]]:
    """Return the corrected p values of every tested part by verdict, and those of the statements."""
    if not tested:
        return {}, {}
    paired = pd.DataFrame({j: asked[j].values for j in tested}).to_numpy(float)
    bound, margin = (np.array([limits[j][k] for j in tested]) for k in (0, 1))
    above = paired - bound
    columns = np.concatenate([above, -above, margin - above], axis=1)
    places = np.arange(columns.shape[1]).reshape(3, len(tested))
    place = {j: k for k, j in enumerate(tested)}
    complete = {key: [place[j] for j in members] for key, members in groups.items() if all(j in place for j in members)}
    lists = (list(complete.values()), places[0].reshape(-1, 1).tolist(), places[1:].reshape(-1, 1).tolist())
    of_whole, of_holds, of_against = (
        np.minimum(LISTS * corrected, 1.0)
        for _, corrected in p_values(columns, lists, stream(0, f"controllers-flips-{family}"))
    )
    fails, absent = of_against.reshape(2, len(tested))
    shown = {j: {HOLDS: float(of_holds[k]), FAILS: float(fails[k]), ABSENT: float(absent[k])} for j, k in place.items()}
    return shown, {key: float(p) for key, p in zip(complete, of_whole, strict=True)}


def _row(
    part: Part, bound: float, margin: float, shown: Mapping[str, float], rng: np.random.Generator
) -> dict[str, object]:
    x = part.values.dropna().to_numpy(float)
    labels = {name: getattr(part, name) for name in ("method", "statement", "task", "start", "against")}
    fixed = {"bound": bound, "margin": margin, "seeds": len(x)}
    if not shown:
        nothing = dict.fromkeys(("mean", "low", "high"), np.nan)
        return labels | nothing | fixed | {"p": np.nan, "verdict": MISSING}
    low, high, _ = mean_interval(x, rng)
    agrees = {HOLDS: low > bound, FAILS: high < bound, ABSENT: high < bound + margin}
    possible = [name for name, p in shown.items() if p <= LEVEL and agrees[name] and name not in part.never]
    verdict = next(iter(possible), UNDECIDED)
    numbers = {"mean": float(x.mean()), "low": low, "high": high}
    return labels | numbers | fixed | {"p": shown.get(verdict, shown[HOLDS]), "verdict": verdict}


def _statement(key: tuple[str, str], rows: pd.DataFrame, p: float) -> dict[str, object]:
    """Return a statement's verdict: the worst of its parts, or "holds" where its worst part shows it.

    ``worst`` is the part with the lowest mean of those that have the statement's verdict.
    """
    found = set(rows["verdict"])
    verdict = next((name for name in (FAILS, ABSENT, MISSING, UNDECIDED) if name in found), HOLDS)
    if p <= LEVEL and (rows["low"] > rows["bound"]).all():
        verdict = HOLDS
    deciding = rows[rows["verdict"] == verdict] if verdict not in (HOLDS, MISSING) else rows
    worst = deciding.assign(above=deciding["mean"] - deciding["bound"]).sort_values("above", na_position="last").iloc[0]
    counts = {name: int((rows["verdict"] == name).sum()) for name in (HOLDS, FAILS, ABSENT, UNDECIDED, MISSING)}
    worst_part = " ".join(str(worst[name]) for name in ("task", "start", "against") if worst[name])
    return {
        **{"method": key[0], "statement": key[1], "verdict": verdict, **counts, "parts": len(rows)},
        **{"p": p, "worst": worst_part, **{name: worst[name] for name in ("mean", "low", "high", "bound")}},
    }
