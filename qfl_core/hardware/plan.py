"""What would be run, before anything is: checkpoints, samples, circuits, jobs and their cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from qiskit import QuantumCircuit, transpile
from qiskit.circuit import Parameter
from qiskit.providers import BackendV2

from qfl_core.base.errors import HardwareError
from qfl_core.base.paths import below
from qfl_core.data import load_splits
from qfl_core.data.splits import Split
from qfl_core.engines.primitives import PrimitivesEngine
from qfl_core.engines.qnn import QNN
from qfl_core.hardware.checkpoints import Checkpoints, load_checkpoints, subset
from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.device import JOB_OVERHEAD_SECONDS, Device, compile_for
from qfl_core.hardware.store import Folder
from qfl_core.runs.prepare import make_qnn
from qfl_core.runs.study import Study

CALIBRATION = "readout-calibration"


@dataclass(frozen=True)
class JobPlan:
    """One job: the checkpoints of a method, or the readout calibration; ``pubs`` hold ``circuits`` in all."""

    key: str
    pubs: int
    circuits: int
    shots: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Plan:
    """A complete validation: nothing in it depends on what a service answers later.

    ``samples`` are for the simulated curves; ``local``, a part of them, is for the backend.
    """

    config: HardwareConfig
    track: str
    profile: str
    source: str
    device: Device
    series: tuple[Checkpoints, ...]
    samples: Split
    local: Split

    @property
    def qnn(self) -> QNN:
        """The model."""
        return self.device.qnn

    @cached_property
    def jobs(self) -> tuple[JobPlan, ...]:
        """The jobs: one per method, after the readout calibration where it is wanted."""
        shots, found = self.config.shots, []
        if "readout" in self.config.mitigation:
            found.append(JobPlan(CALIBRATION, 2, 2, shots, self.device.qpu_seconds(2, shots)))
        for one in self.series:
            circuits = len(one.rounds) * len(self.local)
            seconds = self.device.qpu_seconds(circuits, shots)
            found.append(JobPlan(one.method, len(one.rounds), circuits, shots, seconds))
        return tuple(found)

    def pubs(self, key: str) -> list[tuple[Any, ...]]:
        """Return a job's PUBs: one per checkpoint, with the samples as parameters; or the calibration's two."""
        if key == CALIBRATION:
            return [(circuit, None, self.config.shots) for circuit in calibration_circuits(self.device)]
        engine = PrimitivesEngine(
            self.qnn,
            self.config.shots,
            sampler="fake",
            backend=self.device.backend,
            transpiled=self.device.transpiled,
        )
        encoded = engine.encode(self.local.X)
        return [engine.pub(encoded, weights[None]) for weights in self.checkpoints(key).weights]

    def checkpoints(self, method: str) -> Checkpoints:
        """Return the checkpoints of a method."""
        return next(one for one in self.series if one.method == method)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what decides the circuits: settings, weights, samples, backend."""
        settings = self.config.to_dict()
        for name in ("max_seconds", "wait_seconds", "noise_scales", "study_shots"):
            settings.pop(name)
        found = hashlib.sha256(json.dumps([settings, self.track, self.device.name], sort_keys=True).encode())
        for one in self.series:
            found.update(one.method.encode() + one.rounds.tobytes() + one.weights.tobytes())
        for part in (self.samples, self.local):
            found.update(part.X.tobytes() + part.y.tobytes())
        return found.hexdigest()

    @property
    def name(self) -> str:
        """The folder of this plan: the same inputs meet the same ledger."""
        return f"{self.track}-{self.device.name}-{self.digest[:8]}"

    def describe(self, jobs: Sequence[JobPlan] | None = None, remaining: float | None = None) -> str:
        """Say what the jobs, all by default, hold and cost."""
        jobs = self.jobs if jobs is None else jobs
        circuits, seconds = sum(job.circuits for job in jobs), sum(job.seconds for job in jobs)
        device, config = self.device, self.config
        lines = [
            f"{self.track} checkpoints: {len(jobs)} jobs in one batch on {device.name}",
            *(f"  {job.key:<20} {job.pubs:>3} PUBs {job.circuits:>6} circuits x {job.shots} shots" for job in jobs),
            f"circuit: {device.two_qubit_gates} two-qubit gates, depth {device.depth}, on qubits "
            f"{', '.join(map(str, device.layout))}",
            f"estimated QPU seconds: {seconds:.0f} = {len(jobs)} jobs x {JOB_OVERHEAD_SECONDS:g} s + {circuits} "
            f"circuits x {config.shots} shots x {1e6 * device.seconds_per_shot:.0f} us (rep_delay "
            f"{1e6 * device.rep_delay:.0f} us + circuit {1e6 * (device.seconds_per_shot - device.rep_delay):.0f} us)",
            f"limit: {config.max_seconds:g} s; the account's remaining seconds: "
            + ("unknown without an account" if remaining is None else f"{remaining:.0f}"),
        ]
        return "\n".join(lines)


def draft(study: Study, config: HardwareConfig, backend: BackendV2) -> Plan:
    """Return the plan for the checkpoints of a study whose runs have the same config except for the method."""
    runs = study.runs
    experiment = runs[0].config
    for run in runs[1:]:
        if run.config.replace(method=experiment.method) != experiment:
            raise HardwareError(f"runs {runs[0].path.name} and {run.path.name} differ in more than their method")
    qnn = make_qnn(experiment)
    series = tuple(load_checkpoints(run, config.checkpoints, qnn) for run in runs)
    splits = load_splits(experiment)
    samples = subset(splits.test, config.samples, config.seed)
    local = subset(samples, config.local_samples, config.seed)
    device = compile_for(qnn, backend, config.optimization_level)
    return Plan(config, study.track, study.profile, splits.source, device, series, samples, local)


def make_plan(study: Study, config: HardwareConfig, backend: BackendV2) -> tuple[Plan, Folder]:
    """Return the plan and its folder ``hardware/<name>`` below the study's results folder.

    The circuit is transpiled once in the life of a folder and read from there afterwards: a transpiler's seed has not
    always kept its meaning.
    """
    plan = draft(study, config, backend)
    folder = Folder(below(study.folder / "hardware", plan.name))
    stored = folder.circuit()
    if stored is not None:
        plan = replace(plan, device=replace(plan.device, transpiled=_with_parameters_of(plan.qnn, stored)))
    return plan, folder


def _with_parameters_of(qnn: QNN, circuit: QuantumCircuit) -> QuantumCircuit:
    """Return a stored circuit with the model's own parameters: read back, they have only their names in common."""
    own = {p.name: p for p in (*qnn.input_parameters, *qnn.weight_parameters)}
    unknown = sorted(p.name for p in circuit.parameters if p.name not in own)
    if unknown:
        raise HardwareError(f"the stored circuit has parameters {unknown} that the model does not have")
    # In two steps: a circuit refuses two parameters of one name even for a moment.
    passing = {p: Parameter(f"{p.name} of the model") for p in circuit.parameters}
    circuit = circuit.assign_parameters(passing)
    return circuit.assign_parameters({passing[p]: own[p.name] for p in passing})


def calibration_circuits(device: Device) -> list[QuantumCircuit]:
    """Return two circuits that prepare all zeros and all ones on the layout's qubits, and measure them."""
    circuits = []
    for ones in (False, True):
        circuit = QuantumCircuit(device.qnn.num_qubits, name=f"prepare-{int(ones)}")
        if ones:
            circuit.x(range(circuit.num_qubits))
        circuit.measure_all()
        circuits.append(circuit)
    return transpile(circuits, device.backend, initial_layout=list(device.layout), optimization_level=0)
