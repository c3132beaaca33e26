"""The way through: plan, store, execute, and read everything back from the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from qiskit.providers import BackendV2

from qfl_core.base.errors import HardwareError
from qfl_core.engines import make_engine
from qfl_core.hardware import service as client
from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.curves import METRICS, WORDS, executed_curves, simulated_curves
from qfl_core.hardware.device import fake_backend, fake_twin
from qfl_core.hardware.jobs import Execution
from qfl_core.hardware.plan import Plan, calibration_circuits, make_plan
from qfl_core.hardware.store import Folder
from qfl_core.runs.study import Study

#: Ledger columns of the workload table.
WORKLOAD = ("job", "job_id", "backend", "kind", "status", "created", "shots", "circuits", "qpu_seconds")


@dataclass(frozen=True, eq=False)
class Validation:
    """What figures and tables need, from a live run or a replay.

    ``curves`` has one row per method, checkpoint and curve; ``workload`` has one row per job. A job that no device ran
    has no id and no time in it, only its number: they prove nothing, and the same run then gives the same figure.
    """

    curves: pd.DataFrame
    workload: pd.DataFrame
    facts: tuple[str, ...]
    track: str
    seed: int

    @property
    def kinds(self) -> dict[str, str]:
        """What computed each curve."""
        first = self.curves.drop_duplicates("curve")
        return dict(zip(first["curve"], first["kind"], strict=True))

    def table(self) -> pd.DataFrame:
        """Return each method's and curve's mean accuracy, ROC-AUC and distance over checkpoints, rounded.

        Curves have the names of the figure's legend.
        """
        means = self.curves.groupby(["method", "curve", "kind"], sort=False)[["samples", *METRICS]].mean()
        return means.reset_index().replace({"curve": WORDS}).astype({"samples": int}).round(3)


def validate(
    study: Study,
    config: HardwareConfig,
    *,
    service: client.Service | None = None,
    retry: bool = False,
    confirmed: bool = False,
    say: Callable[[str], None] = print,
) -> Validation:
    """Run the four curves for the runs' checkpoints; jobs already in the ledger are fetched, not run again.

    Parameters
    ----------
    study : one run per method, equal except for the method; files go to ``hardware/<name>`` of its results folder.
    service : IBM's; None opens the account where the backend is a device.
    retry : submit failed and cancelled jobs again.
    confirmed : submit although the estimate passes the limit.
    """
    backend, service = open_backend(config, service)
    plan, folder = make_plan(study, config, backend)
    _store(plan, folder)
    Execution(plan, folder, service, say).run(retry=retry, confirmed=confirmed)
    return replay(folder)


def dry_run(
    study: Study,
    config: HardwareConfig,
    *,
    service: client.Service | None = None,
    fresh: bool = False,
) -> str:
    """Do everything but submit, and say what it would cost.

    Without an account the snapshot of the named device stands in for it: same qubits and gates, older calibration.
    Jobs that the ledger has are not counted, unless ``fresh`` asks for the cost of all.
    """
    note, remaining = "", None
    if config.is_local or service is not None or client.has_credentials():
        backend, service = open_backend(config, service)
        remaining = None if service is None else client.remaining_seconds(service)
    else:
        backend = fake_twin(config.backend)
        note = f"no account: planned on {backend.name}, the snapshot of {config.backend} that comes with the client\n"
    plan, folder = make_plan(study, config, backend)
    if service is not None:
        _store(plan, folder)
    for job in plan.jobs:
        plan.pubs(job.key)
    due = plan.jobs if fresh else Execution(plan, folder, service).due()
    seconds = sum(job.seconds for job in due)
    verdict = "local mode costs nothing" if config.is_local else f"{seconds:.0f} s would be within the limit"
    if not config.is_local and seconds > config.max_seconds:
        verdict = f"{seconds:.0f} s pass the limit of {config.max_seconds:g}: a run would be refused without --yes"
    return f"{note}{plan.describe(due, remaining)}\n{verdict}\ndry run: nothing was submitted"


def open_backend(
    config: HardwareConfig, service: client.Service | None = None
) -> tuple[BackendV2, client.Service | None]:
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


def replay(folder: Folder) -> Validation:
    """Return the validation from its files alone: no account, no network, kinds as they were recorded."""
    plan, records, simulated = folder.plan(), folder.ledger.jobs(), folder.curves()
    if simulated is None:
        raise HardwareError(f"{folder.path.name} holds no curves: it was cut short before they were written; run again")
    executed = executed_curves(folder)
    curves = pd.concat([simulated, executed], ignore_index=True) if len(executed) else simulated
    rows = []
    for place, record in enumerate(records.values(), start=1):
        told = record.facts
        if told.get("kind") == "fake":
            told = told | {"job_id": f"local-{place}", "created": "", "time": ""}
        rows.append(
            {
                "job": record.key,
                "job_id": told.get("job_id", ""),
                "backend": told.get("backend", ""),
                "kind": told.get("kind", "none yet"),
                "status": record.state,
                "created": told.get("created", told.get("time", ""))[:19].replace("T", " "),
                "shots": told.get("shots", 0),
                "circuits": told.get("circuits", 0),
                "qpu_seconds": told.get("qpu_seconds", 0.0),
            }
        )
    facts = (
        f"data: {plan['source']}",
        f"{plan['track']}, one run per method (seed {plan['seed']}), no means over seeds",
        f"{plan['samples']} test samples, {plan['local_samples']} of them executed by {plan['backend']}",
        f"{plan['config']['shots']} shots",
        f"profile {plan['profile']}",
    )
    workload = pd.DataFrame(rows, columns=list(WORKLOAD))
    return Validation(curves, workload, facts, plan["track"], int(plan["seed"]))
