"""The part of ``docs/controller.md`` that the command writes: tables between two markers, the rest stays as it is."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from qfl_core.analysis.tables import markdown
from qfl_core.base.errors import AnalysisError
from qfl_core.base.numbers import interval, number, plus_minus
from qfl_core.studies.controllers.features import LEVELS
from qfl_core.studies.controllers.goals import AREA, FINAL, SPEED
from qfl_core.studies.controllers.network import LINEAR, NETWORK
from qfl_core.studies.controllers.plan import METHODS, TUNED
from qfl_core.studies.controllers.probe import MEASURES
from qfl_core.studies.controllers.tables import Tables

PAGE = "controller.md"
_BEGIN, _END = "<!-- controllers: {} -->", "<!-- end of {} -->"
_ASKED = {
    FINAL: "final score at most .01 below the tuned constant's",
    SPEED: "at most half of constant 0.13's circuits to 95 %",
    AREA: "area at most .01 below that of any method without tuning",
}


def blocks(tables: Tables) -> dict[str, str]:
    """Return the text of every block by name."""
    return {
        "goal": _goal(tables),
        "parts": _parts(tables),
        "final": _scores(tables, "final"),
        "area": _scores(tables, "area"),
        "circuits": _circuits(tables),
        "features": _features(tables),
        "clients": _clients(tables),
        "networks": _networks(tables),
    }


def with_blocks(text: str, found: dict[str, str]) -> str:
    """Return the page with the text of every block between its two markers."""
    for name, block in found.items():
        begin, end = _BEGIN.format(name), _END.format(name)
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise AnalysisError(f"{PAGE} must have the lines {begin!r} and {end!r} once each")
        new = f"{begin}\n\n{block.strip()}\n\n{end}"
        text = pattern.sub(lambda _, new=new: new, text)  # type: ignore[misc]
    return text


def empty_page(names: list[str]) -> str:
    """Return a page with nothing but the markers, for profiles that the documentation does not show."""
    return "# Controllers\n\n" + "\n\n".join(f"{_BEGIN.format(name)}\n{_END.format(name)}" for name in names) + "\n"


def _goal(tables: Tables) -> str:
    rows = [
        {
            "engine": row["engine"],
            "controller": row["method"],
            "statement": _ASKED[row["statement"]],
            "verdict": f"**{row['verdict']}**",
            "parts": ", ".join(
                f"{row[name]} {name}" for name in ("holds", "fails", "absent", "undecided", "missing") if row[name]
            ),
            "worst part": row["worst"] or "–",
            "its mean [95 %]": interval(row["mean"], row["low"], row["high"], signed=True),
        }
        for row in tables.statements.to_dict("records")
    ]
    return f"{markdown(pd.DataFrame(rows))}\n{'; '.join(tables.facts)}."


def _parts(tables: Tables) -> str:
    """Return the verdict per task and start, one column per statement."""
    rows = []
    keys = ["method", "task", "start"]
    for key, mine in tables.parts.groupby(keys, sort=False):
        row = dict(zip(("controller", "task", "start"), key, strict=True))
        for statement in (FINAL, SPEED):
            (one,) = mine[mine["statement"] == statement].to_dict("records")
            row[_ASKED[statement]] = f"{one['verdict']}, {interval(one['mean'], one['low'], one['high'], signed=True)}"
            if np.isnan(one["mean"]):
                seeds = {0: "in no seed", 1: "in one seed only"}.get(one["seeds"], f"in {one['seeds']} seeds only")
                row[_ASKED[statement]] = f"missing: {seeds} does one of the two reach 95 %"
        others = mine[mine["statement"] == AREA]
        worst = others.sort_values("mean").iloc[0]
        counts = ", ".join(f"{n} {v}" for v, n in others["verdict"].value_counts().items())
        row[_ASKED[AREA]] = f"{counts}; lowest {number(worst['mean'], signed=True)} against {worst['against']}"
        rows.append(row)
    return markdown(pd.DataFrame(rows))


def _scores(tables: Tables, name: str) -> str:
    """Return mean ± half interval by method and task; over several starts of the goal the lowest and highest mean."""
    inside = _inside(tables)
    rows = []
    for method in METHODS:
        row = {"method": method}
        for task in dict.fromkeys(inside["task"]):
            mine = inside[(inside["method"] == method) & (inside["task"] == task)]
            row[task] = _cell(mine, name)
        rows.append(row)
    return markdown(pd.DataFrame(rows))


def _inside(tables: Tables) -> pd.DataFrame:
    """Return the scores without the starts that are outside of the goal."""
    goal = set(tables.parts["start"])
    return tables.scores[tables.scores["start"].isin(goal | {""})]


def _cell(mine: pd.DataFrame, name: str) -> str:
    if mine.empty:
        return "–"
    if len(mine) > 1:
        return f"{number(mine[name].min())} to {number(mine[name].max())}"
    (row,) = mine.to_dict("records")
    told = plus_minus(row[name], row[f"{name}_high"] - row[name])
    return f"{told} ({row['chosen']})" if row["method"] == TUNED and name == "final" else told


def _circuits(tables: Tables) -> str:
    """Return circuits to 95 % as shares of constant 0.13's run, with the seeds that reach it, and what a run spends."""
    rows = []
    for key, mine in _inside(tables).groupby(["task", "method"], sort=False):
        reached = sorted(mine["reached"])
        ends = [("never" if np.isinf(v) else number(v, 2)) for v in (reached[0], reached[-1])]
        seeds = [f"{n}/{total}" for n, total in zip(mine["seeds_reached"], mine["seeds"], strict=True)]
        rows.append(
            {
                "task": key[0],
                "method": key[1],
                "circuits to 95 %": ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}",
                "seeds that reach it": ", ".join(dict.fromkeys(seeds)),
                "whole run": float(mine["spent"].mean()),
            }
        )
    table = pd.DataFrame(rows)
    wide = table.pivot(index="method", columns="task", values="circuits to 95 %")
    wide = wide.loc[[m for m in METHODS if m in wide.index], list(dict.fromkeys(table["task"]))].fillna("–")
    spent = table.groupby("method")["whole run"].agg(lambda runs: f"{number(runs.min(), 2)} to {number(runs.max(), 2)}")
    return markdown(wide.assign(**{"whole run": spent.loc[wide.index]}).reset_index())


def _features(tables: Tables) -> str:
    found, rows = tables.features, []
    for (task, measure), mine in found.groupby(["task", "measure"], sort=False):
        by_level = mine.set_index("level").to_dict("index")
        row: dict[str, object] = {"task": task, "measure": measure}
        for level in LEVELS:
            one = by_level[level]
            shown = {"higher": " ▲", "lower": " ▼"}.get(str(one["verdict"]), "")
            row[level] = number(one["level_mean"]) + shown
        rows.append(row)
    order = {name: place for place, name in enumerate(MEASURES)}
    table = pd.DataFrame(rows)
    return markdown(table.sort_values("measure", key=lambda c: c.map(order), kind="stable"))


def _clients(tables: Tables) -> str:
    rows = []
    for task, mine in tables.clients.groupby("task", sort=False):
        row: dict[str, object] = {"task": task}
        for one in mine.to_dict("records"):
            sign = {"eta": "η", "delta": "δ"}[str(one["rate"])]
            row[f"{sign}, {one['group']} clients"] = interval(one["mean"], one["low"], one["high"], 2)
        rows.append(row)
    return markdown(pd.DataFrame(rows))


def _networks(tables: Tables) -> str:
    rows = []
    for task, mine in tables.networks.groupby("task", sort=False):
        row: dict[str, object] = {"task": task}
        for one in mine.to_dict("records"):
            told = interval(one["mean"], one["low"], one["high"], signed=True)
            row[str(one["measure"])] = f"{number(one[LINEAR])}, {number(one[NETWORK])}: {told} {one['verdict']}"
        rows.append(row)
    return markdown(pd.DataFrame(rows))
