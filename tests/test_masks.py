"""Secure aggregation: the masks cancel, the server never sees an unmasked vector, and clients that are gone are
recovered."""

import itertools
import json

import numpy as np
import pytest

pytest.importorskip("flwr")

from cryptography.fernet import InvalidToken
from fakegrid import FakeGrid
from flwr.app import ConfigRecord, MetricRecord
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from qfl_core.base.errors import FederationError
from qfl_core.config import load_profile
from qfl_core.data import load_splits
from qfl_core.extras.masked_sum import mean_of_sum, to_integers
from qfl_core.extras.privacy import NOISE
from qfl_core.network import masks, member, wire
from qfl_core.network.asking import Nodes, Patience
from qfl_core.network.member import KEYS, REVEAL, SHARES, SUM
from qfl_core.network.private import PrivateNodes
from qfl_core.runs.experiment import train
from qfl_core.runs.journal import _plain
from qfl_core.runs.prepare import prepare

CONFIG = load_profile("smoke").config(
    "baf", source="stand-in", clients=5, rounds=2, train_size=300, val_size=100, test_size=100, seed=5,
    outer_period=0, uploads="masked",
)  # fmt: skip
QUICK = Patience(timeout=0.3, wait=0.2, minimum=2, poll=0.01)
P = 16


@pytest.fixture(scope="module")
def prepared():
    return prepare(CONFIG, load_splits(CONFIG))


def over(prepared, grid, patience=QUICK):
    return train(prepared.federation, trainer=PrivateNodes(Nodes(grid, patience), prepared.source.sha256))


def partitions(count=5):
    return [{"partition-id": i} for i in range(count)]


def comparable(records):
    return [json.dumps(r | {"seconds": 0}, sort_keys=True, default=_plain) for r in records]


# The arithmetic


def protocol(integers, gone=(), silent=()):
    """Run all phases by hand; clients in ``gone`` deal shares and never upload, those in ``silent`` never reveal."""
    ids, needed = list(range(len(integers))), masks.threshold(len(integers))
    pairs = {i: (masks.KeyPair.make(), masks.KeyPair.make()) for i in ids}
    secrets = {i: masks.new_secret() for i in ids}
    receivers = {i: pairs[i][1].public for i in ids}
    dealt = {i: masks.dealt(i, secrets[i], pairs[i][0].private, pairs[i][1].private, receivers, needed) for i in ids}
    publics = {i: pairs[i][0].public for i in ids}
    arrived = [i for i in ids if i not in gone]
    uploads = {i: masks.masked(i, integers[i], secrets[i], pairs[i][0].private, publics) for i in arrived}
    shares = {i: [] for i in ids}
    for i, j in itertools.product([i for i in arrived if i not in silent], ids):
        of_secret, of_key = masks.opened(i, j, pairs[i][1].private, pairs[j][1].public, dealt[j][i])
        shares[j].append(of_secret if j in arrived else of_key)
    return uploads, masks.unmasked(uploads, publics, shares, needed)


@pytest.mark.parametrize(("gone", "silent"), [((), ()), ((3,), ()), ((0, 2), ()), ((), (1, 4)), ((4,), (0,))])
def test_the_masks_cancel_whoever_is_gone(gone, silent):
    rng = np.random.default_rng(2)
    steps, counts = rng.normal(size=(5, P)), np.array([40, 31, 77, 50, 62])
    integers = to_integers(steps, counts)
    uploads, total = protocol(integers, gone, silent)
    arrived = sorted(uploads)
    assert total.tolist() == integers[arrived].sum(axis=0).tolist()
    weighted = (counts[arrived, None] * steps[arrived]).sum(axis=0) / counts[arrived].sum()
    assert np.abs(mean_of_sum(total, int(counts[arrived].sum())) - weighted).max() <= 2.0**-33 + 1e-15


def test_the_sum_is_that_of_flowers_own_masks_and_quantisation():
    """The same steps through Flower's quantize, masks and dequantize: equal up to its coarser grid."""
    rng = np.random.default_rng(4)
    steps, span, levels, modulus = rng.uniform(-1, 1, size=(5, P)), 2.0, 1 << 22, 1 << 32
    total = None
    for i in range(5):
        vector = quantize([steps[i]], span, levels)
        for j in range(5):
            if i != j:
                seed = bytes([min(i, j), max(i, j), 0, 0])
                add = parameters_addition if i > j else parameters_subtraction
                vector = add(vector, pseudo_rand_gen(seed, modulus, [(P,)]))
        vector = parameters_mod(vector, modulus)
        total = vector if total is None else parameters_addition(total, vector)
    theirs = dequantize(parameters_mod(total, modulus), span, levels)[0] - 4 * span
    _, ours = protocol(to_integers(steps, np.ones(5, dtype=np.int64)))
    # Each of five clients is rounded by less than one of Flower's levels.
    assert np.abs(mean_of_sum(ours, 1) - theirs).max() < 5 * 2 * span / levels


def test_masked_vectors_look_uniform_and_no_two_secrets_give_one_mask():
    zeros = np.zeros((3, 4000), dtype=np.int64)
    uploads, total = protocol(zeros)
    assert total.tolist() == [0] * 4000
    for vector in uploads.values():
        bits = np.unpackbits(vector.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 0.01  # ten standard errors of 256,000 bits
    assert not (uploads[0] == uploads[1]).any()
    other = bytearray(32)
    other[31] = 1
    assert (masks.mask(bytes(32), 100) != masks.mask(bytes(other), 100)).all()  # all 32 bytes count


def test_too_few_shares_are_refused_and_wrong_ones_do_not_pass_as_a_sum():
    integers = np.ones((5, P), dtype=np.int64)
    with pytest.raises(FederationError, match=r"2 shares of client 0 are left, 3 are needed"):
        protocol(integers, silent=(0, 1, 2))


@pytest.mark.parametrize(("asked", "needed"), [(3, 3), (4, 3), (5, 3), (6, 4), (10, 6), (101, 51)])
def test_more_than_half_and_at_least_three_must_stay(asked, needed):
    assert masks.threshold(asked) == needed


# Over messages


def test_masked_messages_give_every_record_of_one_process_to_the_bit(prepared):
    grid = FakeGrid(CONFIG, partitions())
    assert comparable(over(prepared, grid)) == comparable(train(prepared.federation))
    kinds = [message.metadata.message_type for message in grid.down]
    first = 5 * ["query"] + 10 * ["query"] + 5 * ["train"] + 5 * ["query"]  # who is there; then the four phases
    assert kinds == first + first[5:]


def described(content) -> dict[str, tuple]:
    (record,) = content.values()
    return {
        name: (type(value[0]).__name__, len(value)) if isinstance(value, list) else (type(value).__name__, 1)
        for name, value in record.items()
    }


WHO, DIGESTS = {"client": ("int", 1)}, {"code": ("str", 1), "data": ("str", 1)}
ASKED = DIGESTS | {"phase": ("str", 1), "phase.t": ("int", 1)}
DOWN = {
    KEYS: ASKED | {"phase.participants": ("int", 1)},
    SHARES: ASKED
    | {
        "phase.participants": ("int", 1),
        "phase.clients": ("int", 5),
        "phase.mask_keys": ("bytes", 5),
        "phase.cipher_keys": ("bytes", 5),
    },
    SUM: ASKED
    | {
        "train.t": ("int", 1),
        "train.participants": ("int", 5),
        "train.purposes": ("str", 1),
        "train.theta": ("float", P),
        "train.phi": ("float", 14),
        "phase.dealers": ("int", 5),
        "phase.texts": ("bytes", 5),
    },
    REVEAL: ASKED | {"phase.arrived": ("int", 5)},
}
UP = {
    KEYS: WHO | {"mask_key": ("bytes", 1), "cipher_key": ("bytes", 1)},
    SHARES: WHO | {"receivers": ("int", 5), "texts": ("bytes", 5)},
    SUM: WHO | {"masked": ("bytes", 1)},
    REVEAL: WHO | {"dealers": ("int", 5), "shares": ("bytes", 5)},
}


def test_the_wire_of_a_masked_run_carries_keys_shares_and_masked_steps_and_nothing_else(prepared):
    grid = FakeGrid(CONFIG, partitions())
    list(over(prepared, grid))
    pairs = list(zip(grid.down, grid.up, strict=True))
    assert all((described(a.content), described(b.content)) == (DIGESTS, WHO) for a, b in pairs[:5])
    phases = [KEYS, SHARES, SUM, REVEAL] * 2
    for k, (asked, answered) in enumerate(pairs[5:]):
        phase = phases[k // 5]
        assert asked.content["request"]["phase"] == phase
        assert described(asked.content) == DOWN[phase]
        assert described(answered.content) == UP[phase]


def test_the_server_never_receives_an_unmasked_vector(prepared, monkeypatch):
    """No bytes of a message hold a client's whole numbers, and what a client sends is not near them either."""
    true = []
    real = member.whole_numbers
    monkeypatch.setattr("qfl_core.network.app.whole_numbers", lambda *a: true.append(real(*a)) or true[-1])
    grid = FakeGrid(CONFIG, partitions())
    list(over(prepared, grid))
    assert len(true) == 10
    sent = [m.content["told"]["masked"] for m in grid.up if "masked" in m.content.get("told", {})]
    assert len(sent) == 10
    for vector, own in zip(sent, true, strict=True):
        found = np.frombuffer(vector, dtype="<u8").view(np.int64)
        assert (np.abs(found.astype(float) - own.astype(float)) > 2.0**40).all()  # by chance: 16 of 2^23 each
    everything = b"".join(
        part if isinstance(part, bytes) else repr(part).encode()
        for message in [*grid.down, *grid.up]
        for record in message.content.values()
        for value in record.values()
        for part in (value if isinstance(value, list) else [value])
    )
    for own in true:
        assert own.astype("<i8").tobytes() not in everything
        assert own[:2].astype("<i8").tobytes() not in everything


def test_private_keys_and_secrets_stay_at_their_nodes(prepared):
    grid = FakeGrid(CONFIG, partitions())
    list(over(prepared, grid))
    everything = repr([message.content for message in [*grid.down, *grid.up]]).encode()
    for context in grid.contexts.values():
        memory = context.state[member.MEMORY]
        for name in ("mask_key", "cipher_key", "secret"):
            assert repr(memory[name]).encode()[2:-1] not in everything


class Dropping:
    """A ClientApp that loses some clients in one phase of one round, and answers for the others."""

    def __init__(self, phase, clients, t=0):
        self.phase, self.clients, self.t = phase, clients, t

    def __call__(self, message, copies):
        record = message.content["request"]
        client = message.metadata.dst_node_id - 100
        is_it = record.get("phase") == self.phase and record.get("phase.t") == self.t and client in self.clients
        return None if is_it else False


@pytest.mark.parametrize("phase", [KEYS, SHARES, SUM, REVEAL])
def test_a_client_that_drops_out_in_any_phase_is_recovered(prepared, phase):
    grid = FakeGrid(CONFIG, partitions(), loses=Dropping(phase, {2}))
    records = list(over(prepared, grid))
    told = [(e["round"], e["client"], e["reason"]) for e in records[1]["exclusions"]]
    lost = [(1, 2, "no answer within 0.3 s")] if phase != REVEAL else []  # its step had arrived, and counts
    assert told == lost
    assert records[1]["global_accuracies"][0]["clients"] == 5 - len(lost)
    assert records[2]["global_accuracies"][0]["clients"] == 5
    if not lost:
        assert comparable(records) == comparable(train(prepared.federation))


def test_the_sum_without_a_client_is_that_of_the_others(prepared, monkeypatch):
    """The server's model is theta plus the weighted mean of the whole numbers of those that stayed, to the bit."""
    true = {}
    real = member.whole_numbers

    def kept(federation, sent, local):
        true[int(local.attendance.client_ids[0]), sent.t] = real(federation, sent, local)
        return true[int(local.attendance.client_ids[0]), sent.t]

    monkeypatch.setattr("qfl_core.network.app.whole_numbers", kept)
    records = list(over(prepared, FakeGrid(CONFIG, partitions(), loses=Dropping(SUM, {1, 4}))))
    total = np.sum([true[i, 0] for i in (0, 2, 3)], axis=0)
    count = sum(prepared.federation.size(0, i) for i in (0, 2, 3))
    expected = np.array(records[0]["state"]["theta"]) + mean_of_sum(total, count)
    assert records[1]["state"]["theta"] == expected.tolist()


@pytest.mark.parametrize("phase", [KEYS, SHARES, SUM, REVEAL])
def test_too_few_survivors_stop_the_run_in_one_line(prepared, phase):
    grid = FakeGrid(CONFIG, partitions(), loses=Dropping(phase, {0, 1, 2}))
    with pytest.raises(FederationError) as stopped:
        list(over(prepared, grid))
    told = str(stopped.value)
    assert told.startswith(f"round 1: 2 of 5 clients are left in the phase {phase!r}, 3 are needed for a masked sum")
    assert "client 0: no answer within 0.3 s" in told
    assert "\n" not in told


def test_an_answer_that_got_lost_is_asked_for_again_and_gives_the_same_bits(prepared):
    class Once(Dropping):
        def __call__(self, message, copies):
            return super().__call__(message, copies) if copies == 0 else False

    for phase in (KEYS, SHARES, SUM, REVEAL):
        grid = FakeGrid(CONFIG, partitions(), loses=Once(phase, {0, 3}))
        again = Patience(timeout=600, wait=0.2, minimum=2, poll=0.01, again=0.02)
        assert comparable(over(prepared, grid, again)) == comparable(train(prepared.federation))


# What a client refuses


def test_a_client_answers_one_question_per_phase_and_no_round_twice():
    memory, calls = {"t": -1}, []

    def work():
        calls.append(1)
        return {"n": len(calls)}

    for _ in range(2):
        assert member.answered(memory, "sum", 3, {"a": 1}, work) == {"n": 1}
    with pytest.raises(FederationError, match="a second question of the phase 'sum' in round 4"):
        member.answered(memory, "sum", 3, {"a": 2}, work)
    assert member.answered(memory, "sum", 4, {"a": 2}, work) == {"n": 2}
    with pytest.raises(FederationError, match="round 4 is over for this client"):
        member.answered(memory, "sum", 3, {"a": 1}, work)


def members(count=5):
    """Return clients that have made keys and dealt shares, and what each was dealt."""
    group = [member.Member(i, {"t": -1}) for i in range(count)]
    keys = [m.answer(KEYS, 0, {}, None) for m in group]
    told = {
        "participants": count,
        "clients": list(range(count)),
        "mask_keys": [k["mask_key"] for k in keys],
        "cipher_keys": [k["cipher_key"] for k in keys],
    }
    return group, told


def test_a_client_reveals_one_kind_of_share_and_only_for_a_sum_of_enough():
    group, told = members()
    dealt = [m.answer(SHARES, 0, told, None) for m in group]
    asked = {"dealers": list(range(5)), "texts": [d["texts"][0] for d in dealt]}
    with pytest.raises(FederationError, match="the phase 'reveal' of round 1 before the phase 'sum'"):
        group[0].answer(REVEAL, 0, {"arrived": [0, 1, 2]}, None)
    group[0].answer(SUM, 0, asked, lambda: np.zeros(P, dtype=np.int64))
    for few in ([0, 1], [0, 0, 0], [1, 2, 3], [0, 1, 2, 9]):
        with pytest.raises(FederationError, match="clients, 3 are needed"):
            group[0].answer(REVEAL, 0, {"arrived": few}, None)
    told = group[0].answer(REVEAL, 0, {"arrived": [0, 1, 2]}, None)
    memory = group[0].memory
    assert told["shares"] == memory["of_secrets"][:3] + memory["of_keys"][3:]
    with pytest.raises(FederationError, match="a second question"):
        group[0].answer(REVEAL, 0, {"arrived": [0, 3, 4]}, None)


def test_a_client_refuses_foreign_keys_repeated_keys_and_shares_that_were_swapped():
    group, told = members()
    for wrong, why in (
        ({"mask_keys": told["mask_keys"][::-1]}, "not those that it made"),
        ({"cipher_keys": [*told["cipher_keys"][:4], told["cipher_keys"][3]]}, "clients with keys of their own"),
        ({"clients": [0, 1], "mask_keys": told["mask_keys"][:2], "cipher_keys": told["cipher_keys"][:2]}, "2 clients"),
    ):
        with pytest.raises(FederationError, match=why):
            group[0].answer(SHARES, 0, told | wrong, None)
    dealt = [m.answer(SHARES, 0, told, None) for m in group]
    texts = [d["texts"][0] for d in dealt]
    with pytest.raises(InvalidToken):  # every pair of clients has a key of its own
        group[0].answer(SUM, 0, {"dealers": list(range(5)), "texts": texts[::-1]}, None)
    with pytest.raises(FederationError, match="which nobody knows"):
        group[0].answer("gossip", 0, {}, None)


def test_in_a_masked_run_a_plain_upload_and_scores_are_refused(prepared):
    grid = FakeGrid(CONFIG, partitions())
    records = over(prepared, grid)
    next(records)
    next(records)
    asked = next(m for m in grid.down if m.metadata.message_type == "train")
    plain = {name: v for name, v in asked.content["request"].items() if not name.startswith("phase")}
    for more, why in (({}, "asked for a plain one"), (SCORE, "has no scores of clients")):
        message = type(asked)(
            wire.RecordDict({"request": ConfigRecord(plain | more)}), dst_node_id=100, message_type="train"
        )
        message.metadata.__dict__["_message_id"] = "m"
        assert why in grid.app(message, grid.contexts[100]).error.reason


SCORE = {"score.t": 0, "score.purposes": ["round"], "score.theta": [0.0] * P}


def test_a_site_may_demand_masks_and_noise():
    member.check_demands(CONFIG, {"uploads": "masked"})
    member.check_demands(CONFIG.replace(dp_noise=2.0), {"dp-noise": 2.0})
    member.check_demands(CONFIG, {})
    with pytest.raises(FederationError, match="the site demands uploads='masked', the run has 'plain'"):
        member.check_demands(CONFIG.replace(uploads="plain"), {"uploads": "masked"})
    with pytest.raises(FederationError, match="the site demands dp_noise of at least 2, the run has 1.0"):
        member.check_demands(CONFIG.replace(dp_noise=1.0), {"dp-noise": 2})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"masked": b"x"}, None),
        ({"masked": b"x", "theta": [0.0]}, "unknown fields"),
        ({}, "missing"),
        ({"masked": "x"}, "not of the type bytes"),
    ],
)
def test_answers_of_a_phase_are_checked(fields, why):
    content = wire.pack_told(1, fields)
    if why is None:
        assert wire.unpack_phase(content, {"masked": bytes}) == fields
    else:
        with pytest.raises(FederationError, match=why):
            wire.unpack_phase(content, {"masked": bytes})
    with pytest.raises(FederationError, match="different lengths"):
        wire.unpack_phase(wire.pack_told(1, {"a": [1], "b": [1, 2]}), {"a": int, "b": int})
    with pytest.raises(FederationError, match="a masked vector of 3 bytes, expected 16"):
        wire.numbers(b"abc", 2)


# Noise without masks


def noisy_config():
    return CONFIG.replace(uploads="plain", dp_noise=1.0)


def test_a_noisy_upload_is_all_that_goes_up(prepared):
    config = noisy_config()
    prepared, grid = prepare(config), FakeGrid(config, partitions())
    records = list(over(prepared, grid))
    assert [m.metadata.message_type for m in grid.down] == 10 * ["train"]
    for message in grid.up:
        assert described(message.content) == WHO | {"0.theta": ("float", P)}
    assert records[2]["privacy"] == list(train(prepared.federation))[2]["privacy"]


def test_with_the_noise_of_the_simulation_noisy_messages_give_its_records_to_the_bit(monkeypatch):
    config = noisy_config()
    prepared = prepare(config)
    real = member.released_steps

    def named(federation, sent, local, rngs):
        return real(federation, sent, local, federation.generators(NOISE, sent.t, local.attendance.client_ids))

    monkeypatch.setattr(member, "released_steps", named)
    for changed in (config, config.replace(uploads="masked")):
        prepared, grid = prepare(changed), FakeGrid(changed, partitions())
        assert comparable(over(prepared, grid)) == comparable(train(prepared.federation))


def test_a_noisy_upload_that_is_asked_for_again_has_the_same_noise(prepared):
    config = noisy_config()
    prepared, grid = prepare(config), FakeGrid(config, partitions())
    list(over(prepared, grid))
    question = grid.down[-1]
    first = grid.up[-1].content["answer"]["0.theta"]
    again = grid.app(question, grid.contexts[question.metadata.dst_node_id])
    assert again.content["answer"]["0.theta"] == first


def test_a_noisy_upload_with_more_or_other_fields_is_left_out(prepared):
    config = noisy_config()
    prepared = prepare(config)
    training = wire.Training((0,), (first_broadcast(prepared.federation),))
    for fields in ({"client": 0}, {"client": 0, "0.theta": [0.0] * P, "0.samples": 3}, {"client": 0, "0.theta": [0.0]}):
        with pytest.raises(FederationError):
            wire.unpack_uploads(prepared.federation, training, wire.RecordDict({"answer": MetricRecord(fields)}))


def first_broadcast(federation):
    from qfl_core.algorithm.client import Broadcast
    from qfl_core.algorithm.server import State

    start = State.initial(federation)
    return Broadcast(0, start.theta, start.phi["controller"])
