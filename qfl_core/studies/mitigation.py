"""What mitigation wins on the noisy simulator: readout correction, dynamical decoupling, Pauli twirling.

The circuit is scheduled, so that idle qubits relax too, and simulated exactly by Aer under the device's calibration;
shots and readout calibration are then drawn as an experiment would draw them. A calibration knows no crosstalk and no
coherent error, which is what decoupling and twirling act on: the table shows their cost rather than their use.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd
from qiskit import QuantumCircuit, transpile
from qiskit.circuit import Delay, pauli_twirl_2q_gates
from qiskit.circuit.library import XGate
from qiskit.providers import BackendV2
from qiskit.transpiler import PassManager, Target
from qiskit.transpiler.passes import ALAPScheduleAnalysis, PadDelay, PadDynamicalDecoupling

from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.transpiled import used_qubits
from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.curves import scores
from qfl_core.hardware.device import Device
from qfl_core.hardware.mitigation import correct, measured_confusion, model_confusion, odd_share
from qfl_core.hardware.plan import draft
from qfl_core.runs.study import Study
from qfl_core.studies.noise import snapshot

TWIRLS = 3
SHOTS = 8192  # enough that the draw does not hide what mitigation wins


def mitigation_table(study: Study, config: HardwareConfig, samples: int = 10) -> pd.DataFrame:
    """Return accuracy and total variation distance of the last checkpoints, one row per kind of mitigation.

    The numbers are means over the study's methods, on the first ``samples`` samples that the backend would execute.
    """
    plan = draft(study, config, snapshot(config))
    X, y = plan.local.X[:samples], plan.local.y[:samples]
    device, seed = plan.device, plan.config.seed
    exact = make_engine("statevector", plan.qnn)
    confusion = model_confusion(device.noise_model, device.layout)
    calibration = _calibration(confusion, SHOTS, stream(seed, "mitigation-calibration"))
    variants = {
        "none": _variants(device, False, False, seed),
        "dynamical-decoupling": _variants(device, True, False, seed),
    }
    variants["twirling"] = _variants(device, False, True, seed)
    variants["all"] = _variants(device, True, True, seed)
    rows = []
    for number, one in enumerate(plan.series):
        theta = one.weights[-1]
        reference = exact.probabilities(exact.encode(X), theta)
        for level, (name, circuits) in enumerate(variants.items()):
            p = np.mean([_distributions(device, circuit, X, theta) for circuit in circuits], axis=0)
            rng = stream(seed, "mitigation-shots", number, level)
            counts = rng.multinomial(SHOTS, _flipped(p, confusion))
            readings = {name: odd_share(counts), f"{name} + readout": odd_share(correct(counts, calibration))}
            for mitigation, measured in readings.items():
                found = {key: float(value) for key, value in scores(y, measured, reference).items()}
                rows.append({"mitigation": mitigation, "method": one.method, "kind": "noisy"} | found)
    table = pd.DataFrame(rows)
    names = {"none + readout": "readout", "all + readout": "all"}
    table = table[table["mitigation"] != "all"].replace({"mitigation": names})
    keep = ("none", "readout", "dynamical-decoupling", "twirling", "all")
    table = table[table["mitigation"].isin(keep)]
    means = table.groupby("mitigation")[["accuracy", "tvd"]].mean().loc[list(keep)]
    return means.assign(tvd_won=means["tvd"].iloc[0] - means["tvd"]).reset_index()


def _variants(device: Device, decoupled: bool, twirled: bool, seed: int) -> list[QuantumCircuit]:
    """Return the device's circuit scheduled, with or without XX pulses in idle times, twirled at random or not."""
    circuits = [device.transpiled]
    if twirled:
        circuits = pauli_twirl_2q_gates(device.transpiled, seed=seed, num_twirls=TWIRLS)
        # The Paulis melt into their neighbours: a twirled circuit has the same two-qubit gates and depth.
        circuits = transpile(circuits, device.backend, optimization_level=1, routing_method="none")
    target = _target(device)
    pad = (
        PadDynamicalDecoupling(target=target, dd_sequence=[XGate(), XGate()]) if decoupled else PadDelay(target=target)
    )
    used = set(used_qubits(device.transpiled))
    return [_only(c, used) for c in PassManager([ALAPScheduleAnalysis(target=target), pad]).run(circuits)]


def _target(device: Device) -> Target:
    return cast(BackendV2, device.backend).target


def _only(circuit: QuantumCircuit, qubits: set[int]) -> QuantumCircuit:
    """Return the circuit without the delays and pulses that padding put on unused qubits."""
    kept = circuit.copy_empty_like()
    for instruction in circuit.data:
        if instruction.operation.name == "barrier":
            continue
        if {circuit.find_bit(q).index for q in instruction.qubits} <= qubits:
            kept.append(instruction)
    return kept


def _distributions(device: Device, circuit: QuantumCircuit, X: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the exact outcome probabilities (n, 2**qubits) before readout; idle qubits relax."""
    from qiskit_aer import AerSimulator
    from qiskit_aer.noise import RelaxationNoisePass

    target = _target(device)
    t1s = [q.t1 or np.inf for q in target.qubit_properties]
    # A calibration may report T2 > 2 T1, which no qubit can have.
    t2s = [min(q.t2 or np.inf, 2 * t1) for q, t1 in zip(target.qubit_properties, t1s, strict=True)]
    relax = RelaxationNoisePass(t1s, t2s, dt=target.dt, op_types=Delay)
    prepared = relax(circuit).remove_final_measurements(inplace=False)
    prepared.save_probabilities(list(device.layout))
    names = (*device.qnn.input_parameters, *device.qnn.weight_parameters)
    values = [dict(zip(names, (*x, *theta), strict=True)) for x in X]
    simulator = AerSimulator(method="density_matrix", noise_model=device.noise_model)
    result = simulator.run([prepared.assign_parameters(v) for v in values]).result()
    return np.stack([result.data(i)["probabilities"] for i in range(len(X))])


def _flipped(p: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Return distributions (n, 2**qubits) after readout errors."""
    joint = np.ones((1, 1))
    for matrix in confusion:
        joint = np.kron(matrix, joint)
    p = np.clip(p @ joint.T, 0, None)
    return p / p.sum(axis=-1, keepdims=True)


def _calibration(confusion: np.ndarray, shots: int, rng: np.random.Generator) -> np.ndarray:
    """Return the confusion matrices as two calibration circuits of ``shots`` would measure them."""
    size = 2 ** len(confusion)
    prepared = np.zeros((2, size))
    prepared[0, 0] = prepared[1, -1] = 1
    zeros, ones = rng.multinomial(shots, _flipped(prepared, confusion))
    return measured_confusion(zeros, ones)
