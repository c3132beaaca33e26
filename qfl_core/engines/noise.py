"""A device's noise on the qubits that a circuit uses, at any strength.

Aer derives errors from a calibration: a gate's error becomes depolarisation beyond what T1 and T2 explain, and a
measurement's error a flip of the bit. Deriving them for all 156 qubits of a device takes most of a minute; the errors
of the others do not touch the circuit, so they are left out before Aer is asked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

from qiskit import QuantumCircuit
from qiskit.transpiler import InstructionProperties, QubitProperties, Target

MAX_READOUT_ERROR = 0.5  # a bit flipped more often than that would carry information again


def used_qubits(circuit: QuantumCircuit) -> tuple[int, ...]:
    """Return the qubits that gates or measurements of a transpiled circuit act on, sorted."""
    used = {circuit.find_bit(q).index for i in circuit.data if i.operation.name != "barrier" for q in i.qubits}
    return tuple(sorted(used))


def device_noise(backend, qubits: Iterable[int], scale: float = 1.0):
    """Return Aer's noise model of ``backend`` on ``qubits``, ``scale`` times as strong.

    Scaling multiplies gate and readout errors (up to a fair coin) and divides T1 and T2; 0 is a perfect device.
    """
    from qiskit_aer.noise import NoiseModel
    from qiskit_aer.noise.device import basic_device_gate_errors, basic_device_readout_errors

    if not scale >= 0:
        raise ValueError(f"scale must be a number of at least 0, got {scale!r}")
    model = NoiseModel(basis_gates=list(backend.operation_names))
    if scale == 0:
        return model
    target = _calibration(backend.target, set(qubits), float(scale))
    for name, where, error in basic_device_gate_errors(target=target):
        model.add_quantum_error(error, name, where)
    for where, error in basic_device_readout_errors(target=target):
        model.add_readout_error(error, where)
    return model


def _calibration(target: Target, qubits: set[int], scale: float) -> Target:
    """Return the part of a target that concerns ``qubits``, with its errors scaled."""
    properties = target.qubit_properties
    if properties is not None:
        properties = [_decoherence(p, scale) if q in qubits else p for q, p in enumerate(properties)]
    part = Target(num_qubits=target.num_qubits, qubit_properties=properties, dt=target.dt)
    for name in target.operation_names:
        operation, table = target.operation_from_name(name), target[name]
        if isinstance(operation, type) or not table:  # control flow, or an ideal gate of an ideal device
            continue
        kept = {where: p for where, p in table.items() if where is not None and set(where) <= qubits}
        if kept:
            limit = MAX_READOUT_ERROR if name == "measure" else 1.0
            part.add_instruction(operation, {w: _error(p, scale, limit) for w, p in kept.items()}, name=name)
    return part


def _decoherence(properties: QubitProperties | None, scale: float) -> QubitProperties | None:
    if properties is None or scale == 1:
        return properties
    t1, t2 = (None if t is None else t / scale for t in (properties.t1, properties.t2))
    return QubitProperties(t1=t1, t2=t2, frequency=properties.frequency)


def _error(properties: InstructionProperties | None, scale: float, limit: float) -> InstructionProperties | None:
    if properties is None or scale == 1:
        return properties
    scaled = copy.copy(properties)
    for name in ("error", "prob_meas1_prep0", "prob_meas0_prep1"):
        if getattr(properties, name, None) is not None:
            setattr(scaled, name, min(scale * getattr(properties, name), limit))
    return scaled
