"""What the other choices change: alternatives against the profile's own settings, over paired seeds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qfl_core.analysis.inference import intervals
from qfl_core.analysis.summary import last_rounds
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.runs.study import Study, get_variants
from qfl_core.studies.fidelity.choices import CHOICES, Choice

#: First of the seeds; no profile reports or searches with one of them.
FIRST_SEED = 2000
SEEDS = tuple(range(FIRST_SEED, FIRST_SEED + 30))
#: What is compared in the last round: column and its short name.
METRICS = {"global_accuracy": "global", "client_test_accuracy": "client", "train_test_gap": "gap"}
COLUMNS = ("choice", "alternative", "method", "track", "metric", "mean", "low", "high", "seeds", "settings")
_OURS = "ours"


def applicable(choices: Iterable[Choice], track: str) -> list[Choice]:
    """Return the choices that exist on a track."""
    return [choice for choice in choices if choice.tracks is None or track in choice.tracks]


def settings_digest(base: ExperimentConfig, choice: Choice, name: str) -> str:
    """Return what names the two compared settings: numbers that were measured with others are out of date.

    Fields with their default value are left out, so that a new field of the config makes no number out of date.
    """
    both = (base, base.replace(**choice.changes(base, name)))
    plain = ExperimentConfig(dataset=base.dataset).to_dict()
    facts = [
        {
            key: value
            for key, value in config.replace(method=choice.method, seed=0).to_dict().items()
            if key == "dataset" or value != plain[key]
        }
        for config in both
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def measure(
    settings: Profile,
    seeds: Sequence[int] = SEEDS,
    folder: Path | None = None,
    choices: Sequence[Choice] = CHOICES,
) -> pd.DataFrame:
    """Train every alternative and the profile's settings, and return their differences in the last round.

    A finished run is read and not repeated, so an interrupted call goes on where it was.

    Returns
    -------
    One row per choice, alternative, track and metric: alternative - ours, the mean over paired seeds with its 95 %
    interval (Student's), in the columns :data:`COLUMNS`.
    """
    rows = []
    for track in settings.datasets:
        base = settings.config(track)
        here = applicable(choices, track)
        for method in dict.fromkeys(choice.method for choice in here if choice.alternatives):
            mine = {choice.key: choice for choice in here if choice.method == method}
            asked = {
                (key, name): changes for key, choice in mine.items() for name, changes in choice.to_train(base).items()
            }
            variants: dict[Any, Mapping[str, object]] = {_OURS: {}, **asked}
            studies = get_variants(settings, track, [method], seeds, variants, folder)
            for key, name in asked:
                found = _differences(studies[_OURS], studies[key, name])
                told = {"choice": key, "alternative": name, "method": method, "track": track}
                digest = settings_digest(base, mine[key], name)
                rows.append(found.assign(**told, settings=digest))
    table = pd.concat(rows, ignore_index=True)
    place = {choice.key: number for number, choice in enumerate(choices)}
    table = table.sort_values("choice", key=lambda keys: keys.map(place), kind="stable", ignore_index=True)
    return table[list(COLUMNS)]


def _differences(ours: Study, other: Study) -> pd.DataFrame:
    """Return other - ours in each one's last round: mean, low, high and seeds, one row per metric."""
    last = [last_rounds(study.rounds).set_index("seed")[list(METRICS)] for study in (ours, other)]
    tidy = (last[1] - last[0]).melt(var_name="metric", value_name="difference")
    return intervals(tidy, "difference", ["metric"])
