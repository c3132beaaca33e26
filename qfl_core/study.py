"""A study: some methods over seeds on one track, run or only read, with what its tables and figures need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from qfl_core.analysis import facts
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data import load_splits
from qfl_core.data.audit import audit
from qfl_core.errors import RunError
from qfl_core.paths import results_dir
from qfl_core.records import write_text
from qfl_core.runs import RunResult, finished_run, tidy
from qfl_core.sweep import grid, sweep

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
        """Return another table of :data:`qfl_core.records.SCHEMA`, all runs together."""
        return tidy(self.runs, name)

    def of(self, *methods: str) -> Study:
        """Return the part of the study with these methods, in this order."""
        return replace(self, runs=tuple(run for name in methods for run in self.runs if run.config.method == name))

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """What a figure's footer says of these runs."""
        return facts(self.runs, self.profile)

    @cached_property
    def reference_scores(self) -> pd.DataFrame:
        """Scores of the classical references on the same splits: one row a seed and model."""
        return reference_scores({run.config.seed: run.config for run in self.runs}.values(), self.folder)

    def references(self, metric: str = "accuracy") -> dict[str, float]:
        """Return each reference's mean over the seeds."""
        means = self.reference_scores.groupby("model", sort=False)[metric].mean()
        return {name: float(means[name]) for name in REFERENCES}


#: Settings by the name of a variant: what each changes of the track's config.
Variants = Mapping[str, Mapping[str, object]]


def run_study(
    settings: Profile,
    track: str,
    methods: Iterable[str],
    seeds: Sequence[int],
    folder: Path | None = None,
    **overrides: object,
) -> Study:
    """Run the methods over the seeds, finished runs excepted, and return them as a study.

    ``folder`` is ``results/<profile>`` where none is named; ``overrides`` win over the profile's settings.
    """
    return run_variants(settings, track, methods, seeds, {track: overrides}, folder)[track]


def read_study(
    settings: Profile,
    track: str,
    methods: Iterable[str],
    seeds: Sequence[int],
    folder: Path | None = None,
    **overrides: object,
) -> Study:
    """Return the study from saved runs alone: those of this config, this data and this code.

    Raises
    ------
    RunError
        When some are missing: it names them, and nothing is trained.
    """
    return read_variants(settings, track, methods, seeds, {track: overrides}, folder)[track]


def run_variants(
    settings: Profile,
    track: str,
    methods: Iterable[str],
    seeds: Sequence[int],
    variants: Variants,
    folder: Path | None = None,
) -> dict[str, Study]:
    """Run a study for each variant of the track's settings, all in one sweep; finished runs are only read."""
    folder = folder or results_dir(settings.name)
    configs = _configs(settings, track, methods, seeds, variants)
    found = _finished(configs, folder)
    missing = [config for config, run in found.items() if run is None]
    found |= dict(zip(missing, sweep(missing, folder), strict=True)) if missing else {}
    return _studies(settings, track, configs, found, folder)


def read_variants(
    settings: Profile,
    track: str,
    methods: Iterable[str],
    seeds: Sequence[int],
    variants: Variants,
    folder: Path | None = None,
) -> dict[str, Study]:
    """Return what :func:`run_variants` would, from saved runs alone; :class:`RunError` where some are missing."""
    folder = folder or results_dir(settings.name)
    configs = _configs(settings, track, methods, seeds, variants)
    found = _finished(configs, folder)
    missing = [f"{config.method} seed {config.seed}" for config, run in found.items() if run is None]
    if missing:
        some = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise RunError(
            f"{len(missing)} of {len(found)} runs of track {track!r} are not in results/{settings.name} for this "
            f"code and data ({some}); run notebooks 02 to 04 with this profile first: make reproduce"
        )
    return _studies(settings, track, configs, found, folder)


def _configs(
    settings: Profile, track: str, methods: Iterable[str], seeds: Sequence[int], variants: Variants
) -> dict[str, list[ExperimentConfig]]:
    methods = list(methods)
    return {
        name: grid(settings.config(track, **overrides), method=methods, seed=list(seeds))
        for name, overrides in variants.items()
    }


def _finished(
    configs: Mapping[str, Sequence[ExperimentConfig]], folder: Path
) -> dict[ExperimentConfig, RunResult | None]:
    wanted = list(dict.fromkeys(config for group in configs.values() for config in group))
    data = load_splits(wanted[0]).provenance.sha256
    return {config: finished_run(config, data, folder) for config in wanted}


def _studies(
    settings: Profile,
    track: str,
    configs: Mapping[str, Sequence[ExperimentConfig]],
    found: Mapping[ExperimentConfig, RunResult],
    folder: Path,
) -> dict[str, Study]:
    return {
        name: Study(track, settings.name, tuple(found[config] for config in group), folder)
        for name, group in configs.items()
    }


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
