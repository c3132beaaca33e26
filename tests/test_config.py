import dataclasses
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter

from qfl_core.base.checks import integer
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import AGGREGATIONS, DATASETS, FEATURE_MAPS, resolve
from qfl_core.base.settings import Settings, setting
from qfl_core.config import ExperimentConfig, Profile, load_profile
from qfl_core.config.combinations import GENOME_LETTERS, WEIGHTED
from qfl_core.config.limits import DENSITY_TILE, ENCODED_LIMIT, bytes_per_sample
from qfl_core.data.genome import LENGTH
from qfl_core.engines import make_engine
from qfl_core.engines.ptm import TILE
from qfl_core.engines.qnn import QNN
from qfl_core.runs.prepare import make_model

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "dataset": st.sampled_from(list(DATASETS)),
        "clients": st.integers(1, 50),
        "mu": st.floats(0, 10),
        "shots": st.one_of(st.none(), st.integers(1, 8192)),
        "angle_range": st.tuples(st.floats(-3, 0), st.floats(0.1, 7)),
        "split": st.sampled_from(["iid", "label-skew", "dirichlet"]),
        "seed": st.integers(0, 2**32 - 1),
    },
)


@given(CHANGES)
def test_configs_survive_json_and_yaml(changes):
    config = ExperimentConfig(**changes)
    for copy in (ExperimentConfig.from_json(config.to_json()), ExperimentConfig.from_yaml(config.to_yaml())):
        assert copy == config
        assert hash(copy) == hash(config)
        assert copy.digest == config.digest


@given(CHANGES, CHANGES)
def test_equal_configs_and_only_they_have_equal_digests(one, other):
    a, b = ExperimentConfig(**one), ExperimentConfig(**other)
    assert (a == b) == (a.digest == b.digest)


def test_number_types_do_not_change_identity():
    assert ExperimentConfig(mu=0).digest == ExperimentConfig(mu=0.0).digest
    assert ExperimentConfig(angle_range=[0, 1]) == ExperimentConfig(angle_range=(0.0, 1.0))


def test_the_sign_of_zero_does_not_change_identity():
    assert ExperimentConfig(mu=-0.0).digest == ExperimentConfig(mu=0.0).digest
    assert ExperimentConfig(angle_range=(-0.0, 1)).digest == ExperimentConfig(angle_range=(0, 1)).digest


def test_lists_survive_json_and_yaml():
    config = ExperimentConfig(participation=[3, 1], adam_rates=[0.1, 1], shots=None)
    for copy in (ExperimentConfig.from_json(config.to_json()), ExperimentConfig.from_yaml(config.to_yaml())):
        assert copy == config
        assert (copy.participation, copy.adam_rates) == ((1, 3), (0.1, 1.0))


@pytest.mark.parametrize("text", ["1: 2", "null: 2"])
def test_a_key_that_is_no_name_is_unknown(text):
    with pytest.raises(ConfigError, match="unknown setting"):
        ExperimentConfig.from_yaml(text)


def test_what_a_dataset_implies_equals_what_is_spelled_out():
    assert ExperimentConfig(dataset="genome") == ExperimentConfig(
        dataset="genome", encoding="word-id", features=4, angle_range=(0, 1), train_size=8000
    )


def test_a_config_cannot_be_changed_but_pickles():
    config = ExperimentConfig(seed=7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 8
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("dataset", "bfa", "baf"),
        ("encoding", "kmer", "pca"),
        ("method", "duqfl_prox", "duqfl-prox"),
        ("split", "labelskew", "label-skew"),
        ("engine", "aer", "statevector"),
        ("clients", 0, "1 to 100000"),
        ("clients", 2.0, "integer"),
        ("clients", True, "integer"),
        ("rounds", "10", "integer"),
        ("shots", 0, "1 to 1000000000"),
        ("shots", -5, "1 to 1000000000"),
        ("mu", -1, "[0, 1000]"),
        ("mu", math.nan, "[0, 1000]"),
        ("mu", math.inf, "[0, 1000]"),
        ("mu", "1e-2", "write 0.01"),
        ("skew_ratio", 1.1, "[0.5, 1]"),
        ("size_variation", 1.0, "[0, 1)"),
        ("tail_share", 0.5, "[0, 0.5)"),
        ("dirichlet_alpha", 0, "(0, 1e+06]"),
        ("angle_range", (1, 1), "low < high"),
        ("angle_range", 3.14, "two numbers (low, high)"),
        ("angle_range", (0, math.inf), "angle_range"),
        ("features", 0, "1 to 16"),
        ("seed", -1, "0 to"),
        ("mu", 10**400, "[0, 1000]"),
        ("angle_range", (-1e308, 1e308), "[-1000, 1000]"),
        ("encoding", ["pca"], "one of pca"),
        ("participation", "all", "a share in (0, 1] or a list of different clients"),
        ("participation", "1e-2", "a share in (0, 1] or a list of different clients"),
        ("participation", [-1], "a share in (0, 1] or a list of different clients"),
    ],
)
def test_a_bad_value_is_named_with_the_choices(field, value, hint):
    with pytest.raises(ConfigError) as error:
        ExperimentConfig(**{field: value})
    assert field in str(error.value)
    assert repr(value)[:200] in str(error.value) or field == "angle_range"
    assert hint in str(error.value)


@pytest.mark.parametrize("field", ExperimentConfig.describe())
def test_every_field_refuses_what_no_machine_can_do(field):
    for value in (10**20, -(10**20), 1e308, -1e308, [0, 1e300], [10**20], 10**5000):
        with pytest.raises(ConfigError) as error:
            ExperimentConfig(**{field: value})
        assert field in str(error.value)


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize("field", ExperimentConfig.describe())
def test_every_field_refuses_a_value_of_any_other_type_in_one_short_line(field):
    other = [
        np.array([0.1, 0.2]),
        np.array([]),
        pd.NA,
        pd.Series([0, 1]),
        b"baf",
        {"a": 1},
        {1},
        1j,
        object(),
        "x" * 9999,
    ]
    for value in (*other, Unprintable(), Decimal("sNaN"), np.void(b"a"), iter([0, 1]), "two\nlines", "\x1b[31m"):
        with pytest.raises(ConfigError) as error:
            ExperimentConfig(**{field: value})
        told = str(error.value)
        assert told.startswith(f"{field}=")
        assert told.isprintable()
        assert len(told) < 600


@pytest.mark.parametrize("field", ["learning_rate", "perturbation", "eta_bounds", "delta_bounds"])
def test_a_rate_too_small_to_measure_a_slope_is_refused(field):
    with pytest.raises(ConfigError, match=f"{field}=1e-300 "):
        ExperimentConfig(**{field: (1e-300, 0.5) if "bounds" in field else 1e-300})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"features": 1}, "features=1 .*at least 2 for feature_map='zz'"),
        ({"learning_rate": 5}, r"learning_rate=5.0 .*inside eta_bounds=\(0.001, 1\)"),
        ({"eta_bounds": (0.2, 0.5)}, r"learning_rate=0.13 .*inside eta_bounds=\(0.2, 0.5\)"),
        ({"perturbation": 0.6}, r"perturbation=0.6 .*inside delta_bounds=\(0.001, 0.5\)"),
        ({"engine": "primitives", "shots": None}, "shots=None .*engine='primitives'"),
        ({"engine": "density", "method": "adam-qfl"}, "engine='density' .*'statevector' for method='adam-qfl'"),
        (
            {"dataset": "genome", "features": 3},
            "features=3 .*a divisor of 200 letters for encoding='word-id': 1, 2, 4, 5,",
        ),
        ({"dataset": "genome", "encoding": "kmer", "kmer": 1, "features": 5}, "features=5 .*at most 4, .*kmer=1"),
        (
            {"clients": 50, "test_size": 40, "client_test": "split"},
            "clients=50 .*at most test_size=40 for client_test='s",
        ),
        ({"method": "duqfl-learned", "aggregation": "median"}, "aggregation='median' .*multi-krum.*'duqfl-learned'"),
        ({"clients": 3000}, "clients=3000 .*at most train_size=2999"),
        (
            {"split": "dirichlet", "min_per_class": 200},
            "min_per_class=200 .*at most 149 for clients=10 and train_size=2999",
        ),
        ({"engine": "density", "features": 10}, "train_size=2999, features=10 .*need 23.4 GiB.*limit is 1.0 GiB"),
        ({"engine": "density", "features": 11, "train_size": 20, "val_size": 2, "test_size": 2}, "need 4.0 GiB"),
        ({"features": 16}, "features=16 .*'statevector' need 2.9 GiB .*limit is 1.0 GiB"),
        ({"clients": 2999, "rounds": 100_000}, "clients=2999, rounds=100000, chunk=50 .*limit is 8.0 GiB"),
        ({"chunk": 1_000_000}, "chunk=1000000 .*need 13.6 GiB"),
        ({"clients": 6000, "train_size": 9000, "aggregation": "krum"}, "'krum' of 6000 clients needs 8.6 GiB"),
        ({"rounds": 100_000}, "rounds=100000, clients=10 and unfolds=5 need 11.9 GiB .*limit is 8.0 GiB"),
        ({"rounds": 20_000, "unfolds": 50}, "rounds=20000, clients=10 and unfolds=50 need 21.7 GiB"),
        ({"dataset": "genome", "encoding": "kmer", "kmer": 6, "train_size": 70_000}, "kmer=6 .* need 8.7 GiB"),
        ({"mu": 1000, "learning_rate": 1, "unfolds": 10}, r"mu=1000 and learning_rate=1 .*10\^360 in 100 iterations"),
    ],
)
def test_values_that_are_not_valid_together_are_both_named(values, told):
    with pytest.raises(ConfigError, match=told):
        ExperimentConfig(**values)


def test_a_private_run_is_not_refused_for_a_trace_that_it_does_not_keep():
    many = {"clients": 1000, "rounds": 1000, "outer_period": 0}
    with pytest.raises(ConfigError, match="for the records of method='duqfl-prox'"):
        ExperimentConfig(**many)
    for private in ({"dp_noise": 1.0}, {"uploads": "masked"}):
        assert ExperimentConfig(**many, **private).is_private


def test_what_the_checks_of_combinations_know_of_other_rooms_is_so():
    rules = {name: resolve(target) for name, target in AGGREGATIONS.items() if target}
    assert set(WEIGHTED) == {"own", *(name for name, rule in rules.items() if rule.uses_weights)}
    assert GENOME_LETTERS == LENGTH


@pytest.mark.parametrize(
    "values",
    [
        {"features": 1, "feature_map": "z"},
        {"mu": 1000},
        {"mu": 1, "unfolds": 500},
        {"rounds": 10_000},
        {"clients": 1000, "aggregation": "krum"},
    ],
)
def test_unusual_values_that_can_be_trained_are_accepted(values):
    config = ExperimentConfig(**values)
    changes = {name: value for name, value in config.defaults().items() if value != getattr(config, name)}
    assert set(changes) == set(values)


def test_the_parts_of_a_profile_need_to_be_valid_together_and_not_alone():
    settings = {"common": {"learning_rate": 2}, "baf": {"eta_bounds": [0.1, 5]}}
    assert Profile("mine", (0,), ("baf",), settings).config("baf").learning_rate == 2


@pytest.mark.parametrize(
    ("engine", "features"), [("statevector", 2), ("statevector", 6), ("statevector", 7), ("statevector", 11)]
)
def test_the_estimate_of_memory_is_what_the_engine_stores(engine, features):
    made = make_engine(engine, QNN(features))
    rows = made.encode(np.ones((3, features))).rows
    assert rows[0].nbytes == bytes_per_sample(engine, features)
    assert made.memory == ENCODED_LIMIT


def test_the_estimate_of_memory_of_the_density_engine_is_what_it_stores():
    made = make_engine("density", QNN(2))
    assert made.encode(np.ones((3, 2))).rows[0].nbytes == bytes_per_sample("density", len(made.active))
    assert (made.memory, TILE) == (ENCODED_LIMIT, DENSITY_TILE)


def test_a_circuit_of_one_s_own_that_no_engine_can_hold_is_told_as_a_config_error(monkeypatch):
    def wide(num_features, reps):
        circuit = QuantumCircuit(26)
        for k in range(num_features):
            circuit.rx(Parameter(f"x{k}"), k)
        return circuit

    monkeypatch.setitem(FEATURE_MAPS, "wide", wide)
    with pytest.raises(ConfigError, match="26 qubits need at least .* bytes, more than memory"):
        make_model(ExperimentConfig(feature_map="wide"))


@pytest.mark.parametrize("text", ["mu: " + "9" * 5000, "[" * 20_000])
def test_text_that_python_cannot_read_is_an_error(text):
    with pytest.raises(ConfigError, match="not valid"):
        ExperimentConfig.from_yaml(text)
    with pytest.raises(ConfigError, match="not valid"):
        ExperimentConfig.from_json(text.replace("mu", '{"mu"') + "}" * ("mu" in text))


@pytest.mark.parametrize("build", [lambda v: ExperimentConfig(**v), ExperimentConfig.from_dict])
def test_an_unknown_key_is_an_error_with_a_suggestion(build):
    with pytest.raises(ConfigError, match="unknown setting 'rouns'.*did you mean 'rounds'"):
        build({"rouns": 3})


def test_replace_brings_the_new_dataset_s_defaults():
    paper = ExperimentConfig(seed=3, clients=5)
    genome = paper.replace(dataset="genome")
    assert (genome.encoding, genome.angle_range, genome.train_size) == ("word-id", (0.0, 1.0), 8000)
    assert (genome.seed, genome.clients) == (3, 5)
    kmer = genome.replace(encoding="kmer", angle_range=(0, 2))
    assert (kmer.features, kmer.angle_range, kmer.tail_share) == (2, (0.0, 2.0), 0.01)
    with pytest.raises(ConfigError, match="unknown setting"):
        paper.replace(sed=1)


def test_every_field_is_documented():
    assert all(len(doc) > 10 for doc in ExperimentConfig.describe().values())


@pytest.mark.parametrize("text", ["[1, 2", "{a: [}", "- 1\n- 2"])
def test_text_that_is_no_config_is_an_error(text):
    with pytest.raises(ConfigError):
        ExperimentConfig.from_yaml(text)
    with pytest.raises(ConfigError):
        ExperimentConfig.from_json(text)


def test_yaml_cannot_construct_objects():
    with pytest.raises(ConfigError):
        ExperimentConfig.from_yaml("!!python/object/apply:os.getcwd []")


def test_the_paper_profile_is_the_paper_s_table():
    profile = load_profile("paper")
    assert profile.seeds == tuple(range(150))
    assert profile.for_studies(profile.seeds) == list(range(30))
    for dataset in ("baf", "genome"):
        config = profile.config(dataset)
        assert (config.unfolds, config.learning_rate, config.perturbation) == (5, 0.13, 0.13)
        assert (config.mu, config.shots) == (0.01, 1024)
        assert config.clients in (5, 10)
        assert 10 <= config.rounds <= 50
        assert 5 <= config.spsa_iterations <= 10
    baf = profile.config("baf")
    assert (baf.features, baf.train_size, baf.val_size, baf.test_size) == (4, 2999, 750, 1250)
    genome = profile.config("genome")
    assert genome.train_size + genome.val_size == 10_000
    assert genome.test_size == 2_000


def test_the_smoke_profile_is_the_paper_s_experiment_made_small():
    smoke, paper = load_profile("smoke"), load_profile("paper")
    for dataset in smoke.datasets:
        small, full = smoke.config(dataset), paper.config(dataset)
        assert small.rounds < full.rounds
        sizes = {
            "rounds",
            "clients",
            "chunk",
            "unfolds",
            "spsa_iterations",
            "shots",
            "train_size",
            "val_size",
            "test_size",
        }
        differing = {name for name, value in full.to_dict().items() if small.to_dict()[name] != value}
        assert differing <= sizes


def test_overrides_win_over_a_profile():
    assert load_profile("smoke").config("genome", encoding="kmer", seed=5).encoding == "kmer"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["experiment"]["common"].update(rouns=1), "did you mean 'rounds'"),
        (lambda p: p["experiment"].update(bfa={}), "unknown section 'bfa'"),
        (lambda p: p.pop("seeds"), "must have the keys"),
        (lambda p: p.update(seeds=[-1]), "seeds=-1"),
        (lambda p: p.update(seeds=[2**40]), "seeds=1099511627776"),
        (lambda p: p.update(seeds=3), "seeds must be a list"),
        (lambda p: p.update(seeds=[]), "seeds must be a list"),
        (lambda p: p.update(seeds="5-2"), "the range '5-2' must go up"),
        (lambda p: p.update(seeds="0-99999"), "hold at most 10,000 seeds"),
        (lambda p: p.update(seeds="0 to 9"), "'0 to 9' is not a range of whole numbers, such as 0-149"),
        (lambda p: p.update(seeds="0-" + "9" * 5000), "seeds=99999999999999999999"),
        (lambda p: p.update(study_seeds=0), "study_seeds=0"),
        (lambda p: p.update(datasets="baf"), "datasets must be a list"),
        (lambda p: p.update(datasets=[1]), "dataset=1 is not valid: expected one of baf"),
        (lambda p: p.update(experiment=None), "experiment must map"),
        (lambda p: p["experiment"].update(baf=[1]), "section 'baf' must map"),
        (lambda p: p["experiment"]["baf"].update(mu="1e-2"), "mu='1e-2'"),
    ],
)
def test_a_bad_profile_is_refused_before_any_work(tmp_path, change, message):
    profile = {
        "profile": "mine",
        "seeds": [0],
        "datasets": ["baf"],
        "experiment": {"common": {"rounds": 2}, "baf": {}},
    }
    change(profile)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(profile))
    with pytest.raises(ConfigError, match=message):
        load_profile("mine", tmp_path)


def test_a_section_left_empty_has_no_settings(tmp_path):
    (tmp_path / "mine.yaml").write_text("profile: mine\nseeds: [0]\ndatasets: [baf]\nexperiment:\n  common:\n  baf:\n")
    assert load_profile("mine", tmp_path).config("baf") == ExperimentConfig()


def test_an_unknown_profile_names_the_known_ones():
    with pytest.raises(ConfigError, match="'smok'.*did you mean 'smoke'.*paper, quick, smoke"):
        load_profile("smok")


# The base of all configs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Colours(Settings):
    noun = "colour"

    red: int = setting(0, integer(0, 255), "share of red")
    names: tuple[str, ...] = setting((), lambda name, value: tuple(value), "names of the colour")


def test_quick_is_the_paper_with_fewer_seeds_and_smaller_studies():
    quick, paper = load_profile("quick"), load_profile("paper")
    assert quick.seeds == tuple(range(10))
    assert quick.experiment == paper.experiment
    for track in (*paper.datasets, *(f"{name}-clean" for name in paper.datasets)):
        assert quick.config(track) == paper.config(track)
    assert set(quick.sections) == set(paper.sections)
    for name, section in quick.sections.items():
        assert set(section) == set(paper.sections[name])


def test_an_extending_profile_holds_only_what_differs(tmp_path):
    base = {
        "profile": "base",
        "seeds": [0, 1, 2],
        "datasets": ["baf"],
        "experiment": {"common": {"rounds": 3, "mu": 1}},
    }
    base["sensitivity"] = {"seeds": [0, 1], "mu": [0, 1]}
    small = {"extends": "base", "profile": "small", "seeds": [5], "experiment": {"common": {"rounds": 2}, "baf": None}}
    small["sensitivity"] = {"mu": [7]}
    for values in (base, small):
        (tmp_path / f"{values['profile']}.yaml").write_text(yaml.safe_dump(values))
    found = load_profile("small", tmp_path)
    assert found.seeds == (5,)
    assert (found.config("baf").rounds, found.config("baf").mu) == (2, 1)
    assert found.sections == {"sensitivity": {"seeds": [0, 1], "mu": [7]}}
    assert load_profile("base", tmp_path).config("baf").rounds == 3


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("a", "must name another profile of .*, got 'a'"),
        ("gone", "must name another profile of .*, got 'gone'"),
        (["b"], r"must name another profile of .*, got \['b'\]"),
        (None, "must name another profile of .*, got None"),
        ("b", "must name a profile that extends no other, got 'b'"),
        ("c", "must name a profile that extends no other, got 'c'"),
    ],
)
def test_a_profile_extends_one_other_that_stands_alone(tmp_path, named, message):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"extends": named, "profile": "a"}))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"extends": "a"}))
    (tmp_path / "c.yaml").write_text("- a list\n")
    with pytest.raises(ConfigError, match=f"a.yaml: extends {message}"):
        load_profile("a", tmp_path)


def test_a_config_of_one_s_own_checks_describes_and_hashes_itself():
    colours = Colours(names=["crimson"])
    assert colours == Colours.from_dict(colours.to_dict())
    assert colours.to_dict() == {"red": 0, "names": ["crimson"]}
    assert Colours.describe() == {"red": "share of red", "names": "names of the colour"}
    assert len({colours.digest, Colours().digest, Colours(red=1).digest}) == 3
    with pytest.raises(ConfigError, match="red=256 is not valid: expected an integer from 0 to 255"):
        Colours(red=256)


@pytest.mark.parametrize("build", [lambda v: Colours(**v), Colours.from_dict])
def test_a_config_of_one_s_own_names_its_fields_in_errors(build):
    with pytest.raises(ConfigError, match="unknown colour 'rde' .did you mean 'red'.*; known colours: red, names"):
        build({"rde": 1})
    with pytest.raises(ConfigError, match="colours are a mapping of fields to values, got list"):
        Colours.from_dict([1])


def test_seeds_may_be_a_range_at_any_depth_and_studies_take_the_first(tmp_path):
    text = (
        "profile: mine\nseeds: 3-5\nstudy_seeds: 2\ndatasets: [baf]\nexperiment:\n  common:\nextensions: {seeds: 7-8}\n"
    )
    (tmp_path / "mine.yaml").write_text(text + "extensions: {seeds: 7-8}\n")
    profile = load_profile("mine", tmp_path)
    assert profile.seeds == (3, 4, 5)
    assert profile.sections["extensions"] == {"seeds": [7, 8]}
    assert profile.for_studies([9, 8, 7]) == [9, 8]
    assert load_profile("smoke").for_studies([4, 5]) == [4, 5]
