"""The model: a feature map, an ansatz and a parity readout, defined once, as Qiskit circuits.

P(1 | x, theta) is the probability that the measured bits of ``U(theta) V(x) |0...0>`` have odd parity, so

    P(1 | x, theta) = (1 - <psi(x)| M(theta) |psi(x)>) / 2,    psi(x) = V(x)|0>,    M = U^dag Z...Z U.

Engines compile or run these circuits; nothing else in the package knows what they contain.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from qiskit import QuantumCircuit
from qiskit.circuit import Parameter
from qiskit.circuit.library import real_amplitudes, z_feature_map, zz_feature_map

from qfl_core.base.errors import did_you_mean
from qfl_core.base.registry import ANSATZE, FEATURE_MAPS, CircuitBuilder, resolve


@dataclass(frozen=True, eq=False, init=False)
class QNN:
    """A quantum neural network with parity readout and two classes.

    Parameters
    ----------
    num_features : number of input angles; also the number of qubits of the built-in circuits.
    feature_map_reps, ansatz_reps : repetitions of circuits that are given by name (a circuit object ignores them).
    feature_map : a name of :data:`qfl_core.base.registry.FEATURE_MAPS`, or a circuit whose parameters are the features,
        in Qiskit's sorted order.
    ansatz : a name of :data:`qfl_core.base.registry.ANSATZE`, or a circuit whose parameters are the weights, in
        Qiskit's sorted order.
    feature_map_entanglement, ansatz_entanglement : the pairs that a circuit given by name entangles, where its builder
        takes an argument ``entanglement``.

    Attributes
    ----------
    circuit : the feature map followed by the ansatz, without measurements.

    Raises
    ------
    ValueError
        Where a name is unknown, or where the two circuits do not fit the features and each other.
    """

    num_features: int
    feature_map_reps: int
    ansatz_reps: int
    feature_map: QuantumCircuit
    ansatz: QuantumCircuit
    feature_map_entanglement: str
    ansatz_entanglement: str
    circuit: QuantumCircuit = field(repr=False)

    # More than six parameters, because each is a choice of its own and all but one have the paper's value.
    def __init__(
        self,
        num_features: int,
        feature_map_reps: int = 2,
        ansatz_reps: int = 3,
        feature_map: str | QuantumCircuit = "zz",
        ansatz: str | QuantumCircuit = "real_amplitudes",
        feature_map_entanglement: str = "full",
        ansatz_entanglement: str = "reverse_linear",
    ) -> None:
        _check_whole("num_features", num_features, 1)
        _check_whole("feature_map_reps", feature_map_reps, 1)
        _check_whole("ansatz_reps", ansatz_reps, 0)
        if isinstance(feature_map, str):
            builder = _builder("feature_map", feature_map, FEATURE_MAPS)
            feature_map = builder(num_features, feature_map_reps, **_entangled(builder, feature_map_entanglement))
        _check_circuit("feature_map", feature_map)
        if feature_map.num_parameters != num_features:
            raise ValueError(
                f"the feature map has {feature_map.num_parameters} parameters, expected num_features={num_features}"
            )
        if isinstance(ansatz, str):
            builder = _builder("ansatz", ansatz, ANSATZE)
            ansatz = builder(feature_map.num_qubits, ansatz_reps, **_entangled(builder, ansatz_entanglement))
        _check_circuit("ansatz", ansatz)
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
        values = (
            num_features,
            feature_map_reps,
            ansatz_reps,
            feature_map,
            ansatz,
            feature_map_entanglement,
            ansatz_entanglement,
            circuit,
        )
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def num_qubits(self) -> int:
        """Number of qubits of the circuit."""
        return int(self.circuit.num_qubits)

    @property
    def num_weights(self) -> int:
        """Number of trainable weights, P."""
        return int(self.ansatz.num_parameters)

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

    def draw(self, output: str = "mpl", **options: Any) -> Any:
        """Draw the circuit with :meth:`qiskit.QuantumCircuit.draw` (``"text"`` needs no matplotlib)."""
        return self.circuit.draw(output=output, **options)


def odd_parity(num_qubits: int) -> np.ndarray:
    """Return the mask ``(2**num_qubits,)`` of the basis states whose bits have odd parity (class 1)."""
    mask = np.zeros(1, dtype=bool)
    for _ in range(num_qubits):
        mask = np.concatenate([mask, ~mask])
    return mask


def zz_map(num_features: int, reps: int, entanglement: str = "full") -> QuantumCircuit:
    """Build the paper's feature map, which entangles pairs of features."""
    if num_features < 2:
        raise ValueError("feature_map='zz' entangles pairs and needs num_features >= 2; use 'z' for 1")
    return zz_feature_map(num_features, reps=reps, entanglement=entanglement)


def z_map(num_features: int, reps: int) -> QuantumCircuit:
    """Build the feature map that encodes each feature alone."""
    return z_feature_map(num_features, reps=reps)


def real_amplitudes_ansatz(num_qubits: int, reps: int, entanglement: str = "reverse_linear") -> QuantumCircuit:
    """Build the paper's ansatz: rotations about y, and controlled-X gates between them."""
    return real_amplitudes(num_qubits, reps=reps, entanglement=entanglement)


def _builder(what: str, name: str, table: Mapping[str, str | CircuitBuilder]) -> CircuitBuilder:
    """Return the function that a table has under this name."""
    if name not in table:
        hint = did_you_mean(name, table)
        raise ValueError(f"unknown {what} {name!r}{hint}; expected one of {', '.join(table)} or a QuantumCircuit")
    builder: CircuitBuilder = resolve(table[name])
    return builder


def _entangled(builder: CircuitBuilder, entanglement: str) -> dict[str, str]:
    """Return the argument ``entanglement`` where the builder takes one, because not every circuit has such a choice."""
    return {"entanglement": entanglement} if "entanglement" in inspect.signature(builder).parameters else {}


def _check_circuit(what: str, circuit: object) -> None:
    if not isinstance(circuit, QuantumCircuit):
        raise ValueError(f"the {what} must be a known name or a QuantumCircuit, got {type(circuit).__name__}")


def _check_whole(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
