"""How far candidates are from the paper's numbers, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import student_half
from qfl_core.analysis.paper import PAPER

#: All numbers together, beside the tracks.
ALL = "all"


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
    """Candidates that ran with the same seeds: their ``numbers`` (candidates, seeds, numbers) and the paper's."""

    candidates: tuple[str, ...]
    numbers: np.ndarray
    paper: pd.Series

    def chosen(self, track: str) -> np.ndarray:
        """Return which of the numbers belong to a track, or all."""
        return np.array([track in (ALL, owner) for owner in self.paper.index.get_level_values("track")])

    @cached_property
    def table(self) -> pd.DataFrame:
        """Each candidate's distance overall and by track, with half its 95 % interval where seeds allow one."""
        columns = {}
        for track in (ALL, *self.paper.index.unique("track")):
            of = self.chosen(track)
            values, goal = self.numbers[..., of], self.paper.to_numpy()[of]
            columns[track] = _mean_distance(values, goal)
            columns[f"{track} ±"] = half_interval(partial(_mean_distance, paper=goal), values)
        return pd.DataFrame(columns, index=pd.Index(self.candidates, name="candidate"))

    def ranked(self, track: str = ALL) -> list[str]:
        """Return the candidates, closest first."""
        return list(self.table[track].sort_values(kind="stable").index)

    def difference(self, a: str, b: str, track: str = ALL) -> tuple[float, float]:
        """Return distance of a - distance of b and half its 95 % interval, paired over seeds."""
        of = self.chosen(track)
        pair = self.numbers[[self.candidates.index(a), self.candidates.index(b)]][..., of]
        goal = self.paper.to_numpy()[of]

        def gap(values: np.ndarray) -> np.ndarray:
            return np.subtract(*_mean_distance(values, goal))[None]

        return float(gap(pair)[0]), float(half_interval(gap, pair)[0])

    @property
    def spread(self) -> float:
        """The root mean square, over candidates and numbers, of the standard deviation from seed to seed.

        The paper's numbers are one realisation, so no candidate can be told from the truth below about this distance.
        """
        return float(np.sqrt(self.numbers.var(axis=1, ddof=1).mean())) if self.numbers.shape[1] > 1 else np.nan

    def against_paper(self, candidate: str) -> pd.DataFrame:
        """Return the paper's numbers beside the candidate's mean over seeds."""
        ours = self.numbers[self.candidates.index(candidate)].mean(axis=0)
        table = self.paper.to_frame().assign(ours=ours).unstack("method")
        assert isinstance(table, pd.DataFrame)
        return table.swaplevel(axis=1).sort_index(axis=1)


def distance(numbers: np.ndarray, paper: np.ndarray) -> np.ndarray:
    """Return the root mean square of ours - paper's over the last axis; shares need no scale."""
    return np.sqrt(((numbers - paper) ** 2).mean(axis=-1))


def _mean_distance(values: np.ndarray, paper: np.ndarray) -> np.ndarray:
    """Return the distance of each candidate's mean over seeds, from ``values`` (candidates, seeds, numbers)."""
    return distance(values.mean(axis=1), paper)


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
