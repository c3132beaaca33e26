"""The engine that measures through Qiskit's SamplerV2: on simulators, to check the other engines, and on hardware.

The measurements are added before transpiling. Because of this, bit k of an outcome is logical qubit k, whichever
physical qubit the transpiler has chosen. This module computes the parity from the measured bits; the library does not.

A sampler with a fixed integer seed starts again from the same random numbers in every call. Both signs of an SPSA step
would then have the same noise. This engine therefore draws a new seed for each call.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from qiskit import QuantumCircuit

from qfl_core.engines.base import Engine, Generators, check_features, check_weights
from qfl_core.engines.encoded import Encoded, check_encoded
from qfl_core.engines.kinds import kind_of
from qfl_core.engines.qnn import QNN
from qfl_core.engines.transpiled import default_device, measured_qubits, operation_counts, transpile_for

if TYPE_CHECKING:
    from qiskit.primitives import BaseSamplerV2
    from qiskit.providers import BackendV2
    from qiskit_ibm_runtime import Batch

SAMPLERS = ("statevector", "aer", "fake", "ibm")
SIMULATED = ("shots", "noisy", "fake")


@dataclass(frozen=True, eq=False)
class Measured:
    """What a sampler has measured for each theta and each sample.

    Attributes
    ----------
    odd : (B, n), the number of shots with odd parity.
    shots : the number of shots per theta and sample.
    counts : ``counts[b][i]`` maps each measured bit string, with qubit 0 on the right, to its number of shots.
    job_id : the sampler's name for the job, or "" if there was nothing to measure.
    """

    odd: np.ndarray
    shots: int
    counts: list[list[dict[str, int]]]
    job_id: str


class PrimitivesEngine(Engine[Encoded]):
    """Measures probabilities through a SamplerV2.

    Parameters
    ----------
    qnn : the model.
    shots : the number of measurements per probability; it must be given, because a sampler has no exact values.
    sampler : ``"statevector"`` (StatevectorSampler), ``"aer"``, ``"fake"`` (a fake backend in the runtime's
        local mode) or ``"ibm"`` (hardware).
    backend : an Aer simulator, a fake backend or a real backend; None takes AerSimulator() for ``"aer"`` and FakeFez
        for ``"fake"``.
    transpiled : a measured circuit that is transpiled for the backend already; None transpiles the model's circuit.
    optimization_level : the transpiler's level, 0 to 3.

    Attributes
    ----------
    transpiled : the measured circuit that is run.
    layout : for each logical qubit the physical qubit on which it is measured.
    kind : shots, noisy (Aer with a noise model), fake or hardware. The backend decides it, not the name ``sampler``.
    """

    name = "primitives"
    shots: int

    def __init__(
        self,
        qnn: QNN,
        shots: int | None = None,
        *,
        sampler: str = "statevector",
        backend: BackendV2 | None = None,
        transpiled: QuantumCircuit | None = None,
        optimization_level: int = 1,
    ) -> None:
        super().__init__(qnn, shots)
        if shots is None:
            raise ValueError("the primitives engine has no exact values: expected shots >= 1, got None")
        if sampler not in SAMPLERS:
            raise ValueError(f"unknown sampler {sampler!r}; expected one of {SAMPLERS}")
        if sampler == "statevector" and backend is not None:
            raise ValueError("sampler='statevector' takes no backend; expected 'aer', 'fake' or 'ibm' with one")
        self.sampler = sampler
        self.backend = _default_backend(sampler) if backend is None else backend
        self.kind = kind_of(self.backend)
        if transpiled is None:
            if self.backend is None:
                transpiled = qnn.measured()
            else:
                transpiled = transpile_for(qnn, self.backend, optimization_level)
        self.transpiled = transpiled
        self.layout = measured_qubits(transpiled, qnn.num_qubits)

    def encode(self, X: np.ndarray) -> Encoded:
        """Check and return the samples ``X : (n, num_features)``; the circuit gets them when it runs."""
        X = check_features(X, self.qnn.num_features)
        return Encoded(X.copy(), len(X), self._owner(), pad=1)

    def _owner(self) -> tuple:
        return self.name, self.qnn

    def probabilities(self, encoded: Encoded, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return the fraction of shots that were measured with odd parity, ``(n,)`` or ``(B, n)``.

        Parameters
        ----------
        encoded : n samples from this engine's :meth:`encode`.
        weights : (P,) or (B, P).
        rng : the generator that draws the simulator's seed, or B generators, one per weight vector, which then run one
            job each; hardware needs none.
        """
        weights = check_weights(weights, self.qnn.num_weights)
        theta = np.atleast_2d(weights)
        if rng is None or isinstance(rng, np.random.Generator):
            odd = self.measure(encoded, theta, rng).odd
        else:
            if len(rng) != len(theta):
                raise ValueError(
                    f"rng must be a Generator, or a list of {len(theta)}, one per weight vector, got {len(rng)}"
                )
            parts = [self.measure(encoded, theta[b : b + 1], g).odd for b, g in enumerate(rng)]
            odd = np.concatenate(parts)
        return (odd[0] if weights.ndim == 1 else odd) / self.shots

    def measure(self, encoded: Encoded, weights: np.ndarray, rng: np.random.Generator | None = None) -> Measured:
        """Run one job for all samples and ``weights : (B, P)`` and return its outcomes."""
        check_encoded(encoded, self._owner())
        weights = check_weights(weights, self.qnn.num_weights, ndim=(2,))
        if rng is None and self.kind in SIMULATED:
            raise ValueError(f"shots={self.shots} draws at random: expected rng to be a numpy Generator, got None")
        shape = (len(weights), len(encoded))
        if 0 in shape:
            return Measured(np.zeros(shape, dtype=int), self.shots, [[] for _ in weights], "")
        job = self._sampler(rng).run([self.pub(encoded, weights)])
        bits = job.result()[0].data.meas
        # bits.array : (B, n, shots, bytes). A shot has odd parity if its number of ones is odd.
        ones = np.bitwise_count(bits.array).sum(axis=-1)
        odd = (ones & 1).sum(axis=-1)
        if bits.num_shots != self.shots:
            raise ValueError(f"the sampler returned {bits.num_shots} shots, expected {self.shots}")
        counts = [[dict(bits.get_counts((b, i))) for i in range(shape[1])] for b in range(shape[0])]
        return Measured(odd, self.shots, counts, str(job.job_id()))

    def pub(self, encoded: Encoded, weights: np.ndarray) -> tuple[QuantumCircuit, np.ndarray, int]:
        """Return one PUB, the input of a sampler, for all samples and all ``weights : (B, P)``.

        A PUB consists of the circuit, the values (B, n, parameters) of its parameters, and the shots.
        """
        shape = (len(weights), len(encoded))
        X = encoded.rows
        values = {p: np.broadcast_to(X[:, k], shape) for k, p in enumerate(self.qnn.input_parameters)}
        for k, p in enumerate(self.qnn.weight_parameters):
            values[p] = np.broadcast_to(weights[:, k, None], shape)
        # The last axis has the order of the circuit's own parameters; transpiling may have removed some of them.
        table = np.stack([values[p] for p in self.transpiled.parameters], axis=-1)
        return self.transpiled, table, self.shots

    def _sampler(self, rng: np.random.Generator | None) -> BaseSamplerV2:
        if self.sampler == "statevector":
            from qiskit.primitives import StatevectorSampler

            # With an integer, every circuit of the job would use the same random numbers; a generator continues.
            return StatevectorSampler(seed=rng)
        # The seed is at least 1, because the runtime's simulator reads 0 as "no seed".
        seed = None if rng is None else int(rng.integers(1, 2**31))
        if self.sampler == "aer":
            from qiskit_aer.primitives import SamplerV2

            return SamplerV2.from_backend(self.backend, seed=seed)
        options = {"simulator": {"seed_simulator": seed}} if self.sampler == "fake" else None
        return runtime_sampler(self.backend, options)

    def describe(self) -> dict[str, Any]:
        """Return what a run's record says about the engine, its sampler, its backend and its circuit."""
        return super().describe() | {
            "sampler": self.sampler,
            "backend": None if self.backend is None else str(self.backend.name),
            "layout": list(self.layout),
            "transpiled_ops": operation_counts(self.transpiled),
        }


def runtime_sampler(mode: BackendV2 | Batch, options: dict[str, Any] | None = None) -> BaseSamplerV2:
    """Return the SamplerV2 of IBM's runtime client for a backend or a batch of jobs."""
    import qiskit_aer  # noqa: F401  without it, a fake backend would run without noise and without a warning
    from qiskit_ibm_runtime import SamplerV2

    with warnings.catch_warnings():
        # Releases since 0.50 recommend another class; this one exists in all releases since 0.40.
        warnings.filterwarnings("ignore", "The SamplerV2 class is deprecated", DeprecationWarning)
        return SamplerV2(mode=mode, options=options)


def _default_backend(sampler: str) -> BackendV2 | None:
    """Return the backend of a sampler for which the user has given none; a statevector needs none."""
    if sampler == "statevector":
        return None
    if sampler == "aer":
        from qiskit_aer import AerSimulator

        return AerSimulator()
    if sampler == "fake":
        return default_device()
    raise ValueError("sampler='ibm' needs a backend: open your account with qfl_core.hardware.connect() and choose one")
