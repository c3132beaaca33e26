"""The noisy engine: it computes probabilities of the transpiled circuit under a backend's noise model.

The measured circuit is transpiled once, and only the qubits that it uses are kept. The circuit is then cut in two. The
first part has all gates that depend on the inputs, and the gates before them; ``encode`` applies it forward to the
Pauli coefficients, once per sample. The second part is applied backward to the measured parity with its readout errors,
once per theta. One matrix product then gives P(1 | x, theta) = (1 - sum_P o_P(theta) r_P(x)) / 2. This is the strategy
``products``. If the transpiler has mixed inputs and weights so that no such cut exists, the whole circuit is applied
for every pair of sample and theta. This is the strategy ``pairs``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Instruction, Parameter, ParameterExpression
from qiskit.quantum_info import Operator

from qfl_core.engines.base import check_features
from qfl_core.engines.blas import product
from qfl_core.engines.cached import CachedEngine
from qfl_core.engines.encoded import PAD_SAMPLES, Encoded, padded
from qfl_core.engines.expressions import compile_angles
from qfl_core.engines.noise import device_noise
from qfl_core.engines.ptm import TILE, Fixed, Step, Walk, fixed_ptm, fuse, turn_of
from qfl_core.engines.qnn import QNN
from qfl_core.engines.transpiled import (
    default_device,
    measured_qubits,
    operation_counts,
    qubit_indices,
    transpile_for,
    used_qubits,
)

if TYPE_CHECKING:
    from qiskit.providers import BackendV2
    from qiskit_aer.noise import NoiseModel

IGNORED = ("barrier", "measure")
OPTIMIZATION_LEVEL = 3

#: A gate and the physical qubits that it acts on.
PlacedGate = tuple[Instruction, tuple[int, ...]]


class DensityEngine(CachedEngine):
    """Computes probabilities under a backend's noise; with ``shots``, draws from their binomial distribution.

    Parameters
    ----------
    qnn : the model.
    shots : the number of measurements per probability; None asks for the exact noisy probabilities.
    backend : any backend with a target; None takes FakeFez, a snapshot of an IBM device with 156 qubits.
    noise_model : an Aer NoiseModel; None takes the noise of the backend on the qubits that the circuit uses.
    noise_scale : factor of the backend's noise, see :func:`qfl_core.engines.noise.device_noise`.
    transpiled : a measured circuit that is transpiled for the backend already; None transpiles the model's circuit.
    memory : bytes that the encodings and the intermediate arrays may each use.
    threads : BLAS threads inside this engine's calls; None keeps the setting of the process.

    Attributes
    ----------
    transpiled : the circuit whose probabilities are computed.
    layout : for each logical qubit the physical qubit on which it is measured.
    active : the physical qubits that the circuit uses.
    noise_model : the Aer NoiseModel that is used.
    calibration_hash : SHA-256 of the backend's errors, durations and coherence times, or of a given ``noise_model``.
    strategy : ``"products"`` or ``"pairs"``, see :mod:`qfl_core.engines.density`.
    """

    name = "density"
    kind = "noisy"

    # More than six parameters, because the device, its noise, the circuit and the machine's limits vary separately.
    def __init__(
        self,
        qnn: QNN,
        shots: int | None = None,
        *,
        backend: BackendV2 | None = None,
        noise_model: NoiseModel | None = None,
        noise_scale: float = 1.0,
        transpiled: QuantumCircuit | None = None,
        memory: int = 2**30,
        threads: int | None = None,
    ) -> None:
        super().__init__(qnn, shots, memory, threads)
        if backend is None:
            backend = default_device()
        if transpiled is None:
            transpiled = transpile_for(qnn, backend, OPTIMIZATION_LEVEL)
        self.active = used_qubits(transpiled)
        calibrated = noise_model is None
        if calibrated:
            noise_model = device_noise(backend, self.active, noise_scale)
        elif noise_scale != 1:
            raise ValueError(
                f"noise_scale must be 1 with a noise_model, got {noise_scale!r}: it scales the backend's noise"
            )
        self.noise_model = noise_model
        self.noise_scale = noise_scale
        self.backend_name = str(getattr(backend, "name", type(backend).__name__))
        self.transpiled = transpiled
        self.calibration_hash = calibration_hash(backend if calibrated else None, noise_model)
        self._circuit_key = tuple(
            (i.operation.name, qubit_indices(transpiled, i), tuple(map(str, i.operation.params)))
            for i in transpiled.data
        )
        self.layout = measured_qubits(transpiled, qnn.num_qubits)
        need = 16 * TILE * 4 ** len(self.active)
        if need > memory:
            raise ValueError(
                f"the circuit uses {len(self.active)} qubits, which need {need:,} bytes, more than memory={memory:,}"
            )
        self._build(_Errors(noise_model))

    def _build(self, errors: _Errors) -> None:
        """Cut the transpiled circuit into the part of the inputs and the part of the weights, and compile both."""
        position = {q: k for k, q in enumerate(self.active)}
        inputs = set(self.qnn.input_parameters)
        # A gate belongs to the part of the inputs if it depends on an input, or if a gate of this part comes later on
        # one of its qubits. The loop therefore goes through the circuit from its end to its start.
        before: list[PlacedGate] = []
        after: list[PlacedGate] = []
        reached: set[int] = set()
        acted: set[int] = set()
        for instruction in reversed(self.transpiled.data):
            gate, qubits = instruction.operation, qubit_indices(self.transpiled, instruction)
            if gate.name in IGNORED:
                if gate.name == "measure" and acted & set(qubits):
                    raise ValueError(
                        f"qubit {qubits[0]} is used after its measurement; expected measurements at the end"
                    )
                continue
            acted |= set(qubits)
            if set(_free_parameters(gate)) & inputs or reached & set(qubits):
                before.append((gate, qubits))
                reached |= set(qubits)
            else:
                after.append((gate, qubits))
        before, after = before[::-1], after[::-1]
        mixed = any(set(_free_parameters(gate)) - inputs for gate, _ in before)
        self.strategy = "pairs" if mixed else "products"
        names = (*self.qnn.input_parameters, *self.qnn.weight_parameters)
        if mixed:
            before, after = before + after, []
        self._forward = _compile(before, errors, position, names if mixed else self.qnn.input_parameters)
        self._backward = _compile(after, errors, position, self.qnn.weight_parameters)
        n = len(self.active)
        self._start = _kron([np.array([1.0, 0, 0, 1.0])] * n)
        factors = [np.array([1.0, 0, 0, 0])] * n
        for q in self.layout:
            e0, e1 = errors.readout(q)
            # E[(-1)^bit] = (1 - 2 e0) P(0) - (1 - 2 e1) P(1) = (e1 - e0) <I> + (1 - e0 - e1) <Z>.
            factors[position[q]] = np.array([e1 - e0, 0, 0, 1 - e0 - e1])
        self._parity = _kron(factors)

    def encode(self, X: np.ndarray) -> Encoded:
        """Return the noisy states of the samples ``X : (n, num_features)`` as Pauli coefficients.

        The strategy ``pairs`` stores the samples themselves.
        """
        X = check_features(X, self.qnn.num_features)
        width = X.shape[1] if self.strategy == "pairs" else len(self._start)
        count = padded(len(X), PAD_SAMPLES)
        self._check_size(len(X), count * width * 8)
        rows = np.zeros((count, width))
        with self._limit():
            rows[: len(X)] = X if self.strategy == "pairs" else self._forward.states(self._start, X)
        return Encoded(rows, len(X), self._owner())

    def _owner(self) -> tuple:
        return self.name, self.qnn, self._circuit_key, self.calibration_hash, self.noise_scale

    def _exact(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray:
        observables = self._observables(weights)
        if observables is not None:
            return product(encoded, observables)
        out = np.empty((len(weights), len(encoded)))
        X = encoded.rows[: len(encoded)]
        for b, theta in enumerate(weights):
            values = np.concatenate([X, np.broadcast_to(theta, (len(X), len(theta)))], axis=1)
            out[b] = 0.5 - 0.5 * np.einsum("np,p->n", self._forward.states(self._start, values), self._parity)
        return out

    def _observables(self, weights: np.ndarray) -> np.ndarray | None:
        if self.strategy == "pairs":
            return None
        o = -0.5 * self._backward.observables(self._parity, weights)
        o[:, 0] += 0.5  # r_I = 1
        return o

    def describe(self) -> dict[str, Any]:
        """Return what a run's record says about the engine, its backend, its circuit and its noise."""
        return super().describe() | {
            "strategy": self.strategy,
            "backend": self.backend_name,
            "layout": list(self.layout),
            "active_qubits": list(self.active),
            "transpiled_ops": operation_counts(self.transpiled),
            "calibration_hash": self.calibration_hash,
            "noise_scale": self.noise_scale,
        }


class _Errors:
    """The errors of a noise model: a transfer matrix per gate and qubits, and two flip probabilities per qubit."""

    def __init__(self, noise_model: NoiseModel) -> None:
        self._errors: dict[tuple[str, tuple[int, ...] | None], dict[str, Any]] = {}
        self._readout: dict[tuple[int, ...] | None, dict[str, Any]] = {}
        self._matrices: dict[tuple[str, tuple[int, ...] | None], np.ndarray] = {}
        for error in noise_model.to_dict()["errors"]:
            for qubits in error.get("gate_qubits", [None]):
                key = None if qubits is None else tuple(qubits)
                for operation in error["operations"]:
                    if error["type"] == "roerror":
                        if len(error["probabilities"]) != 2:
                            raise ValueError(f"unsupported readout error of qubits {key}: expected one error per qubit")
                        self._readout[key] = error
                    else:
                        self._errors[operation, key] = error

    def matrix(self, name: str, qubits: tuple[int, ...]) -> np.ndarray | None:
        """Return the PTM of the error after gate ``name``, or None where it has no error.

        An error of exactly these qubits replaces an error for all qubits.
        """
        key: tuple[str, tuple[int, ...] | None] = (name, qubits) if (name, qubits) in self._errors else (name, None)
        if key not in self._errors:
            return None
        if key not in self._matrices:
            from qiskit_aer.noise import QuantumError

            self._matrices[key] = fixed_ptm(QuantumError.from_dict(self._errors[key]))
        return self._matrices[key]

    def readout(self, qubit: int) -> tuple[float, float]:
        """Return the flip probabilities P(measured 1 | 0) and P(measured 0 | 1) of a qubit."""
        error = self._readout.get((qubit,), self._readout.get(None))
        if error is None:
            return 0.0, 0.0
        table = np.asarray(error["probabilities"], dtype=float)
        return float(table[0, 1]), float(table[1, 0])


def _compile(
    gates: Sequence[PlacedGate], errors: _Errors, position: dict[int, int], parameters: Sequence[Parameter]
) -> Walk:
    """Return the gates, each followed by its error, as a walk that takes vectors of ``parameters``.

    ``position`` maps the physical qubits to 0, 1, 2 and so on.
    """
    steps: list[Step] = []
    expressions: list[ParameterExpression] = []
    for gate, physical in gates:
        qubits = tuple(position[q] for q in physical)
        # A delay is refused, because Aer computes its noise separately and the noise model does not list it.
        if gate.name == "delay" or not hasattr(gate, "to_matrix") or len(qubits) > 2:
            raise ValueError(f"unsupported instruction {gate.name!r}: expected gates of one or two qubits")
        if _free_parameters(gate):
            expressions.append(gate.params[0])
            steps.append(turn_of(gate, qubits, len(expressions) - 1))
        else:
            steps.append(Fixed(qubits, fixed_ptm(Operator(gate.to_matrix()))))
        error = errors.matrix(gate.name, physical)
        if error is not None:
            steps.append(Fixed(qubits, error))
    return Walk(len(position), fuse(steps), compile_angles(expressions, parameters))


def calibration_hash(backend: BackendV2 | None, noise_model: NoiseModel) -> str:
    """Return the SHA-256 of a backend's calibration, or of the noise model if there is no backend or no target."""
    facts: list[object]
    target = getattr(backend, "target", None)
    if target is None:
        facts = [{k: v for k, v in e.items() if k != "id"} for e in noise_model.to_dict()["errors"]]
    else:
        facts = [[p.t1, p.t2, p.frequency] for p in target.qubit_properties or ()]
        for name in sorted(target.operation_names):
            table = target[name] or {}
            for qubits in sorted(q for q in table if q is not None):
                found = table[qubits]
                facts.append([name, list(qubits), found and found.error, found and found.duration])
    return hashlib.sha256(json.dumps(facts, default=repr, sort_keys=True).encode()).hexdigest()


def _free_parameters(gate: Instruction) -> list[Parameter]:
    """Return the parameters that the gate's angles depend on."""
    return [q for p in gate.params if isinstance(p, ParameterExpression) for q in p.parameters]


def _kron(factors: list[np.ndarray]) -> np.ndarray:
    """Return the Kronecker product; the first factor is the least significant digit of the index."""
    out = np.ones(1)
    for factor in factors:
        out = np.kron(factor, out)
    return out
