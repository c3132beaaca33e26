"""Labels for what executed a circuit, read from the object that did it and never from a name or a parameter.

A backend can call itself ``ibm_fez`` and a parameter can say anything. The label "hardware" therefore needs the whole
chain of IBM's own client: a job of its class, on a device of its class that is neither a simulator nor a mock, reached
through its service and its network client. Everything that is not recognised is labelled "fake".
"""

from __future__ import annotations

import warnings
from typing import Any


class UnknownClientVersion(UserWarning):
    """The installed client of IBM does not show its network client, so its numbers are labelled "fake"."""


def kind_of(backend: Any) -> str:
    """Return the kind of the numbers that ``backend`` gives; None is a statevector sampler's missing backend.

    "hardware" means that all of this was checked: the backend is exactly IBM's class ``IBMBackend``, its service is
    exactly ``QiskitRuntimeService``, its network client is exactly ``RuntimeClient``, its configuration does not name a
    simulator and it is not a mock. An Aer simulator is "noisy" or "shots"; every other backend is "fake".
    """
    if backend is None:
        return "shots"
    if _is_quantum_computer(backend):
        return "hardware"
    from qiskit_aer import AerSimulator

    if isinstance(backend, AerSimulator):
        return "noisy" if has_noise(backend) else "shots"
    return "fake"


def kind_of_job(job: Any) -> str:
    """Return the kind of a finished job's counts.

    "hardware" means that all of this was checked: the job is exactly IBM's class ``RuntimeJobV2``, its network client
    is exactly ``RuntimeClient``, its status is DONE, and its backend passes every check of :func:`kind_of`.
    """
    from qiskit_ibm_runtime import RuntimeJobV2

    if type(job) is not RuntimeJobV2 or not _uses_network_client(job):
        return "fake"
    return kind_of(job.backend()) if job.status() == "DONE" else "fake"


def has_noise(backend: Any) -> bool:
    """Return whether an Aer simulator has a noise model that does something."""
    model = getattr(backend.options, "noise_model", None)
    return model is not None and not model.is_ideal()


def _is_quantum_computer(backend: Any) -> bool:
    """Return whether this is IBM's own backend class, of its own service and network client, with a device behind it.

    Types are compared exactly, because a subclass may have replaced what executes.
    """
    from qiskit_ibm_runtime import IBMBackend, QiskitRuntimeService

    return (
        type(backend) is IBMBackend
        and type(backend.service) is QiskitRuntimeService
        and _uses_network_client(backend)
        and not backend.configuration().simulator
        and not getattr(backend, "is_mock", False)
    )


def _uses_network_client(owner: Any) -> bool:
    """Return whether IBM's own backend or job talks through IBM's own network client.

    The client keeps it in the private attribute ``_api_client``. A version without that attribute cannot be checked, so
    this warns, and the numbers get the label "fake".
    """
    import qiskit_ibm_runtime
    from qiskit_ibm_runtime.api.client import RuntimeClient

    if "_api_client" not in vars(owner):  # asking the object itself may start a request
        warnings.warn(
            f"{type(owner).__name__} of qiskit-ibm-runtime {qiskit_ibm_runtime.__version__} has no attribute "
            "_api_client, so it cannot be checked whether a quantum computer answered: its numbers are labelled 'fake'",
            UnknownClientVersion,
            stacklevel=2,
        )
        return False
    return type(owner._api_client) is RuntimeClient
