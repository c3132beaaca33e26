"""The extras and how to add one's own: equalities to the bit, memory that survives, names and identities."""

import dataclasses
import importlib
import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import contents, federation, interrupted, planted_splits, small

from qfl_core import data
from qfl_core.algorithm.hooks import SAMPLE_SIZE, Aggregation
from qfl_core.algorithm.losses import squared_error
from qfl_core.algorithm.meta import moved, outer_direction, refine_controller
from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.algorithm.optimizers import Spsa, spsa_block
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import IN_PROCESS, InProcess, State
from qfl_core.base import registry
from qfl_core.base.errors import ConfigError, DataError
from qfl_core.base.registry import DATASETS, METHOD_NAMES, DatasetSpec
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.extras import corrected
from qfl_core.extras.corrected import CorrectedSpsa
from qfl_core.extras.learned import DUQFL_LEARNED, zeros
from qfl_core.extras.scaffold import SCAFFOLD_QFL, Scaffold
from qfl_core.runs import plugins
from qfl_core.runs.experiment import state_from_json, train
from qfl_core.runs.identity import run_identity
from qfl_core.runs.plugins import (
    register_ansatz,
    register_dataset,
    register_feature_map,
    register_loss,
    register_method,
)
from qfl_core.runs.prepare import prepare
from qfl_core.runs.results import find_runs
from qfl_core.runs.run import run_experiment
from qfl_core.runs.sweep import _run

BEST, PROX = METHODS["duqfl-best"], METHODS["duqfl-prox"]
LEARNED = DUQFL_LEARNED.aggregation


def told(fed, trainer=IN_PROCESS, *, extras=False) -> list[str]:
    """Return a run's records as text, without timings; what only an extra has is in them where it is asked for."""
    records = []
    for record in train(fed, trainer=trainer):
        state = record["state"]
        if not extras:
            state = state | {"memory": {}, "phi": {"controller": state["phi"]["controller"]}}
        records.append(json.dumps(record | {"state": state, "seconds": 0}, default=lambda v: v.item(), sort_keys=True))
    return records


def states(fed) -> list[dict]:
    return [record["state"] for record in train(fed)]


# The table


def test_the_papers_seven_stay_seven():
    from qfl_core.analysis.tables import roles_table

    assert tuple(METHODS) == METHOD_NAMES
    assert len(roles_table()) == 7
    for name in ("scaffold-qfl", "duqfl-learned"):
        assert ExperimentConfig(method=name).method == name
        assert method_named(name).label.lower() == name


def test_an_extra_is_its_base_but_for_one_switch():
    words = {"label": "", "role": ""}
    assert dataclasses.replace(SCAFFOLD_QFL, optimizer=Spsa(), **words) == dataclasses.replace(BEST, **words)
    assert dataclasses.replace(DUQFL_LEARNED, aggregation=SAMPLE_SIZE, **words) == dataclasses.replace(PROX, **words)


@pytest.mark.parametrize(
    ("base", "switch", "reason"),
    [
        ("duqfl-drift", {"optimizer": CorrectedSpsa(Scaffold())}, "a correction and a projection do not go together"),
        ("scaffold-qfl", {"projection": True}, "a correction and a projection do not go together"),
        ("fedprox-qfl", {"aggregation": LEARNED}, "together with the controller"),
        ("duqfl-learned", {"controller": False}, "together with the controller"),
    ],
)
def test_switches_that_cannot_work_together_are_refused(base, switch, reason):
    with pytest.raises(ConfigError, match=reason):
        dataclasses.replace(method_named(base), **switch)


# SCAFFOLD-QFL


@dataclasses.dataclass(frozen=True)
class Still(Scaffold):
    """Variates that never leave 0."""

    def update(self, memory, client_ids, pull):
        return memory


def test_with_variates_of_zero_it_is_its_base_to_the_bit():
    settings = {"rounds": 3, "outer_period": 2}
    still = dataclasses.replace(SCAFFOLD_QFL, optimizer=CorrectedSpsa(Still()))
    base = told(federation(method=BEST, **settings))
    assert told(federation(method=still, **settings)) == base
    assert told(federation(method=SCAFFOLD_QFL, **settings)) != base


def test_with_one_client_it_is_its_base_to_the_bit():
    settings = {"clients": 1, "rounds": 4, "outer_period": 2}
    assert told(federation(method=SCAFFOLD_QFL, **settings)) == told(federation(method=BEST, **settings))


def test_a_step_follows_the_gradient_and_the_shift():
    theta, directions = np.array([[0.3, -0.2]]), np.array([[[1.0, -1.0]]])
    shift = np.array([[0.5, 0.25]])
    loss = lambda points: (points**2).sum(axis=2)  # noqa: E731
    moved = spsa_block(theta, loss, np.array([0.1]), np.array([0.2]), directions, shift)
    slope = 2 * 0.3 * 1 + 2 * -0.2 * -1
    assert np.allclose(moved, theta - 0.1 * (slope * directions[0] + shift), atol=1e-15)


def test_the_shift_takes_the_clients_variate_away_and_adds_the_mean():
    assert Scaffold().shift({"variates": np.array([[1.0, 4.0], [3.0, 0.0]])}).tolist() == [[1.0, -2.0], [-1.0, 2.0]]


def test_the_variate_is_the_mean_of_the_clients_estimates_weighted_by_their_rates(monkeypatch):
    fed = federation(method=SCAFFOLD_QFL, unfolds=3, outer_period=0, rounds=2)
    steps = []

    def spied(theta, loss, eta, delta, directions, shift):
        for direction in directions.swapaxes(0, 1):
            moved = spsa_block(theta, loss, eta, delta, direction[:, None], shift)
            steps.append((eta, (theta - moved) / eta[:, None] - shift))
            theta = moved
        return theta

    monkeypatch.setattr(corrected, "spsa_block", spied)
    begun = State.initial(fed)
    # A controller that moves eta from unfold to unfold and from client to client.
    slopes = {"controller": np.linspace(-0.5, 0.5, 14).reshape(2, 7)}
    begun = dataclasses.replace(begun, phi=moved(begun.phi, 1, slopes))
    for record in train(fed, begun):
        rates = np.array([eta for eta, _ in steps])
        assert np.ptp(rates, axis=0).min() > 0.001
        expected = (rates[:, :, None] * np.array([g for _, g in steps])).sum(axis=0) / rates.sum(axis=0)[:, None]
        assert np.allclose(record["state"]["memory"]["variates"], expected, atol=1e-10)
        steps.clear()


def test_the_mean_variate_follows_the_servers_recursion_and_absent_clients_keep_theirs():
    fed = federation(method=SCAFFOLD_QFL, clients=5, rounds=5, participation=0.6, outer_period=2)
    found = [np.array(state["memory"]["variates"]) for state in states(fed)]
    c = np.zeros(fed.num_weights)
    for t, (before, after) in enumerate(itertools.pairwise(found)):
        present = fed.participants(t)
        assert len(present) == 3
        absent = np.setdiff1d(np.arange(5), present)
        assert np.array_equal(after[absent], before[absent])
        c = c + len(present) / 5 * (after - before)[present].mean(axis=0)
        assert np.allclose(after.mean(axis=0), c, atol=1e-14)
        assert np.abs(after[present] - before[present]).min() > 0


def test_virtual_rounds_use_the_variates_and_do_not_change_them():
    settings = {"method": SCAFFOLD_QFL, "rounds": 3}
    frozen = states(federation(outer_period=0, **settings))
    tried = states(federation(outer_period=1, outer_learning_rate=0, **settings))
    assert tried == frozen
    state, sent = state_from_json(tried[-2]), Sent()
    refine_controller(federation(outer_period=1, **settings), state, sent)
    shift = Scaffold().shift(state.memory)
    assert np.abs(shift).max() > 0
    assert [b.purpose for b in sent] == ["virtual", "virtual"]
    assert all(np.array_equal(b.state["shift"], shift) for b in sent)


class Sent(InProcess, list):
    """Trains here and keeps every broadcast."""

    def train(self, federation, sent):
        self.append(sent)
        return super().train(federation, sent)


# Learned weights


def attendance(sizes, client_ids=None) -> Attendance:
    ids, nothing = np.arange(len(sizes)) if client_ids is None else client_ids, np.zeros(len(sizes))
    return Attendance(0, ids, np.array(sizes), nothing, nothing)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=12))
def test_logits_of_zero_are_fedavg_to_the_bit(sizes):
    who = attendance(sizes)
    assert np.array_equal(LEARNED(who, zeros(len(sizes))), SAMPLE_SIZE(who, {}))


@given(st.lists(st.tuples(st.integers(1, 10**4), st.floats(-1e4, 1e4)), min_size=1, max_size=12))
def test_learned_weights_are_weights_whatever_the_logits(drawn):
    sizes, logits = (np.array(column) for column in zip(*drawn, strict=True))
    w = LEARNED(attendance(sizes), {"weights": logits})
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1, abs=1e-12)
    n, a = sizes, np.clip(logits, -50, 50)
    if np.array_equal(a, logits):
        assert np.allclose(w, n * np.exp(a) / (n * np.exp(a)).sum(), rtol=1e-9)


def test_a_client_takes_its_own_logit_whoever_else_is_there():
    logits = np.array([9.0, 0.0, 9.0, np.log(3)])
    w = LEARNED(attendance([10, 10], client_ids=np.array([1, 3])), {"weights": logits})
    assert np.allclose(w, [0.25, 0.75])


@pytest.mark.parametrize("bad", [[0.5, 0.6], [1.5, -0.5], [1.0], [np.nan, 1.0]])
def test_a_rule_whose_values_are_not_weights_is_refused(bad):
    def wrong(attendance, learned):
        return np.array(bad)

    with pytest.raises(DataError, match=r"wrong gave the weights .* expected 2 of at least 0 with sum 1"):
        Aggregation(wrong)(attendance([1, 1]), {})


def test_learned_weights_that_do_not_move_are_its_base_to_the_bit():
    settings = {"rounds": 3, "outer_period": 1, "outer_learning_rate": 0}
    outer = ("meta_loss_plus", "meta_loss_minus", "controller_gradient_norm")
    found = []
    for method in (DUQFL_LEARNED, PROX):
        records = [json.loads(text) for text in told(federation(method=method, **settings))]
        for row in (row for record in records for row in record["outer_meta"]):
            assert [row.pop(name) for name in outer]
        found.append(records)
    assert found[0] == found[1]


def test_one_pair_of_virtual_rounds_refines_controller_and_weights():
    settings = {"rounds": 2, "outer_period": 1, "outer_perturbation": 0.2, "outer_learning_rate": 2.0}
    fed, base = federation(method=DUQFL_LEARNED, **settings), federation(method=PROX, **settings)
    theirs, ours = list(train(base)), list(train(fed))
    assert [r["global_accuracies"][0].get("circuits_virtual") for r in ours] == [
        r["global_accuracies"][0].get("circuits_virtual") for r in theirs
    ]
    (row,) = ours[1]["outer_meta"]
    slope = (row["meta_loss_plus"] - row["meta_loss_minus"]) / 0.4
    begun, given = state_from_json(ours[0]["state"]), []
    direction = outer_direction(begun.phi, fed.config.seed, 0)
    alone = outer_direction(State.initial(base).phi, fed.config.seed, 0)
    assert np.array_equal(direction["controller"], alone["controller"])

    def spied(attendance, learned):
        given.append(learned["weights"])
        return LEARNED.weights(attendance, learned)

    method = dataclasses.replace(DUQFL_LEARNED, aggregation=Aggregation(spied, zeros))
    refine_controller(dataclasses.replace(fed, method=method), begun)
    assert np.allclose(given, [0.2 * direction["weights"], -0.2 * direction["weights"]])
    found = ours[1]["state"]["phi"]
    assert np.allclose(found["weights"], -2.0 * slope * direction["weights"], atol=1e-14)
    step = np.array(found["controller"]) - begun.phi["controller"]
    assert np.allclose(step, -2.0 * slope * direction["controller"], atol=1e-12)


def test_learned_weights_move_and_decide_the_next_model():
    settings = {"rounds": 3, "outer_period": 1, "outer_learning_rate": 5.0}
    records = list(train(federation(method=DUQFL_LEARNED, **settings)))
    weights = [[row["aggregation_weight"] for row in r["client_trace"] if row["unfold"] == 1] for r in records[1:]]
    sizes = [np.array([row["client_size"] for row in r["client_trace"] if row["unfold"] == 1]) for r in records[1:]]
    assert np.array_equal(weights[0], sizes[0] / sizes[0].sum())
    assert np.abs(weights[1] - sizes[1] / sizes[1].sum()).max() > 1e-4
    assert np.sum(weights, axis=1) == pytest.approx([1, 1, 1], abs=1e-12)
    assert records[3]["state"]["theta"] != list(train(federation(method=PROX, **settings)))[3]["state"]["theta"]


# Memory survives


@pytest.mark.parametrize("name", ["scaffold-qfl", "duqfl-learned"])
def test_a_run_stopped_after_any_round_ends_in_the_same_bytes(name, tmp_path, monkeypatch):
    config, splits = small(method=name, rounds=3, outer_period=1, participation=0.7), planted_splits()

    whole = run_experiment(config, tmp_path / "whole", splits=splits)
    learnt = {"scaffold-qfl": "memory_variates", "duqfl-learned": "phi_weights"}[name]
    assert len(whole.parameters[learnt]) == 4
    assert np.abs(whole.parameters[learnt][-1]).max() > 0
    for kept in range(1, 4):
        assert contents(interrupted(config, tmp_path / f"{kept}", splits, kept)) == contents(whole)


# Over messages


def test_learned_weights_stay_at_the_server_and_give_the_same_bits_over_messages():
    pytest.importorskip("flwr")
    from fakegrid import FakeGrid

    from qfl_core.network.asking import Nodes, Patience
    from qfl_core.network.nodes import NodeTrainer

    fields = {}
    for name in ("duqfl-learned", "duqfl-prox"):
        config = small(dataset="breast-cancer", method=name, outer_period=1, participation=0.7)
        prepared, grid = prepare(config), FakeGrid(config, [{"partition-id": i} for i in (2, 0, 1)])
        nodes = NodeTrainer(Nodes(grid, Patience(timeout=0.5, wait=0.2, poll=0.01)), prepared.source.sha256)
        assert told(prepared.federation, nodes, extras=True) == told(prepared.federation, extras=True)
        messages = [message.content for message in (*grid.down, *grid.up)]
        fields[name] = {(record, field) for content in messages for record in content for field in content[record]}
    assert fields["duqfl-learned"] == fields["duqfl-prox"]


# Breast cancer


def test_the_breast_cancer_parts_are_disjoint_complete_stratified_and_decided_by_the_seed():
    config = ExperimentConfig(dataset="breast-cancer")
    splits = load_splits(config)
    data._kept.cache_clear()  # so that equal splits are loaded again
    again, other = load_splits(config), load_splits(config.replace(seed=1))
    assert again is not splits
    rows = np.concatenate([part.origin for part in splits.parts.values()])
    assert sorted(rows) == list(range(569))
    assert sum(part.y.sum() for part in splits.parts.values()) == 212  # malignant
    assert [part.y.mean() for part in splits.parts.values()] == pytest.approx([212 / 569] * 3, abs=0.01)
    for part, same, different in zip(*(s.parts.values() for s in (splits, again, other)), strict=True):
        assert np.array_equal(part.X, same.X)
        assert np.array_equal(part.y, same.y)
        assert not np.array_equal(part.origin, different.origin)
    assert splits.provenance.sha256 == other.provenance.sha256


def test_no_row_outside_the_training_part_moves_the_breast_cancer_encoder(monkeypatch):
    from qfl_core.data import breast_cancer

    config = ExperimentConfig(dataset="breast-cancer")
    splits = load_splits(config)
    X, y = breast_cancer._tumours()
    spoilt = X.copy()
    spoilt[np.concatenate([splits.val.origin, splits.test.origin])] *= 7
    monkeypatch.setattr(breast_cancer, "_tumours", lambda: (spoilt, y))
    found = load_splits(config)
    assert np.array_equal(found.train.X, splits.train.X)
    assert not np.array_equal(found.test.X, splits.test.X)


@pytest.mark.parametrize("source", ["auto", "official", "stand-in"])
def test_breast_cancer_says_that_it_is_bundled_whatever_source_is_asked_for(source, tmp_path):
    config = small(dataset="breast-cancer", source=source, features=4, rounds=1)
    result = run_experiment(config, tmp_path)
    assert result.environment["data"]["source"] == "bundled"
    assert result.path.parts[-4] == "breast-cancer-pca"


def test_the_encoder_does_not_depend_on_the_order_it_meets_the_rows_in():
    config = ExperimentConfig(dataset="breast-cancer")
    plain, shuffled = load_splits(config), load_splits(config, order=np.random.default_rng(0))
    assert np.allclose(plain.test.X, shuffled.test.X, atol=1e-9)


# Registering one's own


@pytest.mark.parametrize("name", ["duqfl-prox", "scaffold-qfl"])
def test_the_packages_names_are_taken(name, clean_tables):
    with pytest.raises(ConfigError, match=f"method '{name}' is the package's own"):
        register_method(name, PROX)


@pytest.mark.parametrize("name", ["../up", "a/b", "A", "", "-x", "x y", ".", 3])
def test_a_name_that_is_no_folders_is_refused(name, clean_tables):
    with pytest.raises(ConfigError, match="small letters, digits and single hyphens"):
        register_method(name, PROX)


@pytest.mark.parametrize("name", ["con", "nul", "com1"])
def test_a_name_that_no_folder_on_windows_can_have_is_refused(name, clean_tables):
    with pytest.raises(ConfigError, match="no folder on Windows can have this name"):
        register_method(name, PROX)


def test_what_cannot_be_registered_is_named(clean_tables):
    with pytest.raises(ConfigError, match="must be a qfl_core.algorithm.methods.Method, got dict"):
        register_method("mine", {"optimizer": "spsa"})
    with pytest.raises(ConfigError, match="must be a qfl_core.base.registry.DatasetSpec, got function"):
        register_dataset("mine", load_splits)
    with pytest.raises(ConfigError, match="tracks of another dataset"):
        register_dataset("mine-clean", DATASETS["baf"])
    with pytest.raises(ConfigError, match=r"loader must be a function of \(config, order=None\), got 3"):
        register_dataset("mine", dataclasses.replace(DATASETS["baf"], loader=3))
    with pytest.raises(ConfigError, match=r"source must be a function of \(config\), got 3"):
        register_dataset("mine", dataclasses.replace(DATASETS["baf"], source=3))
    space = {}
    exec("def load(config, order=None): ...", space)
    with pytest.raises(ConfigError, match="the code of load cannot be read"):
        register_dataset("mine", DatasetSpec(space["load"], (1, 1, 1), DATASETS["baf"].encodings))


@pytest.mark.parametrize("wrong", [None, 3, "focal", [np.log]], ids=repr)
def test_losses_and_circuits_are_functions(wrong, clean_tables):
    for register, reason in (
        (register_loss, r"loss 'mine': value must be a function of \(p, y, margin\), got "),
        (register_feature_map, "feature_map 'mine' must be a function that builds a circuit, got "),
        (register_ansatz, "ansatz 'mine' must be a function that builds a circuit, got "),
    ):
        with pytest.raises(ConfigError, match=reason) as found:
            register("mine", wrong)
        assert "\n" not in str(found.value)
    if wrong is not None:
        with pytest.raises(ConfigError, match=r"loss 'mine': slope must be a function of \(p, y, margin\), got "):
            register_loss("mine", squared_error, wrong)
    assert plugins.REGISTERED == {}


@pytest.mark.parametrize(
    ("register", "name"),
    [(register_loss, "squared_error"), (register_feature_map, "zz"), (register_ansatz, "real_amplitudes")],
)
def test_the_packages_losses_and_circuits_keep_their_names(register, name, clean_tables):
    with pytest.raises(ConfigError, match=f"'{name}' is the package's own"):
        register(name, squared_error)


RULE = """
import dataclasses
from qfl_core import METHODS, register_method
from qfl_core.algorithm.hooks import Aggregation

def rule(attendance, learned):
    return attendance.sizes{power} / (attendance.sizes{power}).sum()

register_method("powered", dataclasses.replace(METHODS["fedprox-qfl"], label="Powered", aggregation=Aggregation(rule)))
"""


def test_a_changed_file_is_another_run_and_unknown_methods_runs_are_left_out(clean_tables, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    splits, found = planted_splits(), []
    for power in ("", " ** 2"):
        (tmp_path / "powered.py").write_text(RULE.replace("{power}", power))
        importlib.invalidate_caches()
        sys.modules.pop("powered", None)
        importlib.import_module("powered")
        config = small(method="powered", rounds=1)
        found.append(run_experiment(config, tmp_path / "results", splits=splits))
        assert run_experiment(config, tmp_path / "results", splits=splits).path == found[-1].path
    assert found[0].path != found[1].path
    assert found[0].environment["extensions"] != found[1].environment["extensions"]
    assert not np.array_equal(found[0].weights, found[1].weights)
    assert len(find_runs(tmp_path / "results", method="powered")) == 2
    own = list(plugins.REGISTERED.values())
    registry.EXTRA_METHODS.pop("powered")
    plugins.REGISTERED.clear()
    assert find_runs(tmp_path / "results") == []
    # A worker of a sweep is told what its parent registered.
    config = config.__class__.__new__(config.__class__)  # as unpickled: without a check of its values
    config.__dict__.update(small(rounds=1).to_dict() | {"method": "powered", "dataset": "breast-cancer"})
    config.__dict__.update(train_size=200, val_size=60, test_size=60, angle_range=(0.0, 1.0))
    _, path = _run(config, str(tmp_path / "worker"), False, own)
    assert (path / "DONE").is_file()


def test_the_packages_runs_keep_their_identity(clean_tables):
    before = run_identity(small(), "data")
    register_method("mine", dataclasses.replace(PROX, label="Mine", projection=True, proximal=False))
    assert run_identity(small(), "data") == before
    mine = run_identity(small(method="mine"), "data")
    register_method("mine", dataclasses.replace(PROX, label="Mine"))
    assert run_identity(small(method="mine"), "data") != mine


# Do they help?


def test_the_study_compares_each_extra_with_its_base_seed_by_seed(tmp_path):
    from qfl_core.base.errors import RunError
    from qfl_core.config import load_profile
    from qfl_core.figures.extras import extensions as sheet
    from qfl_core.studies.extras import BASES, METRICS, extras_study

    settings, section = load_profile("smoke"), {"tracks": ["breast-cancer"], "seeds": [0, 1, 2]}
    with pytest.raises(RunError, match="12 runs of track 'breast-cancer'"):
        extras_study(settings, section, tmp_path, train=False)
    extras_study(settings, section, tmp_path)
    found = extras_study(settings, section, tmp_path, train=False)
    assert len(found.differences) == len(BASES) * len(METRICS)
    rounds = found.studies["breast-cancer"].rounds
    last = rounds[rounds["round"] == rounds["round"].max()].set_index(["method", "seed"])
    for row in found.differences.itertuples():
        expected = (last.loc[row.extra, row.metric] - last.loc[row.base, row.metric]).mean()
        assert row.mean == pytest.approx(expected, abs=1e-12)
        assert row.low <= row.mean <= row.high
        assert row.verdict == "undecided"  # three seeds cannot show anything
    assert found.facts[0] == "data: breast cancer real (bundled)"
    assert len(found.factors) == 3 * settings.config("breast-cancer").clients
    table = found.verdicts()
    assert table.shape == (len(BASES) * len(METRICS), 1)
    first = found.differences.iloc[0]
    assert table.iloc[0, 0].startswith(f"{first['mean']:+.3f} [")
    assert table["breast-cancer"].str.endswith("] undecided").all()
    assert len(sheet(found).panels) == len(METRICS) + 2
    figure = sheet(found).draw()
    assert "undecided (filled)" in {text.get_text() for text in figure.legends[0].get_texts()}
    titles = [axis.get_title() for axis in figure.axes[:-1]]  # the last one names the datasets below its axis
    assert all("breast cancer" in title for title in titles)
    assert {"untrained", "majority class"} <= {line.get_label() for axis in figure.axes for line in axis.lines}
