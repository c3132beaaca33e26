"""Circuits compiled to three kinds of block, each one NumPy step for a whole batch.

- ``Local``: one 2x2 matrix a qubit, applied as Kronecker products of neighbouring qubits;
- ``Monomial``: a permutation of the basis with phases. CX, X, SWAP, CZ, RZ, P, RZZ and whatever is built from
  them fuse into one block: a ZZ feature map's layer, or an entangling layer of RealAmplitudes;
- ``Dense``: any other fixed gate, as its matrix.

Basis index z has qubit k as bit k (Qiskit's order). Global phases are dropped: they do not reach a
probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Barrier, Gate, Parameter, ParameterExpression
from qiskit.circuit.library import (
    GlobalPhaseGate,
    IGate,
    PhaseGate,
    RXGate,
    RYGate,
    RZGate,
    RZZGate,
    U1Gate,
    U3Gate,
    UGate,
)
from qiskit.quantum_info import Operator

from qfl_core.engines.expressions import Angles, compile_angles

# Rotations exp(-i a G / 2) = cos(a/2) I - i sin(a/2) G that are not diagonal, by generator.
_PAULI = {
    RXGate: np.array([[0, 1], [1, 0]], dtype=complex),
    RYGate: np.array([[0, -1j], [1j, 0]], dtype=complex),
}
# Diagonal ones, exp(-i a Z.. / 2) up to a global phase.
_DIAGONAL = (RZGate, PhaseGate, U1Gate, RZZGate)
_SKIPPED = (Barrier, IGate, GlobalPhaseGate)
MAX_FIXED_QUBITS = 5
MAX_DEPTH = 12


@dataclass(frozen=True, eq=False)
class Local:
    """A product of 2x2 factors a qubit: cos(a/2) A + sin(a/2) B, or A alone where the angle is None."""

    factors: dict[int, list[tuple[np.ndarray, np.ndarray, int | None]]]

    @property
    def qubits(self) -> set[int]:
        """The qubits acted on."""
        return set(self.factors)

    @property
    def is_fixed(self) -> bool:
        """Whether no factor has an angle."""
        return all(angle is None for factors in self.factors.values() for _, _, angle in factors)


@dataclass(eq=False)
class Monomial:
    """New amplitude i = phase[i] * exp(i sum_t w_t(angles) signs[t, i]) * old amplitude source[i].

    ``weights[t]`` maps an angle to its coefficient in w_t.
    """

    source: np.ndarray
    phase: np.ndarray
    signs: list[np.ndarray] = field(default_factory=list)
    weights: list[dict[int, float]] = field(default_factory=list)
    qubits: set[int] = field(default_factory=set)

    def then(self, source: np.ndarray, phase: np.ndarray, qubits: set[int]) -> None:
        """Append a fixed permutation with phases."""
        self.phase = phase * self.phase[source]
        self.source = self.source[source]
        self.signs = [s[source] for s in self.signs]
        self.qubits |= qubits

    def then_phase(self, sign: np.ndarray, angle: int, weight: float, qubits: set[int]) -> None:
        """Append the diagonal exp(i * weight * angle * sign)."""
        self.qubits |= qubits
        for known, weights in zip(self.signs, self.weights, strict=True):
            same = 1 if np.array_equal(known, sign) else -1 if np.array_equal(known, -sign) else 0
            if same:
                weights[angle] = weights.get(angle, 0.0) + same * weight
                return
        self.signs.append(sign)
        self.weights.append({angle: weight})

    @property
    def is_fixed(self) -> bool:
        """Whether no phase depends on an angle."""
        return not self.signs


@dataclass(frozen=True, eq=False)
class Dense:
    """A fixed matrix on ``targets`` (least significant first)."""

    targets: tuple[int, ...]
    matrix: np.ndarray
    is_fixed: bool = True

    @property
    def qubits(self) -> set[int]:
        """The qubits acted on."""
        return set(self.targets)


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled circuit: blocks in order of application, and the angles they use."""

    num_qubits: int
    blocks: tuple[Local | Monomial | Dense, ...]
    angles: Angles
    is_real: bool


def compile_circuit(circuit: QuantumCircuit, parameters: Sequence[Parameter], share_angles: bool = False) -> Program:
    """Return ``circuit`` as a :class:`Program` whose inputs are ``parameters``, in that order.

    With ``share_angles``, equal expressions are one angle; the parameter-shift rule needs one a gate.

    Raises
    ------
    ValueError
        If the circuit holds an instruction that is no gate of known definition (measure, reset, if).
    """
    builder = _Builder(circuit.num_qubits, share_angles)
    builder.add_circuit(circuit, list(range(circuit.num_qubits)), depth=0)
    return Program(
        num_qubits=circuit.num_qubits,
        blocks=tuple(builder.blocks),
        angles=compile_angles(builder.expressions, parameters),
        is_real=all(_is_real(block) for block in builder.blocks),
    )


class _Builder:
    """Walks a circuit and grows blocks."""

    def __init__(self, num_qubits: int, share_angles: bool) -> None:
        self.share_angles = share_angles
        self.num_qubits = num_qubits
        self.index = np.arange(2**num_qubits)
        self.blocks: list[Local | Monomial | Dense] = []
        self.expressions: list[ParameterExpression] = []
        self.numbers: dict[str, int] = {}

    def add_circuit(self, circuit: QuantumCircuit, qubits: list[int], depth: int) -> None:
        where = {bit: qubits[i] for i, bit in enumerate(circuit.qubits)}
        for instruction in circuit.data:
            self.add_gate(instruction.operation, [where[b] for b in instruction.qubits], depth)

    def add_gate(self, gate, qubits: list[int], depth: int) -> None:
        # Gates are known by class: a user's own gate may carry any name.
        kind = getattr(gate, "base_class", type(gate))
        if kind in _SKIPPED:
            return
        free = [p for p in gate.params if isinstance(p, ParameterExpression) and p.parameters]
        if isinstance(gate, Gate) and not free and len(qubits) <= MAX_FIXED_QUBITS:
            self.add_fixed(gate, qubits)
        elif kind in _PAULI or kind in _DIAGONAL:
            self.add_angle(kind, gate.params[0], qubits)
        elif kind in (UGate, U3Gate):
            # U(theta, phi, lambda) = P(phi) RY(theta) P(lambda), applied right to left.
            theta, phi, lam = gate.params
            for value, part in ((lam, PhaseGate), (theta, RYGate), (phi, PhaseGate)):
                self.add_angle(part, value, qubits)
        elif gate.definition is None or depth == MAX_DEPTH:
            raise ValueError(
                f"unsupported {'gate' if isinstance(gate, Gate) else 'instruction'} {gate.name!r}: expected "
                f"a matrix of at most {MAX_FIXED_QUBITS} qubits or a definition in standard gates"
            )
        else:
            self.add_circuit(gate.definition, qubits, depth + 1)

    def add_angle(self, kind: type, value, qubits: list[int]) -> None:
        if not isinstance(value, ParameterExpression) or not value.parameters:
            self.add_fixed(kind(float(value)), qubits)
        elif kind in _PAULI:
            self.add_rotation(_PAULI[kind], value, qubits[0])
        else:
            self.add_phase(value, qubits)

    def new_angle(self, expression: ParameterExpression) -> int:
        # Comparing expressions is slow: equal text first, then equality.
        known = self.numbers.setdefault(str(expression), len(self.expressions))
        if self.share_angles and known < len(self.expressions) and self.expressions[known] == expression:
            return known
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def add_rotation(self, generator: np.ndarray, expression: ParameterExpression, qubit: int) -> None:
        factor = (np.eye(2, dtype=complex), -1j * generator, self.new_angle(expression))
        self.block(Local, {qubit}).factors.setdefault(qubit, []).append(factor)

    def add_phase(self, expression: ParameterExpression, qubits: list[int]) -> None:
        # RZ and RZZ are exp(-i a Z../2); P(a) is RZ(a) up to a global phase.
        sign = np.ones(len(self.index), dtype=np.int8)
        for q in qubits:
            sign *= (1 - 2 * ((self.index >> q) & 1)).astype(np.int8)
        block = self.block(Monomial, set(qubits))
        block.then_phase(sign, self.new_angle(expression), -0.5, set(qubits))

    def add_fixed(self, gate: Gate, qubits: list[int]) -> None:
        try:
            matrix = gate.to_matrix()
        except Exception:  # gates without a matrix of their own are built from their definition
            try:
                matrix = Operator(gate).data
            except Exception as error:
                raise ValueError(f"unsupported gate {gate.name!r}: it has no matrix") from error
        self.add_fixed_matrix(np.asarray(matrix, dtype=complex), qubits)

    def add_fixed_matrix(self, matrix: np.ndarray, qubits: list[int]) -> None:
        used = np.abs(matrix) > 1e-14
        if (used.sum(axis=0) == 1).all() and (used.sum(axis=1) == 1).all():
            columns = used.argmax(axis=1)
            inner = _extract(self.index, qubits)
            source = _insert(self.index, columns[inner], qubits)
            phase = matrix[np.arange(len(matrix)), columns][inner]
            self.block(Monomial, set(qubits)).then(source, phase, set(qubits))
        elif len(qubits) == 1:
            factors = self.block(Local, set(qubits)).factors.setdefault(qubits[0], [])
            factors.append((matrix, np.zeros((2, 2), complex), None))
        else:
            self.blocks.append(Dense(tuple(qubits), matrix))

    def block(self, kind: type, qubits: set[int]):
        """Return the earliest block of ``kind`` that a gate on ``qubits`` commutes back to, or a new one."""
        found = None
        for block in reversed(self.blocks):
            if isinstance(block, kind):
                found = block
            if block.qubits & qubits:
                break
        if found is None:
            size = len(self.index)
            found = Local({}) if kind is Local else Monomial(np.arange(size), np.ones(size, dtype=complex))
            self.blocks.append(found)
        return found


def _extract(index: np.ndarray, qubits: list[int]) -> np.ndarray:
    """Return the bits of ``index`` at ``qubits`` as a small integer, first qubit least significant."""
    return sum(((index >> q) & 1) << k for k, q in enumerate(qubits))


def _insert(index: np.ndarray, value: np.ndarray, qubits: list[int]) -> np.ndarray:
    """Return ``index`` with its bits at ``qubits`` replaced by those of ``value``."""
    out = index.copy()
    for k, q in enumerate(qubits):
        out = (out & ~(1 << q)) | (((value >> k) & 1) << q)
    return out


def _is_real(block: Local | Monomial | Dense) -> bool:
    if isinstance(block, Monomial):
        return block.is_fixed and not block.phase.imag.any()
    if isinstance(block, Dense):
        return not block.matrix.imag.any()
    return not any(a.imag.any() or b.imag.any() for fs in block.factors.values() for a, b, _ in fs)
