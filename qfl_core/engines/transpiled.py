"""Transpile the measured circuit of a QNN for a backend, and read from the result which qubits it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qiskit import QuantumCircuit, transpile
from qiskit.circuit import CircuitInstruction

from qfl_core.engines.qnn import QNN

if TYPE_CHECKING:
    from qiskit.providers import BackendV2

TRANSPILER_SEED = 0


def default_device() -> BackendV2:
    """Return FakeFez, a snapshot of an IBM device with 156 qubits."""
    from qiskit_ibm_runtime.fake_provider import FakeFez

    return FakeFez()


def transpile_for(qnn: QNN, backend: BackendV2, optimization_level: int) -> QuantumCircuit:
    """Return the measured circuit of ``qnn``, transpiled for ``backend``; the result is the same in every call."""
    return transpile(qnn.measured(), backend, optimization_level=optimization_level, seed_transpiler=TRANSPILER_SEED)


def qubit_indices(circuit: QuantumCircuit, instruction: CircuitInstruction) -> tuple[int, ...]:
    """Return the numbers of the qubits that ``instruction`` acts on."""
    return tuple(circuit.find_bit(q).index for q in instruction.qubits)


def used_qubits(circuit: QuantumCircuit) -> tuple[int, ...]:
    """Return the qubits that gates or measurements of a transpiled circuit act on, sorted."""
    return tuple(sorted({q for i in circuit.data if i.operation.name != "barrier" for q in qubit_indices(circuit, i)}))


def measured_qubits(circuit: QuantumCircuit, count: int) -> tuple[int, ...]:
    """Return for each of the ``count`` classical bits the qubit that is measured into it."""
    found = {
        circuit.find_bit(i.clbits[0]).index: qubit_indices(circuit, i)[0]
        for i in circuit.data
        if i.operation.name == "measure"
    }
    if sorted(found) != list(range(count)):
        raise ValueError(f"the transpiled circuit measures bits {sorted(found)}, expected 0 to {count - 1}")
    return tuple(found[k] for k in range(count))


def operation_counts(circuit: QuantumCircuit) -> dict[str, int]:
    """Return how often each operation occurs in the circuit, sorted by name."""
    return {name: int(count) for name, count in sorted(circuit.count_ops().items())}
