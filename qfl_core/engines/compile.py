"""Compile a circuit to a list of blocks; NumPy applies each block to a whole batch at once.

There are three kinds of block:

- ``Local``: one 2x2 matrix per qubit, applied as Kronecker products of neighbouring qubits.
- ``Monomial``: a permutation of the basis states with phases. CX, X, SWAP, CZ, RZ, P, RZZ and everything that is built
  from them are joined into one block. A layer of the ZZ feature map is such a block, and so is an entangling layer of
  RealAmplitudes.
- ``Dense``: any other fixed gate, as its matrix.

Bit k of a basis index is qubit k, as in Qiskit. Global phases are dropped, because they do not change a probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Barrier, Gate, Instruction, Parameter, ParameterExpression
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

# The rotations exp(-i a G / 2) = cos(a/2) I - i sin(a/2) G that are not diagonal, and the generator G of each.
_PAULI = {
    RXGate: np.array([[0, 1], [1, 0]], dtype=complex),
    RYGate: np.array([[0, -1j], [1j, 0]], dtype=complex),
}
# The diagonal rotations, exp(-i a Z.. / 2) up to a global phase.
_DIAGONAL = (RZGate, PhaseGate, U1Gate, RZZGate)
_SKIPPED = (Barrier, IGate, GlobalPhaseGate)
MAX_FIXED_QUBITS = 5  # a fixed gate on more qubits is replaced by its definition
MAX_DEPTH = 12  # how deep definitions may be nested

#: One 2x2 factor cos(a/2) A + sin(a/2) B as (A, B, number of the angle a); without an angle it is A alone.
Factor = tuple[np.ndarray, np.ndarray, int | None]


@dataclass(frozen=True, eq=False)
class Local:
    """For each qubit a product of 2x2 factors, in the order in which they are applied."""

    factors: dict[int, list[Factor]]

    @property
    def qubits(self) -> set[int]:
        """The qubits acted on."""
        return set(self.factors)

    @property
    def is_fixed(self) -> bool:
        """Whether the block is the same for all angles."""
        return all(angle is None for factors in self.factors.values() for _, _, angle in factors)


@dataclass(eq=False)
class Monomial:
    """New amplitude i = phase[i] * exp(i sum_t w_t(angles) signs[t, i]) * old amplitude source[i].

    w_t is a weighted sum of angles: ``weights[t]`` maps the number of an angle to its coefficient.
    """

    source: np.ndarray
    phase: np.ndarray
    signs: list[np.ndarray] = field(default_factory=list)
    weights: list[dict[int, float]] = field(default_factory=list)
    qubits: set[int] = field(default_factory=set)

    def then(self, source: np.ndarray, phase: np.ndarray, qubits: set[int]) -> None:
        """Apply a fixed permutation with phases after this block."""
        self.phase = phase * self.phase[source]
        self.source = self.source[source]
        self.signs = [s[source] for s in self.signs]
        self.qubits |= qubits

    def then_phase(self, sign: np.ndarray, angle: int, weight: float, qubits: set[int]) -> None:
        """Apply the diagonal exp(i * weight * angle * sign) after this block."""
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
        """Whether the block is the same for all angles."""
        return not self.signs


@dataclass(frozen=True, eq=False)
class Dense:
    """A fixed matrix on the qubits ``targets``; the first of them is the least significant bit of its index."""

    targets: tuple[int, ...]
    matrix: np.ndarray

    @property
    def qubits(self) -> set[int]:
        """The qubits acted on."""
        return set(self.targets)


Block = Local | Monomial | Dense
Kind = TypeVar("Kind", Local, Monomial)


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled circuit.

    Attributes
    ----------
    num_qubits : number of qubits.
    blocks : the blocks, in the order in which they are applied.
    angles : the angles of the blocks, as functions of the circuit's parameters.
    is_real : whether every block is a real matrix for all angles.
    """

    num_qubits: int
    blocks: tuple[Block, ...]
    angles: Angles
    is_real: bool


def compile_circuit(circuit: QuantumCircuit, parameters: Sequence[Parameter], share_angles: bool = False) -> Program:
    """Compile ``circuit`` to a :class:`Program`.

    Parameters
    ----------
    circuit : a circuit of gates.
    parameters : its parameters, in the order of the vectors for which it will be evaluated.
    share_angles : give equal expressions one common angle, which saves work. The parameter-shift rule cannot use this,
        because it shifts the angle of each gate separately.

    Raises
    ------
    ValueError
        If the circuit has an instruction that is not a gate (measure, reset, if), or a gate without a definition.
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
    """Goes through a circuit gate by gate and builds the blocks."""

    def __init__(self, num_qubits: int, share_angles: bool) -> None:
        self.share_angles = share_angles
        self.index = np.arange(2**num_qubits)
        self.blocks: list[Block] = []
        self.expressions: list[ParameterExpression] = []
        self.numbers: dict[str, int] = {}

    def add_circuit(self, circuit: QuantumCircuit, qubits: list[int], depth: int) -> None:
        """Add all gates of ``circuit``; its qubit i is the program's qubit ``qubits[i]``."""
        where = {bit: qubits[i] for i, bit in enumerate(circuit.qubits)}
        for instruction in circuit.data:
            self.add_gate(instruction.operation, [where[b] for b in instruction.qubits], depth)

    def add_gate(self, gate: Instruction, qubits: list[int], depth: int) -> None:
        """Add a gate: as a fixed matrix, as rotations, or else as the gates of its definition."""
        # The class decides which gate this is, because a user's own gate may have any name.
        kind = getattr(gate, "base_class", type(gate))
        if kind in _SKIPPED:
            return
        free = [p for p in gate.params if isinstance(p, ParameterExpression) and p.parameters]
        if isinstance(gate, Gate) and not free and len(qubits) <= MAX_FIXED_QUBITS:
            self.add_fixed(gate, qubits)
        elif kind in _PAULI or kind in _DIAGONAL:
            self.add_angle(kind, gate.params[0], qubits)
        elif kind in (UGate, U3Gate):
            # U(theta, phi, lambda) = P(phi) RY(theta) P(lambda); the rightmost factor is applied first.
            theta, phi, lam = gate.params
            for value, part in ((lam, PhaseGate), (theta, RYGate), (phi, PhaseGate)):
                self.add_angle(part, value, qubits)
        elif gate.definition is None or depth == MAX_DEPTH:
            raise ValueError(
                f"unsupported {'gate' if isinstance(gate, Gate) else 'instruction'} {gate.name!r}: expected "
                f"a fixed gate on at most {MAX_FIXED_QUBITS} qubits, or a gate that is defined by standard gates"
            )
        else:
            self.add_circuit(gate.definition, qubits, depth + 1)

    def add_angle(self, kind: type[Gate], value: ParameterExpression | float, qubits: list[int]) -> None:
        """Add a gate of the class ``kind`` that has one angle, which may be a number."""
        if not isinstance(value, ParameterExpression) or not value.parameters:
            self.add_fixed(kind(float(value)), qubits)
        elif kind in _PAULI:
            self.add_rotation(_PAULI[kind], value, qubits[0])
        else:
            self.add_phase(value, qubits)

    def new_angle(self, expression: ParameterExpression) -> int:
        """Return the number of the angle ``expression``, which is a new one unless equal angles are shared."""
        # Expressions are compared only where their texts are equal, because the comparison is slow.
        known = self.numbers.setdefault(str(expression), len(self.expressions))
        if self.share_angles and known < len(self.expressions) and self.expressions[known] == expression:
            return known
        self.expressions.append(expression)
        return len(self.expressions) - 1

    def add_rotation(self, generator: np.ndarray, expression: ParameterExpression, qubit: int) -> None:
        """Add a rotation about ``generator`` on one qubit."""
        factor: Factor = (np.eye(2, dtype=complex), -1j * generator, self.new_angle(expression))
        self.local_block({qubit}).factors.setdefault(qubit, []).append(factor)

    def add_phase(self, expression: ParameterExpression, qubits: list[int]) -> None:
        """Add a diagonal rotation: RZ and RZZ are exp(-i a Z../2), and P(a) is RZ(a) up to a global phase."""
        sign = np.ones(len(self.index), dtype=np.int8)
        for q in qubits:
            sign *= (1 - 2 * ((self.index >> q) & 1)).astype(np.int8)
        self.monomial_block(set(qubits)).then_phase(sign, self.new_angle(expression), -0.5, set(qubits))

    def add_fixed(self, gate: Gate, qubits: list[int]) -> None:
        """Add a gate without free parameters, as its matrix."""
        try:
            matrix = gate.to_matrix()
        except Exception:  # this gate has no matrix of its own: Operator builds it from the definition
            try:
                matrix = Operator(gate).data
            except Exception as error:
                raise ValueError(f"unsupported gate {gate.name!r}: Qiskit cannot compute its matrix") from error
        self.add_fixed_matrix(np.asarray(matrix, dtype=complex), qubits)

    def add_fixed_matrix(self, matrix: np.ndarray, qubits: list[int]) -> None:
        """Add a fixed matrix to the cheapest kind of block that can hold it."""
        used = np.abs(matrix) > 1e-14
        if (used.sum(axis=0) == 1).all() and (used.sum(axis=1) == 1).all():
            columns = used.argmax(axis=1)
            inner = _extract(self.index, qubits)
            source = _insert(self.index, columns[inner], qubits)
            phase = matrix[np.arange(len(matrix)), columns][inner]
            self.monomial_block(set(qubits)).then(source, phase, set(qubits))
        elif len(qubits) == 1:
            factors = self.local_block(set(qubits)).factors.setdefault(qubits[0], [])
            factors.append((matrix, np.zeros((2, 2), complex), None))
        else:
            self.blocks.append(Dense(tuple(qubits), matrix))

    def local_block(self, qubits: set[int]) -> Local:
        """Return the ``Local`` block that takes the next gate on ``qubits``, which may be a new block."""
        found = self.earliest(Local, qubits)
        if found is None:
            found = Local({})
            self.blocks.append(found)
        return found

    def monomial_block(self, qubits: set[int]) -> Monomial:
        """Return the ``Monomial`` block that takes the next gate on ``qubits``, which may be a new block."""
        found = self.earliest(Monomial, qubits)
        if found is None:
            size = len(self.index)
            found = Monomial(np.arange(size), np.ones(size, dtype=complex))
            self.blocks.append(found)
        return found

    def earliest(self, kind: type[Kind], qubits: set[int]) -> Kind | None:
        """Return the earliest block of ``kind`` that can take a gate on ``qubits``, or None.

        The gate may move in front of all blocks that act on other qubits, because it commutes with them.
        """
        found = None
        for block in reversed(self.blocks):
            if isinstance(block, kind):
                found = block
            if block.qubits & qubits:
                break
        return found


def _extract(index: np.ndarray, qubits: list[int]) -> np.ndarray:
    """Return the bits of ``index`` at ``qubits`` as a small integer; the first qubit is the least significant bit."""
    out = np.zeros_like(index)
    for k, q in enumerate(qubits):
        out |= ((index >> q) & 1) << k
    return out


def _insert(index: np.ndarray, value: np.ndarray, qubits: list[int]) -> np.ndarray:
    """Return ``index`` with its bits at ``qubits`` replaced by the bits of ``value``."""
    out = index.copy()
    for k, q in enumerate(qubits):
        out = (out & ~(1 << q)) | (((value >> k) & 1) << q)
    return out


def _is_real(block: Block) -> bool:
    """Return whether the block is a real matrix for all angles."""
    if isinstance(block, Monomial):
        return block.is_fixed and not block.phase.imag.any()
    if isinstance(block, Dense):
        return not block.matrix.imag.any()
    return not any(a.imag.any() or b.imag.any() for fs in block.factors.values() for a, b, _ in fs)
