"""The runs that a notebook needs, counted before it starts: its bar can then tell the remaining time of the whole."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qfl_core.config import CLEAN, ExperimentConfig, Profile


def planned_configs(notebook: str, settings: Profile, values: Mapping[str, Any]) -> list[ExperimentConfig]:
    """Return the configs that a notebook trains, each once; none for a notebook that trains nothing.

    Parameters
    ----------
    notebook : its file name, which begins with its number.
    settings : the profile.
    values : the parameters that the notebook gets, as ``seeds`` and ``datasets``.
    """
    from qfl_core.algorithm.methods import METHODS
    from qfl_core.analysis.untrained import UNTRAINED
    from qfl_core.hardware import HardwareConfig
    from qfl_core.runs.sweep import grid

    def track(name: str, methods: Iterable[str], seeds: Iterable[int], **changes: Any) -> list[ExperimentConfig]:
        return grid(settings.config(name, **changes), method=list(methods), seed=list(seeds))

    seeds, datasets = values["seeds"], values["datasets"]
    few = settings.for_studies(seeds)
    unfolded = [name for name, method in METHODS.items() if method.unfolded]
    everything = [*METHODS, UNTRAINED]
    found: list[Iterable[ExperimentConfig]] = []
    if notebook.startswith("02"):
        found = [track(name, [m for m in everything if m not in unfolded], seeds) for name in datasets]
    elif notebook.startswith("03"):
        found = [track(name, ["default-qfl", "fedprox-qfl", "duqfl-prox", UNTRAINED], seeds) for name in datasets]
        found += [track(datasets[-1], ["duqfl-prox"], seeds[:10], mu=1.0)]  # the reader's question
    elif notebook.startswith("04"):
        found = [track(name, ["default-qfl", *unfolded, UNTRAINED], seeds) for name in datasets]
        found += [track(f"{n}{CLEAN}", everything, few) for n in datasets if f"{n}{CLEAN}" in settings.experiment]
        found += [
            track(name, methods, others, **changes) for name, methods, others, changes in _studies(settings, values)
        ]
    elif notebook.startswith("06"):
        device = HardwareConfig.from_dict(settings.section("hardware", values.get("hardware", {})))
        found = [track(datasets[-1], device.methods, few)]
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def _studies(
    settings: Profile, values: Mapping[str, Any]
) -> Iterator[tuple[str, Iterable[str], Iterable[int], Mapping[str, Any]]]:
    """Yield track, methods, seeds and changed settings of every study of notebook 04."""
    from qfl_core.studies import attacks, privacy
    from qfl_core.studies.attribution import chain, seeds_of
    from qfl_core.studies.extras import BASES
    from qfl_core.studies.sensitivity import METHOD, SETTINGS, controller_section
    from qfl_core.studies.tuning import planned

    for name in settings.section("attribution", values.get("attribution", {}))["tracks"]:
        for link in chain(settings.config(name).client_val).values():
            yield name, [link["method"]], seeds_of(settings, name, values["seeds"]), link
    section = settings.section("sensitivity", values.get("sensitivity", {}))
    own = section.get("settings") or {}
    learnt = controller_section(section)
    levels = [setting.overrides(level) for name, setting in SETTINGS.items() for level in section[name]]
    for tracks, variants in ((learnt["tracks"], learnt["levels"].values()), (section["tracks"], levels)):
        for name, variant in itertools.product(tracks, variants):
            yield name, [METHOD], section["seeds"], {**own.get(name, {}), **variant}
    section = settings.section("protocol", values.get("protocol", {}))["tuning"]
    for name in section["tracks"]:
        for tried, variants_of_it in planned(settings, name, section):
            yield from ((name, tried.methods, section["seeds"], changes) for changes in variants_of_it.values())
    section = settings.section("extensions", values.get("extensions", {}))
    for name in section["tracks"]:
        yield name, {*BASES, *BASES.values()}, section["seeds"], {}
    section = settings.section("attacks", values.get("attacks", {}))
    for name in section["tracks"]:
        for overrides in attacks.attack_variants(section, name).values():
            yield name, [attacks.METHOD], section["seeds"], overrides
    section = settings.section("privacy", values.get("privacy", {}))
    for name in section["tracks"]:
        for overrides in privacy.privacy_variants(section, name).values():
            yield name, [privacy.METHOD], section["seeds"], overrides


def runs_left(configs: Iterable[ExperimentConfig], folder: Path) -> list[ExperimentConfig]:
    """Return those of the configs that have no finished run in the folder."""
    from qfl_core.data import data_source
    from qfl_core.runs import finished_run

    data: dict[str, str] = {}
    left = []
    for config in configs:
        if config.dataset not in data:
            data[config.dataset] = data_source(config).sha256
        if finished_run(config, data[config.dataset], folder) is None:
            left.append(config)
    return left


class Remaining:
    """How long the runs of all notebooks together will take, at their pace since this notebook started.

    Notebooks that run at the same time share their runs. So nothing is counted here: the results folder is asked which
    runs are still missing, at most every :data:`ASK_SECONDS`.

    Parameters
    ----------
    configs : what all notebooks train.
    folder : the results.
    clock : tells the time in seconds.
    """

    def __init__(
        self, configs: Iterable[ExperimentConfig], folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._clock = folder, clock
        self._left = runs_left(configs, folder)
        self._begun = self._asked = clock()
        self._first = len(self._left)

    def told(self) -> str:
        """Return what is left in a few words; an empty text where nothing is."""
        if self._clock() - self._asked >= ASK_SECONDS:
            self._left = runs_left(self._left, self._folder)
            self._asked = self._clock()
        if not self._left:
            return ""
        text = f"all notebooks: {len(self._left):,} runs left"
        done = self._first - len(self._left)
        if not done:
            return text
        seconds = (self._asked - self._begun) * len(self._left) / done
        return f"{text}, {tqdm.format_interval(seconds)}"


#: Seconds between two looks at the results folder; a look at thousands of missing runs takes about a second.
ASK_SECONDS = 20.0
