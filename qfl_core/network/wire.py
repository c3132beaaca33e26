"""What crosses the network: every record of every message is made and checked here.

Down go the global weights, the controller, the round, and the client's own row of what the local optimiser remembers.
Up come the selected weights, n_i, one number per unfold and trace column, and the client's row after the round; for
fairness one accuracy per model. No sample, no label and no value of a single sample is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from qfl_core.algorithm.client import TRACE, Broadcast, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.hooks import Memory
from qfl_core.algorithm.samples import Attendance
from qfl_core.base.errors import FederationError

#: The trace columns that a virtual round's meta-loss needs.
VIRTUAL_TRACE = ("loss_before", "loss_after")
CIRCUITS = ("train", "calibration", "monitor", "validation")
SUMMARY = ("samples", "val_samples", "selected", "heterogeneity", *(f"circuits_{purpose}" for purpose in CIRCUITS))


@dataclass(frozen=True, eq=False)
class Header:
    """What every message down says: the round, the ids of its participants, and two digests.

    A client that runs other training code than ``code``, or that holds another copy of a common dataset than ``data``,
    refuses to answer, because its numbers would look right and be wrong.
    """

    t: int
    participants: tuple[int, ...]
    code: str
    data: str

    def pack(self, purposes: Sequence[str] = ()) -> RecordDict:
        """Return the record of a message that names these random streams; alone it asks a node for its client."""
        record = ConfigRecord({"t": self.t, "code": self.code, "data": self.data})
        record["participants"] = list(self.participants)
        if purposes:
            record["purposes"] = list(purposes)
        return RecordDict({"round": record})

    @classmethod
    def unpack(cls, content: RecordDict) -> Header:
        """Read the record back."""
        fields = content.config_records["round"]
        participants = _numbers(fields["participants"])
        return cls(_number(fields["t"]), tuple(participants), str(fields["code"]), str(fields["data"]))


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """Rounds that one message asks for: all start from the same weights and the same state."""

    header: Header
    sent: tuple[Broadcast, ...]

    def state_of(self, client_id: int) -> Memory:
        """Return the client's row of what the local optimiser remembers: a batch of one."""
        row = self.header.participants.index(client_id)
        return {name: values[row : row + 1] for name, values in self.sent[0].state.items()}

    def pack(self, client_id: int | None = None) -> RecordDict:
        """Return the records of the message to the node of a client; it may be unknown if there is no state."""
        content = self.header.pack([b.purpose for b in self.sent])
        phi = np.array([b.phi for b in self.sent])
        content["model"] = ArrayRecord({"theta": Array(self.sent[0].theta), "phi": Array(phi)})
        if self.sent[0].state and client_id is not None:
            content["state"] = _arrays(self.state_of(client_id))
        return content

    @classmethod
    def unpack(cls, content: RecordDict) -> TrainRequest:
        """Read the records back, at the client: its broadcasts hold its own row of the state."""
        header, arrays = Header.unpack(content), content.array_records["model"]
        theta, phi = arrays["theta"].numpy(), arrays["phi"].numpy()
        own = content.array_records.get("state", ArrayRecord())
        state = {name: array.numpy() for name, array in own.items()}
        rounds = zip(phi, purposes_of(content), strict=True)
        return cls(header, tuple(Broadcast(header.t, theta, p, purpose, state) for p, purpose in rounds))


@dataclass(frozen=True, eq=False)
class EvaluateRequest:
    """New global models (B, P) that the clients score, and the names of the random streams for each."""

    header: Header
    models: np.ndarray
    purposes: tuple[str, ...]

    def pack(self) -> RecordDict:
        """Return the records of the message."""
        content = self.header.pack(self.purposes)
        content["model"] = ArrayRecord({"theta": Array(self.models)})
        return content

    @classmethod
    def unpack(cls, content: RecordDict) -> EvaluateRequest:
        """Read the records back."""
        models = content.array_records["model"]["theta"].numpy()
        return cls(Header.unpack(content), models, purposes_of(content))


def purposes_of(content: RecordDict) -> tuple[str, ...]:
    """Return the names of the random streams that a message down asks for."""
    found = content.config_records["round"]["purposes"]
    return tuple(str(name) for name in found) if isinstance(found, list) else ()


def trace_columns(purpose: str) -> tuple[str, ...]:
    """Return the trace columns that go up for a round of this purpose."""
    return TRACE if purpose == "round" else VIRTUAL_TRACE


def pack_sender(client_id: int) -> RecordDict:
    """Return an answer that says which client it is from, and nothing more."""
    return RecordDict({"who": MetricRecord({"client": client_id})})


def pack_uploads(client_id: int, sent: Sequence[Broadcast], results: Sequence[LocalResult]) -> RecordDict:
    """Return one client's uploads: per broadcast its arrays, a summary and, if something is remembered, the state."""
    content = pack_sender(client_id)
    for b, (broadcast, local) in enumerate(zip(sent, results, strict=True)):
        trace = {name: local.trace[name][0].astype(float) for name in trace_columns(broadcast.purpose)}
        content[f"upload-{b}"] = _arrays({"theta": local.theta[0], **trace})
        content[f"summary-{b}"] = MetricRecord(
            {
                "samples": int(local.attendance.sizes[0]),
                "val_samples": int(local.attendance.val_sizes[0]),
                "selected": int(local.selected[0]),
                "heterogeneity": float(local.attendance.heterogeneity[0]),
                **{f"circuits_{purpose}": int(local.circuits[purpose]) for purpose in CIRCUITS},
            }
        )
        if local.state:
            content[f"state-{b}"] = _arrays(local.state)
    return content


def sender(content: RecordDict) -> int:
    """Return the client that a reply is from."""
    try:
        return _number(content.metric_records["who"]["client"])
    except KeyError:
        raise FederationError("an answer that does not say which client it is from") from None


def unpack_uploads(federation: Federation, request: TrainRequest, content: RecordDict) -> list[LocalResult]:
    """Check one client's uploads and return them as batches of one; the error says what is wrong."""
    client_id, count = sender(content), len(request.sent)
    remembered = request.state_of(client_id)
    kinds = ("upload", "summary", "state") if remembered else ("upload", "summary")
    expected = {"who", *(f"{kind}-{b}" for kind in kinds for b in range(count))}
    if set(content) != expected:
        raise FederationError(f"records {sorted(content)}, expected {sorted(expected)}")
    uploads = []
    for b, broadcast in enumerate(request.sent):
        state = _state(remembered, content.array_records[f"state-{b}"]) if remembered else {}
        arrays, summary = content.array_records[f"upload-{b}"], content.metric_records[f"summary-{b}"]
        uploads.append(_upload(federation, broadcast, client_id, arrays, summary, state))
    return uploads


def _upload(
    federation: Federation,
    broadcast: Broadcast,
    client_id: int,
    arrays: ArrayRecord,
    summary: MetricRecord,
    state: Memory,
) -> LocalResult:
    t, columns = broadcast.t, trace_columns(broadcast.purpose)
    unfolds, _ = federation.blocks
    shapes = {"theta": (federation.num_weights,)} | dict.fromkeys(columns, (unfolds,))
    if set(arrays) != set(shapes) or set(summary) != set(SUMMARY):
        raise FederationError(f"an upload with the fields {sorted([*arrays, *summary])}")
    found = {name: _checked(name, arrays[name], shape) for name, shape in shapes.items()}
    if not np.isfinite(found["theta"]).all():
        raise FederationError("weights that are not finite")
    for name in VIRTUAL_TRACE:
        if not np.isfinite(found[name]).all():
            raise FederationError(f"{name} that is not finite")
    held = federation.size(t, client_id)
    if summary["samples"] != held:
        raise FederationError(f"n_i = {summary['samples']}, but the client holds {held} samples in this round")
    selected = _number(summary["selected"])
    if not 1 <= selected <= unfolds:
        raise FederationError(f"selected unfold {selected} of {unfolds}")
    attendance = Attendance(
        t,
        np.array([client_id]),
        np.array([held]),
        np.array([_number(summary["val_samples"])]),
        np.array([_real(summary["heterogeneity"])]),
    )
    trace = {name: found[name][None] for name in columns}
    if "clipped" in trace:
        trace["clipped"] = trace["clipped"] != 0
    circuits = {purpose: _number(summary[f"circuits_{purpose}"]) for purpose in CIRCUITS}
    return LocalResult(found["theta"][None], np.array([selected]), trace, circuits, attendance, state)


def _state(remembered: Memory, arrays: ArrayRecord) -> Memory:
    """Check what a client's optimiser remembers after a round against its row ``remembered`` that went down."""
    if set(arrays) != set(remembered):
        raise FederationError(f"a state with the fields {sorted(arrays)}, expected {sorted(remembered)}")
    state = {}
    for name, row in remembered.items():
        state[name] = _checked(f"state {name}", arrays[name], row.shape)
        if not (np.isfinite(state[name]) | np.isnan(row)).all():  # what was unknown before may stay so
            raise FederationError(f"state {name} that is not finite")
    return state


def _checked(name: str, array: Array, shape: tuple[int, ...]) -> np.ndarray:
    found = array.numpy()
    if found.shape != shape or found.dtype != np.float64:
        raise FederationError(f"{name} of shape {found.shape} and type {found.dtype}, expected {shape} of float64")
    return found


def _arrays(values: Memory) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in values.items()})


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an integer, got {value!r}")
    return value


def _real(value: object) -> float:
    if not isinstance(value, float):
        raise TypeError(f"expected a number, got {value!r}")
    return value


def _numbers(values: object) -> list[int]:
    if not isinstance(values, list):
        raise TypeError(f"expected integers, got {values!r}")
    return [_number(value) for value in values]


def together(uploads: Sequence[LocalResult], absent: tuple[tuple[int, str], ...]) -> LocalResult:
    """Put uploads of one client each side by side, in the order of the client ids."""
    order = sorted(uploads, key=lambda upload: int(upload.attendance.client_ids[0]))
    rolls, first = [upload.attendance for upload in order], order[0]
    attendance = Attendance(
        rolls[0].t,
        np.concatenate([roll.client_ids for roll in rolls]),
        np.concatenate([roll.sizes for roll in rolls]),
        np.concatenate([roll.val_sizes for roll in rolls]),
        np.concatenate([roll.heterogeneity for roll in rolls]),
        absent,
    )
    return LocalResult(
        np.concatenate([upload.theta for upload in order]),
        np.concatenate([upload.selected for upload in order]),
        {name: np.concatenate([upload.trace[name] for upload in order]) for name in first.trace},
        {name: sum(upload.circuits[name] for upload in order) for name in first.circuits},
        attendance,
        {name: np.concatenate([upload.state[name] for upload in order]) for name in first.state},
    )


def pack_scores(client_id: int, accuracies: Sequence[float]) -> RecordDict:
    """Return one client's validation accuracies, one per model."""
    return RecordDict({"who": MetricRecord({"client": client_id, "accuracies": [float(a) for a in accuracies]})})


def unpack_scores(request: EvaluateRequest, content: RecordDict) -> np.ndarray:
    """Check one client's validation accuracies and return them, (models,)."""
    scores = np.array(content.metric_records["who"].get("accuracies", []), dtype=float)
    if scores.shape != (len(request.models),) or not ((scores >= 0) & (scores <= 1)).all():
        raise FederationError(f"accuracies {scores.tolist()}, expected {len(request.models)} between 0 and 1")
    return scores
