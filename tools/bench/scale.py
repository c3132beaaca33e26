"""What a federation of 1,000 sites needs, measured in pieces: polls, bytes and objects, masks, sampling (Linux)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supernode.fleet_http_connection import http_request_response

from qfl_core.algorithm.client import Broadcast, train_locally
from qfl_core.algorithm.server import IN_PROCESS, State
from qfl_core.config import ExperimentConfig
from qfl_core.network import masks, wire
from qfl_core.network.deployment import Deployment
from qfl_core.network.member import KEYS, REVEAL, SHARES, SUM, Member
from qfl_core.network.supernode import LONGEST_PAUSE
from qfl_core.runs.prepare import make_federation
from tools.bench.federation import descendants_cpu

SITES = 1000


class Polls(NamedTuple):
    """What one question for work costs a SuperLink in CPU seconds, and how many it answered per second."""

    cpu: float
    rate: float


def measure_polls(database: bool, polls: int = 400) -> Polls:
    """Let one node ask a SuperLink without work, one question after the other; no TLS, as behind a proxy."""
    with (
        Deployment(insecure=True, database=database) as running,
        http_request_response(running.address, True, None, None, None, 30.0) as connection,
    ):
        receive: Callable[[], Any] = connection[1]
        for _ in range(20):
            receive()
        before, begun = descendants_cpu(), time.perf_counter()
        for _ in range(polls):
            receive()
        spent, seconds = descendants_cpu() - before, time.perf_counter() - begun
    return Polls(spent / polls, polls / seconds)


class Size(NamedTuple):
    """The bytes and the objects of one message; Flower moves every object by a request of its own."""

    size: int
    objects: int


def size_of(content: RecordDict) -> Size:
    """Return the size of a message's content as it is sent; the message itself is one object more."""
    parts = get_all_nested_objects(content).values()
    return Size(sum(len(part.deflate()) for part in parts), len(parts) + 1)


def bench_config(clients: int, **more: Any) -> ExperimentConfig:
    """Return small default settings on the stand-in."""
    return ExperimentConfig(dataset="baf", source="stand-in", clients=clients, rounds=2, outer_period=0, **more)


def measure_messages(clients: int = 10) -> dict[str, Size]:
    """Return the size of what goes down to one client and up from it in a round, with and without noise."""
    federation = make_federation(bench_config(clients))
    start = State.initial(federation)
    sent = Broadcast(0, start.theta, start.phi["controller"])
    ids = tuple(range(clients))
    request = wire.Request("0" * 64, "0" * 64, wire.Training(ids, (sent,)))
    local = train_locally(federation, sent, federation.batch(0, np.array([0])))
    return {
        "down, training": size_of(request.pack()),
        "up, upload with its trace": size_of(wire.pack_answer(0, [(sent, local)])),
        "up, upload with noise": size_of(wire.pack_noisy(0, local.theta[0])),
    }


class Masks(NamedTuple):
    """What a masked round costs one client: bytes down and up, and CPU seconds without training."""

    clients: int
    down: int
    up: int
    cpu: float


def measure_masks(clients: int, weights: int = 16) -> Masks:
    """Run the phases of a masked round of so many clients for one of them; the others only deal shares."""
    group = [Member(i, {"t": -1}) for i in range(clients)]
    first, spent, down, up = group[0], 0.0, 0, 0

    def asked(phase: str, told: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal spent, down, up
        begun = time.process_time()
        answer = first.answer(phase, 0, dict(told), lambda: np.zeros(weights, dtype=np.int64))
        spent += time.process_time() - begun
        down += size_of(wire.pack_phase(wire.Request("0" * 64, "0" * 64), phase, 0, told)).size
        up += size_of(wire.pack_told(0, answer)).size
        return answer

    keys = [asked(KEYS, {"participants": clients})]
    keys += [member.answer(KEYS, 0, {"participants": clients}, _nothing) for member in group[1:]]
    told = {
        "participants": clients,
        "clients": list(range(clients)),
        "mask_keys": [found["mask_key"] for found in keys],
        "cipher_keys": [found["cipher_key"] for found in keys],
    }
    own = asked(SHARES, told)
    # What the others encrypt for this client has the same form; dealing all of it would take m times as long.
    dealt = [own["texts"][0], *(_one_share(member, told) for member in group[1:])]
    asked(SUM, {"dealers": list(range(clients)), "texts": dealt})
    asked(REVEAL, {"arrived": list(range(clients))})
    return Masks(clients, down, up, spent)


def _nothing() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


def _one_share(member: Member, told: Mapping[str, Any]) -> bytes:
    """Return shares of a member for client 0 alone, of the length that shares for all would have."""
    secret, first = masks.new_secret(), told["cipher_keys"][0]
    receivers = dict.fromkeys(range(3), first)
    return masks.dealt(member.client, secret, member.memory["mask_key"], member.memory["cipher_key"], receivers, 3)[0]


def measure_sampling(share: float, clients: int = SITES) -> tuple[int, float]:
    """Return how many of the clients train in a round, and the CPU seconds of their training in one process."""
    federation = make_federation(bench_config(clients, chunk=30, participation=share))
    start = State.initial(federation)
    sent = Broadcast(0, start.theta, start.phi["controller"])
    IN_PROCESS.train(federation, sent)
    begun = time.process_time()
    local = IN_PROCESS.train(federation, sent)
    return len(local.theta), time.process_time() - begun


def main(arguments: list[str] | None = None) -> None:
    """Measure the pieces and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.scale", description=__doc__)
    parser.add_argument("--polls", type=int, default=400)
    parser.add_argument("--masked", type=int, nargs="*", default=[10, 50, 100], help="clients of a masked round")
    options = parser.parse_args(arguments)
    for database in (False, True):
        found = measure_polls(database, options.polls)
        cores = SITES / LONGEST_PAUSE * found.cpu
        kept = "SQLite" if database else "memory"
        print(
            f"SuperLink, state in {kept}: {1000 * found.cpu:.1f} ms of CPU per poll, {found.rate:.0f} polls per second "
            f"of one node; {SITES} idle nodes that ask every {LONGEST_PAUSE:g} s keep {cores:.1f} cores busy",
            flush=True,
        )
    for name, (size, objects) in measure_messages().items():
        print(f"{name}: {size:,} bytes, {objects} objects", flush=True)
    for clients in options.masked:
        masked = measure_masks(clients)
        print(
            f"masked round of {clients} clients, for each: {masked.down:,} bytes down, {masked.up:,} up, "
            f"{masked.cpu:.2f} CPU s",
            flush=True,
        )
    for share in (1.0, 0.1, 0.02):
        count, seconds = measure_sampling(share)
        print(
            f"{share:.0%} of {SITES} clients take part: {count} train, {seconds:.2f} CPU s in one process", flush=True
        )


if __name__ == "__main__":
    main()
