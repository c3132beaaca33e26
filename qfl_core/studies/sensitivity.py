"""What does DUQFL-Prox depend on? One setting at a time, and a learnt controller against a frozen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis.differences import judge_differences, side_by_side
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import kept
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.summary import interval_texts
from qfl_core.analysis.untrained import common_start
from qfl_core.analysis.variation import variation
from qfl_core.base.errors import ConfigError, did_you_mean
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
    """Runs of DUQFL-Prox at several levels of one setting, by track and level.

    ``base`` is the level that the others are compared with: the profile's own where it is among them, else the first.
    """

    name: str
    studies: Mapping[str, Mapping[Any, Study]]
    base: Any = None

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

    def start(self, metric: str) -> dict[str, float]:
        """Return the untrained model's mean of a metric by track, over round 0 of all runs."""
        return {track: common_start(levels.values(), metric) for track, levels in self.studies.items()}

    def gains(self, metric: str = "global_accuracy") -> pd.DataFrame:
        """Return each level minus the base over paired seeds, with its verdict: one row per track and level.

        The columns are those of :func:`qfl_core.analysis.differences.judge_differences`; all rows form one family.
        """
        groups = self.last.groupby(["track", "level"], sort=False)
        values = {key: rows.set_index("seed")[metric] for key, rows in groups}
        gains = {key: found - values[key[0], self.base] for key, found in values.items() if key[1] != self.base}
        differences = pd.DataFrame(gains).rename_axis(columns=["track", "level"])
        return judge_differences(differences, [of_metric(metric)] * len(gains), self.name).reset_index()

    def verdicts(self, metric: str = "global_accuracy") -> pd.DataFrame:
        """Return each level minus the base, as text: one row per level, one column per track."""
        return side_by_side(self.gains(metric), "level", "track")

    def summary(self) -> pd.DataFrame:
        """Return ``mean ± half interval`` of each metric, one row per track and level."""
        found = self.table()
        found["text"] = interval_texts(found, digits=3)
        wide = found.pivot(index=["track", "level"], columns="metric", values="text")
        order = self.last[["track", "level"]].drop_duplicates()
        return wide.loc[pd.MultiIndex.from_frame(order), list(METRICS)].rename(columns=METRICS)


@dataclass(frozen=True, eq=False)
class ControllerStudy(Sensitivity):
    """DUQFL-Prox with phi frozen, and with controllers that learn in different ways: its gains are learnt - frozen."""

    def rates(self) -> pd.DataFrame:
        """Return the mean eta and delta of the last round by track and level: how far the controller has moved."""
        rows = []
        for track, levels in self.studies.items():
            for level, study in levels.items():
                trace = study.table("client_trace")
                final = trace[trace["round"] == trace["round"].max()]
                rows.append({"track": track, "level": level, **final[["eta", "delta"]].mean()})
        return pd.DataFrame(rows)

    @cached_property
    def traces(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The client traces by track and level, without the frozen controllers, whose rates do not vary."""
        return {
            (track, str(level)): study.table("client_trace")
            for track, levels in self.studies.items()
            for level, study in levels.items()
            if level != FROZEN
        }

    def variations(self) -> pd.DataFrame:
        """Return how much eta and delta vary, in percent: one row per track, level, rate and ``across``."""
        found = [variation(trace).assign(track=key[0], level=key[1]) for key, trace in self.traces.items()]
        return pd.concat(found, ignore_index=True)


def sensitivity_study(
    settings: Profile, section: Mapping[str, Any], name: str, folder: Path | None = None, *, train: bool = True
) -> Sensitivity:
    """Vary one setting of :data:`SETTINGS` over the levels that the profile's section lists.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    if name not in SETTINGS:
        raise ConfigError(f"unknown sensitivity {name!r}{did_you_mean(name, SETTINGS)}; known: {', '.join(SETTINGS)}")
    variants = {level: SETTINGS[name].overrides(level) for level in _listed(section, name)}
    studies = _studies(settings, section, variants, folder, train)
    return Sensitivity(name, studies, _own_level(settings, section, variants))


def controller_study(
    settings: Profile, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> ControllerStudy:
    """Compare the learnt controllers that the section lists under ``controller`` with the frozen one.

    Its ``levels`` map the name of each controller to its settings, and ``tracks`` are where they run.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    section = controller_section(section)
    return ControllerStudy("controller", _studies(settings, section, section["levels"], folder, train), FROZEN)


def controller_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``sensitivity`` section with the tracks of its controllers, and ``levels`` with the frozen one first."""
    own = _listed(section, "controller")
    levels = {FROZEN: {"outer_period": 0}, **_listed(own, "levels")}
    return {**section, "tracks": _listed(own, "tracks"), "levels": levels}


def _own_level(settings: Profile, section: Mapping[str, Any], variants: Mapping[Any, Mapping[str, object]]) -> Any:
    """Return the level that changes nothing on the first track, or the first level where there is none."""
    config = settings.config(_listed(section, "tracks")[0])
    same = (level for level, overrides in variants.items() if config.replace(**overrides) == config)
    return next(same, next(iter(variants)))


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
        studies = get_variants(settings, track, [METHOD], _listed(section, "seeds"), together, folder, train=train)
        found[track] = {level: kept(study) for level, study in studies.items()}
    return found


def _listed(section: Mapping[str, Any], name: str) -> Any:
    if not section.get(name):
        raise ConfigError(f"sensitivity: {name} must list at least one value, got {section.get(name)!r}")
    return section[name]
