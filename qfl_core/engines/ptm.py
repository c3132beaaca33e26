"""Noisy circuits as real linear maps of Pauli coefficients, batched.

A density matrix is its Pauli expectations r_P = Tr(P rho), 4^q real numbers, and a noisy gate is its Pauli
transfer matrix (PTM). A rotation exp(-i a G / 2) about a Pauli string G only turns pairs of coefficients
into each other by the angle a; everything else is fixed, so neighbouring fixed gates and their errors fuse
into one 16 x 16 matrix.

States walk forward, r -> R r. Observables walk backward, o -> R^T o, with <O> = sum_P o_P r_P: thetas are
then evaluated once, not once a sample.

Bits: every product has the shape of a full tile of vectors, whatever the number asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from qiskit.circuit import ParameterExpression
from qiskit.quantum_info import PTM, Operator, SuperOp

from qfl_core.engines.expressions import Angles

TILE = 64


@dataclass(frozen=True, eq=False)
class Fixed:
    """A fixed map of one or two qubits; ``matrix`` has the first qubit least significant."""

    qubits: tuple[int, ...]
    matrix: np.ndarray


@dataclass(frozen=True, eq=False)
class Turn:
    """New r[moved] = cos(a) r[moved] + sin(a) sign * r[partner], for the angle numbered ``angle``."""

    qubits: tuple[int, ...]
    moved: np.ndarray
    partner: np.ndarray
    sign: np.ndarray
    angle: int


def fixed_ptm(channel) -> np.ndarray:
    """Return the PTM of a gate's operator or an error's channel, ``(4^k, 4^k)`` real."""
    matrix = np.asarray(PTM(SuperOp(channel)).data)
    if np.abs(matrix.imag).max() > 1e-10:
        raise ValueError("a channel that is not Hermiticity-preserving has no real transfer matrix")
    return np.ascontiguousarray(matrix.real)


def turn_of(gate, qubits: tuple[int, ...], angle: int) -> Turn:
    """Return a parametrised rotation as a :class:`Turn`; ValueError names a gate that is none."""
    base = gate.base_class if hasattr(gate, "base_class") else type(gate)
    free = [p for p in gate.params if isinstance(p, ParameterExpression)]
    if len(gate.params) != 1 or len(free) != 1:
        raise ValueError(f"unsupported gate {gate.name!r}: expected rotations of one angle")
    zero, right, half = (fixed_ptm(Operator(base(a))) for a in (0.0, np.pi / 2, np.pi))
    # R(a) = S + cos(a) C + sin(a) D for a Pauli rotation: three values give the three matrices.
    stay, cosine = (zero + half) / 2, (zero - half) / 2
    sine = right - stay
    moved = np.flatnonzero(np.abs(sine).max(axis=1) > 0.5)
    partner = np.abs(sine[moved]).argmax(axis=1)
    sign = np.rint(sine[moved, partner])
    third = stay + np.cos(2.1) * cosine + np.sin(2.1) * sine
    expected = np.eye(len(zero))
    expected[moved, moved] = np.cos(2.1)
    expected[moved, partner] = np.sin(2.1) * sign
    actual = fixed_ptm(Operator(base(2.1)))
    if np.abs(third - actual).max() > 1e-9 or np.abs(expected - actual).max() > 1e-9:
        raise ValueError(f"unsupported gate {gate.name!r}: expected a rotation about a Pauli string")
    return Turn(qubits, moved, partner, sign, angle)


def fuse(steps: Sequence[Fixed | Turn]) -> tuple[Fixed | Turn, ...]:
    """Return the same map with neighbouring fixed steps multiplied together."""
    out: list[Fixed | Turn | None] = []
    last: dict[int, int] = {}
    for step in steps:
        before = [last.get(q) for q in step.qubits]
        if isinstance(step, Fixed):
            target = before[0]
            merged = None
            if target is not None and len(set(before)) == 1 and isinstance(out[target], Fixed):
                merged = _compose(step, out[target])
            if merged is not None:
                out[target] = merged
                continue
            for q, i in zip(step.qubits, before, strict=True):
                # A lone one-qubit map just before this one is taken into it.
                if i is not None and isinstance(out[i], Fixed) and out[i].qubits == (q,):
                    step = Fixed(step.qubits, step.matrix @ _lift(out[i], step.qubits))
                    out[i] = None
        out.append(step)
        for q in step.qubits:
            last[q] = len(out) - 1
    return tuple(step for step in out if step is not None)


def _compose(later: Fixed, earlier: Fixed) -> Fixed | None:
    if set(later.qubits) <= set(earlier.qubits):
        return Fixed(earlier.qubits, _lift(later, earlier.qubits) @ earlier.matrix)
    return None


def _lift(step: Fixed, qubits: tuple[int, ...]) -> np.ndarray:
    """Return the step's matrix on ``qubits``, of which its own are a part."""
    if step.qubits == qubits:
        return step.matrix
    if len(step.qubits) == 1:
        return np.kron(*((step.matrix, np.eye(4)) if step.qubits[0] == qubits[1] else (np.eye(4), step.matrix)))
    return step.matrix.reshape(4, 4, 4, 4).transpose(1, 0, 3, 2).reshape(16, 16)


@dataclass(frozen=True, eq=False)
class Walk:
    """A fused noisy circuit on ``num_qubits`` qubits and the functions that give its angles."""

    num_qubits: int
    steps: tuple[Fixed | Turn, ...]
    angles: Angles

    def states(self, start: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return Pauli coefficients ``(N, 4^q)`` after the circuit, from ``start : (4^q,)``."""
        return self._run(start, values, backward=False)

    def observables(self, end: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return observables ``(N, 4^q)`` before the circuit, from ``end : (4^q,)`` after it."""
        return self._run(end, values, backward=True)

    def _run(self, vector: np.ndarray, values: np.ndarray, backward: bool) -> np.ndarray:
        angles = self.angles.evaluate(values)
        out = np.empty((len(values), len(vector)))
        for i in range(0, len(values), TILE):
            part = np.zeros((TILE, angles.shape[1]))
            part[: len(angles) - i] = angles[i : i + TILE]
            out[i : i + TILE] = self._tile(vector, part, backward)[: len(values) - i]
        return out

    def _tile(self, vector: np.ndarray, angles: np.ndarray, backward: bool) -> np.ndarray:
        n = self.num_qubits
        # The batch is the last axis; ``order[k]`` is the qubit on axis k. A step moves its qubits to the
        # front and leaves them there, so a fixed step costs one copy and one product.
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
