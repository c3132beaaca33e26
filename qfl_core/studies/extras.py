"""Do the extras help? Each one is compared, over paired seeds, with its base: the same method without one switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis.compare import paired_values
from qfl_core.analysis.differences import HIGHER, LOWER, judge_differences, side_by_side
from qfl_core.analysis.kept import kept
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.tracks import tracks_facts
from qfl_core.base.errors import ConfigError
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_study

#: Each extra with its base.
BASES = {"scaffold-qfl": "duqfl-best", "duqfl-learned": "duqfl-prox"}
#: What is compared in the last round: column, title, and whether more of it is better.
METRICS = {
    "global_accuracy": ("Global accuracy", True),
    "test_roc_auc": ("ROC-AUC", True),
    "fairness_gap": ("Client fairness gap", False),
    "drift_from_broadcast": ("Client drift", False),
}
BETTER, WORSE = "better", "worse"


@dataclass(frozen=True, eq=False)
class ExtrasStudy:
    """The runs of the extras and their bases, one study per track."""

    studies: Mapping[str, Study]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says: the source of each track's data, then what all tracks share."""
        return tracks_facts(self.studies)

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row per track, extra and metric: extra - base in the last round, with its verdict.

        The columns are those of :func:`qfl_core.analysis.differences.judge_differences`; all rows form one family.
        ``verdict`` is ``better`` or ``worse`` instead of higher or lower.
        """
        keys = [(track, extra, metric) for track in self.studies for extra in BASES for metric in METRICS]
        values = {}
        for track, extra, metric in keys:
            paired = paired_values(self.studies[track].rounds, metric, (extra, BASES[extra]))
            values[track, extra, metric] = paired[extra] - paired[BASES[extra]]
        differences = pd.DataFrame(values).rename_axis(columns=["track", "extra", "metric"])
        margins = [of_metric(metric) for *_, metric in keys]
        table = judge_differences(differences, margins, "extras").reset_index()
        words = [
            {HIGHER: BETTER if METRICS[metric][1] else WORSE, LOWER: WORSE if METRICS[metric][1] else BETTER}
            for *_, metric in keys
        ]
        table["verdict"] = [word.get(told, told) for word, told in zip(words, table["verdict"], strict=True)]
        table.insert(2, "base", table["extra"].map(BASES))
        return table

    @cached_property
    def factors(self) -> pd.DataFrame:
        """How learning changed FedAvg's weights: one row per track, seed and client of the last round.

        ``factor`` is Theta_i over n_i / sum of n: 1 where nothing was learnt.
        """
        parts = []
        for track, study in self.studies.items():
            trace = study.of("duqfl-learned").table("client_trace")
            last = trace[(trace["round"] == trace["round"].max()) & (trace["unfold"] == 1)]
            share = last["client_size"] / last.groupby("seed")["client_size"].transform("sum")
            parts.append(last[["seed", "client"]].assign(track=track, factor=last["aggregation_weight"] / share))
        return pd.concat(parts, ignore_index=True)

    def verdicts(self) -> pd.DataFrame:
        """Return extra - base, as text: one row per extra and metric, one column per track."""
        titles = self.differences["metric"].map({name: title for name, (title, _) in METRICS.items()})
        return side_by_side(self.differences.assign(metric=titles), ["extra", "base", "metric"], "track")


def extras_study(
    settings: Profile, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> ExtrasStudy:
    """Compare the extras with their bases on the ``tracks`` and over the ``seeds`` that the profile's section lists.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    for name in ("tracks", "seeds"):
        if not section.get(name):
            raise ConfigError(f"extensions: {name} must list at least one value, got {section.get(name)!r}")
    methods = list(dict.fromkeys(name for pair in BASES.items() for name in reversed(pair)))
    seeds = section["seeds"]
    return ExtrasStudy(
        {track: kept(get_study(settings, track, methods, seeds, folder, train=train)) for track in section["tracks"]}
    )
