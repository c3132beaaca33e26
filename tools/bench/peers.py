"""The same model through other libraries' classes, each as a function of samples and one weight vector."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from qiskit.primitives import BaseEstimatorV2, BaseSamplerV2
from qiskit.quantum_info import SparsePauliOp, Statevector

from qfl_core.engines.qnn import QNN, odd_parity

Peer = Callable[[np.ndarray, np.ndarray], np.ndarray]


def parity(outcome: int) -> int:
    """Return the parity of a measured integer."""
    return int(outcome).bit_count() % 2


def qiskit_statevector(qnn: QNN, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return P(class 1), ``(B, n)``, from Qiskit's Statevector, circuit by circuit: the reference."""
    odd = odd_parity(qnn.num_qubits)
    return np.array([[Statevector(qnn.bind(x, w)).probabilities()[odd].sum() for x in X] for w in weights])


def estimator_qnn(qnn: QNN, estimator: BaseEstimatorV2) -> Peer:
    """EstimatorQNN of Z...Z at precision 0 (exact), P = (1 - <Z...Z>) / 2."""
    from qiskit_machine_learning.neural_networks import EstimatorQNN

    network = EstimatorQNN(
        circuit=qnn.circuit,
        estimator=estimator,
        observables=SparsePauliOp("Z" * qnn.num_qubits),
        input_params=list(qnn.input_parameters),
        weight_params=list(qnn.weight_parameters),
        default_precision=0.0,
    )
    return lambda X, theta: 0.5 - 0.5 * np.asarray(network.forward(X, theta)).reshape(len(X))


def sampler_qnn(qnn: QNN, sampler: BaseSamplerV2) -> Peer:
    """SamplerQNN with the parity interpretation."""
    from qiskit_machine_learning.neural_networks import SamplerQNN

    network = SamplerQNN(
        circuit=qnn.circuit,
        sampler=sampler,
        interpret=parity,
        output_shape=2,
        input_params=list(qnn.input_parameters),
        weight_params=list(qnn.weight_parameters),
    )
    return lambda X, theta: np.asarray(network.forward(X, theta))[:, 1]


def qiskit_peers(qnn: QNN, shots: int, seed: int) -> dict[str, Peer]:
    """Return the four QNN classes, on statevector and on Aer."""
    from qiskit.primitives import StatevectorEstimator, StatevectorSampler
    from qiskit_aer.primitives import EstimatorV2, SamplerV2

    return {
        "SamplerQNN, StatevectorSampler": sampler_qnn(
            qnn, StatevectorSampler(default_shots=shots, seed=np.random.default_rng(seed))
        ),
        "SamplerQNN, Aer": sampler_qnn(qnn, SamplerV2(default_shots=shots, seed=seed)),
        "EstimatorQNN, StatevectorEstimator": estimator_qnn(qnn, StatevectorEstimator()),
        "EstimatorQNN, Aer": estimator_qnn(qnn, EstimatorV2()),
    }


def pennylane_peer(qnn: QNN) -> Peer | None:
    """Return the zz + RealAmplitudes model on default.qubit, samples broadcast; None where not installed."""
    if find_spec("pennylane") is None:
        return None
    import pennylane as qml

    n = qnn.num_qubits
    device = qml.device("default.qubit", wires=n)

    @qml.qnode(device)
    def expectation(x: np.ndarray, theta: np.ndarray) -> object:
        for _ in range(qnn.feature_map_reps):
            for i in range(n):
                qml.Hadamard(i)
                qml.PhaseShift(2 * x[:, i], wires=i)
            for i in range(n):
                for j in range(i + 1, n):
                    qml.CNOT([i, j])
                    qml.PhaseShift(2 * (np.pi - x[:, i]) * (np.pi - x[:, j]), wires=j)
                    qml.CNOT([i, j])
        for layer in range(qnn.ansatz_reps + 1):
            if layer:
                for i in range(n - 2, -1, -1):
                    qml.CNOT([i, i + 1])
            for i in range(n):
                qml.RY(theta[layer * n + i], wires=i)
        return qml.expval(qml.prod(*(qml.PauliZ(i) for i in range(n))))

    return lambda X, theta: 0.5 - 0.5 * np.asarray(expectation(X, theta))


def aer_estimator(qnn: QNN) -> Peer:
    """Aer's EstimatorV2 itself, one pub for all samples, precision 0."""
    from qiskit_aer.primitives import EstimatorV2

    observable = SparsePauliOp("Z" * qnn.num_qubits)
    parameters = list(qnn.circuit.parameters)
    inputs = {p: k for k, p in enumerate(qnn.input_parameters)}
    weights = {p: k for k, p in enumerate(qnn.weight_parameters)}

    def evaluate(X: np.ndarray, theta: np.ndarray) -> np.ndarray:
        values = np.empty((len(X), len(parameters)))
        for k, p in enumerate(parameters):
            values[:, k] = X[:, inputs[p]] if p in inputs else theta[weights[p]]
        result = EstimatorV2().run([(qnn.circuit, observable, values)], precision=0.0).result()
        return 0.5 - 0.5 * np.asarray(result[0].data.evs)

    return evaluate
