"""Apply noisy circuits to batches of Pauli coefficients; a noisy gate is a real linear map of them.

A density matrix is represented by its 4^q real Pauli expectations r_P = Tr(P rho), and a noisy gate by its Pauli
transfer matrix (PTM). A rotation exp(-i a G / 2) about a Pauli string G rotates pairs of coefficients by the angle a.
All other gates, and all errors, are fixed matrices; neighbours among them are multiplied into one matrix of at most
16 x 16.

States go forward through the circuit, r -> R r. Observables go backward, o -> R^T o, with <O> = sum_P o_P r_P. Because
of this, the gates that depend on theta are applied once per theta and not once per sample.

Why the bits do not depend on the batch: every matrix product has the shape of a full tile of TILE vectors, also if
fewer vectors are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from qiskit.circuit import Instruction, ParameterExpression
from qiskit.quantum_info import PTM, Operator, SuperOp

from qfl_core.engines.expressions import Angles

if TYPE_CHECKING:
    from qiskit_aer.noise import QuantumError

TILE = 64


@dataclass(frozen=True, eq=False)
class Fixed:
    """A fixed map of one or two qubits; the first qubit is the least significant digit of the matrix's index."""

    qubits: tuple[int, ...]
    matrix: np.ndarray


@dataclass(frozen=True, eq=False)
class Turn:
    """A rotation: new r[moved] = cos(a) r[moved] + sin(a) sign * r[partner], where a is the angle number ``angle``."""

    qubits: tuple[int, ...]
    moved: np.ndarray
    partner: np.ndarray
    sign: np.ndarray
    angle: int


Step = Fixed | Turn


def fixed_ptm(channel: Operator | QuantumError) -> np.ndarray:
    """Return the real PTM ``(4^k, 4^k)`` of a gate's operator or of an error's channel on k qubits."""
    matrix = np.asarray(PTM(SuperOp(channel)).data)
    if np.abs(matrix.imag).max() > 1e-10:
        raise ValueError("the channel does not preserve Hermiticity, so it has no real transfer matrix")
    return np.ascontiguousarray(matrix.real)


def turn_of(gate: Instruction, qubits: tuple[int, ...], angle: int) -> Turn:
    """Return a rotation with a free parameter as a :class:`Turn`; raise ValueError for any other gate."""
    base = getattr(gate, "base_class", type(gate))
    if len(gate.params) != 1 or not isinstance(gate.params[0], ParameterExpression):
        raise ValueError(f"unsupported gate {gate.name!r}: expected a rotation with one angle")
    zero, right, half = (fixed_ptm(Operator(base(a))) for a in (0.0, np.pi / 2, np.pi))
    # A Pauli rotation is R(a) = S + cos(a) C + sin(a) D; its values at three angles give the three matrices.
    stay, cosine = (zero + half) / 2, (zero - half) / 2
    sine = right - stay
    moved = np.flatnonzero(np.abs(sine).max(axis=1) > 0.5)
    partner = np.abs(sine[moved]).argmax(axis=1)
    sign = np.rint(sine[moved, partner])
    # The gate is a Pauli rotation if both formulas hold at a fourth angle.
    third = stay + np.cos(2.1) * cosine + np.sin(2.1) * sine
    expected = np.eye(len(zero))
    expected[moved, moved] = np.cos(2.1)
    expected[moved, partner] = np.sin(2.1) * sign
    actual = fixed_ptm(Operator(base(2.1)))
    if np.abs(third - actual).max() > 1e-9 or np.abs(expected - actual).max() > 1e-9:
        raise ValueError(f"unsupported gate {gate.name!r}: expected a rotation about a Pauli string")
    return Turn(qubits, moved, partner, sign, angle)


def fuse(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return steps that give the same map, with neighbouring fixed steps multiplied together."""
    out: list[Step | None] = []
    last: dict[int, int] = {}
    for step in steps:
        before = [last.get(q) for q in step.qubits]
        if isinstance(step, Fixed):
            target = before[0]
            if target is not None and len(set(before)) == 1:
                earlier = out[target]
                if isinstance(earlier, Fixed) and set(step.qubits) <= set(earlier.qubits):
                    out[target] = Fixed(earlier.qubits, _lift(step, earlier.qubits) @ earlier.matrix)
                    continue
            for q, i in zip(step.qubits, before, strict=True):
                # A fixed step on one qubit that comes directly before this step becomes a part of it.
                earlier = None if i is None else out[i]
                if i is not None and isinstance(earlier, Fixed) and earlier.qubits == (q,):
                    step = Fixed(step.qubits, step.matrix @ _lift(earlier, step.qubits))
                    out[i] = None
        out.append(step)
        for q in step.qubits:
            last[q] = len(out) - 1
    return tuple(step for step in out if step is not None)


def _lift(step: Fixed, qubits: tuple[int, ...]) -> np.ndarray:
    """Return the step as a matrix on ``qubits``, which include the step's own qubits."""
    if step.qubits == qubits:
        return step.matrix
    if len(step.qubits) == 1:
        one = np.eye(4)
        return np.kron(step.matrix, one) if step.qubits[0] == qubits[1] else np.kron(one, step.matrix)
    # The same two qubits in the other order.
    return step.matrix.reshape(4, 4, 4, 4).transpose(1, 0, 3, 2).reshape(16, 16)


@dataclass(frozen=True, eq=False)
class Walk:
    """A noisy circuit on ``num_qubits`` qubits: its fused steps, and their angles as functions of the parameters."""

    num_qubits: int
    steps: tuple[Step, ...]
    angles: Angles

    def states(self, start: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the Pauli coefficients ``(N, 4^q)`` after the circuit, for ``start : (4^q,)`` before it.

        ``values : (N, number of parameters)`` holds the parameters.
        """
        return self._run(start, values, backward=False)

    def observables(self, end: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the observables ``(N, 4^q)`` before the circuit, for the observable ``end : (4^q,)`` after it.

        ``values : (N, number of parameters)`` holds the parameters.
        """
        return self._run(end, values, backward=True)

    def _run(self, vector: np.ndarray, values: np.ndarray, backward: bool) -> np.ndarray:
        """Cut the batch into tiles of TILE vectors; the last one is padded with angles of zero."""
        angles = self.angles.evaluate(values)
        out = np.empty((len(values), len(vector)))
        for i in range(0, len(values), TILE):
            part = np.zeros((TILE, angles.shape[1]))
            part[: len(angles) - i] = angles[i : i + TILE]
            out[i : i + TILE] = self._tile(vector, part, backward)[: len(values) - i]
        return out

    def _tile(self, vector: np.ndarray, angles: np.ndarray, backward: bool) -> np.ndarray:
        """Return ``(TILE, 4^q)`` for the angles ``(TILE, K)``."""
        n = self.num_qubits
        # The batch is the last axis; ``order[k]`` is the qubit on axis k. A step moves its qubits to the first axes
        # and leaves them there, so a fixed step needs only one copy and one product.
        r = np.repeat(vector[:, None], TILE, axis=1).reshape(*(4,) * n, TILE)
        order = list(range(n))[::-1]
        c, s = np.cos(angles).T, np.sin(angles).T
        if backward:
            s = -s
        for step in reversed(self.steps) if backward else self.steps:
            front = [order.index(q) for q in reversed(step.qubits)]
            rest = [k for k in range(n) if k not in front]
            view = r.transpose(*front, *rest, n)
            size = 4 ** len(front)
            if isinstance(step, Fixed):
                matrix = step.matrix.T if backward else step.matrix
                r = (matrix @ view.reshape(size, -1)).reshape(*(4,) * n, TILE)
                order = [order[k] for k in front + rest]
            elif len(front) == 1:
                moved = view[step.moved]
                sign = step.sign.reshape(-1, *(1,) * n)
                view[step.moved] = c[step.angle] * moved + (s[step.angle] * sign) * view[step.partner]
            else:
                flat = view.reshape(size, -1, TILE)
                turned = c[step.angle] * flat[step.moved]
                turned += (s[step.angle] * step.sign[:, None, None]) * flat[step.partner]
                flat = flat.copy()
                flat[step.moved] = turned
                r = flat.reshape(*(4,) * n, TILE)
                order = [order[k] for k in front + rest]
        back = [order.index(q) for q in range(n)[::-1]]
        return r.transpose(n, *back).reshape(TILE, -1)
