"""The noise of a device on the qubits that a circuit uses, at any strength.

Aer computes the noise from the device's calibration. The error of a gate becomes the decay that T1 and T2 explain, and
depolarisation for the rest; the error of a measurement becomes a flip of the bit. For all 156 qubits of a device this
takes most of a minute. Only the qubits that the circuit uses are therefore given to Aer, because the errors of the
other qubits do not change the result.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING

from qiskit.transpiler import InstructionProperties, QubitProperties, Target

if TYPE_CHECKING:
    from qiskit.providers import BackendV2
    from qiskit_aer.noise import NoiseModel

MAX_READOUT_ERROR = 0.5  # a fair coin: a bit that is flipped more often than that would carry information again


def device_noise(backend: BackendV2, qubits: Iterable[int], scale: float = 1.0) -> NoiseModel:
    """Return Aer's noise model of ``backend`` on ``qubits``, ``scale`` times as strong.

    The errors of gates and of readout are multiplied by ``scale``, readout errors up to a fair coin; T1 and T2 are
    divided by it. A scale of 0 gives a perfect device.
    """
    from qiskit_aer.noise import NoiseModel
    from qiskit_aer.noise.device import basic_device_gate_errors, basic_device_readout_errors

    if not scale >= 0:
        raise ValueError(f"scale must be a number >= 0, got {scale!r}")
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
        # Control flow has no errors, and neither has a gate without calibration, as ideal devices have.
        if isinstance(operation, type) or not table:
            continue
        kept = {where: p for where, p in table.items() if where is not None and set(where) <= qubits}
        if kept:
            limit = MAX_READOUT_ERROR if name == "measure" else 1.0
            part.add_instruction(operation, {w: _error(p, scale, limit) for w, p in kept.items()}, name=name)
    return part


def _decoherence(properties: QubitProperties | None, scale: float) -> QubitProperties | None:
    """Return a qubit's properties with T1 and T2 divided by ``scale``."""
    if properties is None or scale == 1:
        return properties
    t1, t2 = (None if t is None else t / scale for t in (properties.t1, properties.t2))
    return QubitProperties(t1=t1, t2=t2, frequency=properties.frequency)


def _error(properties: InstructionProperties | None, scale: float, limit: float) -> InstructionProperties | None:
    """Return an instruction's properties with its errors multiplied by ``scale``, up to ``limit``."""
    if properties is None or scale == 1:
        return properties
    scaled = copy.copy(properties)
    for name in ("error", "prob_meas1_prep0", "prob_meas0_prep1"):
        if getattr(properties, name, None) is not None:
            setattr(scaled, name, min(scale * getattr(properties, name), limit))
    return scaled
