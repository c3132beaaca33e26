"""What does DUQFL-Prox depend on? One setting at a time, and a learnt controller against a frozen one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis.inference import intervals
from qfl_core.analysis.summary import interval_texts
from qfl_core.base.errors import ConfigError, did_you_mean
from qfl_core.base.numbers import interval, significant
from qfl_core.config import Profile
from qfl_core.runs.study import Study, get_variants

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
    """A setting to vary: its axis label, and the config's fields for a level."""

    label: str
    overrides: Callable[[Any], Mapping[str, Any]]


SETTINGS: dict[str, Setting] = {
    "mu": Setting("proximal coefficient μ", lambda level: {"mu": level}),
    "skew_ratio": Setting("share of a client's preferred label", lambda level: {"skew_ratio": level}),
    "dirichlet_alpha": Setting("Dirichlet concentration α", _dirichlet),
    "clients": Setting("clients N", lambda level: {"clients": level}),
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
        """Return ``mean ± half interval`` of each metric, one row per track and level."""
        found = self.table()
        found["text"] = interval_texts(found, digits=3)
        wide = found.pivot(index=["track", "level"], columns="metric", values="text")
        order = self.last[["track", "level"]].drop_duplicates()
        return wide.loc[pd.MultiIndex.from_frame(order), list(METRICS)].rename(columns=METRICS)


@dataclass(frozen=True, eq=False)
class ControllerStudy(Sensitivity):
    """DUQFL-Prox with phi frozen, and with phi refined every m rounds at rate alpha_out: levels ``(m, alpha_out)``."""

    def gains(self, metric: str = "global_accuracy") -> pd.DataFrame:
        """Return learnt - frozen over paired seeds: one row per track and level.

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
        """Return one sentence per track on the outcome."""
        lines = []
        for track, rows in self.gains(metric).groupby("track", sort=False):
            higher, lower = (int((rows["verdict"] == word).sum()) for word in ("higher", "lower"))
            best = rows.iloc[int(rows["mean"].argmax())]
            largest = interval(best["mean"], best["low"], best["high"], signed=True)
            lines.append(
                f"{track}: of {len(rows)} learnt controllers, {higher} end with higher {METRICS[metric].lower()} than "
                f"phi frozen, {lower} with lower; the largest difference is {largest} at {best['level']} over "
                f"{int(best['seeds'])} seeds"
            )
        return "\n".join(lines)


def sensitivity_study(
    settings: Profile, section: Mapping[str, Any], name: str, folder: Path | None = None, *, train: bool = True
) -> Sensitivity:
    """Vary one setting of :data:`SETTINGS` over the levels that the profile's section lists.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    if name not in SETTINGS:
        raise ConfigError(f"unknown sensitivity {name!r}{did_you_mean(name, SETTINGS)}; known: {', '.join(SETTINGS)}")
    variants = {level: SETTINGS[name].overrides(level) for level in _listed(section, name)}
    return Sensitivity(name, _studies(settings, section, variants, folder, train))


def controller_study(
    settings: Profile, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> ControllerStudy:
    """Compare the learnt controllers that the section lists under ``controller`` with the frozen one.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    grid = _listed(section, "controller")
    variants = {FROZEN: {"outer_period": 0}} | {
        f"m = {period}, α = {significant(rate, 6)}": {"outer_period": period, "outer_learning_rate": rate}
        for period, rate in itertools.product(grid["outer_period"], grid["outer_learning_rate"])
    }
    return ControllerStudy("controller", _studies(settings, section, variants, folder, train))


def _studies(
    settings: Profile,
    section: Mapping[str, Any],
    variants: Mapping[Any, Mapping[str, object]],
    folder: Path | None,
    train: bool,
) -> dict[str, dict[Any, Study]]:
    """Return the studies by track and level; the section's ``settings`` are what a track changes for all levels."""
    found = {}
    for track in _listed(section, "tracks"):
        own = (section.get("settings") or {}).get(track, {})
        together = {level: {**own, **overrides} for level, overrides in variants.items()}
        found[track] = get_variants(settings, track, [METHOD], _listed(section, "seeds"), together, folder, train=train)
    return found


def _listed(section: Mapping[str, Any], name: str) -> Any:
    if not section.get(name):
        raise ConfigError(f"sensitivity: {name} must list at least one value, got {section.get(name)!r}")
    return section[name]
