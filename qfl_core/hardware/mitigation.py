"""Readout correction: undo the flips of measured bits, from a calibration of each qubit.

With A_k the confusion matrix of qubit k, A_k[measured, true], the measured distribution is (A_{q-1} x ... x A_0) p, so
p is estimated by the tensored inverse; negative entries, which finite shots produce, are clipped and the rest
normalised.
"""

from __future__ import annotations

import numpy as np
from qiskit_aer.noise import NoiseModel

from qfl_core.base.errors import HardwareError
from qfl_core.engines.qnn import odd_parity


def measured_confusion(zeros: np.ndarray, ones: np.ndarray) -> np.ndarray:
    """Return the confusion matrices (qubits, 2, 2) from counts (2**qubits,) of all zeros and all ones prepared."""
    qubits = len(zeros).bit_length() - 1
    outcomes = np.arange(len(zeros))
    found = np.empty((qubits, 2, 2))
    for k in range(qubits):
        is_one = (outcomes >> k) & 1 == 1
        up = [float(counts[is_one].sum() / counts.sum()) for counts in (zeros, ones)]
        found[k] = [[1 - up[0], 1 - up[1]], [up[0], up[1]]]
    return found


def model_confusion(noise_model: NoiseModel, layout: tuple[int, ...]) -> np.ndarray:
    """Return the confusion matrices (qubits, 2, 2) that a noise model gives the measured qubits."""
    tables = {}
    for error in noise_model.to_dict()["errors"]:
        if error["type"] == "roerror":
            for (qubit,) in error["gate_qubits"]:
                tables[qubit] = np.asarray(error["probabilities"], dtype=float).T
    return np.stack([tables.get(qubit, np.eye(2)) for qubit in layout])


def correct(counts: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """Return the corrected distributions (..., 2**qubits) of counts (..., 2**qubits)."""
    qubits = len(confusion)
    for k, matrix in enumerate(confusion):
        if abs(np.linalg.det(matrix)) < 0.05:
            raise HardwareError(f"qubit {k} is read out at random ({matrix.tolist()}): its errors cannot be corrected")
    lead = counts.shape[:-1]
    p = counts.reshape(-1, *(2,) * qubits).astype(float)
    p /= p.sum(axis=tuple(range(1, qubits + 1)), keepdims=True)
    for k, matrix in enumerate(confusion):
        axis = qubits - k  # bit k is the k-th fastest index
        p = np.moveaxis(np.tensordot(np.linalg.inv(matrix), p, axes=(1, axis)), 0, axis)
    p = np.clip(p.reshape(*lead, 2**qubits), 0, None)
    return p / p.sum(axis=-1, keepdims=True)


def odd_share(distribution: np.ndarray) -> np.ndarray:
    """Return P(class 1), the weight of outcomes with odd parity, (...,) of counts or probabilities (..., 2**qubits)."""
    odd = odd_parity(distribution.shape[-1].bit_length() - 1)
    return distribution[..., odd].sum(axis=-1) / distribution.sum(axis=-1)
