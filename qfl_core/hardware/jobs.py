"""Submit, wait, fetch: every step in the ledger before the next one begins.

Before a job is submitted the ledger says so, with a tag that the job carries; only then is it submitted, and its id
recorded before anything waits. Wherever a crash falls, the next start either knows the job's id or finds the job by
its tag, so nothing is paid twice and nothing is lost. A failed or cancelled job stays as it is until ``retry``.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qfl_core.base.errors import HardwareError
from qfl_core.base.streams import stream
from qfl_core.engines.kinds import kind_of_job
from qfl_core.engines.primitives import runtime_sampler
from qfl_core.hardware import service as client
from qfl_core.hardware.ledger import JobRecord, LedgerNotice
from qfl_core.hardware.plan import CALIBRATION, JobPlan, Plan
from qfl_core.hardware.store import Folder

#: Pause between two looks at a job that waits or runs.
POLL_SECONDS = 5.0
WAITING = ("INITIALIZING", "QUEUED", "RUNNING", "VALIDATING")
FAILED = {"ERROR": "failed", "CANCELLED": "cancelled"}


@dataclass(eq=False)
class Execution:
    """The jobs of a plan on its backend; ``service`` is None in local mode."""

    plan: Plan
    folder: Folder
    service: client.Service | None = None
    say: Callable[[str], None] = print
    _handles: dict[str, client.Job] = field(default_factory=dict)

    def due(self, retry: bool = False) -> list[JobPlan]:
        """Return the jobs to submit: those never submitted, and with ``retry`` those that failed."""
        records = self.folder.ledger.jobs()
        return [job for job in self.plan.jobs if self._is_due(records.get(job.key), retry)]

    def _is_due(self, record: JobRecord | None, retry: bool) -> bool:
        if record is None or record.state == "submitting":
            return True
        if self.service is None and record.state == "submitted":
            return True  # a local job dies with its process
        return retry and record.state in ("failed", "cancelled", "unreadable")

    def run(self, *, retry: bool = False, confirmed: bool = False) -> None:
        """Submit what is due, wait for all, save the counts.

        Raises
        ------
        HardwareError
            Past the limit of seconds; where jobs failed (the others' counts are saved); where the wait is over.
        """
        with self.folder.lock():
            jobs = self.due(retry)
            if jobs:
                if self.service is not None:
                    self._check_cost(self.service, jobs, confirmed)
                self._submit(jobs)
            problems = [p for p in map(self._collect, self.plan.jobs) if p]
        if problems:
            raise HardwareError("\n".join(problems))

    def _check_cost(self, service: client.Service, jobs: Sequence[JobPlan], confirmed: bool) -> None:
        remaining = client.remaining_seconds(service)
        self.say(self.plan.describe(jobs, remaining))
        seconds, limit = sum(job.seconds for job in jobs), self.plan.config.max_seconds
        if confirmed:
            return
        if seconds > limit:
            raise HardwareError(
                f"{seconds:.0f} estimated QPU seconds pass the limit of {limit:g}: nothing was submitted; take fewer "
                "samples, shots or checkpoints, raise --max-seconds, or confirm with --yes"
            )
        if remaining is not None and seconds > remaining:
            raise HardwareError(
                f"{seconds:.0f} estimated QPU seconds pass the {remaining:.0f} that the account has left: nothing was "
                "submitted; take fewer samples, shots or checkpoints, or confirm with --yes"
            )

    def _submit(self, jobs: Sequence[JobPlan]) -> None:
        records = self.folder.ledger.jobs()
        batch = None
        try:
            for job in jobs:
                record = records.get(job.key)
                # An attempt that was begun and not answered is the same attempt: its tag tells whether it exists.
                attempt = record.attempt if record else 0
                if record is None or record.state != "submitting" or self.service is None:
                    attempt += 1
                tag = f"duqfl-{self.plan.digest[:16]}-{job.key}-{attempt}"
                known = client.jobs_with_tag(self.service, tag) if self.service is not None else []
                if known:
                    self._adopt(job, attempt, tag, known)
                    continue
                batch = batch or self._open_batch()
                self._submit_one(batch, job, attempt, tag)
        finally:
            if batch is not None:
                with contextlib.suppress(HardwareError):  # the service closes it by itself, and jobs inside go on
                    client.ask("the batch could not be closed", batch.close)

    def _open_batch(self) -> client.Batch:
        from qiskit_ibm_runtime import Batch

        if self.service is None:
            self.plan.device.prepare_local_mode()
        return client.ask("the service did not open a batch", Batch, backend=self.plan.device.backend)

    def _submit_one(self, batch: client.Batch, job: JobPlan, attempt: int, tag: str) -> None:
        ledger, device = self.folder.ledger, self.plan.device
        facts = {
            "backend": device.name,
            "calibration": device.calibration,
            "layout": list(device.layout),
            "circuits_file": "circuits.qpy",
            "circuits_sha256": self.folder.plan()["circuits_sha256"],
            "pubs": job.pubs,
            "circuits": job.circuits,
            "shots": job.shots,
            "estimated_seconds": round(job.seconds, 1),
        }
        pubs = self.plan.pubs(job.key)
        ledger.append("submitting", job=job.key, attempt=attempt, tag=tag, **facts)
        sampler = runtime_sampler(batch, self._options(job.key, attempt, tag))
        handle = client.ask(
            f"job {job.key!r} was not confirmed by the service; the next run looks for it by its tag before it submits",
            sampler.run,
            pubs,
        )
        ledger.append("submitted", job=job.key, attempt=attempt, tag=tag, job_id=str(handle.job_id()), **facts)
        self._handles[job.key] = handle

    def _adopt(self, job: JobPlan, attempt: int, tag: str, known: list[client.Job]) -> None:
        """Take over a job that the service has and the ledger does not."""
        handle = known[0]
        facts = {"backend": self.plan.device.name, "circuits": job.circuits, "shots": job.shots, "pubs": job.pubs}
        self.folder.ledger.append(
            "submitted", job=job.key, attempt=attempt, tag=tag, job_id=str(handle.job_id()), adopted=True, **facts
        )
        warnings.warn(f"job {job.key!r} was found at the service by its tag", LedgerNotice, stacklevel=2)
        self._handles[job.key] = handle

    def _options(self, key: str, attempt: int, tag: str) -> dict[str, Any]:
        """Return the sampler's options; local mode knows none of those that act on a device."""
        config = self.plan.config
        if self.service is None:
            position = [job.key for job in self.plan.jobs].index(key)
            # Zero is "no seed" to the runtime's simulator.
            seed = int(stream(config.seed, "hardware-execution", position, attempt).integers(1, 2**31))
            return {"simulator": {"seed_simulator": seed}}
        options: dict[str, Any] = {
            "environment": {"job_tags": [tag]},
            "max_execution_time": math.ceil(max(config.max_seconds, 1)),
        }
        if "dynamical-decoupling" in config.mitigation:
            options["dynamical_decoupling"] = {"enable": True, "sequence_type": "XY4"}
        if "twirling" in config.mitigation:
            options["twirling"] = {"enable_gates": True, "enable_measure": True}
        return options

    def _collect(self, job: JobPlan) -> str | None:
        """Fetch one job's counts where they are not saved yet; return what went wrong, if anything did."""
        record = self.folder.ledger.jobs().get(job.key)
        if record is None or record.state == "finished":
            return None
        ended = f"job {job.key!r} ({record.job_id}) {record.state}: {record.facts.get('reason', '')}; retry it alone"
        if record.state in ("failed", "cancelled"):
            return ended
        try:
            handle = self._handles.get(job.key)
            if handle is None:
                if self.service is None:
                    return ended
                handle = client.ask(f"job {record.job_id} cannot be read", self.service.job, str(record.job_id))
            status = self._wait(handle)
            if status in FAILED:
                reason = client.blotted(
                    str(client.ask("no reason is known", handle.error_message) or "no reason given")
                )
                self._append(FAILED[status], record, reason=reason[:500])
                return f"job {job.key!r} ({record.job_id}) {FAILED[status]}: {reason[:200]}; retry it alone"
            if status != "DONE":
                return f"job {job.key!r} ({record.job_id}) is {status}: nothing is lost, run again to fetch it"
            return self._save(job, record, handle)
        except HardwareError as error:
            return f"job {job.key!r}: {error}"

    def _wait(self, handle: client.Job) -> str:
        """Return the job's status, final or after ``wait_seconds``."""
        if self.service is None:
            client.ask("local mode failed", handle.result)
        end = time.monotonic() + self.plan.config.wait_seconds
        while True:
            status = client.ask("the job's status cannot be read", handle.status)
            name = str(getattr(status, "name", status))
            if name not in WAITING or time.monotonic() >= end:
                return name
            time.sleep(POLL_SECONDS)

    def _save(self, job: JobPlan, record: JobRecord, handle: client.Job) -> str | None:
        try:
            result = client.ask("the result cannot be read", handle.result)
            counts = read_counts(result, self.plan, job)
        except HardwareError as error:
            self._append("unreadable", record, reason=str(error)[:500])
            return f"job {job.key!r} ({record.job_id}) answered what cannot be read: {error}; nothing was saved from it"
        name, digest = self.folder.save_counts(job.key, record.attempt, counts)
        metrics = client.ask("the job's metrics cannot be read", handle.metrics)
        self._append(
            "finished",
            record,
            kind=kind_of_job(handle),
            counts=name,
            counts_sha256=digest,
            qpu_seconds=float(metrics.get("usage", {}).get("qpu_charge_time_seconds") or 0),
            created=str(metrics.get("timestamps", {}).get("created", "")),
        )
        return None

    def _append(self, event: str, record: JobRecord, **facts: Any) -> None:
        self.folder.ledger.append(event, job=record.key, attempt=record.attempt, **facts)


def read_counts(result: Any, plan: Plan, job: JobPlan) -> list[np.ndarray]:
    """Return one array (samples, 2**qubits) of counts per PUB, after checking that the answer fits the question."""
    qubits = plan.qnn.num_qubits
    expected = () if job.key == CALIBRATION else (1, len(plan.local))
    try:
        registers = [pub.data.meas for pub in result]
        shapes = [tuple(bits.shape) for bits in registers]
        shots = {int(bits.num_shots) for bits in registers}
        widths = {int(bits.num_bits) for bits in registers}
    except (TypeError, AttributeError, KeyError) as error:
        raise HardwareError(f"not a sampler's result ({client.blotted(str(error))[:100]})") from None
    if len(registers) != job.pubs or shapes != [expected] * job.pubs or shots != {job.shots} or widths != {qubits}:
        raise HardwareError(
            f"{len(registers)} PUBs of shapes {sorted(set(shapes))}, {sorted(shots)} shots and {sorted(widths)} bits; "
            f"expected {job.pubs} of {expected}, {job.shots} and {qubits}"
        )
    return [count_outcomes(bits.array, 2**qubits) for bits in registers]


def count_outcomes(packed: np.ndarray, outcomes: int) -> np.ndarray:
    """Return how often each outcome was seen, (samples, outcomes), from packed bits (..., shots, bytes)."""
    packed = packed.reshape(-1, *packed.shape[-2:])
    # The runtime packs big-endian: the last byte holds qubits 0 to 7.
    weights = 256 ** np.arange(packed.shape[-1])[::-1]
    values = (packed.astype(np.int64) * weights).sum(axis=-1)
    return np.stack([np.bincount(row, minlength=outcomes) for row in values]).astype(np.uint32)
