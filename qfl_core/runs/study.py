"""A study: the runs of some methods over some seeds on one track, with what its tables and figures need."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pandas as pd

from qfl_core.base.errors import RunError
from qfl_core.base.files import write_text
from qfl_core.base.numbers import counted
from qfl_core.base.paths import results_dir
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data import data_source, load_splits
from qfl_core.data.audit import audit
from qfl_core.runs import RunResult, finished_run, tidy
from qfl_core.runs.sweep import grid, sweep

#: The references that figures draw: what knowing nothing scores, and two classical models on the same angles.
REFERENCES = ("majority class", "logistic regression", "gradient boosting")


@dataclass(frozen=True, eq=False)
class Study:
    """Finished runs that differ in method and seed only; ``folder`` is the results folder that holds them."""

    track: str
    profile: str
    runs: tuple[RunResult, ...]
    folder: Path

    @property
    def methods(self) -> list[str]:
        """The methods, in the order given."""
        return list(dict.fromkeys(run.config.method for run in self.runs))

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """All rounds of all runs, see :func:`qfl_core.runs.tidy`."""
        return tidy(self.runs)

    def table(self, name: str) -> pd.DataFrame:
        """Return another table of :data:`qfl_core.runs.schema.SCHEMA`, all runs together."""
        return tidy(self.runs, name)

    def of(self, *methods: str) -> Study:
        """Return the part of the study with these methods, in this order."""
        return replace(self, runs=tuple(run for name in methods for run in self.runs if run.config.method == name))

    def at(self, seed: int) -> Study:
        """Return the part of the study with this seed."""
        return replace(self, runs=tuple(run for run in self.runs if run.config.seed == seed))

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says of these runs."""
        return facts(self.runs, self.profile)

    @cached_property
    def reference_scores(self) -> pd.DataFrame:
        """Scores of the classical references on the same splits: one row per seed and model."""
        return reference_scores({run.config.seed: run.config for run in self.runs}.values(), self.folder)

    def references(self, metric: str = "accuracy") -> dict[str, float]:
        """Return each reference's mean over the seeds."""
        means = self.reference_scores.groupby("model", sort=False)[metric].mean()
        return {name: float(means[name]) for name in REFERENCES}


#: The name of a variant of a track's settings, e.g. a level of one setting.
Level = TypeVar("Level", bound=Hashable)


def get_study(
    settings: Profile,
    track: str,
    methods: Iterable[str],
    seeds: Sequence[int],
    folder: Path | None = None,
    *,
    train: bool = True,
    **overrides: object,
) -> Study:
    """Return the runs of the methods over the seeds as a study; train those that are not finished yet.

    A saved run counts only if config, data and code are the same.

    Parameters
    ----------
    folder : the results folder; ``results/<profile>`` by default.
    train : False reads saved runs alone.
    overrides : settings that win over the profile's.

    Raises
    ------
    RunError
        When ``train`` is False and runs are missing: the message names them.
    """
    return get_variants(settings, track, methods, seeds, {track: overrides}, folder, train=train)[track]


def get_variants(
    settings: Profile,
    track: str,
    methods: Iterable[str] | None,
    seeds: Sequence[int],
    variants: Mapping[Level, Mapping[str, object]],
    folder: Path | None = None,
    *,
    train: bool = True,
) -> dict[Level, Study]:
    """Return one study per variant of the track's settings; one sweep trains what is missing in any of them.

    ``variants`` maps the name of each variant to the settings that it changes; all else is as in :func:`get_study`.
    With ``methods`` None, every variant names its own ``method``.
    """
    folder = folder or results_dir(settings.name)
    choices: dict[str, list[object]] = (
        {"seed": list(seeds)} if methods is None else {"method": list(methods), "seed": list(seeds)}
    )
    configs = {name: grid(settings.config(track, **overrides), **choices) for name, overrides in variants.items()}
    wanted = list(dict.fromkeys(config for group in configs.values() for config in group))
    data = data_source(wanted[0]).sha256
    runs: dict[ExperimentConfig, RunResult] = {}
    missing = []
    for config in wanted:
        run = finished_run(config, data, folder)
        if run is None:
            missing.append(config)
        else:
            runs[config] = run
    if missing and not train:
        raise RunError(_not_there(missing, track, settings.name))
    if missing:
        runs |= zip(missing, sweep(missing, folder), strict=True)
    return {
        name: Study(track, settings.name, tuple(runs[config] for config in group), folder)
        for name, group in configs.items()
    }


def _not_there(missing: list[ExperimentConfig], track: str, profile: str) -> str:
    some = ", ".join(f"{config.method} seed {config.seed}" for config in missing[:4])
    return (
        f"{len(missing)} runs of track {track!r} are not in results/{profile} for this code and data "
        f"({some}{', ...' if len(missing) > 4 else ''}); run notebooks 02 to 04 first: make reproduce"
    )


def facts(runs: Sequence[RunResult], profile: str) -> tuple[str, ...]:
    """Return what a figure's footer says of its runs: data source, engine and shots, seeds, profile."""
    sources = sorted({run.environment["data"]["source"] for run in runs})
    engines = sorted({f"{run.environment['engine']['engine']} ({run.environment['engine']['kind']})" for run in runs})
    seeds = counted(len({run.config.seed for run in runs}), "seed")
    return (
        f"data: {', '.join(sources)}",
        f"engine: {', '.join(engines)}",
        seeds,
        f"profile {profile}",
    )


def facts_by_track(studies: Mapping[str, Study]) -> str:
    """Return the facts of several studies in one line, for the note below a table."""
    return "; ".join(f"{track}: {', '.join(study.facts)}" for track, study in studies.items())


def reference_scores(configs: Iterable[ExperimentConfig], folder: Path) -> pd.DataFrame:
    """Return the classical references' scores on each config's splits; kept in ``references/`` of the folder."""
    tables = []
    for config in configs:
        splits = load_splits(config)
        # The angles and labels themselves name the file: whatever changes them changes it.
        digest = hashlib.sha256()
        for part in splits.parts.values():
            digest.update(part.X.tobytes() + part.y.tobytes())
        path = folder / "references" / f"{config.dataset}-{config.encoding}-{digest.hexdigest()[:12]}.csv"
        if not path.is_file():
            _store(path, audit(splits, config.seed, models=REFERENCES))
        tables.append(pd.read_csv(path).assign(seed=config.seed))
    return pd.concat(tables, ignore_index=True)


def _store(path: Path, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.to_csv(lineterminator="\n"))
