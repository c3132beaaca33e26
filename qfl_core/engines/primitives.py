"""The oracle and the hardware path: the same interface through Qiskit's SamplerV2.

The logical qubits are measured before transpiling, so bit k of an outcome is logical qubit k under any
layout; the parity is taken from the measured bits here, not by the library. Integer seeds of primitives
re-create their generator at every call, which would give both signs of an SPSA step the same noise: a seed
is drawn a call.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from qiskit import QuantumCircuit, transpile

from qfl_core.engines.base import Engine, Generators, check_features, check_weights
from qfl_core.engines.cached import Encoded
from qfl_core.engines.kinds import kind_of
from qfl_core.engines.qnn import QNN

SAMPLERS = ("statevector", "aer", "fake", "ibm")
SIMULATED = ("shots", "noisy", "fake")


@dataclass(frozen=True, eq=False)
class Measured:
    """What a sampler returned for each theta and sample: shots of odd parity, and the counts.

    ``odd`` has shape (B, n); ``counts[b][i]`` maps bit strings, qubit 0 rightmost, to how often they were
    seen.
    """

    odd: np.ndarray
    shots: int
    counts: list[list[dict[str, int]]]
    job_id: str


class PrimitivesEngine(Engine):
    """Probabilities measured through a SamplerV2.

    Parameters
    ----------
    qnn : the model.
    shots : measurements behind each probability; needed, since a sampler has no exact values.
    sampler : ``"statevector"`` (StatevectorSampler), ``"aer"``, ``"fake"`` (a fake backend in the runtime's
        local mode) or ``"ibm"`` (hardware).
    backend : the Aer simulator, fake or real backend; None is AerSimulator() or FakeFez.
    transpiled : a measured circuit already transpiled for the backend, to run as it is.
    optimization_level, seed : the transpiler's.

    Attributes
    ----------
    transpiled : the measured circuit that is run.
    layout : the physical qubit of each logical one, at the measurement.
    kind : shots, noisy (Aer with a noise model), fake or hardware: what the backend is, whatever ``sampler`` says.
    """

    name = "primitives"

    def __init__(
        self,
        qnn: QNN,
        shots: int | None = None,
        *,
        sampler: str = "statevector",
        backend=None,
        transpiled: QuantumCircuit | None = None,
        optimization_level: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(qnn, shots)
        if self.shots is None:
            raise ValueError("the primitives engine measures: expected shots >= 1, got None")
        if sampler not in SAMPLERS:
            raise ValueError(f"unknown sampler {sampler!r}; expected one of {SAMPLERS}")
        if sampler == "statevector" and backend is not None:
            raise ValueError("sampler='statevector' takes no backend; expected 'aer', 'fake' or 'ibm' with one")
        self.sampler = sampler
        self.backend = _default_backend(sampler) if backend is None else backend
        self.kind = kind_of(self.backend)
        if transpiled is None:
            transpiled = qnn.measured()
            if self.backend is not None:
                transpiled = transpile(
                    transpiled, self.backend, optimization_level=optimization_level, seed_transpiler=seed
                )
        self.transpiled = transpiled
        self.layout = measured_qubits(transpiled, qnn.num_qubits)

    def encode(self, X: np.ndarray) -> Encoded:
        """Return the checked samples ``X : (n, num_features)``; circuits are bound when they run."""
        X = check_features(X, self.qnn.num_features)
        return Encoded(X.copy(), len(X), (self.name, self.qnn), pad=1)

    def probabilities(self, encoded: Encoded, weights: np.ndarray, rng: Generators = None) -> np.ndarray:
        """Return the measured fraction of odd parities, ``(n,)`` or ``(B, n)``.

        Parameters
        ----------
        encoded : n samples from this engine's :meth:`encode`.
        weights : (P,) or (B, P).
        rng : the source of the simulator's seed, or B of them; hardware needs none.
        """
        weights = check_weights(weights, self.qnn.num_weights)
        theta = np.atleast_2d(weights)
        if rng is None or isinstance(rng, np.random.Generator):
            odd = self.measure(encoded, theta, rng).odd
        else:
            if len(rng) != len(theta):
                raise ValueError(f"rng must be a Generator, or one for each of {len(theta)} rows, got {len(rng)}")
            parts = [self.measure(encoded, theta[b : b + 1], g).odd for b, g in enumerate(rng)]
            odd = np.concatenate(parts)
        return (odd[0] if weights.ndim == 1 else odd) / self.shots

    def measure(self, encoded: Encoded, weights: np.ndarray, rng: np.random.Generator | None = None) -> Measured:
        """Run one job for all samples and ``weights : (B, P)`` and return its outcomes."""
        if not isinstance(encoded, Encoded) or encoded.owner != (self.name, self.qnn):
            raise ValueError("encoded must come from this engine's encode(X)")
        weights = check_weights(weights, self.qnn.num_weights, ndim=(2,))
        if rng is None and self.kind in SIMULATED:
            raise ValueError(f"shots={self.shots} draws at random: expected rng, a numpy Generator")
        shape = (len(weights), len(encoded))
        if 0 in shape:
            return Measured(np.zeros(shape, dtype=int), self.shots, [[] for _ in weights], "")
        job = self._sampler(rng).run([self.pub(encoded, weights)])
        bits = job.result()[0].data.meas
        # bits.array : (B, n, shots, bytes); the parity of a shot is that of its number of ones.
        ones = np.bitwise_count(bits.array).sum(axis=-1)
        odd = (ones & 1).sum(axis=-1)
        if bits.num_shots != self.shots:
            raise ValueError(f"the sampler returned {bits.num_shots} shots, expected {self.shots}")
        counts = [[dict(bits.get_counts((b, i))) for i in range(shape[1])] for b in range(shape[0])]
        return Measured(odd, self.shots, counts, str(job.job_id()))

    def pub(self, encoded: Encoded, weights: np.ndarray) -> tuple[QuantumCircuit, np.ndarray, int]:
        """Return all samples and ``weights : (B, P)`` as one PUB: circuit, values (B, n, parameters), shots."""
        shape = (len(weights), len(encoded))
        X = encoded.rows
        values = {p: np.broadcast_to(X[:, k], shape) for k, p in enumerate(self.qnn.input_parameters)}
        for k, p in enumerate(self.qnn.weight_parameters):
            values[p] = np.broadcast_to(weights[:, k, None], shape)
        # The order of a pub's last axis is the circuit's own, and transpiling may drop a parameter.
        table = np.stack([values[p] for p in self.transpiled.parameters], axis=-1)
        return self.transpiled, table, self.shots

    def _sampler(self, rng: np.random.Generator | None):
        if self.sampler == "statevector":
            from qiskit.primitives import StatevectorSampler

            # An integer would start every circuit of the job from the same numbers; a generator moves on.
            return StatevectorSampler(seed=rng)
        # Zero is "no seed" to the runtime's simulator.
        seed = None if rng is None else int(rng.integers(1, 2**31))
        if self.sampler == "aer":
            from qiskit_aer.primitives import SamplerV2

            return SamplerV2.from_backend(self.backend, seed=seed)
        options = {"simulator": {"seed_simulator": seed}} if self.sampler == "fake" else None
        return runtime_sampler(self.backend, options)

    def describe(self) -> dict:
        """Return name, kind, shots, sampler, backend, layout and circuit size."""
        return super().describe() | {
            "sampler": self.sampler,
            "backend": None if self.backend is None else str(self.backend.name),
            "layout": list(self.layout),
            "transpiled_ops": {k: int(v) for k, v in sorted(self.transpiled.count_ops().items())},
        }


def runtime_sampler(mode, options: dict | None = None):
    """Return the runtime client's SamplerV2 for a backend or a batch."""
    import qiskit_aer  # noqa: F401  without it a fake backend would run noiseless, silently
    from qiskit_ibm_runtime import SamplerV2

    with warnings.catch_warnings():
        # Releases from 0.50 announce another class; this one still is what 0.40 and newer share.
        warnings.filterwarnings("ignore", "The SamplerV2 class is deprecated", DeprecationWarning)
        return SamplerV2(mode=mode, options=options)


def measured_qubits(circuit: QuantumCircuit, count: int) -> tuple[int, ...]:
    """Return the qubit that is measured into each of the ``count`` classical bits."""
    found = {
        circuit.find_bit(i.clbits[0]).index: circuit.find_bit(i.qubits[0]).index
        for i in circuit.data
        if i.operation.name == "measure"
    }
    if sorted(found) != list(range(count)):
        raise ValueError(f"the transpiled circuit measures bits {sorted(found)}, expected 0 to {count - 1}")
    return tuple(found[k] for k in range(count))


def _default_backend(sampler: str):
    if sampler == "statevector":
        return None
    if sampler == "aer":
        from qiskit_aer import AerSimulator

        return AerSimulator()
    if sampler == "fake":
        from qiskit_ibm_runtime.fake_provider import FakeFez

        return FakeFez()
    raise ValueError("sampler='ibm' needs a backend: qfl_core.hardware.connect() opens the account, and its devices")
