"""EXTENDING.md: every file of the page is run, does what the page says, and equals what it is like elsewhere."""

import dataclasses
import importlib
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted import contents, federation, interrupted, planted_splits, small

from qfl_core import METHODS, load_runs
from qfl_core.algorithm.hooks import SAMPLE_SIZE
from qfl_core.algorithm.meta import OuterSpsa
from qfl_core.algorithm.methods import method_named
from qfl_core.algorithm.samples import Attendance
from qfl_core.algorithm.server import aggregate
from qfl_core.base import registry
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.engines import make_engine
from qfl_core.runs import plugins
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_model, make_qnn
from qfl_core.runs.results import find_runs
from qfl_core.runs.run import run_experiment

PAGE = (Path(__file__).resolve().parent.parent / "EXTENDING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
NAMES = [
    "my_switches",
    "my_server",
    "my_optimizer",
    "my_loss",
    "my_aggregation",
    "my_method",
    "my_outer",
    "my_controller",
    "my_circuit",
    "my_data",
    "my_study",
]
#: What each file registers, as a change of a config.
NAMED = [
    ("my_switches", {"method": "my-last-prox"}),
    ("my_server", {"method": "my-fedavgm"}),
    ("my_server", {"method": "my-fedadam"}),
    ("my_server", {"method": "my-fedyogi"}),
    ("my_optimizer", {"method": "my-momentum"}),
    ("my_loss", {"loss": "my-focal"}),
    ("my_aggregation", {"method": "my-learned"}),
    ("my_aggregation", {"method": "my-median"}),
    ("my_method", {"method": "my-scaffold"}),
    ("my_outer", {"outer_optimizer": "my-signs"}),
    ("my_controller", {"method": "my-schedule"}),
    ("my_circuit", {"feature_map": "my-rotations"}),
    ("my_circuit", {"ansatz": "my-chain"}),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the page's files into a folder."""
    folder = tmp_path_factory.mktemp("page")
    for name, code in BLOCKS.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


@pytest.fixture
def page(files, clean_tables, monkeypatch):
    """Return a function that imports a file of the page as a user would, so that it registers what it has."""
    monkeypatch.syspath_prepend(files)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def told(fed) -> list[str]:
    """Return a run's records as text, without timings."""
    return [json.dumps(record | {"seconds": 0}, default=lambda v: v.item(), sort_keys=True) for record in train(fed)]


# The page


def test_every_block_of_the_page_is_a_file_and_is_short():
    assert list(BLOCKS) == NAMES
    assert len(BLOCKS) == PAGE.count("```python")
    for name, code in BLOCKS.items():
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= (40 if name == "my_server" else 25), name  # three optimisers are in that file
        assert max(map(len, lines)) <= 120


def test_every_row_of_the_table_has_a_section():
    titles = re.findall(r"^## (.*)$", PAGE, re.M)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    linked = re.findall(r"^\| \[.*?\]\(#(.*?)\)", PAGE, re.M)
    assert len(linked) == 10
    assert set(linked) == anchors - {"running-them"}


def test_the_study_of_the_page_runs_and_gives_the_extras_numbers_to_the_bit(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page("my_study")
    assert re.search(r"test_roc_auc: my-scaffold - duqfl-best = [+-]\d\.\d+ .* n = 2", capsys.readouterr().out)
    found = {run.config.method: run for run in find_runs("my_results", seed=0)}
    assert set(found) == {"my-scaffold", "my-learned", "duqfl-best", "duqfl-prox", "my-fedadam", "my-median"}
    assert found["my-learned"].environment["data"]["source"] == "bundled"
    for mine, extra in {"my-scaffold": "scaffold-qfl", "my-learned": "duqfl-learned"}.items():
        config = found[mine].config.replace(dataset="breast-cancer", method=extra)
        assert np.array_equal(run_experiment(config, "theirs").weights, found[mine].weights)


@pytest.mark.parametrize("command", re.findall(r"^python -m qfl_core (.*)$", PAGE, re.M))
def test_the_commands_of_the_page_work(command, page, files, tmp_path, monkeypatch, capsys):
    from qfl_core.__main__ import main

    monkeypatch.chdir(files)
    arguments = [*command.split(), "--results", str(tmp_path)]
    if arguments[0] == "run":
        few = {"clients": 2, "rounds": 1, "chunk": 12, "unfolds": 1, "spsa_iterations": 1, "dataset": "breast-cancer"}
        arguments += [text for name, value in few.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    assert main(arguments) == 0
    capsys.readouterr()


# What a plugin registers is used, is named in the results, and survives


@pytest.mark.parametrize(("file", "change"), NAMED, ids=str)
def test_a_run_uses_what_was_registered_and_a_killed_run_ends_in_the_same_bytes(
    file, change, page, tmp_path, monkeypatch
):
    page(file)
    splits = planted_splits()
    base = small(rounds=3, outer_period=1, participation=0.7)
    config = base.replace(**change)

    whole = run_experiment(config, tmp_path / "whole", splits=splits)
    assert json.loads((whole.path / "config.json").read_text()).items() >= change.items()
    ((kind, name),) = change.items()
    assert set(whole.environment["extensions"]) == {kind}
    other = {"my-last-prox": "duqfl-last", "my-scaffold": "duqfl-best"}.get(name, "duqfl-prox")
    plain = run_experiment(base.replace(method=other), tmp_path / "plain", splits=splits)
    assert "extensions" not in plain.environment
    assert whole.weights.shape != plain.weights.shape or not np.array_equal(whole.weights[-1], plain.weights[-1])
    for kept in range(1, 4):
        assert contents(interrupted(config, tmp_path / f"{kept}", splits, kept)) == contents(whole)


@pytest.mark.parametrize(("file", "change"), NAMED[4:], ids=str)
def test_runs_of_what_is_not_registered_are_left_out(file, change, page, tmp_path):
    page(file)
    run_experiment(small(rounds=1, **change), tmp_path, splits=planted_splits())
    assert len(find_runs(tmp_path)) == 1
    for kind, name in list(plugins.REGISTERED):
        registry.PLUGIN_TABLES[kind].pop(name)
    plugins.REGISTERED.clear()
    assert find_runs(tmp_path) == []
    with pytest.raises(RunError, match="no finished run"):
        load_runs(tmp_path)


def test_a_value_of_a_hook_is_part_of_the_runs_identity(page):
    server = page("my_server")
    seen = set()
    for rate in (0.1, 0.2):
        method = dataclasses.replace(METHODS["duqfl-prox"], label="Mine", server=server.FedAdam(rate=rate))
        plugins.register_method("mine", method)
        seen.add(plugins.REGISTERED["method", "mine"].sha256)
    assert len(seen) == 2


# Switches


def test_the_method_of_switches_is_its_base_where_the_penalty_is_zero(page):
    page("my_switches")
    mine, last = method_named("my-last-prox"), METHODS["duqfl-last"]
    assert told(federation(method=mine, mu=0, outer_period=1)) == told(federation(method=last, mu=0, outer_period=1))
    assert told(federation(method=mine)) != told(federation(method=last))


# An outer optimiser


def test_a_step_of_signs_changes_every_entry_by_the_rate_over_the_number_of_steps(page):
    page("my_outer")
    fed = federation(rounds=4, outer_optimizer="my-signs", outer_period=1, outer_learning_rate=0.6)
    phis = [np.array(record["state"]["phi"]["controller"]) for record in train(fed)]
    assert [np.unique(np.abs(after - before).round(12)).tolist() for before, after in itertools.pairwise(phis)] == [
        [0.6],
        [0.3],
        [0.2],
        [0.0],  # no round follows the last
    ]


@pytest.mark.parametrize("wrong", [None, 3, "spsa", OuterSpsa, METHODS], ids=["None", "3", "spsa", "class", "dict"])
def test_an_outer_optimiser_is_an_object_with_three_methods(wrong, clean_tables):
    with pytest.raises(ConfigError, match="'mine' must be an object with the methods probes, measure and update"):
        plugins.register_outer_optimizer("mine", wrong)
    with pytest.raises(ConfigError, match="'spsa' is the package's own"):
        plugins.register_outer_optimizer("spsa", OuterSpsa())
    assert plugins.REGISTERED == {}


# Server optimisers and the median, beside Flower's strategies


def attendance(sizes) -> Attendance:
    nothing = np.zeros(len(sizes))
    return Attendance(0, np.arange(len(sizes)), np.array(sizes), nothing, nothing)


def flower_rounds(strategy, theta, rounds, sizes):
    """Yield the global models of a Flower strategy that receives these uploads, round after round."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # as Flower sets them
    for t, uploads in enumerate(rounds, start=1):  # Flower counts rounds from 1
        arrays = ArrayRecord({"theta": Array(theta)})
        assert strategy.configure_train(t, arrays, ConfigRecord(), grid=None) == []  # tells it the global model
        replies = []
        for node, (upload, size) in enumerate(zip(uploads, sizes, strict=True), start=1):
            arrays, metrics = ArrayRecord({"theta": Array(upload)}), MetricRecord({"num-examples": size})
            asked = Message(RecordDict({}), node, "train")
            replies.append(Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=asked))
        found, _ = strategy.aggregate_train(t, replies)
        theta = found["theta"].numpy()
        yield theta


def our_rounds(method, theta, rounds, sizes):
    """Yield the global models of the aggregation and the server optimiser of a method, round after round."""
    state = method.server.init(len(theta)) if method.server else {}
    who = attendance(sizes)
    for uploads in rounds:
        average = aggregate(uploads, method.aggregation(who, {}), who.client_ids, method.aggregation.combine)
        theta, state = method.server.update(theta, average, state) if method.server else (average, state)
        yield theta


@st.composite
def uploads_of_rounds(draw):
    """Draw a start (P,), uploads (rounds, clients, P) and sample sizes; scales differ by powers of ten."""
    shape = draw(st.tuples(st.integers(2, 6), st.integers(1, 5), st.integers(1, 8)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.integers(-4, 1))
    sizes = [int(n) for n in rng.integers(1, 200, shape[1])]
    return rng.uniform(-np.pi, np.pi, shape[2]), scale * rng.normal(size=shape), sizes


@pytest.mark.parametrize(
    ("name", "ours", "flowers"),
    [
        ("FedAvgM", {"rate": rate, "momentum": momentum}, {"server_learning_rate": rate, "server_momentum": momentum})
        for rate, momentum in [(1.0, 0.9), (0.5, 0.9), (1.0, 0.0), (0.3, 0.0), (2.0, 0.5)]
    ]
    + [
        (
            name,
            {"rate": rate, "beta1": beta1, "beta2": beta2, "tau": tau},
            {"eta": rate, "beta_1": beta1, "beta_2": beta2, "tau": tau},
        )
        for name in ("FedAdam", "FedYogi")
        for rate, beta1, beta2, tau in [(0.1, 0.9, 0.99, 1e-3), (0.01, 0.5, 0.9, 0.1), (1.0, 0.0, 0.0, 1e-2)]
    ]
    + [("FedAdam", {}, {}), ("FedYogi", {}, {})],
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=uploads_of_rounds())
def test_the_server_optimisers_of_the_page_are_flowers(page, name, ours, flowers, drawn):
    pytest.importorskip("flwr")
    from flwr.serverapp import strategy

    theta, rounds, sizes = drawn
    method = dataclasses.replace(METHODS["duqfl-prox"], server=getattr(page("my_server"), name)(**ours))
    theirs = flower_rounds(getattr(strategy, name)(fraction_train=0.0, **flowers), theta, rounds, sizes)
    mine = our_rounds(method, theta, rounds, sizes)
    for t, (found, expected) in enumerate(zip(mine, theirs, strict=True)):
        assert np.allclose(found, expected, rtol=1e-12, atol=1e-12), t


@pytest.mark.parametrize("seed", range(5))
def test_the_median_of_the_page_is_flowers_and_one_wild_upload_does_not_move_it_far(page, seed):
    pytest.importorskip("flwr")
    from flwr.serverapp.strategy import FedMedian

    page("my_aggregation")
    rng = np.random.default_rng(seed)
    theta, rounds, sizes = np.zeros(6), rng.normal(size=(3, 5, 6)), [3, 9, 1, 40, 5]
    rounds[:, seed] = 1e9
    method = method_named("my-median")
    found = list(our_rounds(method, theta, rounds, sizes))
    assert np.allclose(found, list(flower_rounds(FedMedian(fraction_train=0.0), theta, rounds, sizes)), atol=1e-12)
    honest = np.delete(rounds, seed, axis=1)
    assert (found <= honest.max(axis=1)).all()
    assert (found >= honest.min(axis=1)).all()
    assert method.aggregation.weights is SAMPLE_SIZE.weights


def test_the_servers_state_is_kept_and_a_virtual_round_does_not_change_it(page, tmp_path):
    server = page("my_server")
    kept = run_experiment(small(method="my-fedadam", rounds=3, outer_period=1), tmp_path, splits=planted_splits())
    assert kept.parameters["server_t"].tolist() == [1, 2, 3, 4]
    assert np.abs(kept.parameters["server_m"][1:]).min() > 0
    adam = dataclasses.replace(METHODS["duqfl-prox"], server=server.FedAdam())
    frozen = [r["state"] for r in train(federation(method=adam, rounds=3, outer_period=0))]
    tried = [r["state"] for r in train(federation(method=adam, rounds=3, outer_period=1, outer_learning_rate=0))]
    assert tried == frozen


def test_a_rate_of_one_half_stops_half_way_to_the_average(page):
    server = page("my_server")
    plain = dataclasses.replace(METHODS["duqfl-prox"], server=server.FedAvgM(rate=1.0, momentum=0.0))
    half = dataclasses.replace(METHODS["duqfl-prox"], server=server.FedAvgM(rate=0.5, momentum=0.0))
    found = {}
    for name, method in {"paper": METHODS["duqfl-prox"], "plain": plain, "half": half}.items():
        found[name] = [np.array(r["state"]["theta"]) for r in train(federation(method=method, rounds=1))]
    assert np.allclose(found["plain"], found["paper"], atol=1e-12)
    begin, end = found["paper"]
    assert np.allclose(found["half"][1], (begin + end) / 2, atol=1e-12)


# A controller


def test_a_factor_of_one_is_the_papers_controller_to_the_bit(page):
    schedule = page("my_controller").FastThenSlow
    prox = METHODS["duqfl-prox"]
    changes = {"rounds": 3, "outer_period": 1}
    still = federation(method=dataclasses.replace(prox, optimizer=schedule(first=1.0, decay=0.0)), **changes)

    def without_memory(records):
        found = [json.loads(record) for record in records]
        return [record | {"state": record["state"] | {"memory": {}}} for record in found]

    assert without_memory(told(still)) == without_memory(told(federation(method=prox, **changes)))


def test_the_rates_of_the_pages_controller_fall_and_are_recorded(page):
    page("my_controller")
    fed = federation(method=method_named("my-schedule"), rounds=3, outer_period=0, learning_rate=0.2)
    rates = [record["client_trace"][0]["eta"] for record in train(fed) if record["client_trace"]]
    assert np.allclose(rates, 0.2 * 3.0 * np.exp([0, -0.1, -0.2]))


# The client optimiser


def test_without_momentum_the_pages_optimiser_is_spsa_to_the_bit(page):
    optimizer = page("my_optimizer").MomentumSpsa
    prox = METHODS["duqfl-prox"]
    changes = {"rounds": 3, "outer_period": 2, "spsa_iterations": 3}
    still = told(federation(method=dataclasses.replace(prox, optimizer=optimizer(beta=0.0)), **changes))
    base = told(federation(method=prox, **changes))
    assert still == base
    assert told(federation(method=method_named("my-momentum"), **changes)) != base


def test_momentum_adds_half_of_the_step_before(page):
    from qfl_core.algorithm.hooks import Block

    optimizer = page("my_optimizer").MomentumSpsa(beta=0.5)
    slope = np.array([[1.0, -2.0]])
    objective = lambda points: (points * slope).sum(axis=2)  # noqa: E731
    ends, one = [], np.ones(1)
    for iterations in (1, 2):
        block = Block(np.zeros((1, 2)), 0.1 * one, 0.2 * one, iterations, [np.random.default_rng(3)])
        result, state = optimizer.update(block, objective, {})
        ends.append(result.theta)
        assert result.evaluations == {"train": 2 * iterations}
        assert state == {}
    d = [1.0 - 2.0 * row for row in np.random.default_rng(3).integers(0, 2, (2, 2))]
    g = [(slope[0] @ row) * row for row in d]
    assert np.allclose(ends[0], -0.1 * g[0])
    assert np.allclose(ends[1], -0.1 * g[0] - 0.1 * (0.5 * g[0] + g[1]))


# The loss


def test_the_slope_of_the_pages_loss_is_its_difference_quotient(page):
    loss = page("my_loss")
    p, h = np.linspace(0.05, 0.95, 19), 1e-6
    for label in (0, 1):
        y = np.full(len(p), label)
        quotient = (loss.focal(p + h, y, 1e-12) - loss.focal(p - h, y, 1e-12)) / (2 * h)
        assert np.allclose(loss.focal_slope(p, y, 1e-12), quotient, rtol=1e-6, atol=1e-8)
        assert np.allclose(loss.focal(p, y, 1e-12), [-((1 - q) ** 2) * np.log(q) for q in (p if label else 1 - p)])
    ends, y = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 0, 1, 1])
    assert np.isfinite([loss.focal(ends, y, 1e-3), loss.focal_slope(ends, y, 1e-3)]).all()


def test_training_minimises_the_pages_loss_and_validation_stays_the_log_loss(page):
    loss = page("my_loss")
    model = make_model(small(loss="my-focal"))
    assert model.loss.value is loss.focal
    fed = federation(loss="my-focal", method=METHODS["duqfl-best"], shots=None, rounds=1, outer_period=0)
    base = federation(method=METHODS["duqfl-best"], shots=None, rounds=1, outer_period=0)
    (begun, found), (before, plain) = train(fed), train(base)
    assert found["client_trace"][0]["task_loss_before"] < plain["client_trace"][0]["task_loss_before"]
    assert begun["validation"] == before["validation"]


def test_adam_takes_the_pages_loss_and_refuses_one_without_a_slope(page, tmp_path):
    loss = page("my_loss")
    adam = {"method": "adam-qfl", "rounds": 1, "spsa_iterations": 40}
    theirs = run_experiment(small(**adam), tmp_path, splits=planted_splits())
    ours = run_experiment(small(loss="my-focal", **adam), tmp_path, splits=planted_splits())
    assert not np.array_equal(ours.weights[-1], theirs.weights[-1])
    plugins.register_loss("my-blunt", loss.focal)
    with pytest.raises(ConfigError, match="this loss has no derivative: register it with a slope, or choose an SPSA"):
        run_experiment(small(loss="my-blunt", **adam), tmp_path, splits=planted_splits())


# Circuits


@pytest.mark.parametrize("features", [2, 3])
def test_the_engine_gives_qiskits_probabilities_of_the_pages_circuits(page, features):
    from qiskit.quantum_info import Statevector

    page("my_circuit")
    config = small(features=features, feature_map="my-rotations", ansatz="my-chain", feature_map_reps=2, ansatz_reps=2)
    qnn = make_qnn(config)
    assert qnn.num_weights == 2 * features * 2
    rng = np.random.default_rng(0)
    X, theta = rng.uniform(0, np.pi, (5, features)), rng.uniform(-np.pi, np.pi, qnn.num_weights)
    engine = make_engine("statevector", qnn)
    odd = [bin(z).count("1") % 2 == 1 for z in range(2**features)]
    expected = [Statevector(qnn.bind(x, theta)).probabilities()[odd].sum() for x in X]
    assert np.allclose(engine.probabilities(engine.encode(X), theta), expected, atol=1e-12)
    for weight in np.eye(qnn.num_weights):  # the readout notices every weight
        assert not np.allclose(engine.probabilities(engine.encode(X), theta + weight), expected, atol=1e-6)
