"""The federation over messages: the same numbers, nothing of a sample on the wire, and wrong answers are left out."""

import dataclasses
import json
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from fakegrid import FakeGrid
from flwr.app import Array, Error, Message, MetricRecord
from qfl_core.runs.records import _plain

from qfl_core.algorithm.client import Broadcast
from qfl_core.algorithm.meta import is_due, outer_direction
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.server import IN_PROCESS, State
from qfl_core.base.errors import ConfigError, DataError, FederationError
from qfl_core.base.registry import EXTRA_METHODS
from qfl_core.config import load_profile
from qfl_core.data import Splits, load_splits
from qfl_core.network import app as flower_app
from qfl_core.network import wire
from qfl_core.network.launch import federate
from qfl_core.network.nodes import NodeTrainer, Patience
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
    return NodeTrainer(grid, prepared.source.sha256, QUICK)


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
    """List every value of a message with its type and shape."""
    found = {}
    for record_name, record in content.items():
        for key, value in record.items():
            name = f"{record_name}.{key}"
            if isinstance(value, Array):
                found[name] = (value.dtype, tuple(value.shape))
            elif isinstance(value, list):
                found[name] = (type(value[0]).__name__, (len(value),))
            else:
                found[name] = (type(value).__name__, ())
    return found


P, K, F = 16, 2, 7  # weights, unfolds, controller features
DOWN = {
    "model.theta": ("float64", (P,)),
    "model.phi": ("float64", (3, 2, F)),  # the real round and two virtual ones
    "round.t": ("int", ()),
    "round.participants": ("int", (3,)),
    "round.purposes": ("str", (3,)),
    "round.code": ("str", ()),
    "round.data": ("str", ()),
}
DOWN_EVALUATE = {name: kind for name, kind in DOWN.items() if name != "model.phi"} | {
    "model.theta": ("float64", (3, P)),
}
SUMMARY = {
    "samples": ("int", ()),
    "val_samples": ("int", ()),
    "selected": ("int", ()),
    "heterogeneity": ("float", ()),
    "circuits_train": ("int", ()),
    "circuits_calibration": ("int", ()),
    "circuits_monitor": ("int", ()),
    "circuits_validation": ("int", ()),
}
REAL = ["eta", "delta", "loss_before", "loss_after", "task_loss_before", "task_loss_after", "train_accuracy"]
REAL += ["test_accuracy", "val_loss", "val_accuracy", "displacement", "clipped"]
UP = {"who.client": ("int", ())}
for b, columns in enumerate((REAL, ["loss_before", "loss_after"], ["loss_before", "loss_after"])):
    UP[f"upload-{b}.theta"] = ("float64", (P,))
    UP |= {f"upload-{b}.{column}": ("float64", (K,)) for column in columns}
    UP |= {f"summary-{b}.{key}": kind for key, kind in SUMMARY.items()}
UP_EVALUATE = {"who.client": ("int", ()), "who.accuracies": ("float", (3,))}
#: What SCAFFOLD-QFL adds: one client's row of its state, down once and up per broadcast.
STATE = {"shift": ("float64", (1, P)), "pull": ("float64", (1, P)), "rates": ("float64", (1,))}


def test_the_wire_carries_weights_controller_sizes_and_one_number_per_unfold_and_nothing_else(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(over(whole, grid))
    assert len(grid.down) == len(grid.up) == 2 * 2 * 3  # rounds, phases, clients
    for asked, answered in zip(grid.down, grid.up, strict=True):
        assert answered.has_content()
        if asked.metadata.message_type == "train":
            assert described(asked.content) == DOWN
            assert described(answered.content) == UP
        else:
            assert described(asked.content) == DOWN_EVALUATE
            assert described(answered.content) == UP_EVALUATE


def test_a_method_with_memory_adds_its_state_and_one_question_per_node(splits):
    config = CONFIG.replace(method="scaffold-qfl")
    prepared, grid = prepare(config, splits), FakeGrid(config, partitions(0, 1, 2))
    list(over(prepared, grid))
    kinds = [message.metadata.message_type for message in grid.down]
    assert kinds == 3 * ["query"] + 2 * (3 * ["train"] + 3 * ["evaluate"])
    down = DOWN | {f"state.{name}": kind for name, kind in STATE.items()}
    up = UP | {f"state-{b}.{name}": kind for b in range(3) for name, kind in STATE.items()}
    for asked, answered in zip(grid.down, grid.up, strict=True):
        if asked.metadata.message_type == "query":
            expected = {name: kind for name, kind in DOWN.items() if name.startswith("round")}
            del expected["round.purposes"]
            assert described(asked.content) == expected
            assert described(answered.content) == {"who.client": ("int", ())}
        elif asked.metadata.message_type == "train":
            assert described(asked.content) == down
            assert described(answered.content) == up
        else:
            assert described(asked.content) == DOWN_EVALUATE
            assert described(answered.content) == UP_EVALUATE


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
        assert message.content["state"]["shift"].numpy().tobytes() == shift[client_id].tobytes()


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


@pytest.mark.parametrize(("method", "phases"), [("duqfl-prox", 1), ("duqfl-learned", 3), ("default-qfl", 1)])
def test_new_models_are_scored_together_where_the_uploads_alone_decide_them(splits, method, phases):
    """Learned weights are the server's, so the models of its virtual rounds cannot be foreseen by the network."""
    config = CONFIG.replace(method=method)
    grid = FakeGrid(config, partitions(0, 1, 2))
    list(over(prepare(config, splits), grid))
    kinds = [message.metadata.message_type for message in grid.down]
    assert kinds == 2 * (3 * ["train"] + 3 * phases * ["evaluate"])
    assert all(set(described(message.content)) <= set(DOWN) for message in grid.down)  # the learned weights stay


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


def in_upload(**changes):
    def change(reply, _):
        record = reply.content["upload-0"]
        for name, value in changes.items():
            record[name] = Array(value)

    return change


def in_summary(**changes):
    return lambda reply, _: reply.content["summary-0"].update(changes)


BAD = {
    "NaN": (in_upload(theta=np.full(P, np.nan)), "weights that are not finite"),
    "infinite": (in_upload(theta=np.full(P, np.inf)), "weights that are not finite"),
    "shape": (in_upload(theta=np.zeros(P + 1)), r"theta of shape \(17,\)"),
    "type": (in_upload(theta=np.zeros(P, np.float32)), "type float32"),
    "trace shape": (in_upload(eta=np.zeros(50)), r"eta of shape \(50,\)"),
    "trace NaN": (in_upload(loss_after=np.full(K, np.nan)), "loss_after that is not finite"),
    "n_i too large": (in_summary(samples=10**6), "n_i = 1000000, but the client holds"),
    "n_i zero": (in_summary(samples=0), "n_i = 0"),
    "n_i negative": (in_summary(samples=-5), "n_i = -5"),
    "selected": (in_summary(selected=9), "selected unfold 9 of 2"),
    "extra record": (lambda r, _: r.content.update(more=MetricRecord({"x": 1.0})), "records .*'more'"),
    "extra field": (lambda r, _: r.content["upload-0"].update(X=Array(np.zeros(3))), "fields .*'X'"),
    "no name": (lambda r, _: r.content.__delitem__("who"), "does not say which client"),
    "other name": (lambda r, _: r.content["who"].update(client=0), "a second node claims to be client 0"),
    "not a number": (in_summary(samples=[1.0, 2.0]), "n_i = "),
    "not readable": (lambda r, _: setattr(r.content["upload-0"]["theta"], "data", b"junk"), "cannot be read"),
    "name of a list": (lambda r, _: r.content["who"].update(client=[1, 2]), "cannot be read"),
    "nothing": (lambda r, _: r.content.__delitem__("upload-0"), "records "),
    "error": (lambda _, m: Message(Error(code=0, reason="no power"), reply_to=m), "its node reports: no power"),
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


def in_state(**changes):
    return lambda reply, _: reply.content["state-0"].update({name: Array(v) for name, v in changes.items()})


BAD_STATE = {
    "NaN": (in_state(pull=np.full((1, P), np.nan)), "state pull that is not finite"),
    "infinite": (in_state(rates=np.full(1, np.inf)), "state rates that is not finite"),
    "shape": (in_state(pull=np.zeros((3, P))), r"state pull of shape \(3, 16\)"),
    "type": (in_state(rates=np.zeros(1, np.float32)), "type float32"),
    "extra field": (in_state(X=np.zeros(3)), "a state with the fields .*'X'"),
    "missing field": (lambda r, _: r.content["state-0"].__delitem__("pull"), "a state with the fields"),
    "no state": (lambda r, _: r.content.__delitem__("state-2"), "records "),
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
    uploads = {m.content["who"]["client"]: m.content for m in honest.up[:3]}
    change, _ = BAD["NaN"]
    record = list(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change))))[1]
    sizes = {i: uploads[i]["summary-0"]["samples"] for i in (0, 2)}
    mean = sum(sizes[i] * uploads[i]["upload-0"]["theta"].numpy() for i in (0, 2)) / sum(sizes.values())
    assert np.allclose(record["state"]["theta"], mean, atol=1e-14)


def test_a_node_that_never_answers_is_left_out_after_the_time_out(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[102])
    record = list(over(whole, grid))[1]
    assert [(e["client"], e["reason"]) for e in record["exclusions"]] == [(2, "no answer within 0.5 s")]


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


def test_gathering_waits_for_nodes_and_says_how_many_there_are(whole):
    with pytest.raises(FederationError, match="1 of 3 nodes are online after 0.2 s, at least 2 are needed"):
        trainer(whole, FakeGrid(CONFIG, partitions(0))).gather(3)
    trainer(whole, FakeGrid(CONFIG, partitions(0, 1))).gather(3)


# A client's side


def test_a_node_with_other_code_or_other_data_refuses(whole, monkeypatch):
    grid, other = FakeGrid(CONFIG, partitions(0, 1, 2)), "0" * 64
    with pytest.raises(FederationError, match="another copy of the data"):
        list(train(whole.federation, trainer=NodeTrainer(grid, other, QUICK)))
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


def test_requests_survive_the_wire_to_the_bit():
    rng = np.random.default_rng(0)
    state = {"rate": np.array([0.1, np.nan]), "pull": rng.normal(size=(2, P))}
    theta, header = rng.normal(size=P), wire.Header(3, (0, 2), "c", "d")
    sent = tuple(Broadcast(3, theta, rng.normal(size=(2, F)), p, state) for p in ("round", "virtual"))
    found = wire.TrainRequest.unpack(wire.TrainRequest(header, sent).pack(2))
    assert dataclasses.astuple(found.header) == (3, (0, 2), "c", "d")
    assert [b.theta.tobytes() for b in found.sent] == [theta.tobytes()] * 2
    assert [b.phi.tobytes() for b in found.sent] == [b.phi.tobytes() for b in sent]
    assert [(b.t, b.purpose) for b in found.sent] == [(3, "round"), (3, "virtual")]
    for broadcast in found.sent:
        assert {name: row.tobytes() for name, row in broadcast.state.items()} == {
            name: rows[1:].tobytes() for name, rows in state.items()
        }
    models = rng.normal(size=(2, P))
    scored = wire.EvaluateRequest.unpack(wire.EvaluateRequest(header, models, ("round", "virtual")).pack())
    assert scored.models.tobytes() == models.tobytes()
    assert (scored.header.t, scored.header.participants, scored.purposes) == (3, (0, 2), ("round", "virtual"))


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
    "columns": (
        lambda f: rewrite(f, lambda t: t.drop(columns="x4")),
        "features=4 needs part, round, label, x1, x2",
    ),
    "round": (lambda f: rewrite(f, lambda t: t[t["round"] != 1]), "no train row for round 1"),
    "test": (lambda f: rewrite(f, lambda t: t[t["part"] != "test"]), "has no test row"),
    "part": (lambda f: rewrite(f, lambda t: t.replace("val", "vale")), "part must be train, val or test, got ..vale"),
}


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
