"""How far candidates are from the paper: its numbers, its statements, both together, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import student_half
from qfl_core.analysis.paper import PAPER

#: The numbers of all tracks together, beside the tracks: the mean of the tracks' distances.
ALL = "all"
#: The mean grade of all statements.
GRADE = "statements"
#: What the search minimises: the distance of the numbers plus the cost of missed statements.
TOTAL = "total"
#: Missing every statement costs as much as this distance.
STATEMENT_WEIGHT = 0.1
#: An untrained model with more accuracy than this already has the paper's final accuracy, to within 0.05: a reading in
#: which training need not do anything cannot win.
UNTRAINED_LIMIT = {"baf": 0.60}


def paper_numbers(tracks: Sequence[str]) -> pd.Series:
    """Return the paper's numbers with the index (track, metric, method)."""
    found = {
        (track, metric, method): value
        for (track, metric), values in PAPER.items()
        if track in tracks
        for method, value in values.items()
    }
    return pd.Series(found, name="paper").rename_axis(["track", "metric", "method"])


@dataclass(frozen=True, eq=False)
class Stage:
    """Candidates that ran with the same seeds.

    Parameters
    ----------
    candidates : their names.
    numbers : (candidates, seeds, numbers) in the order of ``paper``.
    paper : the paper's numbers.
    grades : (candidates, seeds, statements), each from 0 to 1.
    statements : (track, name) of each statement.
    untrained : (candidates, seeds, tracks with a limit) accuracy of the untrained model.
    limits : the limit of each of these tracks.
    """

    candidates: tuple[str, ...]
    numbers: np.ndarray
    paper: pd.Series
    grades: np.ndarray
    statements: tuple[tuple[str, str], ...]
    untrained: np.ndarray
    limits: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return self.numbers.shape[1]

    @property
    def parts(self) -> tuple[str, ...]:
        """What the table has a column for: the total, its two parts, and the tracks."""
        return (TOTAL, ALL, GRADE, *self.paper.index.unique("track"))

    @cached_property
    def _measured(self) -> np.ndarray:
        return np.concatenate([self.numbers, self.grades], axis=-1)

    def score(self, measured: np.ndarray, part: str) -> np.ndarray:
        """Return a part (see :attr:`parts`) from numbers and grades side by side on the last axis."""
        numbers, grades = measured[..., : len(self.paper)], measured[..., len(self.paper) :]
        grade = grades.mean(axis=-1) if grades.shape[-1] else np.ones(grades.shape[:-1])
        if part == GRADE:
            return grade
        goal, owner = self.paper.to_numpy(), self.paper.index.get_level_values("track")
        tracks = self.paper.index.unique("track") if part in (ALL, TOTAL) else [part]
        found = np.mean([distance(numbers[..., owner == t], goal[owner == t]) for t in tracks], axis=0)
        return found + STATEMENT_WEIGHT * (1 - grade) if part == TOTAL else found

    @cached_property
    def table(self) -> pd.DataFrame:
        """Each candidate's total and its parts, with half the 95 % interval where seeds allow one.

        ``untrained`` is the untrained model's accuracy on the first track with a limit; ``marked`` tells that it is
        above the limit.
        """
        columns: dict[str, np.ndarray] = {}
        for part in self.parts:
            columns[part] = self._mean_score(self._measured, part)
            columns[f"{part} ±"] = half_interval(partial(self._mean_score, part=part), self._measured)
        untrained = self.untrained.mean(axis=1)
        columns["untrained"] = untrained[:, 0] if self.limits else np.full(len(self.candidates), np.nan)
        columns["marked"] = (untrained > np.array(self.limits)).any(axis=-1)
        return pd.DataFrame(columns, index=pd.Index(self.candidates, name="candidate"))

    def _mean_score(self, measured: np.ndarray, part: str) -> np.ndarray:
        return self.score(measured.mean(axis=1), part)

    def ranked(self, part: str = TOTAL, marked: bool = False) -> list[str]:
        """Return the candidates, closest first; those whose untrained model has the final accuracy come last."""
        order = self.table.sort_values(part, kind="stable")
        return list(order.index if marked else order.sort_values("marked", kind="stable").index)

    def difference(self, a: str, b: str, part: str = TOTAL) -> tuple[float, float]:
        """Return the score of a minus that of b and half its 95 % interval, paired over seeds."""
        pair = self._measured[[self.candidates.index(a), self.candidates.index(b)]]

        def gap(values: np.ndarray) -> np.ndarray:
            scores = self._mean_score(values, part)
            return (scores[0] - scores[1])[None]

        return float(gap(pair)[0]), float(half_interval(gap, pair)[0])

    @property
    def spread(self) -> float:
        """The root mean square, over candidates and numbers, of the standard deviation from seed to seed.

        The paper's numbers are one realisation, so no candidate can be told from the truth below about this distance.
        """
        return float(np.sqrt(self.numbers.var(axis=1, ddof=1).mean())) if self.seeds > 1 else np.nan

    def numbers_table(self) -> pd.DataFrame:
        """Return one row per candidate and number: the paper's, our mean, and the 95 % range of a single run.

        The range is Student's for one more run, because the paper's numbers come from one.
        """
        mean, n = self.numbers.mean(axis=1), self.seeds
        wide = np.full_like(mean, np.nan)
        if n > 1:
            wide = student_half(self.numbers.std(axis=1, ddof=1) * np.sqrt(1 + 1 / n), n - 1)
        rows = []
        for c, candidate in enumerate(self.candidates):
            one = self.paper.reset_index().assign(ours=mean[c], low=mean[c] - wide[c], high=mean[c] + wide[c])
            rows.append(one.assign(candidate=candidate))
        found = pd.concat(rows, ignore_index=True)
        return found.assign(inside=(found["low"] <= found["paper"]) & (found["paper"] <= found["high"]))

    def statements_table(self) -> pd.DataFrame:
        """Return one row per candidate and statement: its mean grade over seeds."""
        grades = self.grades.mean(axis=1)
        return pd.DataFrame(
            [
                {"candidate": candidate, "track": track, "statement": name, "grade": grades[c, s]}
                for c, candidate in enumerate(self.candidates)
                for s, (track, name) in enumerate(self.statements)
            ]
        )


def distance(numbers: np.ndarray, paper: np.ndarray) -> np.ndarray:
    """Return the root mean square of ours - paper's over the last axis; shares need no scale."""
    return np.sqrt(((numbers - paper) ** 2).mean(axis=-1))


def half_interval(statistic: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return half the 95 % interval of a statistic of ``values`` (candidates, seeds, ...).

    The standard error is the jackknife's over seeds; fewer than three seeds give NaN.
    """
    n = values.shape[1]
    if n < 3:
        return np.full_like(statistic(values), np.nan)
    left_out = np.array([statistic(np.delete(values, i, axis=1)) for i in range(n)])
    error = np.sqrt((n - 1) / n * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))
    return student_half(error, n - 1)
