"""What does client-level differential privacy cost, and how many clients make it affordable?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from qfl_core.analysis.differences import judge_differences, side_by_side
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import kept
from qfl_core.analysis.margins import of_metric
from qfl_core.analysis.tracks import tracks_facts
from qfl_core.analysis.untrained import common_start
from qfl_core.base.errors import ConfigError
from qfl_core.config import Profile, track_dataset
from qfl_core.runs.study import Study, get_variants

METHOD = "duqfl-prox"
#: How a track is scored: ROC-AUC where one class is rare, else accuracy.
METRICS = {"baf": "test_roc_auc"}
NAMES = {"test_roc_auc": "ROC-AUC", "global_accuracy": "accuracy"}


def metric_of(track: str) -> str:
    """Return the column that a track is scored by."""
    return METRICS.get(track_dataset(track), "global_accuracy")


class Case(NamedTuple):
    """So many clients, and the noise multiplier z of a round's sum; -1 is a run without clipping and noise."""

    clients: int
    noise: float

    @property
    def is_private(self) -> bool:
        """Whether the steps are clipped."""
        return self.noise >= 0

    def overrides(self) -> dict[str, Any]:
        """Return the config's fields."""
        noise = {"dp_noise": self.noise} if self.is_private else {}
        return {"clients": self.clients, "outer_period": 0, **noise}


#: The noise of a run that is not private.
OPEN = -1.0


@dataclass(frozen=True, eq=False)
class PrivacyStudy:
    """Runs of DUQFL-Prox by track and case."""

    studies: Mapping[str, Mapping[Case, Study]]

    @property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says: the source of each track's data, delta, then what all tracks share."""
        data, *shared = tracks_facts({track: next(iter(cases.values())) for track, cases in self.studies.items()})
        private = next(study for cases in self.studies.values() for case, study in cases.items() if case.is_private)
        config = private.runs[0].config
        told = f"clip {config.dp_clip:g}, δ = {config.dp_delta:g}"
        return (data, told, *shared)

    @cached_property
    def epsilons(self) -> dict[tuple[str, Case], float]:
        """Epsilon after the last round, by track and case: against all who see the models; inf without noise.

        All seeds of a case have the same, because everybody takes part in every round.
        """
        return {
            (track, case): study.runs[0].rows("privacy")[-1]["epsilon"] if case.is_private else np.inf
            for track, cases in self.studies.items()
            for case, study in cases.items()
        }

    def table(self) -> pd.DataFrame:
        """Return mean, low and high (95 % over seeds) of the last round's score, one row per track and case."""
        parts = []
        for track, cases in self.studies.items():
            scores = pd.concat(
                [
                    pd.DataFrame({"score": self._last(track, case)}).assign(track=track, **case._asdict())
                    for case in cases
                ]
            )
            found = intervals(scores, "score", ["track", *Case._fields])
            keys = zip(found["clients"], found["noise"], strict=True)
            parts.append(found.assign(epsilon=[self.epsilons[track, Case(*key)] for key in keys]))
        return pd.concat(parts, ignore_index=True)

    def start(self, track: str) -> float:
        """Return what the untrained model scores on a track: the mean over round 0 of all runs."""
        return common_start(self.studies[track].values(), metric_of(track))

    def _last(self, track: str, case: Case) -> pd.Series:
        rounds = self.studies[track][case].rounds
        return rounds[rounds["round"] == rounds["round"].max()].set_index("seed")[metric_of(track)]

    @cached_property
    def differences(self) -> pd.DataFrame:
        """One row per track and private case: its score - that of as many clients without privacy, over paired seeds.

        All rows form one family.
        """
        values, margins = {}, []
        for track, cases in self.studies.items():
            for case in cases:
                if case.is_private:
                    values[track, *case] = self._last(track, case) - self._last(track, Case(case.clients, OPEN))
                    margins.append(of_metric(metric_of(track)))
        found = pd.DataFrame(values).rename_axis(columns=["track", *Case._fields])
        judged = judge_differences(found, margins, "privacy").reset_index()
        keys = zip(judged["track"], judged["clients"], judged["noise"], strict=True)
        judged.insert(3, "epsilon", [self.epsilons[track, Case(n, z)] for track, n, z in keys])
        return judged

    def verdicts(self) -> pd.DataFrame:
        """Return what privacy changes, as text: one row per track and number of clients, one column per noise."""
        judged = self.differences
        noises = ["clipping alone" if noise == 0 else f"noise z = {noise:g}" for noise in judged["noise"]]
        names = [f"{track}, {NAMES[metric_of(track)]}" for track in judged["track"]]
        wide = side_by_side(judged.assign(track=names, noise=noises), ["track", "clients"], "noise")
        return wide.rename_axis(columns=None)

    def budgets(self) -> pd.DataFrame:
        """Return epsilon after the last round: one row per track, one column per noise that hides something."""
        rows = {(track, case.noise): spent for (track, case), spent in self.epsilons.items() if case.noise > 0}
        return pd.Series(rows).unstack(sort=False).rename_axis(index="track", columns="noise z")


def privacy_variants(section: Mapping[str, Any], track: str) -> dict[Case, dict[str, Any]]:
    """Return the settings of every case of a track; the section's ``settings`` hold for all cases of a track."""
    own = (section.get("settings") or {}).get(track, {})
    cases = [Case(n, float(z)) for n, z in itertools.product(section["clients"], (OPEN, *section["noise"]))]
    return {case: {"dp_clip": section["clip"], **own, **case.overrides()} for case in cases}


def privacy_study(
    settings: Profile, section: Mapping[str, Any], folder: Path | None = None, *, train: bool = True
) -> PrivacyStudy:
    """Run every number of clients of the profile's section with every noise, over its seeds.

    ``train`` False reads saved runs alone, see :func:`qfl_core.runs.study.get_study`.
    """
    for name in ("tracks", "seeds", "clients", "noise", "clip"):
        if not section.get(name):
            raise ConfigError(f"privacy: {name} must have at least one value, got {section.get(name)!r}")
    found = {}
    for track in section["tracks"]:
        variants = privacy_variants(section, track)
        studies = get_variants(settings, track, [METHOD], section["seeds"], variants, folder, train=train)
        found[track] = {case: kept(study) for case, study in studies.items()}
    return PrivacyStudy(found)
