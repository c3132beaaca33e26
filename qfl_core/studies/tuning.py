"""Which settings of the clean track? One grid for all methods, on validation, with seeds that no result uses.

A track has one setting for all methods, so that a comparison differs in the method alone. Taken is the setting with the
highest validation score, averaged over all methods: no method is tuned more than another. The table also tells which
setting each method would have taken for itself, and how much the common one costs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Tuning:
    """Validation scores of the last round: ``scores`` has one row per run, with setting (by words), method and seed."""

    track: str
    score: str
    scores: pd.DataFrame
    facts: tuple[str, ...]

    @property
    def means(self) -> pd.DataFrame:
        """The mean score over seeds: one row per setting, one column per method, and :data:`ALL` first."""
        wide = self.scores.groupby(["setting", "method"], sort=False)["score"].mean().unstack()
        wide = wide[[name for name in METHODS if name in wide]]
        wide.insert(0, ALL, wide.mean(axis=1))
        return wide

    @property
    def chosen(self) -> str:
        """The setting with the highest mean over methods; of equal ones the first."""
        return str(self.means[ALL].idxmax())

    def table(self) -> pd.DataFrame:
        """Return one row per setting, best first: ``mean ± half interval`` over seeds for all methods and for each.

        An asterisk marks the best setting of a column, by its mean.
        """
        means = self.means
        groups = self.scores.groupby(["setting", "seed"], sort=False)["score"].mean().reset_index()
        found = pd.concat([groups.assign(method=ALL), self.scores], ignore_index=True)
        table = intervals(found, "score", ["setting", "method"])
        table["text"] = interval_texts(table, digits=3)
        best = {name: str(means[name].idxmax()) for name in map(str, means)}
        is_best = [best[method] == setting for method, setting in zip(table["method"], table["setting"], strict=True)]
        table["text"] += np.where(is_best, " *", "")
        wide = table.pivot(index="setting", columns="method", values="text")
        order = means.sort_values(ALL, ascending=False, kind="stable").index
        wide = wide.loc[order, list(means)]
        return wide.rename(columns={name: method_named(name).label for name in METHODS}).rename_axis(columns=None)

    def costs(self) -> pd.DataFrame:
        """Return what the common setting costs each method: its own best setting, and that one's score minus this."""
        means, common = self.means, self.chosen
        rows = []
        for name in means.columns.drop(ALL):
            own = str(means[name].idxmax())
            paired = self.scores[self.scores["method"] == name].pivot(index="seed", columns="setting", values="score")
            rows.append(
                {
                    "track": self.track,
                    "method": method_named(str(name)).label,
                    "its own best setting": own,
                    "score there": means.loc[own, name],
                    "score with the common one": means.loc[common, name],
                    "cost": float((paired[own] - paired[common]).mean()),
                }
            )
        return pd.DataFrame(rows)


def tuning_study(
    settings: Profile, track: str, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> Tuning:
    """Train all methods with every combination of the choices and return their validation scores.

    Parameters
    ----------
    section : holds ``seeds`` and ``tracks``: for each track its ``score`` (a name of :data:`SCORES`) and ``choices``, a
        list of values per setting.
    train : False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    if track not in section["tracks"]:
        raise ConfigError(f"tuning: no grid for track {track!r}; tracks: {', '.join(section['tracks'])}")
    mine = section["tracks"][track]
    if mine["score"] not in SCORES:
        raise ConfigError(f"tuning: score must be one of {', '.join(SCORES)}, got {mine['score']!r}")
    variants = choices(settings, track, mine["choices"])
    studies = get_variants(settings, track, list(METHODS), section["seeds"], variants, folder, train=train)
    found = pd.concat([_scores(study, mine["score"]).assign(setting=words) for words, study in studies.items()])
    facts = next(iter(studies.values())).facts
    return Tuning(track, mine["score"], found.reset_index(drop=True), facts)


def choices(settings: Profile, track: str, values: Mapping[str, list[Any]]) -> dict[str, dict[str, Any]]:
    """Return the fields of every combination by its words, e.g. ``chunk 50, loss squared_error``."""
    names = list(values)
    combinations = [{n: getattr(c, n) for n in names} for c in grid(settings.config(track), **values)]
    return {", ".join(f"{name} {value}" for name, value in fields.items()): fields for fields in combinations}


def _scores(study: Study, score: str) -> pd.DataFrame:
    """Return the global model's score on the validation part after the last round, one row per run."""
    metrics = kept(study).table("classification_metrics")
    last = last_rounds(metrics[metrics["part"] == "val"])
    return last[["method", "seed"]].assign(score=last[score].to_numpy(float))
