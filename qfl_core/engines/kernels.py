"""Apply a compiled program to batches of row vectors.

Rows have shape ``(N, r, d)``: N vectors of angles (or 1, which broadcasts), r rows for each of them, d amplitudes.
Forward, the rows are states, and the program maps psi to U psi. In reverse, it maps a matrix A to ``A U`` and goes from
the last block to the first. If A consists of some rows of the identity, the result is the same rows of U(theta).

Why the bits do not depend on the batch: the program fixes the shape of every matrix product, NumPy repeats this product
N times, and all other operations work element by element. The result of a row therefore depends neither on N nor on the
other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qfl_core.engines.compile import Block, Dense, Local, Monomial, Program

MAX_GROUP = 5  # neighbouring qubits whose 2x2 matrices become one matrix
# The phases are one matrix product if the signs as float64 need at most this many bytes; else they are summed.
MAX_SIGNS = 2**26


@dataclass(frozen=True, eq=False)
class _LocalStep:
    """A ``Local`` block, as one matrix per group of neighbouring qubits.

    The matrices of a block without angles are ``fixed``. The others are computed in every call; ``layer`` is then the
    position of this block among them.
    """

    layer: int | None
    fixed: tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class _MonomialStep:
    """A ``Monomial`` block and the inverse of its permutation; ``phase`` is None where all fixed phases are 1."""

    source: np.ndarray
    inverse: np.ndarray
    phase: np.ndarray | None
    signs: np.ndarray
    weights: tuple[dict[int, float], ...]

    def turns_like(self, other: _MonomialStep) -> bool:
        """Return whether both steps have the same angle-dependent phases, as the repetitions of a feature map do."""
        return self.weights == other.weights and np.array_equal(self.signs, other.signs)


@dataclass(frozen=True, eq=False)
class _DenseStep:
    """A ``Dense`` block."""

    targets: tuple[int, ...]
    matrix: np.ndarray


_Step = _LocalStep | _MonomialStep | _DenseStep


class Kernel:
    """Applies one :class:`Program` to batches of rows.

    Attributes
    ----------
    program : the compiled circuit.
    dtype : float64 if every block is real, as in RealAmplitudes, else complex128.
    num_qubits : number of qubits q.
    dim : number of amplitudes d = 2^q.
    groups : sizes of the groups of neighbouring qubits, see :data:`MAX_GROUP`.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.dtype = np.dtype(float if program.is_real else complex)
        self.num_qubits = program.num_qubits
        self.dim = 2**program.num_qubits
        self.groups = _groups(program.num_qubits)
        layers = [b for b in program.blocks if isinstance(b, Local) and not b.is_fixed]
        self._factors = self._factor_arrays(layers)
        self._has_fixed_factors = bool((self._factors[2] < 0).any())
        self._ry_angles = self._only_ry_angles()
        layer_of = {id(block): i for i, block in enumerate(layers)}
        self._steps = tuple(self._step(block, layer_of) for block in program.blocks)

    def forward(self, rows: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """Return ``rows : (N or 1, r, d)`` after the circuit with ``angles : (N, K)``."""
        return self._run(rows, angles, reverse=False)

    def reverse(self, rows: np.ndarray, angles: np.ndarray) -> np.ndarray:
        """Return ``rows @ U(angles)`` for ``rows : (N or 1, r, d)`` and ``angles : (N, K)``."""
        return self._run(rows, angles, reverse=True)

    def identity_rows(self, kept: np.ndarray) -> IdentityWalk | None:
        """Return a faster :meth:`reverse` for some rows of the identity, to the same bits; None for other circuits.

        It needs layers of RY on at most MAX_GROUP qubits, with permutations between them. A permutation after a layer
        is then only another order of the columns of the layer's matrix, and the first product is a choice of rows.
        """
        if self._ry_angles is None or len(self.groups) > 1:
            return None
        entry = _ry_index(self.num_qubits).reshape(self.dim, self.dim)
        parts: list[np.ndarray] = []
        for step in reversed(self._steps):
            if isinstance(step, _LocalStep) and step.layer is not None:
                rows = entry if parts else entry[kept]
                parts.append(rows + 2 * self.dim * step.layer)
            elif isinstance(step, _MonomialStep) and step.phase is None and not len(step.signs) and parts:
                parts[-1] = parts[-1][:, step.inverse]
            else:
                return None
        return IdentityWalk(self, tuple(parts), np.concatenate([part.ravel() for part in parts]))

    def _run(self, rows: np.ndarray, angles: np.ndarray, reverse: bool) -> np.ndarray:
        krons = self._krons(angles)
        # The last phases and the step that they belong to, because the next step may have the same ones.
        turned: tuple[_MonomialStep, np.ndarray] | None = None
        for step in reversed(self._steps) if reverse else self._steps:
            if isinstance(step, _LocalStep):
                matrices = step.fixed if step.layer is None else [k[:, step.layer] for k in krons]
                rows = self._apply_local(rows, matrices, reverse)
            elif isinstance(step, _DenseStep):
                rows = self._apply_dense(step, rows, reverse)
            else:
                phase = step.phase
                if len(step.signs):
                    if turned is None or not step.turns_like(turned[0]):
                        turned = (step, self._turn(step, angles))
                    phase = turned[1] if phase is None else turned[1] * phase
                if reverse:
                    rows = (rows if phase is None else rows * phase).take(step.inverse, axis=-1)
                else:
                    rows = rows.take(step.source, axis=-1)
                    rows = rows if phase is None else rows * phase
        return rows

    def _turn(self, step: _MonomialStep, angles: np.ndarray) -> np.ndarray:
        """Return exp(i sum_t w_t signs_t), ``(N, 1, d)``."""
        w = np.empty((len(angles), 1, len(step.signs)))
        for t, weights in enumerate(step.weights):
            w[:, 0, t] = sum(c * angles[:, k] for k, c in weights.items())
        if step.signs.dtype == np.int8:
            turn = np.zeros((len(angles), 1, self.dim))
            for t, sign in enumerate(step.signs):
                turn += w[:, :, t, None] * sign
        else:
            turn = w @ step.signs
        phase = np.empty(turn.shape, dtype=complex)
        np.cos(turn, out=phase.real)
        np.sin(turn, out=phase.imag)
        return phase

    def _apply_local(self, rows: np.ndarray, matrices: Sequence[np.ndarray], reverse: bool) -> np.ndarray:
        """Return the rows after the matrices ``(N or 1, g, g)`` of all groups."""
        r = rows.shape[1]
        low = 1
        for size, matrix in zip(self.groups, matrices, strict=True):
            g = 2**size
            turned = matrix.swapaxes(-1, -2)
            if g == self.dim:
                rows = rows @ (matrix if reverse else turned)
            elif low == 1:
                rows = rows.reshape(-1, r, self.dim // g, g) @ (matrix if reverse else turned)[:, None]
            else:
                shaped = rows.reshape(-1, r, self.dim // (g * low), g, low)
                rows = (turned if reverse else matrix)[:, None, None] @ shaped
            low *= g
            rows = rows.reshape(-1, r, self.dim)
        return rows

    def _apply_dense(self, step: _DenseStep, rows: np.ndarray, reverse: bool) -> np.ndarray:
        count, r, _ = rows.shape
        n, k = self.num_qubits, len(step.targets)
        # Axis 2 + j of the tensor is qubit n - 1 - j; the first target is the matrix's least significant bit.
        axes = [2 + n - 1 - q for q in reversed(step.targets)]
        ends = list(range(2 + n - k, 2 + n))
        tensor = np.moveaxis(rows.reshape(count, r, *(2,) * n), axes, ends)
        flat = np.ascontiguousarray(tensor).reshape(count, r, -1, 2**k)
        flat = flat @ (step.matrix if reverse else step.matrix.T)
        return np.moveaxis(flat.reshape(tensor.shape), ends, axes).reshape(count, r, self.dim)

    def _step(self, block: Block, layer_of: dict[int, int]) -> _Step:
        """Return the step of a block; ``layer_of`` has the position of each ``Local`` block with angles, by its id."""
        if isinstance(block, Monomial):
            phase = None if (block.phase == 1).all() else block.phase.astype(self.dtype)
            signs = np.array(block.signs, dtype=np.int8).reshape(len(block.signs), self.dim)
            if 8 * signs.size <= MAX_SIGNS:
                signs = signs.astype(float)
            return _MonomialStep(block.source, np.argsort(block.source), phase, signs, tuple(block.weights))
        if isinstance(block, Dense):
            return _DenseStep(block.targets, block.matrix.astype(self.dtype))
        if not block.is_fixed:
            return _LocalStep(layer_of[id(block)], ())
        c, s, _ = self._factor_arrays([block])
        return _LocalStep(None, tuple(k[:, 0] for k in self._kron_groups((c + s)[None])))

    def _factor_arrays(self, layers: Sequence[Local]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return A and B of all factors, ``(depth, L, q, 2, 2)``, and the numbers of their angles, ``(depth, L, q)``.

        A factor without an angle has the number -1. A qubit with fewer than ``depth`` factors gets identities.
        """
        depth = max((len(f) for layer in layers for f in layer.factors.values()), default=1)
        shape = (depth, len(layers), self.num_qubits)
        cosine = np.zeros((*shape, 2, 2), dtype=self.dtype)
        sine = np.zeros((*shape, 2, 2), dtype=self.dtype)
        angle = np.full(shape, -1)
        cosine[...] = np.eye(2)
        for i, layer in enumerate(layers):
            for q, factors in layer.factors.items():
                for j, (a, b, k) in enumerate(factors):
                    cosine[j, i, q] = a if self.dtype.kind == "c" else a.real
                    sine[j, i, q] = b if self.dtype.kind == "c" else b.real
                    angle[j, i, q] = -1 if k is None else k
        return cosine, sine, angle

    def _krons(self, angles: np.ndarray) -> list[np.ndarray]:
        """Return for each group of qubits the matrices of the L layers that have angles, ``(N, L, g, g)``."""
        cosine, sine, angle = self._factors
        if not cosine.shape[1]:
            return []
        if self._ry_angles is not None:
            return self._ry_krons(self._ry_angles, angles)
        half = 0.5 * angles
        if self._has_fixed_factors:
            half = np.concatenate([half, np.zeros((len(half), 1))], axis=1)  # angle number -1: cos 0 A + sin 0 B = A
        c, s = np.cos(half)[:, angle], np.sin(half)[:, angle]
        return self._kron_groups(c[..., None, None] * cosine + s[..., None, None] * sine)

    def _only_ry_angles(self) -> np.ndarray | None:
        """Return the angles' numbers ``(L, q)`` if every layer is one RY per qubit, as in RealAmplitudes, else None."""
        cosine, sine, angle = self._factors
        if self._has_fixed_factors or len(cosine) > 1 or not cosine.shape[1]:
            return None
        is_ry = (cosine == np.eye(2)).all() and (sine == np.array([[0, -1], [1, 0]])).all()
        return angle[0] if is_ry else None

    def ry_walk(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return how :meth:`reverse` treats columns if all blocks are layers of RY or permutations, else None.

        Returns
        -------
        The angle of each rotation, from the last layer to the first; the column pairs that each rotation joins,
        ``(rotations, d/2, 2)``; and the columns' places after the walk, ``(d,)``.
        """
        if self._ry_angles is None:
            return None
        states = np.arange(self.dim)
        columns, angles, pairs = states, [], []
        for step in reversed(self._steps):
            if isinstance(step, _MonomialStep) and step.phase is None and not len(step.signs):
                columns = columns[step.inverse]
            elif isinstance(step, _LocalStep) and step.layer is not None:
                for qubit, angle in enumerate(self._ry_angles[step.layer]):
                    low = states[states >> qubit & 1 == 0]
                    angles.append(angle)
                    pairs.append(np.stack([columns[low], columns[low | 1 << qubit]], axis=1))
            else:
                return None
        return np.array(angles), np.array(pairs), columns

    def _ry_krons(self, ry_angles: np.ndarray, angles: np.ndarray) -> list[np.ndarray]:
        """Return :meth:`_krons` for layers of RY whose angles have the numbers ``ry_angles : (L, q)``.

        Entry (i, j) of a Kronecker product of RYs is, up to its sign, a product with one factor per qubit: sin(a/2) if
        i and j differ in the qubit's bit, cos(a/2) if they agree. Only 2^size products per layer are different, so they
        are computed once and then copied to their places.
        """
        layers, out, first = len(ry_angles), [], 0
        for size in self.groups:
            g = 2**size
            v = self.ry_products(ry_angles[:, first : first + size], angles, size)
            out.append(v[:, _ry_index(size)].reshape(len(angles), layers, g, g))
            first += size
        return out

    def all_ry_products(self, angles: np.ndarray) -> np.ndarray:
        """Return :meth:`ry_products` of all layers side by side, ``(N, L 2^(q + 1))``, if there is one group."""
        assert self._ry_angles is not None
        return self.ry_products(self._ry_angles, angles, self.num_qubits).reshape(len(angles), -1)

    def ry_products(self, ry_angles: np.ndarray, angles: np.ndarray, size: int) -> np.ndarray:
        """Return the products with one factor per qubit and their negatives, ``(N L, 2^(size + 1))``."""
        g = 2**size
        half = (0.5 * angles)[:, ry_angles].reshape(-1, size).T
        c, s = np.cos(half), np.sin(half)
        v = np.empty((2 * g, half.shape[1]))
        v[0] = 1.0
        for k in range(size):
            m = 2**k
            np.multiply(v[:m], s[k], out=v[m : 2 * m])
            v[:m] *= c[k]
        np.negative(v[:g], out=v[g:])
        return np.ascontiguousarray(v.T)

    def _kron_groups(self, factors: np.ndarray) -> list[np.ndarray]:
        """Return each group's matrix from ``factors : (N, depth, L, q, 2, 2)``; a later factor stands on the left."""
        matrices = factors[:, 0]
        for j in range(1, factors.shape[1]):
            matrices = factors[:, j] @ matrices
        out, first = [], 0
        for size in self.groups:
            out.append(_kron_all(matrices[:, :, first : first + size]))
            first += size
        return out


@dataclass(frozen=True, eq=False)
class IdentityWalk:
    """Some rows of U(angles) for layers of RY with permutations between them, see :meth:`Kernel.identity_rows`.

    ``parts`` holds one matrix per layer, from the last layer to the first: the place of each entry among the products
    of all layers. ``places`` holds the same numbers in one vector.
    """

    kernel: Kernel
    parts: tuple[np.ndarray, ...]
    places: np.ndarray

    def __call__(self, angles: np.ndarray) -> np.ndarray:
        """Return the rows, ``(N, rows, d)``, for ``angles : (N, K)``."""
        gathered = self.kernel.all_ry_products(angles).take(self.places, axis=1)
        first, A = 0, None
        for part in self.parts:
            matrix = gathered[:, first : first + part.size].reshape(len(angles), *part.shape)
            A = matrix if A is None else A @ matrix
            first += part.size
        assert A is not None
        return A


def _kron_all(m: np.ndarray) -> np.ndarray:
    """Return the Kronecker product of the q matrices in ``m : (N, L, q, g, g)``; the last one stands on the left."""
    q = m.shape[2]
    if q == 1:
        return m[:, :, 0]
    if q % 2 == 0:
        return _kron_all(_kron(m[:, :, 1::2], m[:, :, ::2]))
    return _kron(m[:, :, -1], _kron_all(m[:, :, :-1]))


def _kron(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return the Kronecker product over the last two axes, by two gathers and one multiplication."""
    g, h = low.shape[-1], high.shape[-1]
    from_high, from_low = _kron_index(h, g)
    spread = high.reshape(*high.shape[:-2], h * h).take(from_high, axis=-1)
    spread *= low.reshape(*low.shape[:-2], g * g).take(from_low, axis=-1)
    return spread.reshape(*high.shape[:-2], g * h, g * h)


@lru_cache(maxsize=64)
def _kron_index(h: int, g: int) -> tuple[np.ndarray, np.ndarray]:
    """Return for each entry (i, j) of a Kronecker product the flat indices of its two factors."""
    i, j = np.indices((g * h, g * h)).reshape(2, -1)
    return (i // g) * h + j // g, (i % g) * g + j % g


@lru_cache(maxsize=16)
def _ry_index(size: int) -> np.ndarray:
    """Return for each entry (i, j) its index among the products and their negatives in :meth:`Kernel._ry_krons`.

    The sign is (-1)^k, where k is the number of bits that are 0 in i and 1 in j.
    """
    i, j = np.indices((2**size, 2**size)).reshape(2, -1)
    return (i ^ j) + 2**size * (np.bitwise_count(~i & j).astype(int) & 1)


def _groups(num_qubits: int) -> tuple[int, ...]:
    """Return the sizes of groups of at most MAX_GROUP qubits, as equal as possible; qubit 0 is in the first group."""
    count = -(-num_qubits // MAX_GROUP)
    return tuple(num_qubits // count + (i < num_qubits % count) for i in range(count))
