"""What DUQFL-Prox depends on: one setting at a time, and the controller against itself with phi frozen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis import intervals
from qfl_core.base.errors import ConfigError, did_you_mean
from qfl_core.config import Profile
from qfl_core.runs.study import Study, read_variants, run_variants

METHOD = "duqfl-prox"
#: The metrics of every sensitivity figure: column of the last round and title.
METRICS = {
    "global_accuracy": "Global accuracy",
    "test_roc_auc": "ROC-AUC",
    "train_test_gap": "Train-test gap",
    "fairness_gap": "Client fairness gap",
}
IID, FROZEN = "iid", "frozen"


def _dirichlet(level: Any) -> dict[str, Any]:
    if level == IID:
        return {"split": "iid"}
    # The rarest class has fewer rows than an even share for many clients would need.
    return {"split": "dirichlet", "dirichlet_alpha": level, "min_per_class": 0}


@dataclass(frozen=True)
class Setting:
    """A setting to vary: its axis label, whether the axis is logarithmic, and the config's fields for a level."""

    label: str
    overrides: Callable[[Any], Mapping[str, Any]]
    is_log: bool = False


SETTINGS: dict[str, Setting] = {
    "mu": Setting("proximal coefficient μ", lambda level: {"mu": level}, is_log=True),
    "skew_ratio": Setting("share of a client's preferred label", lambda level: {"skew_ratio": level}),
    "dirichlet_alpha": Setting("Dirichlet concentration α", _dirichlet, is_log=True),
    "clients": Setting("clients N", lambda level: {"clients": level}, is_log=True),
    "participation": Setting("share of clients in a round", lambda level: {"participation": level}),
}


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Runs of DUQFL-Prox at several levels of one setting, by track and level."""

    name: str
    studies: Mapping[str, Mapping[Any, Study]]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says."""
        return next(iter(next(iter(self.studies.values())).values())).facts

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last round of every run, with its track and level."""
        parts = []
        for track, levels in self.studies.items():
            for level, study in levels.items():
                rounds = study.rounds
                parts.append(rounds[rounds["round"] == rounds["round"].max()].assign(track=track, level=level))
        return pd.concat(parts, ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Return mean, low and high (95 % over seeds) of each metric by track and level."""
        found = [intervals(self.last, metric, ["track", "level"]).assign(metric=metric) for metric in METRICS]
        return pd.concat(found, ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """Return ``mean ± half interval`` of each metric, one row a track and level."""
        found = self.table()
        half = (found["high"] - found["low"]) / 2
        found["text"] = found["mean"].map("{:.3f}".format) + half.map(" ± {:.3f}".format)
        wide = found.pivot(index=["track", "level"], columns="metric", values="text")
        order = self.last[["track", "level"]].drop_duplicates()
        return wide.loc[pd.MultiIndex.from_frame(order), list(METRICS)].rename(columns=METRICS)


@dataclass(frozen=True, eq=False)
class ControllerStudy(Sensitivity):
    """DUQFL-Prox with phi frozen, and with phi refined every m rounds at rate alpha_out: levels ``(m, alpha_out)``."""

    def gains(self, metric: str = "global_accuracy") -> pd.DataFrame:
        """Return learnt - frozen over paired seeds: one row a track and level.

        Intervals hold together for all levels of a track (Bonferroni). The verdict is ``higher``, ``lower`` or ``no
        difference shown``.
        """
        wide = self.last.pivot(index=["track", "seed"], columns="level", values=metric)
        gains = wide.drop(columns=[FROZEN]).sub(wide[FROZEN], axis=0)
        tidy = gains.melt(ignore_index=False, var_name="level", value_name="gain").reset_index()
        found = intervals(tidy, "gain", ["track", "level"], 1 - 0.05 / gains.shape[1])
        found["verdict"] = "no difference shown"
        found.loc[found["low"] > 0, "verdict"] = "higher"
        found.loc[found["high"] < 0, "verdict"] = "lower"
        return found

    def rates(self) -> pd.DataFrame:
        """Return the mean eta and delta of the last round by track and level: how far the controller has moved."""
        rows = []
        for track, levels in self.studies.items():
            for level, study in levels.items():
                trace = study.table("client_trace")
                final = trace[trace["round"] == trace["round"].max()]
                rows.append({"track": track, "level": level, **final[["eta", "delta"]].mean()})
        return pd.DataFrame(rows)

    def verdict(self, metric: str = "global_accuracy") -> str:
        """Return the outcome in a sentence for each track."""
        lines = []
        for track, rows in self.gains(metric).groupby("track", sort=False):
            higher, lower = (int((rows["verdict"] == word).sum()) for word in ("higher", "lower"))
            best = rows.loc[rows["mean"].idxmax()]
            lines.append(
                f"{track}: of {len(rows)} learnt controllers, {higher} end with higher {METRICS[metric].lower()} than "
                f"phi frozen, {lower} with lower; the largest difference is {best['mean']:+.3f} "
                f"[{best['low']:+.3f}, {best['high']:+.3f}] at {best['level']} over {int(best['seeds'])} seeds"
            )
        return "\n".join(lines)


def run_sensitivity(settings: Profile, part: Mapping[str, Any], name: str, folder: Path | None = None) -> Sensitivity:
    """Vary one setting of :data:`SETTINGS` over the levels that the part lists, finished runs excepted."""
    return _vary(settings, part, name, folder, run_variants)


def read_sensitivity(settings: Profile, part: Mapping[str, Any], name: str, folder: Path | None = None) -> Sensitivity:
    """Return the same from saved runs alone; :class:`qfl_core.base.errors.RunError` where some are missing."""
    return _vary(settings, part, name, folder, read_variants)


def run_controller(settings: Profile, part: Mapping[str, Any], folder: Path | None = None) -> ControllerStudy:
    """Run the learnt controllers of the part's ``controller`` section and the frozen one."""
    return _controllers(settings, part, folder, run_variants)


def read_controller(settings: Profile, part: Mapping[str, Any], folder: Path | None = None) -> ControllerStudy:
    """Return the same from saved runs alone."""
    return _controllers(settings, part, folder, read_variants)


def _vary(settings: Profile, part: Mapping[str, Any], name: str, folder: Path | None, get: Callable) -> Sensitivity:
    if name not in SETTINGS:
        raise ConfigError(f"unknown sensitivity {name!r}{did_you_mean(name, SETTINGS)}; known: {', '.join(SETTINGS)}")
    variants = {level: SETTINGS[name].overrides(level) for level in _listed(part, name)}
    return Sensitivity(name, _studies(settings, part, variants, folder, get))


def _controllers(settings: Profile, part: Mapping[str, Any], folder: Path | None, get: Callable) -> ControllerStudy:
    grid = _listed(part, "controller")
    variants = {FROZEN: {"outer_period": 0}} | {
        f"m = {period}, α = {rate:g}": {"outer_period": period, "outer_learning_rate": rate}
        for period, rate in itertools.product(grid["outer_period"], grid["outer_learning_rate"])
    }
    return ControllerStudy("controller", _studies(settings, part, variants, folder, get))


def _studies(
    settings: Profile, part: Mapping[str, Any], variants: Mapping, folder: Path | None, get: Callable
) -> dict[str, dict[Any, Study]]:
    """Return the studies by track and level; ``settings`` of the part holds what a track changes for all of them."""
    found = {}
    for track in _listed(part, "tracks"):
        own = (part.get("settings") or {}).get(track, {})
        together = {level: {**own, **overrides} for level, overrides in variants.items()}
        found[track] = get(settings, track, [METHOD], _listed(part, "seeds"), together, folder)
    return found


def _listed(part: Mapping[str, Any], name: str) -> Any:
    if not part.get(name):
        raise ConfigError(f"sensitivity: {name} must list at least one value, got {part.get(name)!r}")
    return part[name]
