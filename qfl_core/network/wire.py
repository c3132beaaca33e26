"""What crosses the network: every record of every message is made and checked here.

Down go the global weights, the controller and the round; up come the selected weights, n_i and one number an unfold
and trace column; for fairness one accuracy a model. No sample, no label, no value of a single sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from qfl_core.algorithm.aggregation import Attendance
from qfl_core.algorithm.client import TRACE, LocalResult
from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.server import Broadcast
from qfl_core.base.errors import FederationError

#: The trace columns that a virtual round's meta-loss needs.
VIRTUAL_TRACE = ("loss_before", "loss_after")
CIRCUITS = ("train", "calibration", "monitor", "validation")
SUMMARY = ("samples", "val_samples", "selected", "heterogeneity", *(f"circuits_{purpose}" for purpose in CIRCUITS))


@dataclass(frozen=True, eq=False)
class Request:
    """A round as it travels down: models (B, P), a row for each broadcast, or one for all that start together.

    ``code`` and ``data`` are digests: a client that runs other training code, or holds another copy of a common
    dataset, refuses instead of sending numbers that look right.
    """

    t: int
    models: np.ndarray
    sent: tuple[Broadcast, ...]
    participants: tuple[int, ...]
    code: str
    data: str

    def pack(self) -> RecordDict:
        """Return the records of the message."""
        phi = np.array([b.phi for b in self.sent])
        return RecordDict(
            {
                "model": ArrayRecord({"theta": Array(self.models), "phi": Array(phi)}),
                "round": ConfigRecord(
                    {
                        "t": self.t,
                        "participants": list(self.participants),
                        "purposes": [b.purpose for b in self.sent],
                        "adam_rates": [float(b.adam_rate) for b in self.sent],
                        "code": self.code,
                        "data": self.data,
                    }
                ),
            }
        )

    @classmethod
    def unpack(cls, content: RecordDict) -> Request:
        """Read the records back."""
        arrays, settings = content["model"], content["round"]
        phi = arrays["phi"].numpy()
        rows = zip(phi, settings["adam_rates"], settings["purposes"], strict=True)
        return cls(
            t=int(settings["t"]),
            models=arrays["theta"].numpy(),
            sent=tuple(Broadcast(p, rate, purpose) for p, rate, purpose in rows),
            participants=tuple(settings["participants"]),
            code=settings["code"],
            data=settings["data"],
        )


def trace_columns(purpose: str) -> tuple[str, ...]:
    """Return the trace columns that go up for a round of this purpose."""
    return TRACE if purpose == "round" else VIRTUAL_TRACE


def pack_uploads(client: int, results: Sequence[LocalResult], sent: Sequence[Broadcast]) -> RecordDict:
    """Return one client's uploads, for each broadcast an array record and a summary; none if it does not take part."""
    content = RecordDict({"who": MetricRecord({"client": client})})
    for b, (local, broadcast) in enumerate(zip(results, sent, strict=False)):
        arrays = {"theta": local.theta[0]}
        arrays |= {name: local.trace[name][0].astype(float) for name in trace_columns(broadcast.purpose)}
        content[f"upload-{b}"] = ArrayRecord({name: Array(values) for name, values in arrays.items()})
        content[f"summary-{b}"] = MetricRecord(
            {
                "samples": int(local.attendance.sizes[0]),
                "val_samples": int(local.attendance.val_sizes[0]),
                "selected": int(local.selected[0]),
                "heterogeneity": float(local.attendance.heterogeneity[0]),
                **{f"circuits_{purpose}": int(local.circuits[purpose]) for purpose in CIRCUITS},
            }
        )
    return content


def sender(content: RecordDict) -> int:
    """Return the client that a reply is from."""
    try:
        client = content["who"]["client"]
    except KeyError:
        raise FederationError("an answer that does not say which client it is from") from None
    return int(client)


def unpack_uploads(federation: Federation, request: Request, content: RecordDict) -> list[LocalResult]:
    """Check one client's uploads and return them as batches of one; what is wrong is named."""
    client, count = sender(content), len(request.sent)
    expected = {"who", *(f"{kind}-{b}" for kind in ("upload", "summary") for b in range(count))}
    if set(content) != expected:
        raise FederationError(f"records {sorted(content)}, expected {sorted(expected)}")
    return [
        _upload(federation, request.t, client, b.purpose, content[f"upload-{i}"], content[f"summary-{i}"])
        for i, b in enumerate(request.sent)
    ]


def _upload(
    federation: Federation, t: int, client: int, purpose: str, arrays: ArrayRecord, summary: MetricRecord
) -> LocalResult:
    columns = trace_columns(purpose)
    unfolds = federation.config.unfolds if federation.method.unfolded else 1
    shapes = {"theta": (federation.num_weights,)} | dict.fromkeys(columns, (unfolds,))
    if set(arrays) != set(shapes) or set(summary) != set(SUMMARY):
        raise FederationError(f"an upload with the fields {sorted([*arrays, *summary])}")
    found = {name: array.numpy() for name, array in arrays.items()}
    for name, shape in shapes.items():
        if found[name].shape != shape or found[name].dtype != np.float64:
            raise FederationError(
                f"{name} of shape {found[name].shape} and type {found[name].dtype}, expected {shape} of float64"
            )
    if not np.isfinite(found["theta"]).all():
        raise FederationError("weights that are not finite")
    for name in VIRTUAL_TRACE:
        if not np.isfinite(found[name]).all():
            raise FederationError(f"{name} that is not finite")
    held = federation.size(t, client)
    if summary["samples"] != held:
        raise FederationError(f"n_i = {summary['samples']}, but the client holds {held} samples in this round")
    if not 1 <= summary["selected"] <= unfolds:
        raise FederationError(f"selected unfold {summary['selected']} of {unfolds}")
    attendance = Attendance(
        t,
        np.array([client]),
        np.array([int(summary["samples"])]),
        np.array([int(summary["val_samples"])]),
        np.array([float(summary["heterogeneity"])]),
    )
    trace = {name: found[name][None] for name in columns}
    if "clipped" in trace:
        trace["clipped"] = trace["clipped"] != 0
    circuits = {purpose: int(summary[f"circuits_{purpose}"]) for purpose in CIRCUITS}
    return LocalResult(found["theta"][None], np.array([int(summary["selected"])]), trace, circuits, attendance)


def together(uploads: Sequence[LocalResult], absent: tuple[tuple[int, str], ...]) -> LocalResult:
    """Put uploads of one client each side by side, in the order of the clients."""
    order = sorted(uploads, key=lambda upload: int(upload.attendance.clients[0]))
    rolls = [upload.attendance for upload in order]
    names = ("clients", "sizes", "val_sizes", "heterogeneity")
    attendance = Attendance(
        rolls[0].t, *(np.concatenate([getattr(roll, name) for roll in rolls]) for name in names), absent
    )
    return LocalResult(
        np.concatenate([upload.theta for upload in order]),
        np.concatenate([upload.selected for upload in order]),
        {name: np.concatenate([upload.trace[name] for upload in order]) for name in order[0].trace},
        {name: sum(upload.circuits[name] for upload in order) for name in order[0].circuits},
        attendance,
    )


def pack_scores(client: int, accuracies: Sequence[float]) -> RecordDict:
    """Return one client's validation accuracies, one a model."""
    return RecordDict({"who": MetricRecord({"client": client, "accuracies": [float(a) for a in accuracies]})})


def unpack_scores(request: Request, content: RecordDict) -> np.ndarray:
    """Check one client's validation accuracies and return them, (models,)."""
    scores = np.array(content["who"].get("accuracies", []), dtype=float)
    if scores.shape != (len(request.sent),) or not ((scores >= 0) & (scores <= 1)).all():
        raise FederationError(f"accuracies {scores.tolist()}, expected {len(request.sent)} between 0 and 1")
    return scores
