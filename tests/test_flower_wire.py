"""The federation over messages: the same numbers, nothing of a sample on the wire, and wrong answers are left out."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from fakegrid import FakeGrid
from flwr.app import Array, Error, Message, MetricRecord
from qfl_core.runs.records import _plain

from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import ConfigError, DataError, FederationError
from qfl_core.config import load_profile
from qfl_core.network import app as flower_app
from qfl_core.network import wire
from qfl_core.network.nodes import Nodes, Patience, _request
from qfl_core.network.site import AGREED, ROWS, export_client, export_server, open_site
from qfl_core.runs import RunResult, run_experiment
from qfl_core.runs.experiment import train

CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=3, rounds=2, train_size=300, val_size=100, test_size=100, seed=5
)
QUICK = Patience(timeout=0.5, wait=0.2, minimum=2, poll=0.01)


@pytest.fixture(scope="module")
def whole() -> Federation:
    return Federation.create(CONFIG)


def over(federation, grid, patience=QUICK) -> Federation:
    return dataclasses.replace(federation, clients=Nodes(grid, patience))


def partitions(*clients) -> list[dict]:
    return [{"partition-id": i} for i in clients]


def comparable(records) -> list[str]:
    return [json.dumps(r | {"seconds": 0}, sort_keys=True, default=_plain) for r in records]


# Equality


@pytest.mark.parametrize("method", ["duqfl-prox", "duqfl-drift", "adam-qfl", "default-qfl"])
def test_messages_give_every_record_of_one_process_to_the_bit(method):
    federation = Federation.create(CONFIG.replace(method=method, participation=0.7))
    grid = FakeGrid(federation.config, partitions(2, 0, 1))  # nodes in any order
    assert comparable(train(over(federation, grid))) == comparable(train(federation))


def folders(whole, path) -> list[dict]:
    """Give every client its own folder; return the nodes' configs."""
    for i in range(3):
        export_client(whole, i, path / f"client-{i}")
    return [{"partition-id": i, "data-dir": str(path / f"client-{i}")} for i in range(3)]


def test_clients_with_only_their_own_folder_give_the_same_bits(whole, tmp_path):
    grid = FakeGrid(CONFIG, folders(whole, tmp_path))
    assert comparable(train(over(whole, grid))) == comparable(train(whole))


def test_a_server_without_training_rows_gives_the_same_weights_and_leaves_their_accuracy_open(whole, tmp_path):
    export_server(whole, tmp_path / "server")
    server = open_site(CONFIG, tmp_path / "server")
    assert len(server.splits.train) == 0
    records = list(train(over(server, FakeGrid(CONFIG, folders(whole, tmp_path)))))
    expected = list(train(whole))
    assert [r["state"] for r in records] == [r["state"] for r in expected]
    assert all(np.isnan(r["global_accuracies"][0].pop("global_train_accuracy")) for r in records)
    for record in expected:
        del record["global_accuracies"][0]["global_train_accuracy"]
    assert comparable(records) == comparable(expected)


def test_a_finished_run_over_messages_is_sealed_and_says_how_it_ran(whole, tmp_path):
    result = run_experiment(CONFIG, tmp_path, federation=over(whole, FakeGrid(CONFIG, partitions(0, 1, 2))))
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
    "model.theta": ("float64", (1, P)),
    "model.phi": ("float64", (3, 2, F)),  # the real round and two virtual ones
    "round.t": ("int", ()),
    "round.participants": ("int", (3,)),
    "round.purposes": ("str", (3,)),
    "round.adam_rates": ("float", (3,)),
    "round.code": ("str", ()),
    "round.data": ("str", ()),
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


def test_the_wire_carries_weights_controller_sizes_and_one_number_an_unfold_and_nothing_else(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(train(over(whole, grid)))
    assert len(grid.down) == len(grid.up) == 2 * 2 * 3  # rounds, phases, clients
    for asked, answered in zip(grid.down, grid.up, strict=True):
        assert answered.has_content()
        if asked.metadata.message_type == "train":
            assert described(asked.content) == DOWN
            assert described(answered.content) == UP
        else:
            assert described(asked.content) == DOWN | {"model.theta": ("float64", (3, P))}
            assert described(answered.content) == UP_EVALUATE


def test_what_goes_up_has_the_same_size_whatever_the_number_of_samples():
    sizes = []
    for chunk in (10, 40):
        config = CONFIG.replace(chunk=chunk)
        grid = FakeGrid(config, partitions(0, 1, 2))
        list(train(over(Federation.create(config), grid)))
        sizes.append([described(message.content) for message in grid.up])
    assert sizes[0] == sizes[1]


def test_an_error_at_a_client_sends_up_its_kind_and_no_value_of_the_data(whole, tmp_path):
    nodes = folders(whole, tmp_path)
    table = pd.read_csv(tmp_path / "client-2" / ROWS, dtype={"round": "Int64"})
    table.loc[0, "label"] = 77
    table.to_csv(tmp_path / "client-2" / ROWS, index=False)
    grid = FakeGrid(CONFIG, nodes)
    records = list(train(over(whole, grid)))
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
    record = list(train(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change)))))[1]
    (excluded,) = record["exclusions"]
    assert (excluded["round"], excluded["client"]) == (1, 1)
    assert re.search(reason, excluded["reason"])
    rows = record["client_trace"]
    shares = {row["client"]: (row["client_size"], row["aggregation_weight"]) for row in rows}
    assert set(shares) == {0, 2}
    total = sum(size for size, _ in shares.values())
    assert all(weight == size / total for size, weight in shares.values())
    assert record["global_accuracies"][0]["clients"] == 2


def test_the_aggregate_of_the_others_is_their_own_weighted_mean(whole):
    honest = FakeGrid(CONFIG, partitions(0, 1, 2))
    list(train(over(whole, honest)))
    uploads = {m.content["who"]["client"]: m.content for m in honest.up[:3]}
    change, _ = BAD["NaN"]
    record = list(train(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), corrupted(change)))))[1]
    sizes = {i: uploads[i]["summary-0"]["samples"] for i in (0, 2)}
    mean = sum(sizes[i] * uploads[i]["upload-0"]["theta"].numpy() for i in (0, 2)) / sum(sizes.values())
    assert np.allclose(record["state"]["theta"], mean, atol=1e-14)


def test_a_node_that_never_answers_is_left_out_after_the_time_out(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[102])
    record = list(train(over(whole, grid)))[1]
    assert [(e["client"], e["reason"]) for e in record["exclusions"]] == [(2, "no answer within 0.5 s")]


def test_a_client_that_cannot_score_the_new_model_counts_in_the_aggregate_and_is_noted(whole):
    def app(message, context):
        if context.node_config["partition-id"] == 0 and message.metadata.message_type == "evaluate":
            return Message(Error(code=0, reason="gone"), reply_to=message)
        return flower_app.client_app(message, context)

    record = list(train(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2), app))))[1]
    assert [e["client"] for e in record["exclusions"]] == [0]
    assert "did not score" in record["exclusions"][0]["reason"]
    assert {row["client"] for row in record["client_trace"]} == {0, 1, 2}
    assert np.isfinite(record["outer_meta"][0]["omega_fair"])


def test_too_few_valid_clients_stop_the_run_with_every_reason(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1), corrupted(BAD["NaN"][0]))
    with pytest.raises(FederationError, match="1 of 3 clients gave a valid answer, 2 are needed") as caught:
        list(train(over(whole, grid)))
    assert "client 1: weights that are not finite" in str(caught.value)
    assert "client 2: no node serves this client" in str(caught.value)


def test_a_node_that_joins_late_takes_part_from_the_next_round_on(whole):
    grid = FakeGrid(CONFIG, partitions(0, 1))
    records = train(over(whole, grid))
    next(records)
    assert next(records)["global_accuracies"][0]["clients"] == 2
    grid.nodes[105] = {"partition-id": 2}
    assert next(records)["global_accuracies"][0]["clients"] == 3


def test_exclusions_are_a_sealed_table_of_the_run(whole, tmp_path):
    grid = FakeGrid(CONFIG, partitions(0, 1, 2), silent=[100])
    result = run_experiment(CONFIG, tmp_path, federation=over(whole, grid))
    table = (result.path / "exclusions.csv").read_text().splitlines()
    assert table[0] == "round,client,reason"
    assert len(table) == 3
    assert "exclusions.csv" in json.loads((result.path / "DONE").read_text())
    (result.path / "exclusions.csv").write_text("round,client,reason\n")
    assert RunResult(result.path).changed_files() == ["exclusions.csv"]


def test_gathering_waits_for_nodes_and_says_how_many_there_are(whole):
    with pytest.raises(FederationError, match="1 of 3 nodes are online after 0.2 s, at least 2 are needed"):
        Nodes(FakeGrid(CONFIG, partitions(0)), QUICK).gather(3)
    Nodes(FakeGrid(CONFIG, partitions(0, 1)), QUICK).gather(3)


# A client's side


def test_a_node_with_other_code_or_other_data_refuses(whole, monkeypatch):
    for name, reason in (("code", "another version of the training code"), ("data", "another copy of the data")):
        monkeypatch.setattr(
            "qfl_core.network.nodes._request",
            lambda *a, name=name: dataclasses.replace(_request(*a), **{name: "0" * 64}),
        )
        with pytest.raises(FederationError, match=reason):
            list(train(over(whole, FakeGrid(CONFIG, partitions(0, 1, 2)))))


@pytest.mark.parametrize(
    ("node", "reason"),
    [({}, "has no partition-id"), ({"partition-id": 3}, "partition-id=3, but the clients are 0 to 2")],
)
def test_a_node_that_serves_no_client_says_so(whole, node, reason):
    grid = FakeGrid(CONFIG, [*partitions(0, 1), node])
    record = list(train(over(whole, grid)))[1]
    assert reason in record["exclusions"][0]["reason"]


def test_a_request_survives_the_wire_to_the_bit(whole):
    rng = np.random.default_rng(0)
    sent = tuple(wire.Broadcast(rng.normal(size=(2, F)), rate, p) for rate, p in ((np.nan, "round"), (0.1, "virtual")))
    request = wire.Request(3, rng.normal(size=(1, P)), sent, (0, 2), "c", "d")
    found = wire.Request.unpack(request.pack())
    assert np.array_equal(found.models, request.models)
    assert [b.phi.tobytes() for b in found.sent] == [b.phi.tobytes() for b in sent]
    assert [repr(b.adam_rate) for b in found.sent] == ["nan", "0.1"]
    assert (found.t, found.participants, found.code, found.data) == (3, (0, 2), "c", "d")


# A participant's folder


def test_a_folder_holds_the_rows_of_its_client_and_of_nobody_else(whole, tmp_path):
    export_client(whole, 1, tmp_path)
    site = open_site(CONFIG, tmp_path, 1)
    used = []
    for t in range(2):
        held, mine = whole.partition.round(t)[1], site.partition.round(t)
        for part in ("train", "val"):
            rows, own = getattr(held, part), getattr(mine[1], part)
            used += [row.tobytes() for row in whole.splits.train.X[rows]]
            assert np.array_equal(site.splits.train.X[own], whole.splits.train.X[rows])
            assert np.array_equal(site.splits.train.y[own], whole.splits.train.y[rows])
        assert [len(mine[i].train) for i in (0, 2)] == [0, 0]
    assert {row.tobytes() for row in site.splits.train.X} == set(used)
    assert len(site.splits.val) == 0


def rewrite(folder, change) -> None:
    table = pd.read_csv(folder / ROWS, dtype={"round": "Int64"})
    change(table).to_csv(folder / ROWS, index=False)


def test_rows_without_a_round_serve_in_every_round(whole, tmp_path):
    export_client(whole, 0, tmp_path)
    rewrite(tmp_path, lambda table: table[table["round"] != 1].assign(round=pd.NA))
    site = open_site(CONFIG, tmp_path, 0)
    assert len(site.partition.train[0][0]) > 0
    assert np.array_equal(site.partition.train[0][0], site.partition.train[1][0])


SPOILED = {
    "no rows": (lambda f: (f / ROWS).unlink(), "has no rows.csv"),
    "no agreement": (lambda f: (f / AGREED).unlink(), "has no site.json"),
    "columns": (
        lambda f: rewrite(f, lambda t: t.drop(columns="x4")),
        "features=4 needs part, round, label, x1, x2",
    ),
    "round": (lambda f: rewrite(f, lambda t: t[t["round"] != 1]), "no train row for round 1"),
    "part": (lambda f: rewrite(f, lambda t: t.replace("val", "vale")), "part must be train, val or test, got ..vale"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_folder_that_is_not_complete_is_a_clear_error(whole, tmp_path, name):
    spoil, message = SPOILED[name]
    export_client(whole, 0, tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        open_site(CONFIG, tmp_path, 0)


def test_a_folder_for_fewer_rounds_than_the_run_is_a_clear_error(whole, tmp_path):
    export_client(whole, 0, tmp_path)
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
