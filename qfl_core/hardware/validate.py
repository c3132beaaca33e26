"""The four curves of the paper's validation figure, each with its shot interval and the kind of what computed it.

noiseless    exact probabilities of the circuit                                         exact
shots        the same, sampled                                                          shots
noise        the transpiled circuit under the backend's calibration, sampled            noisy
execution    the same circuit through the runtime's SamplerV2                           fake or hardware
corrected    the execution's counts after readout correction, where calibrated          as the execution
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from qfl_core.engines import make_engine
from qfl_core.engines.base import sample
from qfl_core.errors import HardwareError
from qfl_core.hardware import service as client
from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.device import fake_backend, fake_twin, two_qubit_gates
from qfl_core.hardware.jobs import Execution
from qfl_core.hardware.mitigation import correct, measured_confusion, odd_share
from qfl_core.hardware.plan import CALIBRATION, Plan, calibration_circuits, make_plan
from qfl_core.hardware.store import Folder
from qfl_core.runs import RunResult
from qfl_core.streams import stream

REPEATS = 200  # of the shots, behind every interval
#: What a row holds, besides its three metrics with low and high.
METRICS = ("accuracy", "roc_auc", "tvd")
#: Ledger columns of the workload table.
WORKLOAD = ("job", "job_id", "backend", "kind", "status", "created", "shots", "circuits", "qpu_seconds")


@dataclass(frozen=True, eq=False)
class Validation:
    """What figures and tables need, from a live run or a replay.

    ``curves`` has one row a method, checkpoint and curve; ``workload`` one a job.
    """

    curves: pd.DataFrame
    workload: pd.DataFrame
    facts: tuple[str, ...]

    @property
    def kinds(self) -> dict[str, str]:
        """What computed each curve."""
        return self.curves.groupby("curve", sort=False)["kind"].first().to_dict()

    def table(self) -> pd.DataFrame:
        """Return each method's and curve's mean accuracy, ROC-AUC and distance over checkpoints, rounded."""
        means = self.curves.groupby(["method", "curve", "kind"], sort=False)[["samples", *METRICS]].mean()
        return means.reset_index().astype({"samples": int}).round(3)


def validate(
    runs: Sequence[RunResult],
    config: HardwareConfig,
    *,
    track: str,
    profile: str,
    root: Path,
    service=None,
    retry: bool = False,
    confirmed: bool = False,
    poll_seconds: float = 5.0,
    say: Callable[[str], None] = print,
) -> Validation:
    """Run the four curves for the runs' checkpoints; jobs already in the ledger are fetched, not run again.

    Parameters
    ----------
    runs : one a method, equal but for the method.
    root : the results folder; files go to ``hardware/<name>`` below it.
    service : IBM's; None opens the account where the backend is a device.
    retry : submit failed and cancelled jobs again.
    confirmed : submit although the estimate passes the limit.
    """
    backend, service = open_backend(config, service)
    plan, folder = make_plan(runs, config, backend, track=track, profile=profile, root=root)
    _store(plan, folder)
    Execution(plan, folder, service, poll_seconds, say).run(retry=retry, confirmed=confirmed)
    return replay(folder)


def dry_run(
    runs: Sequence[RunResult], config: HardwareConfig, *, track: str, profile: str, root: Path, service=None
) -> str:
    """Do everything but submit, and say what it would cost.

    Without an account the snapshot of the named device stands in for it: same qubits and gates, older calibration.
    """
    note, remaining = "", None
    if config.is_local or service is not None or client.has_credentials():
        backend, service = open_backend(config, service)
        remaining = None if service is None else client.remaining_seconds(service)
    else:
        backend = fake_twin(config.backend)
        note = f"no account: planned on {backend.name}, the snapshot of {config.backend} that comes with the client\n"
    plan, folder = make_plan(runs, config, backend, track=track, profile=profile, root=root)
    if service is not None:
        _store(plan, folder)
    for job in plan.jobs:
        plan.pubs(job.key)
    due = Execution(plan, folder, service).due()
    seconds = sum(job.seconds for job in due)
    verdict = "local mode costs nothing" if config.is_local else f"{seconds:.0f} s would be within the limit"
    if not config.is_local and seconds > config.max_seconds:
        verdict = f"{seconds:.0f} s pass the limit of {config.max_seconds:g}: a run would be refused without --yes"
    return f"{note}{plan.describe(due, remaining)}\n{verdict}\ndry run: nothing was submitted"


def open_backend(config: HardwareConfig, service=None):
    """Return the backend and its service, which is None in local mode."""
    if config.is_local:
        return fake_backend(config.backend), None
    service = service or client.connect()
    return client.device_backend(service, config.backend), service


def _store(plan: Plan, folder: Folder) -> None:
    """Write what replay needs, before anything is submitted; a folder that has it keeps it."""
    with folder.lock():
        if folder.curves() is not None:
            return
        exact = make_engine("statevector", plan.qnn)
        encoded = exact.encode(plan.local.X)
        arrays = {"X": plan.local.X, "y": plan.local.y, "origin": plan.local.origin}
        for one in plan.series:
            arrays |= {
                f"{one.method}/rounds": one.rounds,
                f"{one.method}/weights": one.weights,
                f"{one.method}/noiseless": exact.probabilities(encoded, one.weights),
            }
        circuits = [plan.device.transpiled]
        if "readout" in plan.config.mitigation:
            circuits += calibration_circuits(plan.device)
        device = plan.device
        folder.path.mkdir(parents=True, exist_ok=True)
        facts = {
            "config": plan.config.to_dict(),
            "digest": plan.digest,
            "track": plan.track,
            "profile": plan.profile,
            "source": plan.source,
            "methods": [one.method for one in plan.series],
            "seed": plan.series[0].seed,
            "runs": [one.run for one in plan.series],
            "backend": device.name,
            "calibration": device.calibration,
            "layout": list(device.layout),
            "two_qubit_gates": device.two_qubit_gates,
            "depth": device.depth,
            "samples": len(plan.samples),
            "local_samples": len(plan.local),
            "circuits_sha256": folder.save_circuits(circuits),
        }
        folder.save_plan(facts, arrays)
        folder.save_curves(simulated_curves(plan))


def simulated_curves(plan: Plan) -> pd.DataFrame:
    """Return the three simulated curves of all methods, on the plan's samples."""
    shots, seed, y = plan.config.shots, plan.config.seed, plan.samples.y
    exact = make_engine("statevector", plan.qnn)
    noisy = plan.device.density()
    ideal = plan.qnn.circuit.decompose()
    logical = {"depth": ideal.depth(), "two_qubit_gates": two_qubit_gates(ideal)}
    physical = {"depth": plan.device.depth, "two_qubit_gates": plan.device.two_qubit_gates}
    rows = []
    for number, one in enumerate(plan.series):
        p0 = exact.probabilities(exact.encode(plan.samples.X), one.weights)
        p1 = noisy.probabilities(noisy.encode(plan.samples.X), one.weights)
        for c, checkpoint in enumerate(one.rounds):
            facts = {"method": one.method, "seed": one.seed, "checkpoint": int(checkpoint), "samples": len(y)}
            rng = stream(seed, "hardware-shots", number, c)
            certain = with_interval(y, p0[c], p0[c : c + 1], p0[c])
            rows.append(facts | {"curve": "noiseless", "kind": exact.kind, "shots": 0} | logical | certain)
            for curve, p, kind, size in (("shots", p0, "shots", logical), ("noise", p1, noisy.kind, physical)):
                measured = sample(p[c], shots, rng)
                again = rng.binomial(shots, np.broadcast_to(measured, (REPEATS, len(y)))) / shots
                found = with_interval(y, measured, again, p0[c])
                rows.append(facts | {"curve": curve, "kind": kind, "shots": shots} | size | found)
    return pd.DataFrame(rows)


def scores(y: np.ndarray, p: np.ndarray, reference: np.ndarray) -> dict[str, np.ndarray]:
    """Return accuracy, ROC-AUC and the total variation distance from the noiseless model, of p (..., n) each (...,).

    The predicted distribution of a sample is (1 - p, p), so its distance is |p - p_noiseless|; the mean over samples.
    """
    positives = int(y.sum())
    pairs = positives * (len(y) - positives)
    ranks = rankdata(p, axis=-1)[..., y == 1].sum(axis=-1)
    return {
        "accuracy": ((p >= 0.5) == (y == 1)).mean(axis=-1),
        "roc_auc": (ranks - positives * (positives + 1) / 2) / pairs if pairs else np.full(p.shape[:-1], np.nan),
        "tvd": np.abs(p - reference).mean(axis=-1),
    }


def with_interval(y: np.ndarray, p: np.ndarray, again: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Return the scores of ``p`` (n,) with the central 95 % of ``again`` (repeats, n), widened to hold the score.

    ``again`` are repeats of the shots: what measuring once more would give if the measured shares were the truth.
    """
    found, repeats = scores(y, p, reference), scores(y, again, reference)
    row = {}
    for name, value in found.items():
        low, high = np.quantile(repeats[name], [0.025, 0.975])
        row |= {name: float(value), f"{name}_low": float(min(low, value)), f"{name}_high": float(max(high, value))}
    return row


def replay(folder: Folder) -> Validation:
    """Return the validation from its files alone: no account, no network, kinds as they were recorded."""
    plan, records, simulated = folder.plan(), folder.ledger.jobs(), folder.curves()
    if simulated is None:
        raise HardwareError(f"{folder.path.name} holds no curves: it was cut short before they were written; run again")
    executed = executed_curves(folder)
    curves = pd.concat([simulated, executed], ignore_index=True) if len(executed) else simulated
    rows = []
    for record in records.values():
        facts = record.facts
        rows.append(
            {
                "job": record.key,
                "job_id": facts.get("job_id", ""),
                "backend": facts.get("backend", ""),
                "kind": facts.get("kind", "none yet"),
                "status": record.state,
                "created": facts.get("created", facts.get("time", ""))[:19].replace("T", " "),
                "shots": facts.get("shots", 0),
                "circuits": facts.get("circuits", 0),
                "qpu_seconds": facts.get("qpu_seconds", 0.0),
            }
        )
    facts = (
        f"data: {plan['source']}",
        f"{plan['track']}, seed {plan['seed']}",
        f"{plan['samples']} test samples, {plan['local_samples']} of them executed by {plan['backend']}",
        f"{plan['config']['shots']} shots",
        f"profile {plan['profile']}",
    )
    return Validation(curves, pd.DataFrame(rows, columns=list(WORKLOAD)), facts)


def executed_curves(folder: Folder) -> pd.DataFrame:
    """Return the curves of what the backend measured, raw and readout-corrected."""
    plan, inputs, records = folder.plan(), folder.inputs(), folder.ledger.jobs()
    confusion = None
    calibration = records.get(CALIBRATION)
    if calibration is not None and calibration.state == "finished":
        zeros, ones = folder.counts(calibration.facts["counts"], calibration.facts["counts_sha256"])
        confusion = measured_confusion(zeros[0], ones[0])
    rows = []
    for number, method in enumerate(plan["methods"]):
        record = records.get(method)
        if record is None or record.state != "finished":
            continue
        pubs = folder.counts(record.facts["counts"], record.facts["counts_sha256"])
        for c, (checkpoint, counts) in enumerate(zip(inputs[f"{method}/rounds"], pubs, strict=True)):
            rng = stream(plan["config"]["seed"], "hardware-repeats", number, c)
            shots = record.facts["shots"]
            again = rng.multinomial(shots, counts / counts.sum(axis=1, keepdims=True), size=(REPEATS, len(counts)))
            facts = {
                "method": method,
                "seed": plan["seed"],
                "checkpoint": int(checkpoint),
                "samples": len(counts),
                "kind": record.facts["kind"],
                "shots": shots,
                "depth": plan["depth"],
                "two_qubit_gates": plan["two_qubit_gates"],
            }
            reference = inputs[f"{method}/noiseless"][c]
            raw = with_interval(inputs["y"], odd_share(counts), odd_share(again), reference)
            rows.append(facts | {"curve": "execution"} | raw)
            if confusion is not None:
                better = odd_share(correct(counts, confusion)), odd_share(correct(again, confusion))
                rows.append(facts | {"curve": "corrected"} | with_interval(inputs["y"], *better, reference))
    return pd.DataFrame(rows)
