"""What the tables of figures/tables say about a sentence of the paper: a text with numbers, and an answer by a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd

from qfl_core.base.numbers import interval, number, significant
from tools.readme import Tables

AGREES, NOT, PARTLY, OPEN = "agrees", "does not", "in part", "cannot be told"
#: What a verdict on a part of a claim says about the sentence.
_OF_PART = {"holds": AGREES, "fails": NOT, "absent": NOT, "undecided": OPEN, "missing": OPEN}
#: A number whose size is below this is shown with one decimal more.
_SMALL = 1.5e-3


class Evidence(Protocol):
    """Something that the tables say about a sentence: its text, and whether it agrees."""

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return the text and one of the four answers."""
        ...


@dataclass(frozen=True)
class Part:
    """A part of a claim, with its verdict."""

    name: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return its number; it agrees where it holds."""
        row = only_row(tables("claim_parts"), part=self.name)
        bounds = all(math.isfinite(row[end]) for end in ("low", "high"))
        digits = 4 if abs(row["estimate"]) < _SMALL else 3
        signed = not row["text"].startswith(("DUQFL-Prox, share", "share"))
        shown = (
            interval(row["estimate"], row["low"], row["high"], digits, signed=signed)
            if bounds
            else significant(row["estimate"])
        )
        return f"{row['text']} {shown} ({self.name}{self._marks(tables, row)})", _OF_PART[row["verdict"]]

    def _marks(self, tables: Tables, row: Mapping[str, Any]) -> str:
        """Return what a reader should know besides: the untrained model passes, too, or other runs differ."""
        others = {"real sample": tables("real/claim_parts").set_index("part")["verdict"]}
        if tables.fresh:
            others = {"fresh seeds": tables.fresh.parts["verdict"], **others}
        marks = ["an untrained model passes, too"] if row["untrained"] == row["verdict"] == "holds" else []
        for name, verdicts in others.items():
            if (there := verdicts.get(self.name)) not in (row["verdict"], "missing", None):
                marks.append(f"{name}: {there}")
        return "".join(f"; {mark}" for mark in marks)


@dataclass(frozen=True)
class Last:
    """A last-round number that the paper prints, beside the range in which 95 % of our runs lie."""

    track: str
    metric: str
    method: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return our mean and the range; it agrees where the range holds the paper's number, which is of one run."""
        row = only_row(tables("final_metrics"), track=self.track, metric=self.metric, method=self.method)
        low, high = row["2.5 % of runs"], row["97.5 % of runs"]
        inside = low <= row["paper"] <= high
        ends = f"{number(low)} to {number(high)}"
        return (
            f"{self.method} {number(row['mean'])}, one run {ends}, paper {row['paper']:.4g}",
            AGREES if inside else NOT,
        )


@dataclass(frozen=True)
class Change:
    """What one change of the method adds, from the table of the attribution."""

    track: str
    link: str
    metric: str
    claimed: str  # higher or lower

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return the change; it agrees where its sign is shown to be the claimed one."""
        table = tables("attribution")
        table = table[table["validation"] == table.loc[table["track"] == self.track, "validation"].iloc[0]]
        row = only_row(table, track=self.track, link=self.link, metric=self.metric)
        answer = OPEN if row["verdict"] == "undecided" else AGREES if row["verdict"] == self.claimed else NOT
        shown = interval(row["mean"], row["low"], row["high"], signed=True)
        return f"{self.track}, {self.link}: {self.metric.replace('_', ' ')} {shown}", answer


@dataclass(frozen=True)
class Highest:
    """A last-round metric in which the first method should be ahead of the others."""

    track: str
    metric: str
    methods: Sequence[str]

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return all means; the answer is open where the first method's interval meets another's."""
        rows = [only_row(tables("final_metrics"), track=self.track, metric=self.metric, method=m) for m in self.methods]
        first, others = rows[0], rows[1:]
        ahead = all(first["low"] > row["high"] for row in others)
        behind = any(first["high"] < row["low"] for row in others)
        shown = ", ".join(f"{row['method']} {interval(row['mean'], row['low'], row['high'])}" for row in rows)
        return f"{self.metric}: {shown}", AGREES if ahead else NOT if behind else OPEN


@dataclass(frozen=True)
class Rest:
    """The train-test gap without the part that the class mix explains, of two methods."""

    track: str
    method: str
    other: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return both gaps and rests; it agrees where the first rest is lower and the intervals do not meet."""
        mine, theirs = (
            only_row(tables("train_test_gap_shift"), track=self.track, method=m) for m in (self.method, self.other)
        )
        shown = ", ".join(
            f"{row['method']} {number(row['train-test gap'])}, beyond the class mix {number(row['rest'])}"
            for row in (mine, theirs)
        )
        lower = mine["rest: high"] < theirs["rest: low"]
        higher = mine["rest: low"] > theirs["rest: high"]
        return f"gap: {shown}", AGREES if lower else NOT if higher else OPEN


@dataclass(frozen=True)
class Variation:
    """How much the profile's controller varies, as three numbers; the answer is left to other evidence."""

    track: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return the three numbers of both rates."""
        table = tables("controller_variation")
        table = table[(table["track"] == self.track) & (table["controller"] == "profile")]
        names = ("clients", "unfolds", "rounds")
        parts = [
            f"{row['rate']} "
            + ", ".join(f"{significant(row[f'across {name} (%)'], 2)} % across {name}" for name in names)
            for row in table.to_dict("records")
        ]
        return f"{self.track}, within a run: {'; '.join(parts)}", AGREES


@dataclass(frozen=True)
class Marks:
    """The marks of the paper's qualitative table."""

    dataset: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return how many of our marks are the paper's."""
        table = tables("qualitative_comparison")
        cells = table[table["Dataset"] == self.dataset].drop(columns=["Dataset", "Method"]).to_numpy().ravel()
        same = sum(ours == theirs.strip("()") for ours, theirs in (cell.split(" ") for cell in cells))
        answer = AGREES if same == len(cells) else PARTLY if same else NOT
        return f"{self.dataset}: {same} of {len(cells)} marks are the paper's", answer


@dataclass(frozen=True)
class Untold:
    """A reason why nothing here can tell."""

    reason: str

    def told(self, tables: Tables) -> tuple[str, str]:
        """Return the reason."""
        return self.reason, OPEN


def only_row(table: pd.DataFrame, **wanted: str) -> Mapping[str, Any]:
    """Return the only row with these values."""
    for column, value in wanted.items():
        table = table[table[column].astype(str) == value]
    if len(table) != 1:
        raise ValueError(f"{len(table)} rows have {wanted}, expected one")
    return dict(table.iloc[0])


def parts(*names: str) -> list[Evidence]:
    """Return the parts with these names."""
    return [Part(name) for name in names]


def lasts(track: str, metric: str, *methods: str) -> list[Evidence]:
    """Return the last-round numbers of these methods."""
    return [Last(track, metric, method) for method in methods]


def answer(found: Sequence[str]) -> str:
    """Return the answer of a sentence from those of its evidence.

    It agrees where all do, and does not where none does and one is contrary. Otherwise it agrees in part where a
    contrary answer stands beside an agreeing one, and cannot be told where one is open and none is contrary.
    """
    kinds = set(found)
    if kinds == {AGREES}:
        return AGREES
    if PARTLY in kinds or {AGREES, NOT} <= kinds:
        return PARTLY
    return NOT if NOT in kinds else OPEN
