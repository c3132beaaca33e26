"""One experiment, described completely: frozen, validated at construction, equal configs hash equal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qfl_core.base.checks import (
    Check,
    integer,
    interval,
    invalid,
    number,
    one_of,
    optional,
    participation,
    positive_interval,
    rates,
)
from qfl_core.base.display import config_html
from qfl_core.base.errors import ConfigError, did_you_mean
from qfl_core.base.registry import DATASETS, ENGINES, EXTRA_METHODS, METHOD_NAMES, PARTITIONS

MAX_SEED = 2**32 - 1


def _setting(default: Any, check: Check, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc, "check": check})


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """Everything that decides a run; :meth:`describe` lists every field with its meaning.

    Fields that default to ``None`` take the value of their dataset and encoding (:data:`DATASETS`) at
    construction, so two configs that mean the same are equal and hash equal.
    """

    # Data
    dataset: str = _setting("baf", one_of(lambda: tuple(DATASETS)), "which data the clients hold")
    encoding: str = _setting(
        None, one_of(lambda: tuple(e for d in DATASETS.values() for e in d.encodings)), "how rows become features"
    )
    source: str = _setting(
        "auto",
        one_of(("auto", "official", "stand-in")),
        "auto takes the official files where they can be had and the stand-in elsewhere; official never falls "
        "back; stand-in never looks for files",
    )
    features: int = _setting(None, integer(1, 16), "QNN inputs, one qubit each")
    kmer: int = _setting(4, integer(1, 6), "word length of the kmer encoding")
    angle_range: tuple[float, float] = _setting(None, interval, "interval (low, high) that features are scaled to")
    tail_share: float = _setting(
        None,
        number(0, 0.5, below=True),
        "share of training values clipped at each end before scaling; 0 is plain MinMax scaling",
    )
    train_size: int = _setting(None, integer(1), "rows of the training split")
    val_size: int = _setting(None, integer(1), "rows of the validation split")
    test_size: int = _setting(None, integer(1), "rows of the test split")

    # Federation
    split: str = _setting(
        "label-skew", one_of(lambda: tuple(PARTITIONS)), "partition: how clients share the training rows"
    )
    clients: int = _setting(10, integer(1), "number of clients N")
    rounds: int = _setting(10, integer(1), "communication rounds T")
    participation: float | tuple[int, ...] = _setting(
        1.0, participation, "S(t): the share of clients drawn each round, or the list of clients that take part"
    )
    chunk: int = _setting(50, integer(2), "mean number of training samples a client draws in a round")
    skew_ratio: float = _setting(0.8, number(0.5, 1), "label-skew: share of a client's preferred label")
    size_variation: float = _setting(
        0.5, number(0, 1, below=True), "label-skew: chunk sizes vary uniformly by this share, both ways"
    )
    dirichlet_alpha: float = _setting(0.5, number(0, above=True), "dirichlet: concentration; small is extreme")
    min_per_class: int = _setting(1, integer(0), "dirichlet: fewest training rows of a class a client may own")
    client_val_share: float = _setting(
        0.2, number(0, 0.5, above=True), "share of each label's training rows reserved for client validation"
    )
    client_val: str = _setting(
        "natural",
        one_of(("natural", "skewed")),
        "label-skew: client validation rows have the label mix of the data, or that of the client",
    )
    client_test: str = _setting(
        "shared", one_of(("shared", "split")), "clients test on the whole test split, or on disjoint shares of it"
    )

    # Model
    feature_map: str = _setting("zz", one_of(("zz", "z")), "feature map: zz entangles, z does not")
    feature_map_reps: int = _setting(2, integer(1, 20), "repetitions of the feature map")
    ansatz_reps: int = _setting(3, integer(0, 50), "repetitions of RealAmplitudes")

    # Training
    method: str = _setting(
        "duqfl-prox",
        one_of(lambda: (*METHOD_NAMES, *EXTRA_METHODS)),
        "which method trains: one of the paper's seven, or an extra",
    )
    unfolds: int = _setting(5, integer(1), "unfolded blocks K of local training")
    spsa_iterations: int = _setting(10, integer(1), "SPSA iterations in one unfold")
    learning_rate: float = _setting(0.13, number(0, above=True), "initial SPSA learning rate eta")
    perturbation: float = _setting(0.13, number(0, above=True), "initial SPSA perturbation delta")
    mu: float = _setting(0.01, number(0), "proximal coefficient")
    drift_radius: float = _setting(0.3, number(0, above=True), "duqfl-drift: longest step of an unfold")
    eta_bounds: tuple[float, float] = _setting((1e-3, 1.0), positive_interval, "controller: bounds of eta")
    delta_bounds: tuple[float, float] = _setting((1e-3, 0.5), positive_interval, "controller: bounds of delta")
    outer_period: int = _setting(5, integer(0), "the controller is refined every m rounds; 0 freezes it")
    outer_learning_rate: float = _setting(1.0, number(0), "alpha_out of the outer SPSA step")
    outer_perturbation: float = _setting(0.1, number(0, above=True), "c_out of the outer SPSA step")
    lambda_fair: float = _setting(0.1, number(0), "meta-loss weight of the client fairness gap")
    lambda_comm: float = _setting(0.01, number(0), "meta-loss weight of the communication share")
    lambda_stab: float = _setting(0.1, number(0), "meta-loss weight of the unfolds' unsteadiness")
    adam_rates: tuple[float, ...] = _setting(
        (0.01, 0.03, 0.1, 0.3), rates, "adam-qfl: learning rates tried on validation before round 0"
    )
    initial_range: float = _setting(math.pi, number(0), "initial weights are uniform in +- this range")
    loss: str = _setting(
        "cross_entropy", one_of(("cross_entropy", "squared_error")), "task loss that local training minimises"
    )

    # Execution
    engine: str = _setting("statevector", one_of(lambda: tuple(ENGINES)), "what evaluates the circuits")
    shots: int | None = _setting(1024, optional(integer(1)), "measurements a circuit; null is exact")
    seed: int = _setting(0, integer(0, MAX_SEED), "names every random stream of the run")

    def __new__(cls, **values: Any) -> ExperimentConfig:
        """Refuse unknown settings with the closest known name, before ``__init__`` sees them."""
        _known_only(values)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._set("dataset", self.dataset)
        spec = DATASETS[self.dataset]
        self._default("encoding", next(iter(spec.encodings)))
        known = tuple(spec.encodings)
        if self.encoding not in known:
            raise invalid(
                "encoding",
                self.encoding,
                f"one of {', '.join(known)} for dataset {self.dataset!r}{did_you_mean(self.encoding, known)}",
            )
        encoding = spec.encodings[self.encoding]
        for name in ("features", "angle_range", "tail_share"):
            self._default(name, getattr(encoding, name))
        for name, size in zip(("train_size", "val_size", "test_size"), spec.sizes, strict=True):
            self._default(name, size)
        for field in dataclasses.fields(self):
            self._set(field.name, getattr(self, field.name))
        if isinstance(self.participation, tuple) and self.participation[-1] >= self.clients:
            raise invalid("participation", self.participation, f"clients from 0 to {self.clients - 1}")

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _set(self, name: str, value: Any) -> None:
        check = self.__dataclass_fields__[name].metadata["check"]
        object.__setattr__(self, name, check(name, value))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the config's identity in file names and records."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def replace(self, **changes: Any) -> ExperimentConfig:
        """Return a copy with some fields changed.

        A new dataset or encoding brings its own defaults for the fields that depend on it, unless they are
        among the changes.
        """
        kept = self.to_dict()
        if changes.get("dataset", self.dataset) != self.dataset:
            kept = {k: v for k, v in kept.items() if k not in _OF_ENCODING + _OF_DATASET}
        elif changes.get("encoding", self.encoding) != self.encoding:
            kept = {k: v for k, v in kept.items() if k not in _OF_ENCODING}
        return ExperimentConfig(**(kept | changes))

    @classmethod
    def describe(cls) -> dict[str, str]:
        """Return what every field means."""
        return {f.name: f.metadata["doc"] for f in dataclasses.fields(cls)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    def to_json(self) -> str:
        """Return indented JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_yaml(self) -> str:
        """Return YAML, fields in their order of declaration."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExperimentConfig:
        """Build a config from a mapping; an unknown key is an error that names the closest field."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"a config is a mapping of fields to values, got {type(values).__name__}")
        _known_only(values)
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> ExperimentConfig:
        """Build a config from JSON text."""
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise ConfigError(f"the config is not valid JSON: {error}") from None

    @classmethod
    def from_yaml(cls, text: str) -> ExperimentConfig:
        """Build a config from YAML text (safe-loaded)."""
        return cls.from_dict(read_yaml(text, "the config"))

    def defaults(self) -> dict[str, Any]:
        """Return what every field would be, were only the dataset and the encoding given."""
        own = ExperimentConfig(dataset=self.dataset, encoding=self.encoding)
        named = {"dataset": ExperimentConfig().dataset, "encoding": ExperimentConfig(dataset=self.dataset).encoding}
        return {name: getattr(own, name) for name in self.describe()} | named

    def _repr_html_(self) -> str:
        return config_html(self, self.defaults(), self.describe())


_OF_DATASET = ("encoding", "train_size", "val_size", "test_size")
_OF_ENCODING = ("features", "angle_range", "tail_share")


def _known_only(values: Mapping[str, Any]) -> None:
    known = ExperimentConfig.__dataclass_fields__
    for key in values:
        if key not in known:
            hint = did_you_mean(key, known)
            raise ConfigError(f"unknown setting {key!r}{hint}; known settings: {', '.join(known)}")


def read_yaml(text: str, what: str) -> Any:
    """Read YAML text with plain values only; ``what`` names it in the error."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{what} is not valid YAML: {error}") from None


#: What a profile's file must hold, and every notebook's parameters cell names.
PROFILE_KEYS = {"profile", "seeds", "datasets", "experiment"}
#: What it may hold besides: settings of one notebook's own part, named in that notebook's parameters cell.
PART_KEYS = {"protocol", "sensitivity", "extensions", "hardware"}
#: The suffix of a dataset's second track: the same data under a sound encoding.
CLEAN = "-clean"


def track_dataset(track: str) -> str:
    """Return the dataset of a track: ``genome`` and ``genome-clean`` are both ``genome``."""
    return track.removesuffix(CLEAN)


@dataclass(frozen=True)
class Profile:
    """A named set of experiments: which datasets and seeds, with which settings.

    ``experiment["common"]`` holds settings for every dataset, ``experiment[<dataset>]`` those of one on the paper's
    track and ``experiment[<dataset>-clean]`` those of its clean track. ``parts`` holds settings of single notebooks.
    """

    name: str
    seeds: tuple[int, ...]
    datasets: tuple[str, ...]
    experiment: Mapping[str, Mapping[str, Any]]
    parts: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def config(self, track: str, **overrides: Any) -> ExperimentConfig:
        """Return this profile's config for a track (``baf``, ``genome-clean``, ...); overrides win over the profile."""
        if track.endswith(CLEAN) and track not in self.experiment:
            raise ConfigError(f"profile {self.name!r} has no track {track!r}")
        base = ExperimentConfig.from_dict({"dataset": track_dataset(track), **self.experiment.get("common", {})})
        own = self.experiment.get(track, {})
        return base.replace(**own).replace(**overrides)

    def part(self, name: str, override: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of one notebook's part; the notebook's own parameter wins over the profile."""
        return {**self.parts.get(name, {}), **override}


def load_profile(
    name: str, folder: str | Path | None = None, experiment: Mapping[str, Mapping[str, Any]] | None = None
) -> Profile:
    """Read ``notebooks/params/<name>.yaml`` and check every setting in it before any work starts.

    ``experiment`` adds to the file's settings, section by section, and wins over them.
    """
    from qfl_core.base.paths import params_dir

    folder = params_dir() if folder is None else Path(folder)
    known = tuple(sorted(p.stem for p in folder.glob("*.yaml")))
    if name not in known:
        hint = did_you_mean(name, known)
        raise ConfigError(f"unknown profile {name!r}{hint}; profiles in {folder.name}/: {', '.join(known)}")
    values = read_yaml((folder / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")
    if not isinstance(values, dict) or not PROFILE_KEYS <= set(values) <= PROFILE_KEYS | PART_KEYS:
        raise ConfigError(
            f"{name}.yaml must have the keys {', '.join(sorted(PROFILE_KEYS))}, "
            f"may have {', '.join(sorted(PART_KEYS))} and no others"
        )
    for key in ("seeds", "datasets"):
        if not isinstance(values[key], list) or not values[key]:
            raise ConfigError(f"{name}.yaml: {key} must be a list of at least one, got {values[key]!r}")
    sections = _sections(name, values["experiment"])
    for section, settings in (experiment or {}).items():
        sections[section] = sections.get(section, {}) | dict(settings)
    for section in sections:
        if section not in (choices := ("common", *DATASETS, *(f"{d}{CLEAN}" for d in DATASETS))):
            hint = did_you_mean(section, choices)
            raise ConfigError(f"{name}.yaml: unknown section {section!r}{hint}; sections: {', '.join(choices)}")
    seeds = tuple(integer(0, MAX_SEED)("seeds", s) for s in values["seeds"])
    parts = {key: dict(values[key] or {}) for key in PART_KEYS & set(values)}
    profile = Profile(name, seeds, tuple(values["datasets"]), sections, parts)
    for track in (*profile.datasets, *(s for s in sections if s.endswith(CLEAN))):
        profile.config(track)
    return profile


def _sections(name: str, experiment: Any) -> dict[str, dict[str, Any]]:
    """Return a profile's settings by section; a section left empty has none."""
    if not isinstance(experiment, dict):
        raise ConfigError(f"{name}.yaml: experiment must map sections to settings, got {experiment!r}")
    for section, settings in experiment.items():
        if not isinstance(settings, dict | None):
            raise ConfigError(f"{name}.yaml: section {section!r} must map settings to values, got {settings!r}")
    return {section: dict(settings or {}) for section, settings in experiment.items()}
