"""The model: a feature map, an ansatz and a parity readout, defined once, as Qiskit circuits.

P(1 | x, theta) is the probability that the measured bits of ``U(theta) V(x) |0...0>`` have odd parity, so

    P(1 | x, theta) = (1 - <psi(x)| M(theta) |psi(x)>) / 2,    psi(x) = V(x)|0>,    M = U^dag Z...Z U.

Engines compile or run these circuits; nothing else in the package knows what they contain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter
from qiskit.circuit.library import real_amplitudes, z_feature_map, zz_feature_map

FEATURE_MAPS = ("zz", "z")
ANSATZE = ("real_amplitudes",)


@dataclass(frozen=True, eq=False)
class QNN:
    """A quantum neural network with parity readout and two classes.

    Parameters
    ----------
    num_features : number of input angles; also the number of qubits of the built-in circuits.
    feature_map_reps, ansatz_reps : repetitions of the built-in circuits (a user's circuit ignores them).
    feature_map : ``"zz"``, ``"z"`` or a circuit whose parameters are the features, in Qiskit's sorted order.
    ansatz : ``"real_amplitudes"`` or a circuit whose parameters are the weights, in Qiskit's sorted order.
    feature_map_entanglement, ansatz_entanglement : the pairs that the built-in circuits entangle.

    Attributes
    ----------
    circuit : the feature map followed by the ansatz, without measurements.
    """

    num_features: int
    feature_map_reps: int = 2
    ansatz_reps: int = 3
    feature_map: str | QuantumCircuit = "zz"
    ansatz: str | QuantumCircuit = "real_amplitudes"
    feature_map_entanglement: str = "full"
    ansatz_entanglement: str = "reverse_linear"
    circuit: QuantumCircuit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _whole("num_features", self.num_features, 1)
        _whole("feature_map_reps", self.feature_map_reps, 1)
        _whole("ansatz_reps", self.ansatz_reps, 0)
        feature_map = self._build_feature_map()
        ansatz = self._build_ansatz(feature_map.num_qubits)
        if feature_map.num_parameters != self.num_features:
            raise ValueError(
                f"the feature map has {feature_map.num_parameters} parameters, expected num_features="
                f"{self.num_features}"
            )
        if ansatz.num_qubits != feature_map.num_qubits:
            raise ValueError(
                f"the ansatz acts on {ansatz.num_qubits} qubits, expected the feature map's {feature_map.num_qubits}"
            )
        shared = {p.name for p in feature_map.parameters} & {p.name for p in ansatz.parameters}
        if shared:
            raise ValueError(f"feature map and ansatz share the parameter names {sorted(shared)}; rename one")
        circuit = QuantumCircuit(feature_map.num_qubits, name="qnn")
        circuit.compose(feature_map, inplace=True)
        circuit.compose(ansatz, inplace=True)
        object.__setattr__(self, "feature_map", feature_map)
        object.__setattr__(self, "ansatz", ansatz)
        object.__setattr__(self, "circuit", circuit)

    def _build_feature_map(self) -> QuantumCircuit:
        if isinstance(self.feature_map, QuantumCircuit):
            return self.feature_map
        if self.feature_map == "zz":
            if self.num_features < 2:
                raise ValueError("feature_map='zz' entangles pairs and needs num_features >= 2; use 'z' for 1")
            return zz_feature_map(
                self.num_features, reps=self.feature_map_reps, entanglement=self.feature_map_entanglement
            )
        if self.feature_map == "z":
            return z_feature_map(self.num_features, reps=self.feature_map_reps)
        raise ValueError(
            f"unknown feature_map {self.feature_map!r}; expected one of {FEATURE_MAPS} or a QuantumCircuit"
        )

    def _build_ansatz(self, num_qubits: int) -> QuantumCircuit:
        if isinstance(self.ansatz, QuantumCircuit):
            return self.ansatz
        if self.ansatz == "real_amplitudes":
            return real_amplitudes(num_qubits, reps=self.ansatz_reps, entanglement=self.ansatz_entanglement)
        raise ValueError(f"unknown ansatz {self.ansatz!r}; expected one of {ANSATZE} or a QuantumCircuit")

    @property
    def num_qubits(self) -> int:
        """Number of qubits of the circuit."""
        return self.circuit.num_qubits

    @property
    def num_weights(self) -> int:
        """Number of trainable weights, P."""
        return self.ansatz.num_parameters

    @property
    def input_parameters(self) -> tuple[Parameter, ...]:
        """The feature map's parameters, in the order of the columns of ``X``."""
        return tuple(self.feature_map.parameters)

    @property
    def weight_parameters(self) -> tuple[Parameter, ...]:
        """The ansatz's parameters, in the order of the weight vector."""
        return tuple(self.ansatz.parameters)

    def measured(self) -> QuantumCircuit:
        """Return the circuit with its logical qubits measured into the register ``meas``.

        Measuring before transpiling keeps bit k of the outcome equal to logical qubit k under any layout.
        """
        return self.circuit.measure_all(inplace=False)

    def bind(self, x: np.ndarray, theta: np.ndarray) -> QuantumCircuit:
        """Return the circuit for one sample ``x : (num_features,)`` and one vector ``theta : (P,)``."""
        values = dict(zip(self.input_parameters, np.asarray(x, float), strict=True))
        values.update(zip(self.weight_parameters, np.asarray(theta, float), strict=True))
        return self.circuit.assign_parameters(values)

    def draw(self, output: str = "mpl", **options):
        """Draw the circuit with :meth:`qiskit.QuantumCircuit.draw` (``"text"`` needs no matplotlib)."""
        return self.circuit.draw(output=output, **options)


def odd_parity(num_qubits: int) -> np.ndarray:
    """Return the mask ``(2**num_qubits,)`` of the basis states whose bits have odd parity (class 1)."""
    mask = np.zeros(1, dtype=bool)
    for _ in range(num_qubits):
        mask = np.concatenate([mask, ~mask])
    return mask


def _whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
