"""The noisy engine: a backend's noise model on the transpiled circuit, as batched Pauli coefficients.

The measured circuit is transpiled once; only its active qubits are kept. Gates that the inputs reach are
walked forward once a sample (``encode``), the others backward once a theta together with readout error, and
P(1 | x, theta) = (1 - sum_P o_P(theta) r_P(x)) / 2 is one matrix product. Where the transpiler mixed inputs
and weights so that no such cut exists, every pair of sample and theta is walked (``strategy`` says which).
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from qiskit import QuantumCircuit, transpile
from qiskit.circuit import ParameterExpression
from qiskit.quantum_info import Operator

from qfl_core.engines.base import check_features
from qfl_core.engines.cached import PAD_SAMPLES, CachedEngine, Encoded, padded, product
from qfl_core.engines.expressions import compile_angles
from qfl_core.engines.noise import device_noise, used_qubits
from qfl_core.engines.primitives import measured_qubits
from qfl_core.engines.ptm import Fixed, Turn, Walk, fixed_ptm, fuse, turn_of
from qfl_core.engines.qnn import QNN

IGNORED = ("barrier", "measure")


class DensityEngine(CachedEngine):
    """Probabilities under a backend's noise, exact or sampled.

    Parameters
    ----------
    qnn : the model.
    shots : None for the exact noisy values.
    backend : any backend with a target; None is FakeFez, a snapshot of an IBM device with 156 qubits.
    noise_model : an Aer NoiseModel; None takes the backend's, on the qubits that the circuit uses.
    noise_scale : how strong the backend's noise is taken, see :func:`qfl_core.engines.noise.device_noise`.
    transpiled : a measured circuit already transpiled for the backend, to use as it is.
    optimization_level, seed : the transpiler's.
    memory : bytes that encodings and intermediate arrays may each use.
    threads : BLAS threads inside this engine's calls; None leaves the process's own setting.

    Attributes
    ----------
    transpiled : the circuit that the numbers belong to.
    layout : the physical qubit of each logical one, at the measurement.
    active : the physical qubits kept.
    noise_model : the Aer NoiseModel behind the numbers.
    calibration_hash : SHA-256 of the backend's errors, durations and coherence times, or of ``noise_model``.
    """

    name = "density"
    kind = "noisy"

    def __init__(
        self,
        qnn: QNN,
        shots: int | None = None,
        *,
        backend=None,
        noise_model=None,
        noise_scale: float = 1.0,
        transpiled: QuantumCircuit | None = None,
        optimization_level: int = 3,
        seed: int = 0,
        memory: int = 2**30,
        threads: int | None = None,
    ) -> None:
        super().__init__(qnn, shots, memory, threads)
        if backend is None:
            from qiskit_ibm_runtime.fake_provider import FakeFez

            backend = FakeFez()
        if transpiled is None:
            transpiled = transpile(qnn.measured(), backend, optimization_level=optimization_level, seed_transpiler=seed)
        self.active = used_qubits(transpiled)
        calibrated = noise_model is None
        if calibrated:
            noise_model = device_noise(backend, self.active, noise_scale)
        elif noise_scale != 1:
            raise ValueError(f"noise_scale={noise_scale!r} scales a backend's noise; expected 1 with a noise_model")
        self.noise_model = noise_model
        self.noise_scale = noise_scale
        self.backend_name = str(getattr(backend, "name", type(backend).__name__))
        self.transpiled = transpiled
        self.calibration_hash = calibration_hash(backend if calibrated else None, noise_model)
        self._circuit_key = tuple(
            (i.operation.name, _indices(transpiled, i), tuple(map(str, i.operation.params))) for i in transpiled.data
        )
        self.layout = measured_qubits(transpiled, qnn.num_qubits)
        if 16 * 64 * 4 ** len(self.active) > memory:
            raise ValueError(
                f"{len(self.active)} active qubits need {16 * 64 * 4 ** len(self.active):,} bytes, more than "
                f"memory={memory:,}"
            )
        self._build(_Errors(noise_model))

    def _build(self, errors: _Errors) -> None:
        """Compile the transpiled circuit into a walk of the inputs and a walk of the weights."""
        position = {q: k for k, q in enumerate(self.active)}
        inputs = set(self.qnn.input_parameters)
        # Walking back, a gate belongs to the inputs if it holds one or such a gate follows on its qubits.
        before: list = []
        after: list = []
        reached: set[int] = set()
        acted: set[int] = set()
        for instruction in reversed(self.transpiled.data):
            gate, qubits = instruction.operation, _indices(self.transpiled, instruction)
            if gate.name in IGNORED:
                if gate.name == "measure" and acted & set(qubits):
                    raise ValueError(f"qubit {qubits[0]} is used after its measurement; expected it last")
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
        """Return the noisy states of ``X : (n, num_features)`` as Pauli coefficients."""
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
        if self.strategy == "products":
            return product(encoded, self._observables(weights))
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

    def describe(self) -> dict:
        """Return name, kind, shots, backend, layout, circuit size and calibration hash."""
        return super().describe() | {
            "strategy": self.strategy,
            "backend": self.backend_name,
            "layout": list(self.layout),
            "active_qubits": list(self.active),
            "transpiled_ops": {k: int(v) for k, v in sorted(self.transpiled.count_ops().items())},
            "calibration_hash": self.calibration_hash,
            "noise_scale": self.noise_scale,
            "threads": self.threads,
        }


class _Errors:
    """The noise model's errors by gate and qubits: transfer matrices, and readout flips."""

    def __init__(self, noise_model) -> None:
        self._errors: dict[tuple[str, tuple[int, ...] | None], dict] = {}
        self._readout: dict[tuple[int, ...] | None, dict] = {}
        self._matrices: dict = {}
        for error in noise_model.to_dict()["errors"]:
            for qubits in error.get("gate_qubits", [None]):
                key = None if qubits is None else tuple(qubits)
                for operation in error["operations"]:
                    if error["type"] == "roerror":
                        if len(error["probabilities"]) != 2:
                            raise ValueError(f"unsupported readout error of qubits {key}: expected one a qubit")
                        self._readout[key] = error
                    else:
                        self._errors[operation, key] = error

    def matrix(self, name: str, qubits: tuple[int, ...]) -> np.ndarray | None:
        """Return the PTM of the error after gate ``name``, a local error before a general one, or None."""
        key = (name, qubits) if (name, qubits) in self._errors else (name, None)
        if key not in self._errors:
            return None
        if key not in self._matrices:
            from qiskit_aer.noise import QuantumError

            self._matrices[key] = fixed_ptm(QuantumError.from_dict(self._errors[key]))
        return self._matrices[key]

    def readout(self, qubit: int) -> tuple[float, float]:
        """Return P(1 | 0) and P(0 | 1)."""
        error = self._readout.get((qubit,), self._readout.get(None))
        if error is None:
            return 0.0, 0.0
        table = np.asarray(error["probabilities"], dtype=float)
        return float(table[0, 1]), float(table[1, 0])


def _compile(gates: list, errors: _Errors, position: dict[int, int], parameters) -> Walk:
    steps: list[Fixed | Turn] = []
    expressions: list[ParameterExpression] = []
    for gate, physical in gates:
        qubits = tuple(position[q] for q in physical)
        # Aer gives delays a noise of their own, outside the noise model's table.
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


def calibration_hash(backend, noise_model) -> str:
    """Return the SHA-256 of a backend's calibration, or of the noise model where there is no backend or target."""
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


def _indices(circuit: QuantumCircuit, instruction) -> tuple[int, ...]:
    return tuple(circuit.find_bit(q).index for q in instruction.qubits)


def _free_parameters(gate) -> list:
    return [q for p in gate.params if isinstance(p, ParameterExpression) for q in p.parameters]


def _kron(factors: list[np.ndarray]) -> np.ndarray:
    """Return the Kronecker product with the first factor least significant."""
    out = np.ones(1)
    for factor in factors:
        out = np.kron(factor, out)
    return out
