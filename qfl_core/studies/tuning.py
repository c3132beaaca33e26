"""Which settings of the clean track? One rule for all methods, on validation, with seeds that no result uses.

Settings that concern all methods (loss, chunk, ...) are a grid, and a track takes one combination for all of them, so
that methods are compared under the same conditions. Settings that concern some methods alone (which SPSA, which outer
update) have as many levels for each, and these methods take their best level. Taken is the combination with the highest
validation score, averaged over all methods: no method is tuned more than another. The tables also tell which
combination each method would have taken for itself, and how much the common one costs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import kept
from qfl_core.analysis.summary import interval_texts, last_rounds
from qfl_core.base.errors import ConfigError
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_variants
from qfl_core.runs.sweep import grid

#: The scores of the validation part that a profile may name.
SCORES = ("accuracy", "roc_auc")
#: The average over all methods, beside the methods.
ALL = "all methods"


@dataclass(frozen=True)
class Own:
    """A setting of some methods alone: its name, these methods, and the config's fields of each level by its name."""

    name: str
    methods: tuple[str, ...]
    levels: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Tuning:
    """Validation scores of the last round.

    ``scores`` has one row per run: ``setting`` (the combination in words), ``own`` and ``level`` (the method's own
    setting), ``method``, ``seed``, ``score``.
    """

    track: str
    score: str
    scores: pd.DataFrame
    facts: tuple[str, ...]

    @cached_property
    def best(self) -> pd.DataFrame:
        """The scores of each combination at the best level of every own setting, by the mean over its methods."""
        means = self.scores.groupby(["setting", "own", "level"], sort=False)["score"].mean()
        taken = means.groupby(level=["setting", "own"], sort=False).idxmax()
        return self.scores.set_index(["setting", "own", "level"]).loc[list(taken)].reset_index()

    @cached_property
    def means(self) -> pd.DataFrame:
        """The mean over seeds of :attr:`best`: one row per combination, one column per method, :data:`ALL` first."""
        wide = self.best.groupby(["setting", "method"], sort=False)["score"].mean().unstack()
        wide = wide[[name for name in METHODS if name in wide]]
        wide.insert(0, ALL, wide.mean(axis=1))
        return wide

    @property
    def chosen(self) -> str:
        """The combination with the highest mean over methods; of equal ones the first."""
        return str(self.means[ALL].idxmax())

    def table(self) -> pd.DataFrame:
        """Return one row per combination, best first: ``mean ± half interval`` over seeds for all methods and for each.

        An asterisk marks the best combination of a column, by its mean.
        """
        averages = self.best.groupby(["setting", "seed"], sort=False)["score"].mean().reset_index()
        found = pd.concat([averages.assign(method=ALL), self.best], ignore_index=True)
        table = intervals(found, "score", ["setting", "method"])
        own_best = {name: str(self.means[name].idxmax()) for name in map(str, self.means)}
        pairs = zip(table["method"], table["setting"], strict=True)
        table["text"] = interval_texts(table, digits=3)
        table["text"] += np.where([own_best[method] == setting for method, setting in pairs], " *", "")
        order = self.means.sort_values(ALL, ascending=False, kind="stable").index
        wide = table.pivot(index="setting", columns="method", values="text").loc[order, list(self.means)]
        return wide.rename(columns={name: method_named(name).label for name in METHODS}).rename_axis(columns=None)

    def levels(self) -> pd.DataFrame:
        """Return the scores of every level of every own setting under the chosen combination; the best is taken."""
        mine = self.scores[(self.scores["setting"] == self.chosen) & (self.scores["own"] != "")]
        means = mine.groupby(["own", "level"], sort=False)["score"].mean()
        taken = set(means.groupby(level="own", sort=False).idxmax())
        rows = []
        for (own, level, method), group in mine.groupby(["own", "level", "method"], sort=False):
            told = {"track": self.track, "setting": own, "level": level, "method": method_named(str(method)).label}
            rows.append({**told, "score": float(group["score"].mean()), "taken": (own, level) in taken})
        return pd.DataFrame(rows, columns=["track", "setting", "level", "method", "score", "taken"])

    def costs(self) -> pd.DataFrame:
        """Return what the common combination costs each method: its own best one, and that one's score minus this."""
        rows = []
        for name in self.means.columns.drop(ALL):
            own, scores = str(self.means[name].idxmax()), self.means[name]
            rows.append(
                {
                    "track": self.track,
                    "method": method_named(str(name)).label,
                    "its own best": own,
                    "score there": float(scores[own]),
                    "score with the common one": float(scores[self.chosen]),
                    "cost": float(scores[own] - scores[self.chosen]),
                }
            )
        return pd.DataFrame(rows)


def tuning_study(
    settings: Profile, track: str, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> Tuning:
    """Train all methods with every combination of the choices and every level of their own; return validation scores.

    Parameters
    ----------
    section : holds ``seeds``; ``tracks``: for each track its ``score`` (a name of :data:`SCORES`) and ``choices``, a
        list of values per setting; and ``own``, the settings of some methods alone, see :class:`Own`.
    train : False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    found: list[pd.DataFrame] = []
    facts: tuple[str, ...] = ()
    for own, variants in planned(settings, track, section):
        studies = get_variants(settings, track, own.methods, section["seeds"], variants, folder, train=train)
        facts = next(iter(studies.values())).facts
        for (setting, level), study in studies.items():
            scores = _scores(study, section["tracks"][track]["score"])
            found.append(scores.assign(setting=setting, own=own.name, level=level))
    score = section["tracks"][track]["score"]
    return Tuning(track, score, pd.concat(found, ignore_index=True), facts)


#: Combination in words and level -> the config's fields.
Variants = dict[tuple[str, str], dict[str, Any]]


def planned(settings: Profile, track: str, section: Mapping[str, Any]) -> Iterator[tuple[Own, Variants]]:
    """Yield what runs: every own setting, and its variants of the track; methods without one have a single level."""
    if track not in section["tracks"]:
        raise ConfigError(f"tuning: no grid for track {track!r}; tracks: {', '.join(section['tracks'])}")
    mine = section["tracks"][track]
    if mine["score"] not in SCORES:
        raise ConfigError(f"tuning: score must be one of {', '.join(SCORES)}, got {mine['score']!r}")
    combinations = {
        ", ".join(f"{name} {getattr(config, name)}" for name in mine["choices"]): {
            name: getattr(config, name) for name in mine["choices"]
        }
        for config in grid(settings.config(track), **mine["choices"])
    }
    given = [Own(name, tuple(one["methods"]), one["levels"]) for name, one in (section.get("own") or {}).items()]
    named = {method for own in given for method in own.methods}
    rest = Own("", tuple(method for method in METHODS if method not in named), {"": {}})
    for own in (*given, rest) if rest.methods else given:
        yield (
            own,
            {
                (words, level): {**fields, **changes}
                for words, fields in combinations.items()
                for level, changes in own.levels.items()
            },
        )


def _scores(study: Study, score: str) -> pd.DataFrame:
    """Return the global model's score on the validation part after the last round, one row per run."""
    metrics = kept(study).table("classification_metrics")
    last = last_rounds(metrics[metrics["part"] == "val"])
    return last[["method", "seed"]].assign(score=last[score].to_numpy(float))
