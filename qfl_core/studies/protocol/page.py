"""The page of the search: what was tried and how it is judged, then what came out, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.tables import markdown
from qfl_core.base.numbers import counted, interval, number, plus_minus
from qfl_core.studies.protocol.distance import ALL, GRADE, STATEMENT_WEIGHT, TOTAL, UNTRAINED_LIMIT, Stage
from qfl_core.studies.protocol.plan import DEFAULTS, Plan
from qfl_core.studies.protocol.search import Search
from qfl_core.studies.protocol.statements import ADAM, PROX, STATEMENTS
from qfl_core.studies.protocol.tables import NAME

#: The heading of the part that is made where real files are at hand.
REAL_HEADING = "## On samples of the real files"
_NO_REAL = "Not run yet: `make protocol-search` with `QFL_DATA_DIR` set writes this part and leaves the others alone.\n"
#: The name of the reading that the first edition of this search chose, and the distance that it printed.
FIRST_EDITION, FIRST_DISTANCE = "of the first edition", 0.074
#: A statement below this mean grade is not reproduced.
_NOT_MET = 0.5


def page(search: Search, real: str | None = None) -> str:
    """Return the whole page; ``real`` is the part on real files as it was, from its heading on."""
    parts = [_opening(search), _rule(search.plan), _outcome(search), _decides(search), _refinement(search)]
    parts += [_undecided(search), _missing(search), _files(search)]
    return "\n".join([*(part for part in parts if part), real or f"{REAL_HEADING}\n\n{_NO_REAL}"])


def with_real(text: str, real: str) -> str:
    """Return the page with another part on real files."""
    return text.partition(REAL_HEADING)[0] + real


def real_part(text: str) -> str | None:
    """Return a page's part on real files, None where it has none."""
    _, heading, rest = text.partition(REAL_HEADING)
    return heading + rest if heading else None


def real_section(plan: Plan, stage: Stage, roles: Mapping[str, str], facts: Sequence[str]) -> str:
    """Return the part on real files: the same finalists and seeds, with their roles on the stand-in."""
    first = stage.ranked()[0]
    lines = [
        REAL_HEADING,
        "",
        f"The finalists again, {counted(stage.seeds, 'seed')}; {', '.join(facts)}. Seeds share most rows of a small "
        "file, so intervals speak of this file alone. The role is the one on the stand-in.",
        "",
        f"**The closest here**: {words(plan, first)}.",
        "",
        _score_table(plan, stage, roles, first),
        f"Standard deviation of a number from seed to seed: {number(stage.spread)}.",
        "",
    ]
    return "\n".join(lines)


def words(plan: Plan, candidate: str, beside: str | None = None) -> str:
    """Return a candidate's levels in words; beside another candidate, only those that differ."""
    if candidate == DEFAULTS:
        return "the profile's own settings"
    levels = plan.levels(candidate)
    if beside in (None, DEFAULTS, candidate):
        return "; ".join(f"{factor} {level}" for factor, level in levels.items())
    other = plan.levels(str(beside))
    return "; ".join(f"{factor} {level}" for factor, level in levels.items() if level != other[factor])


def _opening(search: Search) -> str:
    return (
        "# Which protocol did the paper use?\n\n"
        "The paper leaves points of its protocol open. `make protocol-search` tries readings of them against the "
        "numbers that it prints and against what it says about the course of training, on the stand-in data, and "
        f"writes this page. {'; '.join(search.facts)}.\n"
    )


def _rule(plan: Plan) -> str:
    factors = pd.DataFrame(
        [
            {"open point": name, "levels": ", ".join(levels), "concerns": _concerns(plan, name)}
            for name, levels in plan.every.items()
        ]
        + [
            {"open point": name, "levels": ", ".join(levels), "concerns": f"{method_named(method).label}, winner alone"}
            for method, mine in plan.refinement.items()
            for name, levels in mine.items()
        ]
    )
    told = [s for s in STATEMENTS if set(s.tracks) & set(plan.tracks)]
    statements = pd.DataFrame(
        [
            {
                "statement": s.name,
                "what the paper says": s.words,
                "condition": s.condition,
                "track": ", ".join(s.tracks),
            }
            for s in told
        ]
    )
    limits = ", ".join(f"{limit:g} on {track}" for track, limit in UNTRAINED_LIMIT.items())
    return (
        "## The rule, fixed before the search\n\n"
        f"{markdown(factors)}\n"
        f"Of the {len(plan.combinations):,} combinations of the points that are not for the winner alone, a fraction "
        f"is screened: {len(plan.screened)} combinations of the shared points, chosen so that the effect of one point "
        "can be told from that of another point or of a pair; each runs with every level of the points that concern "
        f"one method ({counted(len(plan.seeds), 'seed')}). An additive model of every number and every grade predicts "
        "all combinations. To the final, with fresh seeds, go the closest by the total and by each track, the closest "
        f"screened one, the profile's own settings{_named(plan)}. The winner is refined by what concerns one method "
        "alone, with fresh seeds again. No seed is one of those that figures report.\n\n"
        "**Part one, the numbers.** The distance of a track is the root mean square of ours minus the paper's, last "
        "round, mean over seeds; the tracks count equally.\n\n"
        "**Part two, the statements.** Each is graded from 0 to 1 for every seed, then averaged. Those about Adam-QFL "
        "count in its refinement alone, because the paper prints no number of it.\n\n"
        f"{markdown(statements)}\n"
        f"**The choice.** Total = distance + {STATEMENT_WEIGHT:g} × (1 − mean grade): missing every statement costs as "
        f"much as a distance of {STATEMENT_WEIGHT:g}. The lowest total wins. A candidate is *marked* and cannot win "
        f"where the untrained model's accuracy is above {limits}, because it then has the paper's final accuracy "
        "before training. Intervals are 95 %, by a jackknife over seeds.\n"
    )


def _concerns(plan: Plan, factor: str) -> str:
    return f"{method_named(plan.owner[factor]).label} alone" if factor in plan.owner else "all methods"


def _named(plan: Plan) -> str:
    if not plan.readings:
        return ""
    return f" and {counted(len(plan.readings), 'reading')} named beforehand ({', '.join(plan.readings)})"


def _outcome(search: Search) -> str:
    stage, winner = search.best, search.winner
    text = (
        "## What came out\n\n"
        "![Candidates with their scores, the main effects, the winner beside the paper]"
        f"({NAME}/protocol_search.png)\n\n"
        f"**The winner**: {words(search.plan, winner)}.\n\n"
        f"{_score_table(search.plan, stage, search.roles, winner)}\n"
    )
    others = {"runner-up": search.runner_up, "profile": search.profile}
    others |= {f"reading {name}": search.plan.reading(name) for name in search.plan.readings}
    gaps = [
        f"{name} {plus_minus(*stage.difference(winner, other), signed=True)}"
        for name, other in others.items()
        if other in stage.candidates and other != winner
    ]
    text += f"Total of the winner − that of others, paired over seeds: {'; '.join(gaps)}. "
    return text + (
        f"A number varies by {number(stage.spread)} from seed to seed (standard deviation), so readings whose "
        "distances are all below about that number cannot be ranked.\n" + _before_and_after(search)
    )


def _before_and_after(search: Search) -> str:
    """Return both distances of the first edition's reading, of the winner and of the refined winner."""
    plan, table = search.plan, search.best.table.to_dict("index")
    before = plan.reading(FIRST_EDITION) if FIRST_EDITION in plan.readings else ""
    if before not in table:
        return ""
    refined = search.refinement
    refined = refined[refined["chosen"] & (refined["method"] == PROX)] if len(refined) else refined
    found = [table[before], table[search.winner], *refined.to_dict("records")]
    parts = [f"{_title(part)} {' → '.join(number(row[part]) for row in found)}" for part in (ALL, GRADE, TOTAL)]
    last = " → winner with DUQFL-Prox's chosen outer update (other seeds, see below)" if len(refined) else ""
    return (
        f"\n**Before and after.** Reading of the first edition → winner{last}: {'; '.join(parts)}. The first edition's "
        f"own search told {FIRST_DISTANCE:g} for its reading: it had other seeds and targets, and no statements.\n"
    )


def _score_table(plan: Plan, stage: Stage, roles: Mapping[str, str], winner: str) -> str:
    rows = []
    scores = stage.table.to_dict("index")
    for candidate in stage.ranked():
        row = scores[candidate]
        beside = words(plan, candidate, winner) if candidate != winner else "as written above"
        if candidate != winner and DEFAULTS not in (candidate, winner):
            beside = f"as the first row, but {beside}"
        marked = " (marked)" if row["marked"] else ""
        rows.append(
            {
                "role": roles.get(candidate, "") or "–",
                "reading": beside,
                **{_title(part): plus_minus(row[part], row[f"{part} ±"]) for part in stage.parts},
                "untrained": f"{number(row['untrained'])}{marked}",
            }
        )
    return markdown(pd.DataFrame(rows))


def _title(part: str) -> str:
    return {TOTAL: "total", ALL: "numbers", GRADE: "statements"}.get(part, part)


def _decides(search: Search) -> str:
    effects = search.effects[search.effects["score"].isin([TOTAL, ALL, GRADE])]
    rows = []
    for (factor, start, level), mine in effects.groupby(["factor", "from", "level"], sort=False):
        by = mine.set_index("score")
        row = {"open point": factor, "from → to": f"{start} → {level}"}
        row |= {
            _title(part): interval(*by.loc[part, ["effect", "low", "high"]], signed=True)
            for part in (TOTAL, ALL, GRADE)
        }
        total = by.loc[TOTAL]
        row["decided"] = "yes" if total["low"] > 0 or total["high"] < 0 else "no"
        rows.append(row)
    return (
        "## What decides\n\n"
        "The mean change of each score from the first level to another, over the screened candidates, with 95 % "
        "intervals. A lower total is closer; a higher grade of the statements is better.\n\n"
        f"{markdown(pd.DataFrame(rows))}"
    )


def _refinement(search: Search) -> str:
    found = search.refinement
    if found.empty:
        return ""
    seeds = counted(len(search.plan.refinement_seeds), "fresh seed")
    text = f"## What concerns one method alone\n\nTried on the winner with {seeds}.\n"
    for method in found["method"].unique():
        mine = found[found["method"] == method]
        rows = []
        for row in mine.to_dict("records"):
            shown = {"setting": f"**{row['refinement']}**" if row["chosen"] else row["refinement"]}
            if method == PROX:
                parts = (TOTAL, ALL, GRADE, *search.plan.tracks)
                shown |= {_title(part): plus_minus(row[part], row[f"{part} ±"]) for part in parts}
                shown["change of the total"] = plus_minus(row["change"], row["change ±"], signed=True)
            else:
                shown |= {s.name: number(row[s.name]) for s in STATEMENTS if ADAM in s.methods and s.name in row}
                shown["mean grade"] = number(row[GRADE])
            rows.append(shown)
        rule = "lowest total" if method == PROX else "highest mean grade of its statements"
        text += f"\n**{method_named(method).label}** (bold: chosen, {rule})\n\n{markdown(pd.DataFrame(rows))}"
    return text


def _undecided(search: Search) -> str:
    stage, winner = search.best, search.winner
    tied = []
    for candidate in stage.ranked():
        gap, half = stage.difference(winner, candidate)
        if candidate != winner and not stage.table.loc[candidate, "marked"] and not abs(gap) > half:
            tied.append(f"- {words(search.plan, candidate, winner)}: {plus_minus(gap, half, signed=True)}")
    totals = search.effects[search.effects["score"] == TOTAL]
    open_points = [
        f"{row['factor']} ({row['from']} or {row['level']})"
        for row in totals.to_dict("records")
        if not (row["low"] > 0 or row["high"] < 0)
    ]
    text = "## What cannot be decided\n\n"
    text += (
        "Finalists whose total these seeds do not tell from the winner's (winner − finalist; what differs):\n\n"
        if tied
        else ""
    )
    text += "\n".join(tied) + "\n\n" if tied else "These seeds tell every other finalist from the winner.\n\n"
    return (
        text
        + f"Points whose effect on the total these runs do not tell from zero: {', '.join(open_points) or 'none'}.\n"
    )


def _missing(search: Search) -> str:
    stage = search.best
    numbers, statements = stage.numbers_table(), stage.statements_table()
    lines = []
    for (track, metric, method), mine in numbers.groupby(["track", "metric", "method"], sort=False):
        if not mine["inside"].any() and stage.seeds > 1:
            ours = f"{number(mine['ours'].min())} to {number(mine['ours'].max())}"
            lines.append(
                f"- {track}, {str(metric).replace('_', ' ')} of {method_named(str(method)).label}: the paper has "
                f"{number(mine['paper'].iloc[0])}, the candidates' means are {ours}"
            )
    for (track, name), mine in statements.groupby(["track", "statement"], sort=False):
        if mine["grade"].max() < _NOT_MET:
            lines.append(f"- {track}, “{name}”: the highest grade is {number(mine['grade'].max())}")
    opening = (
        "## What no reading reproduces before the refinement\n\n"
        "Numbers outside the 95 % range of a single run for every candidate of the deciding stage, because the paper's "
        f"come from one run; statements with a grade below {_NOT_MET:g} for all of them. The refinement, which changes "
        "settings of one method alone, came later and is not counted here.\n\n"
    )
    return opening + ("\n".join(lines) if lines else "None.") + "\n"


def _files(search: Search) -> str:
    names = ("candidates", "effects", "numbers", "statements", "refinement")
    links = ", ".join(f"[{name}]({NAME}/protocol_{name}.csv)" for name in names)
    return f"Tables: {links}.\n"
