"""One experiment, described completely: frozen, validated at construction, equal configs hash equal."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from qfl_core.base.checks import (
    integer,
    interval,
    invalid,
    number,
    one_of,
    optional,
    participation,
    rates,
)
from qfl_core.base.display import config_html
from qfl_core.base.errors import ConfigError, did_you_mean
from qfl_core.base.registry import AGGREGATIONS, ATTACKS, CONTROLLERS, DATASETS, ENGINES, PARTITIONS, names_for
from qfl_core.base.settings import Settings, setting
from qfl_core.config.combinations import check_combinations
from qfl_core.config.limits import check_limits
from qfl_core.config.private import check_private, named

MAX_SEED = 2**32 - 1

# Upper bounds. Each is far beyond what the paper's experiment uses and small enough that nothing overflows; what
# several fields ask for together is in limits.py.
MAX_ROWS = 10_000_000  # ten times the largest dataset
MAX_CLIENTS = 100_000  # every client also needs a training row of its own
MAX_ROUNDS = 100_000
MAX_CHUNK = 1_000_000
MAX_ANGLE = 1000.0  # angles repeat after 2 pi
MAX_SHOTS = 10**9  # a fraction of so many shots is exact to 0.00002
MIN_RATE, MAX_RATE = 1e-6, 100.0  # SPSA divides by delta: a smaller one measures rounding errors only
MAX_WEIGHT = 1e6  # of a term in a sum of losses: beyond it the other terms are lost


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig(Settings):
    """Everything that decides a run; :meth:`describe` lists every field with its meaning.

    Fields that default to ``None`` take the value of their dataset and encoding (:data:`DATASETS`) at
    construction, so two configs that mean the same are equal and hash equal.
    """

    #: Fields that came after runs were made: a config that does not use them keeps its digest.
    later = ("dp_noise", "dp_clip", "dp_delta", "uploads")

    # Data
    dataset: str = setting("baf", one_of(lambda: names_for("dataset")), "which data the clients hold")
    encoding: str = setting(
        None, one_of(lambda: tuple(e for d in DATASETS.values() for e in d.encodings)), "how rows become features"
    )
    source: str = setting(
        "auto",
        one_of(("auto", "official", "stand-in")),
        "auto takes the official files where they can be had and the stand-in elsewhere; official never falls "
        "back; stand-in never looks for files",
    )
    features: int = setting(None, integer(1, 16), "QNN inputs, one qubit each")
    kmer: int = setting(4, integer(1, 6), "word length of the kmer encoding")
    angle_range: tuple[float, float] = setting(
        None, interval(-MAX_ANGLE, MAX_ANGLE), "interval (low, high) that features are scaled to"
    )
    tail_share: float = setting(
        None,
        number(0, 0.5, below=True),
        "share of training values clipped at each end before scaling; 0 is plain MinMax scaling",
    )
    train_size: int = setting(None, integer(1, MAX_ROWS), "rows of the training split")
    val_size: int = setting(None, integer(1, MAX_ROWS), "rows of the validation split")
    test_size: int = setting(None, integer(1, MAX_ROWS), "rows of the test split")

    # Federation
    split: str = setting(
        "label-skew", one_of(lambda: tuple(PARTITIONS)), "partition: how clients share the training rows"
    )
    clients: int = setting(10, integer(1, MAX_CLIENTS), "number of clients N")
    rounds: int = setting(10, integer(1, MAX_ROUNDS), "communication rounds T")
    participation: float | tuple[int, ...] = setting(
        1.0, participation, "S(t): the share of clients drawn each round, or the list of clients that take part"
    )
    chunk: int = setting(50, integer(2, MAX_CHUNK), "mean number of training samples that a client draws per round")
    skew_ratio: float = setting(0.8, number(0.5, 1), "label-skew: share of a client's preferred label")
    size_variation: float = setting(
        0.5, number(0, 1, below=True), "label-skew: chunk sizes vary uniformly by this share, both ways"
    )
    # Above 1e6 the shares are equal; a small one that leaves a client without rows is refused when the rows are dealt.
    dirichlet_alpha: float = setting(0.5, number(0, 1e6, above=True), "dirichlet: concentration; small is extreme")
    min_per_class: int = setting(1, integer(0, MAX_ROWS), "dirichlet: fewest training rows of a class a client may own")
    client_val_share: float = setting(
        0.2, number(0, 0.5, above=True), "share of each label's training rows reserved for client validation"
    )
    client_val: str = setting(
        "natural",
        one_of(("natural", "skewed")),
        "label-skew: client validation rows have the label mix of the data, or that of the client",
    )
    client_test: str = setting(
        "shared", one_of(("shared", "split")), "clients test on the whole test split, or on disjoint shares of it"
    )

    # Model
    feature_map: str = setting(
        "zz", one_of(lambda: names_for("feature_map")), "feature map, by name: zz entangles, z does not"
    )
    feature_map_reps: int = setting(2, integer(1, 20), "repetitions of the feature map")
    ansatz: str = setting("real_amplitudes", one_of(lambda: names_for("ansatz")), "ansatz of the circuit, by name")
    ansatz_reps: int = setting(3, integer(0, 50), "repetitions of the ansatz")

    # Training
    method: str = setting(
        "duqfl-prox",
        one_of(lambda: names_for("method")),
        "which method trains: one of the paper's seven, or an extra",
    )
    unfolds: int = setting(5, integer(1, 1000), "unfolded blocks K of local training")
    spsa_iterations: int = setting(10, integer(1, 10_000), "SPSA iterations in one unfold")
    learning_rate: float = setting(0.13, number(MIN_RATE, MAX_RATE), "initial SPSA learning rate eta")
    perturbation: float = setting(0.13, number(MIN_RATE, MAX_RATE), "initial SPSA perturbation delta")
    mu: float = setting(0.01, number(0, 1000), "proximal coefficient")
    drift_radius: float = setting(0.3, number(0, MAX_WEIGHT, above=True), "duqfl-drift: longest step of an unfold")
    eta_bounds: tuple[float, float] = setting((1e-3, 1.0), interval(MIN_RATE, MAX_RATE), "controller: bounds of eta")
    delta_bounds: tuple[float, float] = setting(
        (1e-3, 0.5), interval(MIN_RATE, MAX_RATE), "controller: bounds of delta"
    )
    controller: str = setting(
        "constant",
        one_of(tuple(CONTROLLERS)),
        "where the controller starts: at learning_rate and perturbation, or at what other federations have taught",
    )
    outer_optimizer: str = setting(
        "spsa",
        one_of(lambda: names_for("outer_optimizer")),
        "what refines the controller: the paper's SPSA, or ours",
    )
    outer_period: int = setting(5, integer(0, MAX_ROUNDS), "the controller is refined every m rounds; 0 freezes it")
    outer_learning_rate: float = setting(1.0, number(0, MAX_WEIGHT), "alpha_out of the outer SPSA step")
    # No smallest value: the controller clips the rates that a step of any length would ask for.
    outer_perturbation: float = setting(0.1, number(0, MAX_RATE, above=True), "c_out of the outer SPSA step")
    lambda_fair: float = setting(0.1, number(0, MAX_WEIGHT), "meta-loss weight of the client fairness gap")
    lambda_comm: float = setting(0.01, number(0, MAX_WEIGHT), "meta-loss weight of the communication share")
    lambda_stab: float = setting(0.1, number(0, MAX_WEIGHT), "meta-loss weight of the unfolds' unsteadiness")
    controller_features: str = setting(
        "raw",
        one_of(("raw", "standardised")),
        "controller: features z as they are, or of mean about 0 and size about 1",
    )
    default_spsa: str = setting(
        "calibrated",
        one_of(("calibrated", "fixed")),
        "default-qfl: rates of its SPSA by the library's calibration, or fixed at learning_rate and perturbation",
    )
    fedprox_spsa: str = setting(
        "calibrated", one_of(("calibrated", "fixed")), "fedprox-qfl: rates of its SPSA, as for default-qfl"
    )
    adam_steps: int = setting(
        0, integer(0, 10_000), "adam-qfl: steps per round; 0 takes as many as the circuits of the SPSA methods allow"
    )
    adam_moments: str = setting(
        "forgotten", one_of(("forgotten", "kept")), "adam-qfl: what becomes of a client's moments after a round"
    )
    adam_rates: tuple[float, ...] = setting(
        (0.01, 0.03, 0.1, 0.3), rates(MAX_RATE), "adam-qfl: learning rates tried on validation before round 0"
    )
    initial_range: float = setting(math.pi, number(0, MAX_ANGLE), "initial weights are uniform in +- this range")
    loss: str = setting("cross_entropy", one_of(lambda: names_for("loss")), "task loss that local training minimises")

    # Trust
    aggregation: str = setting(
        "own",
        one_of(lambda: tuple(AGGREGATIONS)),
        "how uploads become one model: own is the method's rule, which is the weighted mean in the paper",
    )
    tolerated: float = setting(
        0.2, number(0, 0.5, below=True), "trimmed-mean, krum, multi-krum: share of clients that may be bad"
    )
    screening: float | None = setting(
        None,
        optional(number(2, MAX_WEIGHT)),
        "leave out uploads whose step or loss changes exceed this times their round's median; null: absurd ones only",
    )
    attack: str = setting("none", one_of(lambda: tuple(ATTACKS)), "what bad clients do, in simulation only")
    attackers: float = setting(0.2, number(0, 1), "attack: share of clients that are bad")

    # Privacy
    dp_noise: float | None = setting(
        None,
        optional(number(0, MAX_WEIGHT)),
        "differential privacy: noise on a round's sum of steps, in units of dp_clip; null: no noise and no clipping",
    )
    dp_clip: float = setting(1.0, number(0, MAX_ANGLE, above=True), "dp_noise: longest step that a client may upload")
    dp_delta: float = setting(
        1e-5, number(0, 1, above=True, below=True), "dp_noise: the delta for which epsilon is computed"
    )
    uploads: str = setting(
        "plain",
        one_of(("plain", "masked")),
        "plain: the server sees every upload; masked: it sees their sum alone (secure aggregation)",
    )

    # Execution
    engine: str = setting("statevector", one_of(lambda: tuple(ENGINES)), "what evaluates the circuits")
    shots: int | None = setting(1024, optional(integer(1, MAX_SHOTS)), "measurements per circuit; null is exact")
    seed: int = setting(0, integer(0, MAX_SEED), "names every random stream of the run")

    def __post_init__(self) -> None:
        self._check("dataset")
        spec = DATASETS[self.dataset]
        self._default("encoding", next(iter(spec.encodings)))
        known = tuple(spec.encodings)
        if not isinstance(self.encoding, str) or self.encoding not in known:
            raise invalid(
                "encoding",
                self.encoding,
                f"one of {', '.join(known)} for dataset {self.dataset!r}{did_you_mean(self.encoding, known)}",
            )
        for name, value in _implied(self.dataset, self.encoding).items():
            self._default(name, value)
        super().__post_init__()
        check_combinations(self)
        check_private(self)
        check_limits(self)

    @property
    def is_private(self) -> bool:
        """Whether clients send their steps alone, with noise or masked."""
        return bool(named(self))

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> ExperimentConfig:
        """Return a copy with some fields changed.

        A new dataset or encoding brings its own defaults for the fields that depend on it, unless they are
        among the changes.
        """
        return ExperimentConfig(**changed(self.to_dict(), changes))

    def to_json(self) -> str:
        """Return indented JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_yaml(self) -> str:
        """Return YAML, fields in their order of declaration."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_json(cls, text: str) -> ExperimentConfig:
        """Build a config from JSON text."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and lists in lists in ...
            raise ConfigError(f"the config is not valid JSON: {error}") from None
        return cls.from_dict(values)

    @classmethod
    def from_yaml(cls, text: str) -> ExperimentConfig:
        """Build a config from YAML text (safe-loaded)."""
        return cls.from_dict(read_yaml(text, "the config"))

    def defaults(self) -> dict[str, Any]:
        """Return the value that every field has where only the dataset and the encoding are given."""
        # Not by building a config: values that are valid together may differ from their defaults together.
        declared = {field.name: field.default for field in dataclasses.fields(self)}
        named = {"encoding": next(iter(DATASETS[self.dataset].encodings))}
        return declared | named | _implied(self.dataset, self.encoding)

    def _repr_html_(self) -> str:
        return config_html(self, self.defaults(), self.describe())


_OF_DATASET = ("encoding", "train_size", "val_size", "test_size")
_OF_ENCODING = ("features", "angle_range", "tail_share")


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with changes; a new dataset or encoding drops the values that depended on the old one."""
    dataset = values.get("dataset", "baf")
    encoding = values.get("encoding") or next(iter(DATASETS[dataset].encodings), None)
    dropped: tuple[str, ...] = ()
    if changes.get("dataset", dataset) != dataset:
        dropped = _OF_ENCODING + _OF_DATASET
    elif changes.get("encoding", encoding) != encoding:
        dropped = _OF_ENCODING
    return {name: value for name, value in values.items() if name not in dropped} | dict(changes)


def _implied(dataset: str, encoding: str) -> dict[str, Any]:
    """Return the fields that a dataset and its encoding decide where a config does not."""
    spec = DATASETS[dataset]
    own = {name: getattr(spec.encodings[encoding], name) for name in _OF_ENCODING}
    return own | dict(zip(("train_size", "val_size", "test_size"), spec.sizes, strict=True))


def read_yaml(text: str, what: str) -> Any:
    """Read YAML text with plain values only; ``what`` names it in the error."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not valid YAML: {error}") from None
