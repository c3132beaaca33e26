"""Do the extras help? Each one is compared, over paired seeds, with its base: the same method without one switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis import compare
from qfl_core.analysis.compare import paired_values
from qfl_core.analysis.inference import step_down
from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import number
from qfl_core.base.streams import stream
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_study

#: Each extra with its base.
BASES = {"scaffold-qfl": "duqfl-best", "duqfl-learned": "duqfl-prox"}
#: What is compared in the last round: column, title, and whether more of it is better.
METRICS = {
    "global_accuracy": ("Global accuracy", True),
    "test_roc_auc": ("ROC-AUC", True),
    "fairness_gap": ("Client fairness gap", False),
    "drift": ("Client drift", False),
}
LEVEL, NO_DIFFERENCE = 0.05, "no difference shown"


@dataclass(frozen=True, eq=False)
class ExtrasStudy:
    """The runs of the extras and their bases, one study per track."""

    studies: Mapping[str, Study]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says: the source of each track's data, then what all tracks share."""
        sources = {track: study.rounds["source"].iloc[0] for track, study in self.studies.items()}
        data = ", ".join(f"{track} {source}" for track, source in sources.items())
        return (f"data: {data}", *next(iter(self.studies.values())).facts[1:])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row per track, extra and metric: extra - base in the last round.

        ``low`` and ``high`` bound the mean difference (95 %), and ``p`` comes from the sign-flip test, corrected for
        all rows. ``verdict`` is ``better`` or ``worse`` where interval and test agree, else ``no difference shown``.
        """
        rows, values = [], {}
        for track, study in self.studies.items():
            for extra, base in BASES.items():
                for metric, (_, more_is_better) in METRICS.items():
                    found = compare(study.of(extra, base).runs, metric, extra, base)
                    paired = paired_values(study.rounds, metric, (extra, base))
                    values[track, extra, metric] = paired[extra] - paired[base]
                    rows.append(
                        {
                            "track": track,
                            "extra": extra,
                            "base": base,
                            "metric": metric,
                            "mean": found.difference,
                            "low": found.low,
                            "high": found.high,
                            "seeds": found.n,
                            "sign": 1 if more_is_better else -1,
                        }
                    )
        table = pd.DataFrame(rows)
        table["p"] = step_down(pd.DataFrame(values).to_numpy(), stream(0, "extras"))
        shown = (table["p"] <= LEVEL) & (table["low"] * table["high"] > 0)
        table["verdict"] = NO_DIFFERENCE
        table.loc[shown & (table["mean"] * table["sign"] > 0), "verdict"] = "better"
        table.loc[shown & (table["mean"] * table["sign"] < 0), "verdict"] = "worse"
        return table.drop(columns="sign")

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

    def verdict(self) -> str:
        """Return one sentence per extra: what the seeds show of it."""
        lines = []
        for extra, base in BASES.items():
            rows = self.differences[self.differences["extra"] == extra]
            shown = rows[rows["verdict"] != NO_DIFFERENCE]
            told = [
                f"{METRICS[metric][0].lower()} on {track} {verdict} ({number(mean, signed=True)})"
                for metric, track, verdict, mean in zip(
                    *(shown[column] for column in ("metric", "track", "verdict", "mean")), strict=True
                )
            ]
            outcome = "; ".join(told) or NO_DIFFERENCE
            lines.append(f"{extra} against {base}, {len(rows)} comparisons over {rows['seeds'].min()} seeds: {outcome}")
        return "\n".join(lines)


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
        {track: get_study(settings, track, methods, seeds, folder, train=train) for track in section["tracks"]}
    )
