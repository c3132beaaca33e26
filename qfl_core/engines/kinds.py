"""What executed a circuit, read from the object that did it and never from a name or a parameter.

A backend can call itself ``ibm_fez`` and a parameter can say anything, so the label of a quantum computer needs the
whole chain of IBM's own client: a job of its class, on a device of its class that is neither a simulator nor a mock,
reached through its service and its network client. Whatever is not recognised is "fake".
"""

from __future__ import annotations

#: Every label, from the cleanest numbers to the only ones that a quantum computer gave.
KINDS = ("exact", "shots", "noisy", "fake", "hardware")


def kind_of(backend) -> str:
    """Return the kind of the numbers that ``backend`` gives; None is a statevector sampler's missing backend."""
    if backend is None:
        return "shots"
    if _is_quantum_computer(backend):
        return "hardware"
    from qiskit_aer import AerSimulator

    if isinstance(backend, AerSimulator):
        return "noisy" if has_noise(backend) else "shots"
    return "fake"


def kind_of_job(job) -> str:
    """Return the kind of a finished job's counts: a quantum computer's only for a job that its service ran."""
    from qiskit_ibm_runtime import RuntimeJobV2
    from qiskit_ibm_runtime.api.client import RuntimeClient

    if type(job) is not RuntimeJobV2 or type(getattr(job, "_api_client", None)) is not RuntimeClient:
        return "fake"
    return kind_of(job.backend()) if job.status() == "DONE" else "fake"


def has_noise(backend) -> bool:
    """Whether an Aer simulator has a noise model that does something."""
    model = getattr(backend.options, "noise_model", None)
    return model is not None and not model.is_ideal()


def _is_quantum_computer(backend) -> bool:
    """Whether this is IBM's own backend class, of its own service and network client, and a device behind it.

    Types are compared exactly: a subclass may have replaced what executes.
    """
    from qiskit_ibm_runtime import IBMBackend, QiskitRuntimeService
    from qiskit_ibm_runtime.api.client import RuntimeClient

    return (
        type(backend) is IBMBackend
        and type(backend.service) is QiskitRuntimeService
        and type(getattr(backend, "_api_client", None)) is RuntimeClient
        and not backend.configuration().simulator
        and not getattr(backend, "is_mock", False)
    )
