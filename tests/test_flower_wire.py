"""The federation over messages: the same numbers, nothing of a sample on the wire, and wrong answers are left out."""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from fakegrid import FakeGrid
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from qfl_core.algorithm.client import Broadcast
from qfl_core.algorithm.meta import is_due, outer_direction
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.server import IN_PROCESS, State
from qfl_core.base.errors import ConfigError, DataError, FederationError
from qfl_core.base.registry import EXTRA_METHODS
from qfl_core.config import load_profile
from qfl_core.data import Splits, load_splits
from qfl_core.network import app as flower_app
from qfl_core.network import asking, wire
from qfl_core.network.asking import LOST, Nodes, Patience
from qfl_core.network.launch import federate
from qfl_core.network.nodes import NodeTrainer
from qfl_core.network.site import AGREED, ROWS, export_client, export_server, open_site
from qfl_core.runs import RunResult, run_experiment
from qfl_core.runs.experiment import Record, train
from qfl_core.runs.journal import _plain
from qfl_core.runs.plugins import REGISTERED, Plugin
from qfl_core.runs.prepare import Prepared, prepare
from qfl_core.runs.run import run_prepared

CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=3, rounds=2, train_size=300, val_size=100, test_size=100, seed=5
)
QUICK = Patience(timeout=0.5, wait=0.2, minimum=2, poll=0.01)


@pytest.fixture(scope="module")
def splits() -> Splits:
    return load_splits(CONFIG)


@pytest.fixture(scope="module")
def whole(splits) -> Prepared:
    return prepare(CONFIG, splits)


def trainer(prepared, grid) -> NodeTrainer:
    return NodeTrainer(Nodes(grid, QUICK), prepared.source.sha256)


def over(prepared, grid) -> Iterator[Record]:
    """Train with clients on the grid's nodes."""
    return train(prepared.federation, trainer=trainer(prepared, grid))


def here(prepared) -> Iterator[Record]:
    """Train with clients in this process."""
    return train(prepared.federation)


def partitions(*clients) -> list[dict]:
    return [{"partition-id": i} for i in clients]


def comparable(records) -> list[str]:
    return [json.dumps(r | {"seconds": 0}, sort_keys=True, default=_plain) for r in records]


# Equality


@pytest.mark.parametrize(
    "method", ["duqfl-prox", "duqfl-drift", "adam-qfl", "default-qfl", "scaffold-qfl", "duqfl-learned"]
)
def test_messages_give_every_record_of_one_process_to_the_bit(splits, method):
    config = CONFIG.replace(method=method, participation=0.7)
    prepared = prepare(config, splits)
    grid = FakeGrid(config, partitions(2, 0, 1))  # nodes in any order
    assert comparable(over(prepared, grid)) == comparable(here(prepared))


@pytest.mark.parametrize("method", ["duqfl-prox", "scaffold-qfl"])
def test_an_outer_optimiser_that_asks_some_clients_alone_gives_the_same_bits(splits, method):
    config = CONFIG.replace(method=method, rounds=3, outer_optimizer="normalised", outer_period=1)
    prepared, grid = prepare(config, splits), FakeGrid(config, partitions(0, 1, 2))
    assert comparable(over(prepared, grid)) == comparable(here(prepared))


def folders(splits, prepared, path) -> list[dict]:
    """Give every client its own folder; return the nodes' configs."""
    for i in range(3):
        export_client(splits, prepared.federation, i, path / f"client-{i}")
    return [{"partition-id": i, "data-dir": str(path / f"client-{i}")} for i in range(3)]


@pytest.mark.parametrize("method", ["duqfl-prox", "scaffold-qfl"])
def test_clients_with_only_their_own_folder_give_the_same_bits(splits, tmp_path, method):
    prepared = prepare(CONFIG.replace(method=method), splits)
    grid = FakeGrid(prepared.federation.config, folders(splits, prepared, tmp_path))
    assert comparable(over(prepared, grid)) == comparable(here(prepared))


def test_a_server_without_training_rows_gives_the_same_weights_and_leaves_their_accuracy_open(splits, whole, tmp_path):
    export_server(splits, whole.federation, tmp_path / "server")
    server = open_site(CONFIG, tmp_path / "server")
    assert set(server.federation.splits) == {"val", "test"}
    records = list(over(server, FakeGrid(CONFIG, folders(splits, whole, tmp_path))))
    expected = list(here(whole))
    assert [r["state"] for r in records] == [r["state"] for r in expected]
    assert all(np.isnan(r["global_accuracies"][0].pop("global_train_accuracy")) for r in records)
    for record in expected:
        del record["global_accuracies"][0]["global_train_accuracy"]
    assert comparable(records) == comparable(expected)


def test_a_finished_run_over_messages_is_sealed_and_says_how_it_ran(whole, tmp_path):
    result = run_prepared(whole, tmp_path, trainer(whole, FakeGrid(CONFIG, partitions(0, 1, 2))))
    here = run_experiment(CONFIG, tmp_path)
    assert result.environment["transport"] == "flower-deployment"
    assert "transport" not in here.environment
    assert result.path != here.path
    assert not result.changed_files()
    assert np.array_equal(result.weights, here.weights)
    for name in ("client_trace.csv", "outer_meta.csv", "global_accuracies.csv"):
        assert (result.path / name).read_bytes() == (here.path / name).read_bytes()


# What crosses the wire


def described(content) -> dict[str, tuple]:
    """List every value of a message with its type and the number of its values; a message has one record."""
    (record,) = content.values()
    found = {}
    for name, value in record.items():
        found[name] = (type(value[0]).__name__, len(value)) if isinstance(value, list) else (type(value).__name__, 1)
    return found


P, K, F = 16, 2, 7  # weights, unfolds, controller features
DIGESTS = {"code": ("str", 1), "data": ("str", 1)}
DOWN = DIGESTS | {
    "train.t": ("int", 1),
    "train.participants": ("int", 3),
    "train.purposes": ("str", 3),  # the real round and two virtual ones
    "train.theta": ("float", P),
    "train.phi": ("float", 3 * 2 * F),
}
SCORE = {"score.t": ("int", 1), "score.purposes": ("str", 3), "score.theta": ("float", 3 * P)}
DOWN_EVALUATE = DIGESTS | SCORE
SUMMARY = {
    "samples": ("int", 1),
    "val_samples": ("int", 1),
    "selected": ("int", 1),
    "heterogeneity": ("float", 1),
    "circuits_train": ("int", 1),
    "circuits_calibration": ("int", 1),
    "circuits_monitor": ("int", 1),
    "circuits_validation": ("int", 1),
}
REAL = ["eta", "delta", "loss_before", "loss_after", "task_loss_before", "task_loss_after", "train_accuracy"]
REAL += ["test_accuracy", "test_recall", "val_loss", "val_accuracy", "displacement", "clipped"]
VIRTUAL = ["loss_before", "loss_after", "displacement"]
WHO = {"client": ("int", 1)}


def up(*rounds) -> dict[str, tuple]:
    """List what goes up for rounds with these trace columns."""
    found = dict(WHO)
    for b, columns in enumerate(rounds):
        found[f"{b}.theta"] = ("float", P)
        found |= {f"{b}.{column}": ("float", K) for column in columns}
        found |= {f"{b}.{key}": kind for key, kind in SUMMARY.items()}
    return found


UP = up(REAL, VIRTUAL, VIRTUAL)
UP_EVALUATE = WHO | {"accuracies": ("float", 3)}
#: What SCAFFOLD-QFL adds: one client's row of its state, down once and up per broadcast.
STATE = {"shift": ("float", P), "pull": ("float", P), "rates": ("float", 1)}


def test_a_message_is_three_objects_for_flower(whole):
    """Flower sends and stores every object by requests of its own: the message, its content and the one record."""
    grid = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(over(whole, grid))
    for message in [*grid.down, *grid.up]:
        assert len(get_all_nested_objects(message)) == 3


def test_the_wire_carries_weights_controller_sizes_and_one_number_per_unfold_and_nothing_else(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(over(whole, grid))
    assert len(grid.down) == len(grid.up) == 2 * 2 * 3  # rounds, phases, clients
    for asked, answered in list(zip(grid.down, grid.up, strict=True))[:6]:  # no outer step follows the last round
        assert answered.has_content()
        if asked.metadata.message_type == "train":
            assert described(asked.content) == DOWN
            assert described(answered.content) == UP
        else:
            assert described(asked.content) == DOWN_EVALUATE
            assert described(answered.content) == UP_EVALUATE


def test_the_page_lists_what_the_wire_carries():
    """The table of docs/federation.md has the shapes and the counts of the lists above, which messages are held to."""
    page = Path(__file__).parent.parent.joinpath("docs", "federation.md").read_text(encoding="utf-8")
    table = page.partition("## What crosses the network")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if line[:1] == "|"]
    told = {what: kind for *_, what, kind in rows}
    counts = [key for key in SUMMARY if key.startswith("circuits_")]
    numbers = "n_i, validation samples, selected unfold, label-mix distance, four circuit counts"
    assert (len(counts), len(SUMMARY)) == (4, 8)
    assert told == {
        "value": "type and shape",
        "---": "---",
        "global weights": "float64 (P,)",
        "controller, for the real round and both virtual ones": f"float64 (3, 2, {F}), or (1, 2, {F}) when no outer "
        "update is due",
        "round, participants, names of the random streams": "numbers and words",
        "digests of the training code and of a common dataset": "two words",
        "state of the local optimiser: the client's own row": "see below; most methods have none",
        "which client it is": "integer",
        "selected weights": "float64 (P,), for each of the three",
        f"trace of the real round: {len(REAL)} columns, one number per unfold": "float64 (K,) each",
        "trace of a virtual round: loss before and after, displacement": "float64 (K,) each",
        numbers: "numbers",
        "state of the local optimiser after the round: the client's own row": "as it went down, for each of the three",
        "new global weights": "float64 (3, P) or (1, P)",
        "round, names of the random streams, both digests": "numbers and words",
        "which client it is, validation accuracy of the new models": "an integer, and one number per model",
        "both digests": "two words",
        "which client it is, and its noisy weights; nothing else, and nobody is asked to evaluate": "integer, "
        "float64 (P,)",
    }


def test_without_an_outer_update_the_next_round_travels_with_the_new_model(splits):
    config = CONFIG.replace(outer_period=2, rounds=5)
    prepared, grid = prepare(config, splits), FakeGrid(config, partitions(0, 1, 2))
    assert comparable(over(prepared, grid)) == comparable(here(prepared))
    kinds = [message.metadata.message_type for message in grid.down]
    assert kinds[::3] == kinds[1::3] == kinds[2::3] == 2 * ["train", "train", "evaluate"] + ["train", "evaluate"]
    real = {"train.purposes": ("str", 1), "train.phi": ("float", 2 * F)}
    one = {"score.t": ("int", 1), "score.purposes": ("str", 1), "score.theta": ("float", P)}
    phases = [DOWN | real, DOWN | one, DOWN_EVALUATE]
    answers = [up(REAL), UP | {"accuracies": ("float", 1)}, UP_EVALUATE]
    for i, (asked, answered) in enumerate(list(zip(grid.down, grid.up, strict=True))[:18]):  # but for the last round
        assert described(asked.content) == phases[i // 3 % 3]
        assert described(answered.content) == answers[i // 3 % 3]


def test_a_method_with_memory_adds_its_state_and_one_question_per_node(splits):
    config = CONFIG.replace(method="scaffold-qfl")
    prepared, grid = prepare(config, splits), FakeGrid(config, partitions(0, 1, 2))
    list(over(prepared, grid))
    kinds = [message.metadata.message_type for message in grid.down]
    assert kinds == 3 * ["query"] + 2 * (3 * ["train"] + 3 * ["evaluate"])
    expected = {
        "query": (DIGESTS, WHO),
        "train": (
            DOWN | {f"train.state.{name}": kind for name, kind in STATE.items()},
            UP | {f"{b}.state.{name}": kind for b in range(3) for name, kind in STATE.items()},
        ),
        "evaluate": (DOWN_EVALUATE, UP_EVALUATE),
    }
    for asked, answered in list(zip(grid.down, grid.up, strict=True))[:9]:  # no outer step follows the last round
        assert (described(asked.content), described(answered.content)) == expected[asked.metadata.message_type]


def test_a_clients_state_goes_to_its_own_node_alone(splits):
    config = CONFIG.replace(method="scaffold-qfl")
    prepared, grid = prepare(config, splits), FakeGrid(config, partitions(2, 0, 1))
    records = list(over(prepared, grid))
    variates = np.array(records[1]["state"]["memory"]["variates"])
    shift = variates.mean(axis=0) - variates
    assert len(np.unique(shift, axis=0)) == 3
    last = [message for message in grid.down if message.metadata.message_type == "train"][-3:]
    for message in last:
        client_id = grid.nodes[message.metadata.dst_node_id]["partition-id"]
        assert message.content["request"]["train.state.shift"] == shift[client_id].tolist()


@pytest.mark.parametrize("method", ["adam-qfl", "scaffold-qfl"])
def test_a_node_of_a_method_with_memory_that_joins_late_takes_part_from_the_next_round_on(splits, method):
    config = CONFIG.replace(method=method)
    grid = FakeGrid(config, partitions(0, 1))
    records = over(prepare(config, splits), grid)
    next(records)
    first = next(records)
    assert [(e["client"], e["reason"]) for e in first["exclusions"]] == [(2, "no node serves this client")]
    grid.nodes[105] = {"partition-id": 2}
    assert next(records)["global_accuracies"][0]["clients"] == 3


# Rounds that travel together


def test_the_virtual_rounds_travel_with_the_real_one_and_only_the_same_question_gets_their_answers(whole):
    federation, grid = whole.federation, FakeGrid(CONFIG, partitions(0, 1, 2))
    assert is_due(federation, 0)
    nodes, start = trainer(whole, grid), State.initial(federation)
    real = Broadcast(0, start.theta, start.phi["controller"])
    nodes.train(federation, real)
    assert len(grid.down) == 3
    direction = outer_direction(start.phi, CONFIG.seed, 0)["controller"]
    for step in (CONFIG.outer_perturbation, -CONFIG.outer_perturbation):
        virtual = dataclasses.replace(real, phi=real.phi + step * direction, purpose="virtual")
        assert_same_uploads(nodes.train(federation, virtual), IN_PROCESS.train(federation, virtual))
    assert len(grid.down) == 3
    for changed in (
        {"phi": virtual.phi + 1e-9},
        {"theta": virtual.theta + 1e-9},
        {"purpose": "tuning"},
        {"t": 1},
    ):
        asked, other = len(grid.down), dataclasses.replace(virtual, **changed)
        assert_same_uploads(nodes.train(federation, other), IN_PROCESS.train(federation, other))
        assert len(grid.down) == asked + 3


def assert_same_uploads(found, expected) -> None:
    assert found.theta.tobytes() == expected.theta.tobytes()
    assert found.selected.tolist() == expected.selected.tolist()
    assert found.circuits == expected.circuits


@pytest.mark.parametrize(
    ("method", "phases"),
    [
        ("duqfl-prox", 2 * ["train", "evaluate"]),
        ("duqfl-learned", ["train", "evaluate", "evaluate", "evaluate", "train", "evaluate"]),
        ("default-qfl", ["train", "train", "evaluate"]),  # it has no controller, so no outer update is ever due
    ],
)
def test_new_models_are_scored_together_where_the_uploads_alone_decide_them(splits, method, phases):
    """Learned weights are the server's, so the models of its virtual rounds cannot be foreseen by the network."""
    config = CONFIG.replace(method=method)
    grid = FakeGrid(config, partitions(0, 1, 2))
    list(over(prepare(config, splits), grid))
    kinds = [message.metadata.message_type for message in grid.down]
    assert kinds[::3] == kinds[1::3] == kinds[2::3] == phases
    assert all(set(described(message.content)) <= {*DOWN, *SCORE} for message in grid.down)  # learned weights stay


def test_what_goes_up_has_the_same_size_whatever_the_number_of_samples():
    sizes = []
    for chunk in (10, 40):
        config = CONFIG.replace(chunk=chunk)
        grid = FakeGrid(config, partitions(0, 1, 2))
        list(over(prepare(config), grid))
        sizes.append([described(message.content) for message in grid.up])
    assert sizes[0] == sizes[1]


def test_an_error_at_a_client_sends_up_its_kind_and_no_value_of_the_data(splits, whole, tmp_path):
    nodes = folders(splits, whole, tmp_path)
    table = pd.read_csv(tmp_path / "client-2" / ROWS, dtype={"round": "Int64"})
    table.loc[0, "label"] = 77
    table.to_csv(tmp_path / "client-2" / ROWS, index=False)
    grid = FakeGrid(CONFIG, nodes)
    records = list(over(whole, grid))
    assert [e["client"] for e in records[1]["exclusions"]] == [2]
    reasons = {message.error.reason for message in grid.up if message.has_error()}
    assert reasons == {"DataError; the node's log says more"}


# Answers that cannot be used


def corrupted(change):
    """Return a ClientApp whose client 1 spoils its training answer."""

    def app(message, context):
        reply = flower_app.client_app(message, context)
        if context.node_config["partition-id"] == 1 and message.metadata.message_type == "train":
            return change(reply, message) or reply
        return reply

    return app


def saying(**changes):
    """Return a change of fields of the first upload."""
    return lambda reply, _: reply.content["answer"].update({f"0.{name}": value for name, value in changes.items()})


def without(name):
    return lambda reply, _: reply.content["answer"].__delitem__(name)


def forged(content):
    """Return a change that replaces the whole content."""
    return lambda reply, _: setattr(reply, "content", content)


BAD = {
    "NaN": (saying(theta=[np.nan] * P), "weights that are not finite"),
    "infinite": (saying(theta=[np.inf] * P), "weights that are not finite"),
    "absurd": (saying(theta=[1e200] * P), "weights beyond 1e"),
    "length": (saying(theta=[0.0] * (P + 1)), "theta has 17 values, expected a list of 16 numbers"),
    "integers": (saying(theta=[0] * P), "theta has 16 values, expected a list of 16 numbers"),
    "one number": (saying(theta=0.0), "theta has float, expected a list of 16 numbers"),
    "trace length": (saying(eta=[0.1] * 50), "eta has 50 values"),
    "n_i too large": (saying(samples=10**6), "n_i = 1000000, but the client holds"),
    "n_i zero": (saying(samples=0), "n_i = 0"),
    "n_i negative": (saying(samples=-5), "samples = -5, expected a whole number"),
    "n_i of a list": (saying(samples=[1.0, 2.0]), "samples = \\[1.0, 2.0\\], expected a whole number"),
    "selected": (saying(selected=9), "selected unfold 9 of 2"),
    "circuits": (saying(circuits_train=10**13), "circuits_train = 1"),
    "label mix": (saying(heterogeneity=1.5), "heterogeneity = 1.5, expected 0 to 1"),
    "extra record": (lambda r, _: r.content.update(more=MetricRecord({"x": 1.0})), "unknown fields .*'more'"),
    "extra field": (lambda r, _: r.content["answer"].update(X=[0.0] * 3), "unknown fields .*'X'"),
    "extra upload": (lambda r, _: r.content["answer"].update({"3.theta": [0.0] * P}), "unknown fields .*'3.theta'"),
    "extra column": (saying(X=[0.0] * 3), "missing or unknown fields: ..X"),
    "missing column": (without("0.eta"), "missing or unknown fields: ..eta"),
    "no name": (without("client"), "does not say which client"),
    "other name": (lambda r, _: r.content["answer"].update(client=0), "a second node claims to be client 0"),
    "name of a list": (lambda r, _: r.content["answer"].update(client=[1, 2]), "client = \\[1, 2\\]"),
    "other record": (forged(RecordDict({"answer": ConfigRecord({"client": 1})})), "does not say which client"),
    "nothing": (forged(RecordDict()), "does not say which client"),
    "error": (lambda _, m: Message(Error(code=0, reason="no power"), reply_to=m), "its node reports: no power"),
}
#: Values outside the range of a trace column, and the highest that is inside.
LOG_LOSS = np.log(2 * CONFIG.shots)
OUTSIDE = {
    "eta": ([-0.1, -np.inf], np.inf),
    "delta": ([-0.1, -np.inf], np.inf),
    "loss_before": ([-0.1, 1e300, np.nan, np.inf, LOG_LOSS + 1], LOG_LOSS),
    "loss_after": ([-0.1, 1e300, np.nan, np.inf, LOG_LOSS + 1], LOG_LOSS),
    "task_loss_before": ([-0.1, 1e300, np.nan, LOG_LOSS + 1e-6], LOG_LOSS),
    "task_loss_after": ([-0.1, 1e300, np.nan, LOG_LOSS + 1e-6], LOG_LOSS),
    "val_loss": ([-0.1, np.nan, LOG_LOSS + 1e-6], LOG_LOSS),
    "train_accuracy": ([-0.1, 1.1, np.nan], 1.0),
    "test_accuracy": ([-0.1, 1.1, np.nan], 1.0),
    "test_recall": ([-0.1, 1.1], 1.0),
    "val_accuracy": ([-0.1, 1.1, np.nan], 1.0),
    "displacement": ([-0.1, np.nan, np.inf, 1e200], 0.1),
    "clipped": ([-1.0, 2.0, np.nan], 1.0),
}
for column, (values, _) in OUTSIDE.items():
    BAD |= {
        f"{column} {value:g}": (saying(**{column: [0.0, value]}), f"{column} = .*, expected 0 to") for value in values
    }


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_upload_is_left_out_with_its_reason_and_the_weights_are_renormalised(whole, name):
    change, reason = BAD[name]
    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change))))[1]
    (excluded,) = record["exclusions"]
    assert (excluded["round"], excluded["client"]) == (1, 1)
    assert re.search(reason, excluded["reason"])
    rows = record["client_trace"]
    shares = {row["client"]: (row["client_size"], row["aggregation_weight"]) for row in rows}
    assert set(shares) == {0, 2}
    total = sum(size for size, _ in shares.values())
    assert all(weight == size / total for size, weight in shares.values())
    assert record["global_accuracies"][0]["clients"] == 2


@pytest.mark.parametrize("column", OUTSIDE)
def test_the_highest_value_of_a_range_counts(whole, column):
    change = saying(**{column: [0.0, OUTSIDE[column][1]]})
    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change))))[1]
    assert record["exclusions"] == []


def test_a_rate_that_an_optimiser_does_not_have_and_a_recall_without_positives_may_be_nan(whole):
    change = saying(eta=[np.nan] * K, delta=[np.nan] * K, test_recall=[np.nan] * K)
    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change))))[1]
    assert record["exclusions"] == []


BAD_STATE = {
    "NaN": (saying(**{"state.pull": [np.nan] * P}), "state pull that are not finite"),
    "infinite": (saying(**{"state.rates": [np.inf]}), "state rates that are not finite"),
    "length": (saying(**{"state.pull": [0.0] * 3 * P}), "state.pull has 48 values, expected a list of 16 numbers"),
    "extra field": (saying(**{"state.X": [0.0] * 3}), "missing or unknown fields: ..state.X"),
    "missing field": (without("0.state.pull"), "missing or unknown fields: ..state.pull"),
    "no state": (lambda r, _: r.content["answer"].pop("2.state.pull", None) and None, "state.pull"),
}


@pytest.mark.parametrize("name", BAD_STATE)
def test_a_wrong_state_is_left_out_with_its_reason_and_the_server_remembers_the_old_one(splits, name):
    change, reason = BAD_STATE[name]
    config = CONFIG.replace(method="scaffold-qfl")
    record = list(over(prepare(config, splits), FakeGrid(config, partitions(0, 1, 2), corrupted(change))))[1]
    (excluded,) = record["exclusions"]
    assert (excluded["round"], excluded["client"]) == (1, 1)
    assert re.search(reason, excluded["reason"])
    assert {row["client"] for row in record["client_trace"]} == {0, 2}
    moved = np.abs(record["state"]["memory"]["variates"]).sum(axis=1) > 0
    assert moved.tolist() == [True, False, True]


def test_the_aggregate_of_the_others_is_their_own_weighted_mean(whole):
    honest = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(over(whole, honest))
    uploads = {m.content["answer"]["client"]: m.content["answer"] for m in honest.up[:3]}
    change, _ = BAD["NaN"]
    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change))))[1]
    sizes = {i: uploads[i]["0.samples"] for i in (0, 2)}
    mean = sum(sizes[i] * np.array(uploads[i]["0.theta"]) for i in (0, 2)) / sum(sizes.values())
    assert np.allclose(record["state"]["theta"], mean, atol=1e-14)


#: What is said of a client when a node never said which client it serves.
NAMELESS = "no node serves this client; of a node that did not say which client it serves: "


def test_a_node_that_never_answers_is_left_out_after_the_time_out(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[102])
    record = list(over(whole, grid))[1]
    assert [(e["client"], e["reason"]) for e in record["exclusions"]] == [(2, f"{NAMELESS}no answer within 0.5 s")]


# Answers that get lost on the way

STUBBORN = Patience(timeout=600, wait=0.2, minimum=2, poll=0.001, again=0.005)


def lost(code):
    """Return Flower's word for a message that got lost."""
    return lambda message: Message(Error(code=code, reason="Flower's own words"), reply_to=message)


@pytest.mark.parametrize("how", [None, *map(lost, LOST)], ids=["nothing comes", *map(str, LOST)])
@pytest.mark.parametrize("method", ["duqfl-prox", "default-qfl", "scaffold-qfl"])
def test_what_got_lost_is_asked_again_and_gives_the_same_bits(splits, method, how):
    """Every message to client 1 gets lost once, or its answer does."""
    prepared = prepare(CONFIG.replace(method=method), splits)
    config = prepared.federation.config

    def loses(message, copies):
        is_lost = message.metadata.dst_node_id == 101 and copies == 0
        return (how(message) if how else None) if is_lost else False

    grid = FakeGrid(config, partitions(0, 1, 2), loses=loses)
    stubborn = NodeTrainer(Nodes(grid, STUBBORN), prepared.source.sha256)
    assert comparable(train(prepared.federation, trainer=stubborn)) == comparable(here(prepared))
    asked = [message.metadata.dst_node_id for message in grid.down]
    assert asked.count(101) >= 2 * asked.count(100)


def test_a_node_that_is_gone_is_left_out_after_the_time_out_with_flowers_words(whole):
    gone = lost(ErrorCode.NODE_UNAVAILABLE)
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), loses=lambda m, _: gone(m) if m.metadata.dst_node_id == 101 else False)
    record = list(over(whole, grid))[1]
    reason = f"{NAMELESS}no answer within 0.5 s (Flower's own words)"
    assert [(e["client"], e["reason"]) for e in record["exclusions"]] == [(1, reason)]


def test_a_node_is_asked_again_ever_more_seldom(whole, monkeypatch):
    clock = itertools.count()  # one second passes whenever somebody looks
    watch = SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=lambda seconds: None)
    monkeypatch.setattr(asking, "time", watch)  # this module's alone, because other threads look at the time, too
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[102])
    patience = Patience(timeout=1000, minimum=2, poll=0, again=50)
    records = train(whole.federation, trainer=NodeTrainer(Nodes(grid, patience), whole.source.sha256))
    next(records)
    assert [e["reason"] for e in next(records)["exclusions"]] == [f"{NAMELESS}no answer within 1000 s"]
    asked = [message.metadata.dst_node_id for message in grid.down if message.metadata.message_type == "train"]
    assert asked == [100, 101, *[102] * 5]  # after 0, 50, 150, 350 and 750 seconds


def test_a_wrong_upload_does_not_spoil_the_scores_that_came_with_it_nor_the_other_way_round(splits):
    """Without an outer update the training of round 2 comes with the scores of round 1."""
    prepared = prepare(CONFIG.replace(outer_period=0), splits)
    config = prepared.federation.config

    def spoiling(change):
        def app(message, context):
            reply = flower_app.client_app(message, context)
            if context.node_config["partition-id"] == 1 and "score.t" in message.content["request"]:
                change(reply.content["answer"])
            return reply

        return list(over(prepared, FakeGrid(config, partitions(0, 1, 2), app)))

    _, first, second = spoiling(
        lambda answer: answer.update({"0.theta": [np.nan] * P}) if "0.theta" in answer else None
    )
    assert first["exclusions"] == []
    assert [(e["client"], e["reason"]) for e in second["exclusions"]] == [(1, "weights that are not finite")]
    _, first, second = spoiling(lambda answer: answer.update({"accuracies": [7.0]}))
    assert [(e["client"], e["reason"]) for e in first["exclusions"]] == [(1, SILENT)]
    assert [(e["client"], e["reason"]) for e in second["exclusions"]] == [(1, SILENT)]
    assert {row["client"] for row in second["client_trace"]} == {0, 1, 2}


SILENT = "trained, but did not score the new global model"


def test_a_round_that_too_few_clients_trained_in_advance_stops_the_run_only_when_it_is_due(splits):
    prepared = prepare(CONFIG.replace(outer_period=0), splits)

    def app(message, context):
        reply = flower_app.client_app(message, context)
        if message.content["request"].get("train.t") == 1:
            reply.content["answer"]["0.theta"] = [np.nan] * P
        return reply

    records = over(prepared, FakeGrid(prepared.federation.config, partitions(0, 1, 2), app))
    expected = list(here(prepared))
    assert comparable([next(records), next(records)]) == comparable(expected[:2])
    with pytest.raises(FederationError, match="round 2: 0 of 3 clients gave a valid answer, 2 are needed"):
        next(records)


def test_a_client_that_cannot_score_the_new_model_counts_in_the_aggregate_and_is_noted(whole):
    def app(message, context):
        if context.node_config["partition-id"] == 0 and message.metadata.message_type == "evaluate":
            return Message(Error(code=0, reason="gone"), reply_to=message)
        return flower_app.client_app(message, context)

    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), app)))[1]
    assert [e["client"] for e in record["exclusions"]] == [0]
    assert "did not score" in record["exclusions"][0]["reason"]
    assert {row["client"] for row in record["client_trace"]} == {0, 1, 2}
    assert np.isfinite(record["outer_meta"][0]["omega_fair"])


def test_too_few_valid_clients_stop_the_run_with_every_reason(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1), corrupted(BAD["NaN"][0]))
    with pytest.raises(FederationError, match="1 of 3 clients gave a valid answer, 2 are needed") as caught:
        list(over(whole, grid))
    assert "client 1: weights that are not finite" in str(caught.value)
    assert "client 2: no node serves this client" in str(caught.value)


def test_a_node_that_joins_late_takes_part_from_the_next_round_on(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1))
    records = over(whole, grid)
    next(records)
    assert next(records)["global_accuracies"][0]["clients"] == 2
    grid.nodes[105] = {"partition-id": 2}
    assert next(records)["global_accuracies"][0]["clients"] == 3


def test_exclusions_are_a_sealed_table_of_the_run(whole, tmp_path):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[100])
    result = run_prepared(whole, tmp_path, trainer(whole, grid))
    table = (result.path / "exclusions.csv").read_text().splitlines()
    assert table[0] == "round,client,reason"
    assert len(table) == 3
    assert "exclusions.csv" in json.loads((result.path / "DONE").read_text())
    (result.path / "exclusions.csv").write_text("round,client,reason\n")
    assert RunResult(result.path).changed_files() == ["exclusions.csv"]


def test_gathering_waits_for_nodes_and_says_how_many_there_are():
    with pytest.raises(FederationError, match="1 of 3 nodes are online after 0.2 s, at least 2 are needed"):
        Nodes(FakeGrid(CONFIG, partitions(0)), QUICK).gather(3)
    Nodes(FakeGrid(CONFIG, partitions(0, 1)), QUICK).gather(3)


# A client's side


def test_a_node_with_other_code_or_other_data_refuses(whole, monkeypatch):
    grid, other = FakeGrid(CONFIG, partitions(0, 1, 2)), "0" * 64
    with pytest.raises(FederationError, match="another copy of the data"):
        list(train(whole.federation, trainer=NodeTrainer(Nodes(grid, QUICK), other)))
    monkeypatch.setattr("qfl_core.network.nodes.code_digest", lambda: other)
    with pytest.raises(FederationError, match="another version of the training code"):
        list(over(whole, grid))


@pytest.mark.parametrize(
    ("node", "reason"),
    [({}, "has no partition-id"), ({"partition-id": 3}, "partition-id=3, but the clients are 0 to 2")],
)
def test_a_node_that_serves_no_client_says_so(whole, node, reason):
    grid = FakeGrid(CONFIG, [*partitions(0, 1), node])
    record = list(over(whole, grid))[1]
    assert reason in record["exclusions"][0]["reason"]


def test_requests_survive_the_wire_to_the_bit(splits):
    rng, federation = np.random.default_rng(0), prepare(CONFIG.replace(method="scaffold-qfl"), splits).federation
    state = {"shift": rng.normal(size=(2, P)), "pull": rng.normal(size=(2, P)), "rates": np.array([0.1, np.nan])}
    theta = rng.normal(size=P)
    sent = tuple(Broadcast(3, theta, rng.normal(size=(2, F)), p, state) for p in ("round", "virtual"))
    models = rng.normal(size=(2, P))
    scoring = wire.Scoring(2, models, ("round", "virtual"))
    packed = wire.Request("c", "d", wire.Training((0, 2), sent), scoring).pack(2)
    assert wire.digests(packed) == ("c", "d")
    found = wire.Request.unpack(packed, federation, 2)
    assert (found.code, found.data, found.training.participants, found.training.t) == ("c", "d", (0, 2), 3)
    assert [b.theta.tobytes() for b in found.training.sent] == [theta.tobytes()] * 2
    assert [b.phi.tobytes() for b in found.training.sent] == [b.phi.tobytes() for b in sent]
    assert [(b.t, b.purpose) for b in found.training.sent] == [(3, "round"), (3, "virtual")]
    for broadcast in found.training.sent:
        assert {name: (row.shape, row.tobytes()) for name, row in broadcast.state.items()} == {
            name: (rows[1:].shape, rows[1:].tobytes()) for name, rows in state.items()
        }
    assert found.scoring.models.tobytes() == models.tobytes()
    assert (found.scoring.t, found.scoring.purposes) == (2, ("round", "virtual"))


# A participant's folder


def test_a_folder_holds_the_rows_of_its_client_and_of_nobody_else(splits, whole, tmp_path):
    export_client(splits, whole.federation, 1, tmp_path)
    site = open_site(CONFIG, tmp_path, 1).federation
    table = pd.read_csv(tmp_path / ROWS, dtype=str)
    angles = table[table["part"] != "test"][["x1", "x2", "x3", "x4"]].map(float).to_numpy()
    used = []
    for t in range(2):
        for part in ("train", "val"):
            rows, own = getattr(whole.federation.schedule, part)[t][1], getattr(site.schedule, part)[t][1]
            used += [row.tobytes() for row in splits.train.X[rows]]
            assert np.array_equal(angles[own], splits.train.X[rows])
            assert np.array_equal(site.splits["train"].y[own], splits.train.y[rows])
        assert [len(site.schedule.train[t][i]) for i in (0, 2)] == [0, 0]
    assert {row.tobytes() for row in angles} == set(used)
    assert len(site.splits["train"]) == len(angles)
    assert set(site.splits) == {"train", "test"}


def rewrite(folder, change) -> None:
    table = pd.read_csv(folder / ROWS, dtype={"round": "Int64"})
    change(table).to_csv(folder / ROWS, index=False)


def test_rows_without_a_round_serve_in_every_round(splits, whole, tmp_path):
    export_client(splits, whole.federation, 0, tmp_path)
    rewrite(tmp_path, lambda table: table[(table["round"] != 1).fillna(True)].assign(round=pd.NA))
    schedule = open_site(CONFIG, tmp_path, 0).federation.schedule
    assert len(schedule.train[0][0]) > 0
    assert np.array_equal(schedule.train[0][0], schedule.train[1][0])


SPOILED = {
    "no rows": (lambda f: (f / ROWS).unlink(), "has no rows.csv"),
    "no agreement": (lambda f: (f / AGREED).unlink(), "has no site.json"),
    "an old agreement": (
        lambda f: (f / AGREED).write_text('{"totals": [[9, 4], [9, 4]]}'),
        "does not say for which config it was made: export the folders again",
    ),
    "a damaged agreement": (lambda f: (f / AGREED).write_text('{"totals"'), "site.json cannot be read: Expecting"),
    "no object": (lambda f: (f / AGREED).write_text("[]"), "site.json cannot be read"),
    "columns": (
        lambda f: rewrite(f, lambda t: t.drop(columns="x4")),
        "features=4 needs part, round, label, x1, x2",
    ),
    "round": (lambda f: rewrite(f, lambda t: t[t["round"] != 1]), "no train row for round 1"),
    "test": (lambda f: rewrite(f, lambda t: t[t["part"] != "test"]), "has no test row"),
    "negative": (lambda f: rewrite(f, lambda t: t.assign(round=-1)), "cannot be read: round -1 is below 0"),
    "label": (lambda f: rewrite(f, lambda t: t.assign(label="x")), "cannot be read: invalid literal"),
    "empty": (lambda f: (f / ROWS).write_text(""), "needs part, round, label"),
    "short line": (lambda f: (f / ROWS).write_text((f / ROWS).read_text() + "train,0\n"), "cannot be read"),
    "part": (lambda f: rewrite(f, lambda t: t.replace("val", "vale")), "part must be train, val or test, got ..vale"),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "genome", "angle_range": CONFIG.angle_range},
        {"seed": 7},
        {"split": "iid"},
        {"val_size": CONFIG.val_size + 1},
        {"client_val_share": 0.3},
        {"participation": 0.5},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_folder_that_was_made_for_another_config_is_refused(splits, whole, tmp_path, changes):
    export_client(splits, whole.federation, 0, tmp_path / "client-0")
    export_server(splits, whole.federation, tmp_path / "server")
    config, field = CONFIG.replace(**changes), next(iter(changes))
    for folder, client in (("client-0", 0), ("server", None)):
        with pytest.raises(DataError, match=f"{folder}/site.json was made for .*{field}=.*export the folders again"):
            open_site(config, tmp_path / folder, client)
    assert open_site(CONFIG.replace(method="fedprox-qfl", rounds=1), tmp_path / "server")


def test_what_the_server_agreed_on_is_part_of_a_runs_identity(splits, whole, tmp_path):
    export_server(splits, whole.federation, tmp_path)
    before = open_site(CONFIG, tmp_path).data_sha256
    agreed = json.loads((tmp_path / AGREED).read_text())
    agreed["sizes"][0][0] += 1
    (tmp_path / AGREED).write_text(json.dumps(agreed))
    assert open_site(CONFIG, tmp_path).data_sha256 != before


@pytest.mark.parametrize("name", SPOILED)
def test_a_folder_that_is_not_complete_is_a_clear_error(splits, whole, tmp_path, name):
    spoil, message = SPOILED[name]
    export_client(splits, whole.federation, 0, tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        open_site(CONFIG, tmp_path, 0)


def test_a_folder_for_fewer_rounds_than_the_run_is_a_clear_error(splits, whole, tmp_path):
    export_client(splits, whole.federation, 0, tmp_path)
    with pytest.raises(DataError, match="totals for 2 rounds, the run has 3"):
        open_site(CONFIG.replace(rounds=3), tmp_path, 0)


# Settings


def test_a_run_config_describes_an_experiment():
    read = flower_app.experiment_of
    assert read({"experiment": json.dumps(CONFIG.to_dict()), "clients": 99}) == CONFIG
    found = read({"dataset": "genome", "method": "fedprox-qfl", "experiment": "{unfolds: 3, encoding: kmer}"})
    assert (found.dataset, found.method, found.unfolds, found.encoding) == ("genome", "fedprox-qfl", 3, "kmer")
    with pytest.raises(ConfigError, match="did you mean 'unfolds'"):
        read({"experiment": "unfold: 3"})
    with pytest.raises(ConfigError, match="experiment must map settings"):
        read({"experiment": "[1, 2]"})


def test_a_run_config_runs_no_code_and_names_no_path(tmp_path):
    planted = f"mu: !!python/object/apply:os.mkdir [{tmp_path / 'ran'}]"
    with pytest.raises(ConfigError, match="experiment is not valid YAML"):
        flower_app.experiment_of({"experiment": planted})
    for told in ({"method": "../outside"}, {"experiment": "{split: /outside}"}):
        with pytest.raises(ConfigError, match="outside' is not valid: expected one of"):
            flower_app.experiment_of(told)
    assert not (tmp_path / "ran").exists()


def test_a_run_config_that_names_a_plugin_is_refused(monkeypatch):
    monkeypatch.setitem(EXTRA_METHODS, "my-method", METHODS["duqfl-best"])
    monkeypatch.setitem(REGISTERED, ("method", "my-method"), Plugin("method", "my-method", None, "0" * 64))
    with pytest.raises(FederationError, match="method 'my-method' is a plugin: nodes run the package's own methods"):
        flower_app.experiment_of({"method": "my-method"})
    with pytest.raises(FederationError, match="method 'my-method' is a plugin"):
        federate(CONFIG.replace(method="my-method"))
