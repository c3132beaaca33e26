"""Do the extras help? Each one beside the method that it is without its own switch, over paired seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis import compare
from qfl_core.analysis.compare import paired_values
from qfl_core.analysis.inference import step_down
from qfl_core.base.errors import ConfigError
from qfl_core.base.streams import stream
from qfl_core.config import Profile
from qfl_core.runs.study import Study, read_study, run_study

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
    """The extras and their bases on several tracks, by track."""

    studies: Mapping[str, Study]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says: the source of each track's data, then what all tracks share."""
        sources = {track: study.rounds["source"].iloc[0] for track, study in self.studies.items()}
        data = ", ".join(f"{track} {source}" for track, source in sources.items())
        return (f"data: {data}", *next(iter(self.studies.values())).facts[1:])

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row a track, extra and metric: extra - base in the last round.

        ``low`` and ``high`` bound the mean difference (95 %), ``p`` is the sign-flip test's, corrected for all rows
        together, and ``verdict`` is ``better`` or ``worse`` where both agree, else ``no difference shown``.
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
        """What learning made of FedAvg's weights, a row a track, seed and client of the last round.

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
        """Return what the seeds show of each extra, in a sentence."""
        lines = []
        for extra, rows in self.differences.groupby("extra", sort=False):
            told = [
                f"{METRICS[row.metric][0].lower()} on {row.track} {row.verdict} ({row.mean:+.3f})"
                for row in rows[rows["verdict"] != NO_DIFFERENCE].itertuples()
            ]
            outcome = "; ".join(told) or NO_DIFFERENCE
            lines.append(
                f"{extra} against {BASES[extra]}, {len(rows)} comparisons over {rows['seeds'].min()} seeds: {outcome}"
            )
        return "\n".join(lines)


def run_extras(settings: Profile, part: Mapping[str, Any], folder: Path | None = None) -> ExtrasStudy:
    """Run the extras and their bases on the part's ``tracks`` over its ``seeds``, finished runs excepted."""
    return _extras(settings, part, folder, run_study)


def read_extras(settings: Profile, part: Mapping[str, Any], folder: Path | None = None) -> ExtrasStudy:
    """Return the same from saved runs alone; :class:`qfl_core.base.errors.RunError` where some are missing."""
    return _extras(settings, part, folder, read_study)


def _extras(settings: Profile, part: Mapping[str, Any], folder: Path | None, get: Callable) -> ExtrasStudy:
    for name in ("tracks", "seeds"):
        if not part.get(name):
            raise ConfigError(f"extensions: {name} must list at least one value, got {part.get(name)!r}")
    methods = list(dict.fromkeys(name for pair in BASES.items() for name in reversed(pair)))
    return ExtrasStudy({track: get(settings, track, methods, part["seeds"], folder) for track in part["tracks"]})
