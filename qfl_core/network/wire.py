"""What crosses the network: every message is made and checked here.

A message is one record of plain numbers and words, because Flower sends every array of a message as requests of its
own. An array travels as the list of its numbers; both sides know its shape.

Down go the global weights, the controller, the round, and the client's own row of what the local optimiser remembers.
Up come the selected weights, n_i, one number per unfold and trace column, and the client's row after the round; for
fairness one accuracy per model. No sample, no label and no value of a single sample is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from qfl_core.algorithm.client import TRACE, Broadcast, LocalResult, joined
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Memory
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import FederationError
from qfl_core.extras.privacy import received
from qfl_core.network.ranges import check_trace, check_weights

#: The names of the one record of a message down, of a message up, and of one up in a phase of a masked round.
REQUEST, ANSWER, TOLD = "request", "answer", "told"
#: The trace columns that the meta-loss of a virtual round needs, and what limits them.
VIRTUAL_TRACE = ("loss_before", "loss_after", "displacement")
CIRCUITS = ("train", "calibration", "monitor", "validation")
#: The largest count that an upload may name.
MAX_COUNT = 10**12


@dataclass(frozen=True, eq=False)
class Training:
    """Rounds that one message asks for: all start from the same weights and the same state.

    ``participants`` are the clients of the round; ``sent[0].state`` has one row for each of them at the server, and the
    client's own row alone at a client.
    """

    participants: tuple[int, ...]
    sent: tuple[Broadcast, ...]

    @property
    def t(self) -> int:
        """The round."""
        return self.sent[0].t

    def state_of(self, client_id: int) -> Memory:
        """Return the client's row of what the local optimiser remembers: a batch of one."""
        row = self.participants.index(client_id)
        return {name: values[row : row + 1] for name, values in self.sent[0].state.items()}


@dataclass(frozen=True, eq=False)
class Scoring:
    """Global models (M, P) that a client scores on its validation rows of round t, with the names of their streams."""

    t: int
    models: np.ndarray
    purposes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Request:
    """A message down: what to train, what to score, both, or neither, which asks a node for its client.

    A client that runs other training code than ``code``, or that holds another copy of a common dataset than ``data``,
    refuses to answer, because its numbers would look right and be wrong.
    """

    code: str
    data: str
    training: Training | None = None
    scoring: Scoring | None = None

    def pack(self, client_id: int | None = None) -> RecordDict:
        """Return the message to the node of a client; the client may be unknown if there is no state."""
        record = ConfigRecord({"code": self.code, "data": self.data})
        if training := self.training:
            record["train.t"] = training.t
            record["train.participants"] = list(training.participants)
            record["train.purposes"] = [b.purpose for b in training.sent]
            record["train.theta"] = training.sent[0].theta.tolist()
            record["train.phi"] = np.ravel([b.phi for b in training.sent]).tolist()
            if training.sent[0].state and client_id is not None:
                for name, row in training.state_of(client_id).items():
                    record[f"train.state.{name}"] = np.ravel(row).tolist()
        if scoring := self.scoring:
            record["score.t"] = scoring.t
            record["score.purposes"] = list(scoring.purposes)
            record["score.theta"] = np.ravel(scoring.models).tolist()
        return RecordDict({REQUEST: record})

    @classmethod
    def unpack(cls, content: RecordDict, federation: Federation, client_id: int) -> Request:
        """Read the message back, at the client."""
        record: Mapping[str, Any] = content.config_records[REQUEST]
        training = scoring = None
        if "train.t" in record:
            optimizer, config = federation.method.optimizer, federation.config
            known = optimizer.begin(optimizer.init(config.clients, federation.num_weights), np.array([client_id]))
            sent_names = [name for name in known if f"train.state.{name}" in record]
            state = {name: np.reshape(record[f"train.state.{name}"], known[name].shape) for name in sent_names}
            theta, purposes = np.array(record["train.theta"]), record["train.purposes"]
            phi = np.reshape(record["train.phi"], (len(purposes), 2, -1))
            rounds = zip(phi, purposes, strict=True)
            sent = tuple(Broadcast(record["train.t"], theta, p, purpose, state) for p, purpose in rounds)
            training = Training(tuple(record["train.participants"]), sent)
        if "score.t" in record:
            purposes = tuple(record["score.purposes"])
            scoring = Scoring(record["score.t"], np.reshape(record["score.theta"], (len(purposes), -1)), purposes)
        return cls(record["code"], record["data"], training, scoring)


def digests(content: RecordDict) -> tuple[str, str]:
    """Return the digests of the server's training code and of its data, which a message down names."""
    record = content.config_records[REQUEST]
    return str(record["code"]), str(record["data"])


def trace_columns(purpose: str) -> tuple[str, ...]:
    """Return the trace columns that go up for a round of this purpose."""
    return TRACE if purpose == "round" else VIRTUAL_TRACE


def pack_answer(
    client_id: int, uploads: Sequence[tuple[Broadcast, LocalResult]] = (), accuracies: Sequence[float] = ()
) -> RecordDict:
    """Return one client's answer: its number, its uploads, and one validation accuracy per model."""
    record = MetricRecord({"client": client_id})
    for b, (broadcast, local) in enumerate(uploads):
        attendance = local.attendance
        arrays = {"theta": local.theta[0]}
        arrays |= {name: local.trace[name][0].astype(float) for name in trace_columns(broadcast.purpose)}
        arrays |= {f"state.{name}": values for name, values in local.state.items()}
        for name, values in arrays.items():
            record[f"{b}.{name}"] = np.ravel(values).tolist()
        record[f"{b}.samples"] = int(attendance.sizes[0])
        record[f"{b}.val_samples"] = int(attendance.val_sizes[0])
        record[f"{b}.selected"] = int(local.selected[0])
        record[f"{b}.heterogeneity"] = float(attendance.heterogeneity[0])
        for purpose in CIRCUITS:
            record[f"{b}.circuits_{purpose}"] = int(local.circuits[purpose])
    if len(accuracies):
        record["accuracies"] = [float(a) for a in accuracies]
    return RecordDict({ANSWER: record})


def pack_noisy(client_id: int, theta: np.ndarray) -> RecordDict:
    """Return the answer of a client whose upload theta (P,) has noise: nothing else goes up."""
    return RecordDict({ANSWER: MetricRecord({"client": client_id, "0.theta": theta.tolist()})})


def pack_phase(request: Request, phase: str, t: int, told: Mapping[str, Any]) -> RecordDict:
    """Return a message down that asks for one phase of a masked round."""
    content = request.pack()
    record = content.config_records[REQUEST]
    record["phase"], record["phase.t"] = phase, t
    for name, value in told.items():
        record[f"phase.{name}"] = value
    return content


def phase_asked(content: RecordDict) -> tuple[str, int, dict[str, Any]] | None:
    """Return the phase of a masked round that a message asks for, its round and what it tells; None for others."""
    record: Mapping[str, Any] = content.config_records[REQUEST]
    if "phase" not in record:
        return None
    told = {name.removeprefix("phase."): value for name, value in record.items() if name.startswith("phase.")}
    return str(record["phase"]), int(told.pop("t")), told


def pack_told(client_id: int, told: Mapping[str, Any]) -> RecordDict:
    """Return one client's answer in a phase of a masked round."""
    return RecordDict({TOLD: ConfigRecord({"client": client_id, **told})})


def unpack_phase(content: RecordDict, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Check an answer in a phase: these fields, and no others; the lists in it have one length.

    A kind that stands for a list is that of its members.
    """
    if list(content) != [TOLD]:
        raise FederationError(f"an answer with the records {sorted(content)}, expected {TOLD!r}")
    record: Mapping[str, Any] = content.config_records[TOLD]
    if odd := set(record) ^ {"client", *kinds}:
        raise FederationError(f"an answer with missing or unknown fields: {sorted(odd)}")
    found = {name: record[name] for name in kinds}
    lists = [value for value in found.values() if isinstance(value, list)]
    for name, kind in kinds.items():
        values = found[name] if isinstance(found[name], list) else [found[name]]
        if not all(type(value) is kind for value in values):
            raise FederationError(f"{name} is not of the type {kind.__name__}")
    if lists and (len(lists) != len(found) or len({len(value) for value in lists}) != 1):
        raise FederationError("lists of different lengths")
    return found


def numbers(data: bytes, length: int) -> np.ndarray:
    """Return a masked vector (length,) of numbers below 2^64."""
    if len(data) != 8 * length:
        raise FederationError(f"a masked vector of {len(data)} bytes, expected {8 * length}")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def sender(content: RecordDict) -> int:
    """Return the client that an answer is from."""
    try:
        record = content.config_records[TOLD] if TOLD in content else content.metric_records[ANSWER]
        return _count("client", record["client"])
    except KeyError:
        raise FederationError("an answer that does not say which client it is from") from None


def check_fields(request: Request, content: RecordDict) -> None:
    """Refuse an answer with records or fields that nobody asked for."""
    rounds = len(request.training.sent) if request.training else 0
    known = {"client", *(["accuracies"] if request.scoring else []), *map(str, range(rounds))}
    names = [name for name in content if name != ANSWER]
    names += [name for name in content.metric_records[ANSWER] if name.split(".")[0] not in known]
    if names:
        raise FederationError(f"an answer with the unknown fields {sorted(names)}")


def unpack_uploads(federation: Federation, training: Training, content: RecordDict) -> list[LocalResult]:
    """Check one client's uploads and return them as batches of one; the error says what is wrong."""
    client_id, record = sender(content), content.metric_records[ANSWER]
    if federation.config.is_private:
        return [_noisy(federation, training.sent[0], client_id, record)]
    remembered = training.state_of(client_id)
    uploads = []
    for b, broadcast in enumerate(training.sent):
        fields = {name.removeprefix(f"{b}."): value for name, value in record.items() if name.startswith(f"{b}.")}
        uploads.append(_upload(federation, broadcast, client_id, fields, remembered))
    return uploads


def _noisy(federation: Federation, sent: Broadcast, client_id: int, fields: Mapping[str, object]) -> LocalResult:
    if odd := set(fields) ^ {"client", "0.theta"}:
        raise FederationError(f"an upload with missing or unknown fields: {sorted(odd)}")
    theta = _array("theta", fields["0.theta"], (federation.num_weights,))
    check_weights("weights", theta)
    return received(federation, sent, theta[None], [client_id])


def _upload(
    federation: Federation, broadcast: Broadcast, client_id: int, fields: Mapping[str, object], remembered: Memory
) -> LocalResult:
    t, columns = broadcast.t, trace_columns(broadcast.purpose)
    unfolds, _ = federation.blocks
    shapes = {"theta": (federation.num_weights,)} | dict.fromkeys(columns, (unfolds,))
    shapes |= {f"state.{name}": row.shape for name, row in remembered.items()}
    counts = ("samples", "val_samples", "selected", *(f"circuits_{purpose}" for purpose in CIRCUITS))
    if odd := set(fields) ^ {*shapes, *counts, "heterogeneity"}:
        raise FederationError(f"an upload with missing or unknown fields: {sorted(odd)}")
    found = {name: _array(name, fields[name], shape) for name, shape in shapes.items()}
    number = {name: _count(name, fields[name]) for name in counts}
    held, selected = federation.size(t, client_id), number["selected"]
    if number["samples"] != held:
        raise FederationError(f"n_i = {number['samples']}, but the client holds {held} samples in this round")
    if not 1 <= selected <= unfolds:
        raise FederationError(f"selected unfold {selected} of {unfolds}")
    heterogeneity = _array("heterogeneity", [fields["heterogeneity"]], (1,))
    if not 0 <= heterogeneity[0] <= 1:
        raise FederationError(f"heterogeneity = {heterogeneity[0]}, expected 0 to 1")
    check_weights("weights", found["theta"])
    trace = {name: found[name] for name in columns}
    check_trace(federation, trace)
    state = {name: found[f"state.{name}"] for name in remembered}
    for name, row in remembered.items():
        check_weights(f"state {name}", np.where(np.isnan(row), 0.0, state[name]))  # what was unknown may stay so
    if "clipped" in trace:
        trace["clipped"] = trace["clipped"] != 0
    attendance = Attendance(
        t, np.array([client_id]), np.array([held]), np.array([number["val_samples"]]), heterogeneity
    )
    circuits = {purpose: number[f"circuits_{purpose}"] for purpose in CIRCUITS}
    rows = {name: values[None] for name, values in trace.items()}
    return LocalResult(found["theta"][None], np.array([selected]), rows, circuits, attendance, state)


def unpack_scores(scoring: Scoring, content: RecordDict) -> np.ndarray:
    """Check one client's validation accuracies and return them, (models,)."""
    found = content.metric_records[ANSWER].get("accuracies", [])
    scores = _array("accuracies", found, (len(scoring.models),))
    if not ((scores >= 0) & (scores <= 1)).all():
        raise FederationError(f"accuracies {scores.tolist()}, expected numbers between 0 and 1")
    return scores


def _array(name: str, values: object, shape: tuple[int, ...]) -> np.ndarray:
    """Return a list of numbers as an array; another length or another type is refused."""
    size = int(np.prod(shape))
    if not isinstance(values, list) or len(values) != size or not all(type(value) is float for value in values):
        kind = f"{len(values)} values" if isinstance(values, list) else f"{type(values).__name__}"
        raise FederationError(f"{name} has {kind}, expected a list of {size} numbers")
    return np.reshape(values, shape)


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise FederationError(f"{name} = {value!r}, expected a whole number from 0 to {MAX_COUNT:.0e}")
    return value


def together(uploads: Sequence[LocalResult], absent: tuple[tuple[int, str], ...]) -> LocalResult:
    """Put uploads of one client each side by side, in the order of the client ids."""
    order = sorted(uploads, key=lambda upload: int(upload.attendance.client_ids[0]))
    found = joined(order)
    return replace(found, attendance=replace(found.attendance, absent=absent))
