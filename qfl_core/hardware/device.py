"""A backend and the circuit compiled for it, once: layout, size, duration, noise, calibration."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property, lru_cache

from qiskit import QuantumCircuit, qpy, transpile
from qiskit.providers import BackendV2
from qiskit_aer.noise import NoiseModel

from qfl_core.base.errors import HardwareError, did_you_mean
from qfl_core.engines.density import DensityEngine, calibration_hash
from qfl_core.engines.noise import device_noise
from qfl_core.engines.qnn import QNN
from qfl_core.engines.transpiled import measured_qubits, used_qubits

#: What IBM documents for a job's usage: this overhead, and (rep_delay + circuit length) for every execution.
JOB_OVERHEAD_SECONDS = 2.0
DEFAULT_REP_DELAY = 250e-6


@dataclass(frozen=True, eq=False)
class Device:
    """A backend with the measured circuit transpiled for it."""

    qnn: QNN
    backend: BackendV2
    transpiled: QuantumCircuit

    @property
    def name(self) -> str:
        """The name that the backend gives itself; it does not say what the backend is."""
        return str(self.backend.name)

    @cached_property
    def layout(self) -> tuple[int, ...]:
        """The physical qubit of each logical one, at the measurement."""
        return measured_qubits(self.transpiled, self.qnn.num_qubits)

    @cached_property
    def calibration(self) -> str:
        """SHA-256 of the backend's errors, durations and coherence times."""
        return calibration_hash(self.backend, None)

    @cached_property
    def noise_model(self) -> NoiseModel:
        """The backend's noise on the qubits of the circuit."""
        return device_noise(self.backend, used_qubits(self.transpiled))

    @property
    def depth(self) -> int:
        """Depth of the transpiled circuit."""
        return self.transpiled.depth()

    @property
    def two_qubit_gates(self) -> int:
        """Gates on two qubits in the transpiled circuit."""
        return two_qubit_gates(self.transpiled)

    @cached_property
    def seconds_per_shot(self) -> float:
        """Reset and wait (rep_delay), then the circuit: what a shot takes on the device."""
        return self.rep_delay + self.transpiled.estimate_duration(self.backend.target, unit="s")

    @property
    def rep_delay(self) -> float:
        """The device's default pause between shots, in seconds."""
        found = getattr(self.backend, "default_rep_delay", None)
        return DEFAULT_REP_DELAY if found is None else float(found)

    def qpu_seconds(self, circuits: int, shots: int) -> float:
        """Estimate one job: overhead + circuits x shots x (rep_delay + circuit duration)."""
        return JOB_OVERHEAD_SECONDS + circuits * shots * self.seconds_per_shot

    def density(self, shots: int | None = None, noise_scale: float = 1.0) -> DensityEngine:
        """Return the noisy engine for exactly this circuit."""
        return DensityEngine(self.qnn, shots, backend=self.backend, transpiled=self.transpiled, noise_scale=noise_scale)

    def prepare_local_mode(self) -> None:
        """Let a fake backend simulate the noise of the circuit's qubits only.

        Without this it derives the errors of every qubit again for every job. That takes most of a minute for 156
        qubits, although the errors of the other qubits do not touch the circuit.
        """
        from qiskit_aer import AerSimulator

        self.backend.sim = AerSimulator()
        self.backend.set_options(noise_model=self.noise_model)


def compile_for(qnn: QNN, backend: BackendV2, optimization_level: int = 3, seed: int = 0) -> Device:
    """Transpile the measured circuit for a backend that is large enough."""
    if backend.num_qubits is not None and backend.num_qubits < qnn.num_qubits:
        raise HardwareError(
            f"backend {backend.name} has {backend.num_qubits} qubits, the circuit needs {qnn.num_qubits}"
        )
    circuit = transpile(qnn.measured(), backend, optimization_level=optimization_level, seed_transpiler=seed)
    return Device(qnn, backend, circuit)


def two_qubit_gates(circuit: QuantumCircuit) -> int:
    """Return how many gates of a circuit act on two qubits."""
    return sum(1 for i in circuit.data if len(i.qubits) == 2 and i.operation.name != "barrier")


def to_qpy(circuits: list[QuantumCircuit]) -> tuple[bytes, str]:
    """Return circuits as QPY, and its SHA-256."""
    buffer = io.BytesIO()
    qpy.dump(circuits, buffer)
    return buffer.getvalue(), hashlib.sha256(buffer.getvalue()).hexdigest()


@lru_cache(maxsize=1)
def fake_backends() -> dict[str, type[BackendV2]]:
    """Return the snapshots that come with the runtime client, by name: ``fake_fez`` and others."""
    from qiskit_ibm_runtime import fake_provider

    found = {}
    for name in dir(fake_provider):
        cls = getattr(fake_provider, name)
        backend_name = getattr(cls, "backend_name", None)
        if isinstance(cls, type) and hasattr(cls, "conf_filename") and backend_name:
            found[backend_name] = cls
    return found


def fake_backend(name: str) -> BackendV2:
    """Return a new fake backend by its name."""
    known = fake_backends()
    if name not in known:
        raise HardwareError(
            f"unknown fake backend {name!r}{did_you_mean(name, known)}; known: {', '.join(sorted(known))}"
        )
    return known[name]()


def fake_twin(name: str) -> BackendV2:
    """Return the snapshot of the device ``ibm_...``: what can be planned without an account."""
    known = {"ibm_" + fake.removeprefix("fake_"): cls for fake, cls in fake_backends().items()}
    if name not in known:
        hint = did_you_mean(name, known)
        raise HardwareError(
            f"without an account there is no snapshot of {name!r}{hint}; known: {', '.join(sorted(known))}"
        )
    return known[name]()
