"""Profiles: named sets of experiments, one YAML file per profile in ``qfl_core/config/profiles``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from qfl_core.base.checks import integer, invalid, one_of
from qfl_core.base.errors import ConfigError, did_you_mean
from qfl_core.base.registry import DATASETS
from qfl_core.config.experiment import MAX_SEED, ExperimentConfig, changed, read_yaml

#: What a profile's file must hold, and every notebook's parameters cell names.
PROFILE_KEYS = {"profile", "seeds", "datasets", "experiment"}
#: It may say how many of its seeds, counted from the first, the clean track and the noise study take: all by default.
STUDY_SEEDS = "study_seeds"
#: What it may hold besides: sections with the settings of one notebook, named in that notebook's parameters cell.
SECTION_KEYS = {"attribution", "protocol", "sensitivity", "extensions", "attacks", "privacy", "hardware"}
#: Sections with the settings of one command, which no notebook runs.
COMMAND_KEYS = {"controllers", "follow_up"}
#: The most seeds that a range may hold.
MAX_SEEDS = 10_000
#: The name of another profile of the folder; what a file does not say itself is as in that profile.
EXTENDS = "extends"
#: The suffix of a dataset's second track: the same data under a sound encoding.
CLEAN = "-clean"


def track_dataset(track: str) -> str:
    """Return the dataset of a track: ``genome`` and ``genome-clean`` are both ``genome``."""
    return track.removesuffix(CLEAN)


@dataclass(frozen=True)
class Profile:
    """A named set of experiments: which datasets and seeds, with which settings.

    ``experiment["common"]`` holds settings for every dataset, ``experiment[<dataset>]`` those of one on the paper's
    track and ``experiment[<dataset>-clean]`` those of its clean track. ``sections`` holds the settings of single
    notebooks, ``commands`` those of single commands.
    """

    name: str
    seeds: tuple[int, ...]
    datasets: tuple[str, ...]
    experiment: Mapping[str, Mapping[str, Any]]
    sections: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    study_seeds: int | None = None
    commands: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def config(self, track: str, **overrides: Any) -> ExperimentConfig:
        """Return this profile's config for a track (``baf``, ``genome-clean``, ...); overrides win over the profile."""
        if not isinstance(track, str):
            raise invalid("dataset", track, f"one of {', '.join(DATASETS)}")
        if track.endswith(CLEAN) and track not in self.experiment:
            raise ConfigError(f"profile {self.name!r} has no track {track!r}")
        dataset = one_of(tuple(DATASETS))("dataset", track_dataset(track))
        values = {"dataset": dataset, **self.experiment.get("common", {})}
        # One config at the end: the settings of the parts need to be valid together, not alone.
        return ExperimentConfig.from_dict(changed(changed(values, self.experiment.get(track, {})), overrides))

    def section(self, name: str, override: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of one notebook or command; the notebook's own parameter wins over the profile."""
        return {**{**self.sections, **self.commands}.get(name, {}), **override}

    def for_studies(self, seeds: Sequence[int]) -> list[int]:
        """Return those of the given seeds that the clean track and the noise study take: the first ``study_seeds``."""
        return list(seeds[: self.study_seeds])


def read_profile(name: str, folder: str | Path | None = None) -> dict[str, Any]:
    """Return the content of a profile's file, with its keys checked.

    A file with ``extends: paper`` holds only what differs from that profile: mappings are merged at every depth, and
    any other value, a list too, replaces the one of that profile.

    Parameters
    ----------
    name : ``paper``, ``quick``, ``smoke``, or the stem of another file of the folder.
    folder : where ``<name>.yaml`` is; by default the profiles that come with the package.
    """
    where: Traversable = Path(folder) if folder is not None else resources.files(__package__) / "profiles"
    files = {file.name: file for file in where.iterdir()} if where.is_dir() else {}
    known = tuple(sorted(Path(file).stem for file in files if file.endswith(".yaml")))
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"unknown profile {name!r}{hint}; profiles in {where.name}/: {', '.join(known)}")
    values = read_yaml(files[f"{name}.yaml"].read_text(encoding="utf-8"), f"{name}.yaml")
    if isinstance(values, dict) and EXTENDS in values:
        base = values.pop(EXTENDS)
        if base == name or base not in known:
            raise ConfigError(f"{name}.yaml: {EXTENDS} must name another profile of {where.name}/, got {base!r}")
        below = read_yaml(files[f"{base}.yaml"].read_text(encoding="utf-8"), f"{base}.yaml")
        if not isinstance(below, dict) or EXTENDS in below:
            raise ConfigError(f"{name}.yaml: {EXTENDS} must name a profile that extends no other, got {base!r}")
        values = _extended(below, values)
    optional = SECTION_KEYS | COMMAND_KEYS | {STUDY_SEEDS}
    if not isinstance(values, dict) or not PROFILE_KEYS <= set(values) <= PROFILE_KEYS | optional:
        raise ConfigError(
            f"{name}.yaml must have the keys {', '.join(sorted(PROFILE_KEYS))}, "
            f"may have {', '.join(sorted(optional))} and no others"
        )
    written_out: dict[str, Any] = _seeds_written_out(values)
    return written_out


def seed_range(text: str) -> list[int]:
    """Return the seeds of a range such as ``0-149``, both ends included."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and first.isascii() and last.isascii()):
        raise ConfigError(f"seeds: {text!r} is not a range of whole numbers, such as 0-149")
    ends = [integer(0, MAX_SEED)("seeds", int(end[:20])) for end in (first, last)]
    if not 0 <= ends[1] - ends[0] < MAX_SEEDS:
        raise ConfigError(f"seeds: the range {text!r} must go up, and hold at most {MAX_SEEDS:,} seeds")
    return list(range(ends[0], ends[1] + 1))


def _seeds_written_out(value: Any, name: str = "") -> Any:
    """Return a profile's content with every range of seeds as a list, at any depth."""
    if isinstance(value, Mapping):
        return {key: _seeds_written_out(below, str(key)) for key, below in value.items()}
    return seed_range(value) if name.endswith("seeds") and isinstance(value, str) else value


def _extended(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``below`` where ``above`` does not say otherwise."""
    both = {
        key: _extended(below[key], value)
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        else value
        for key, value in above.items()
    }
    return {**below, **both}


def load_profile(
    name: str, folder: str | Path | None = None, experiment: Mapping[str, Mapping[str, Any]] | None = None
) -> Profile:
    """Read a profile's file and check every setting in it before any work starts.

    Parameters
    ----------
    name, folder : which file, see :func:`read_profile`.
    experiment : settings by dataset or track that are added to the file's and win over them.
    """
    values = read_profile(name, folder)
    for key in ("seeds", "datasets"):
        if not isinstance(values[key], list) or not values[key]:
            raise ConfigError(f"{name}.yaml: {key} must be a list of at least one, got {values[key]!r}")
    settings = _by_track(name, values["experiment"])
    for track, added in (experiment or {}).items():
        settings[track] = settings.get(track, {}) | dict(added)
    choices = ("common", *DATASETS, *(f"{dataset}{CLEAN}" for dataset in DATASETS))
    for track in settings:
        if track not in choices:
            hint = did_you_mean(track, choices)
            raise ConfigError(f"{name}.yaml: unknown section {track!r}{hint}; sections: {', '.join(choices)}")
    seeds = tuple(integer(0, MAX_SEED)("seeds", seed) for seed in values["seeds"])
    sections, commands = (
        {key: dict(values[key] or {}) for key in keys & set(values)} for keys in (SECTION_KEYS, COMMAND_KEYS)
    )
    count = values.get(STUDY_SEEDS)
    study_seeds = None if count is None else integer(1, MAX_SEEDS)(STUDY_SEEDS, count)
    profile = Profile(name, seeds, tuple(values["datasets"]), settings, sections, study_seeds, commands)
    for track in (*profile.datasets, *(track for track in settings if track.endswith(CLEAN))):
        profile.config(track)
    return profile


def _by_track(name: str, experiment: Any) -> dict[str, dict[str, Any]]:
    """Return a profile's settings by dataset or track; an empty entry has none."""
    if not isinstance(experiment, dict):
        raise ConfigError(f"{name}.yaml: experiment must map sections to settings, got {experiment!r}")
    for track, settings in experiment.items():
        if not isinstance(settings, dict | None):
            raise ConfigError(f"{name}.yaml: section {track!r} must map settings to values, got {settings!r}")
    return {track: dict(settings or {}) for track, settings in experiment.items()}
