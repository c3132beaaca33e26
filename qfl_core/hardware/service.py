"""IBM's service: credentials come from the environment alone, and no message repeats them.

Everything that talks to the service goes through :func:`ask`. An error of the client may quote the credentials, so
:func:`ask` replaces it by one of ours with the credentials blotted out. Ours has no cause and no context, so a
notebook's traceback cannot print the original.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qfl_core.base.errors import HardwareError, did_you_mean

TOKEN, INSTANCE = "QISKIT_IBM_TOKEN", "QISKIT_IBM_INSTANCE"
#: A CRN is crn:v1:cloud:type:service:region:account:instance::
CRN_COLONS = 9
Answer = TypeVar("Answer")

if TYPE_CHECKING:
    from qiskit.providers import BackendV2


class Job(Protocol):
    """A job of IBM's client, or of its local mode."""

    def job_id(self) -> str:
        """Return the service's name of the job."""

    def status(self) -> Any:
        """Return the status: text, or an enumeration whose name is the text."""

    def result(self) -> Any:
        """Wait for the result and return it."""

    def error_message(self) -> str | None:
        """Return why the job failed."""

    def metrics(self) -> dict[str, Any]:
        """Return times and QPU seconds."""


class Batch(Protocol):
    """An open batch of jobs."""

    def close(self) -> None:
        """Take no more jobs."""


class Service(Protocol):
    """The part of IBM's ``QiskitRuntimeService`` that this room uses."""

    def backends(self) -> Sequence[BackendV2]:
        """Return the account's devices."""

    def backend(self, name: str) -> BackendV2:
        """Open a device."""

    def job(self, job_id: str) -> Job:
        """Return a job by its id."""

    def jobs(self, *, job_tags: list[str], limit: int) -> Sequence[Job]:
        """Return jobs by their tags, newest first."""

    def usage(self) -> dict[str, Any]:
        """Return what the account has used and has left."""


def blotted(text: str) -> str:
    """Return text without the values of the two variables."""
    for name in (TOKEN, INSTANCE):
        value = os.environ.get(name, "").strip()
        if value:
            text = text.replace(value, f"<{name}>")
    return text


def ask(what: str, function: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
    """Call the client; an error of any kind becomes a HardwareError that says what was asked."""
    try:
        return function(*arguments, **options)
    except HardwareError:
        raise
    except Exception as error:
        reason = blotted(f"{type(error).__name__}: {error}")
    # Raised outside the handler: inside it, Python would chain the client's error to ours.
    raise HardwareError(f"{what}: {reason}")


def has_credentials() -> bool:
    """Return whether both variables are set."""
    return bool(os.environ.get(TOKEN, "").strip() and os.environ.get(INSTANCE, "").strip())


def connect() -> Service:
    """Return the account's service.

    Raises
    ------
    HardwareError
        Without credentials, or where the service does not accept them or cannot be reached.
    """
    if not has_credentials():
        missing = [name for name in (TOKEN, INSTANCE) if not os.environ.get(name, "").strip()]
        raise HardwareError(
            f"a device of IBM needs an account: set {' and '.join(missing)} in the environment (never in a file or a "
            "notebook), or name a backend that needs none, such as fake_fez"
        )
    _check_instance(os.environ[INSTANCE].strip())
    from qiskit_ibm_runtime import QiskitRuntimeService

    return ask(
        "the service did not accept the account",
        lambda: QiskitRuntimeService(
            channel="ibm_quantum_platform",
            token=os.environ[TOKEN].strip(),
            instance=os.environ[INSTANCE].strip(),
        ),
    )


def _check_instance(instance: str) -> None:
    """Refuse what cannot be an instance before the client sees it; the message does not repeat the value."""
    malformed = len(instance.split()) != 1 or not instance.isprintable()
    if malformed or (instance.startswith("crn:") and instance.count(":") != CRN_COLONS):
        raise HardwareError(
            f"{INSTANCE} is malformed: expected the name of an instance, or its CRN, which begins with crn:v1: and has "
            f"{CRN_COLONS} colons"
        )


def device_backend(service: Service, name: str) -> BackendV2:
    """Return the account's backend ``name``; an unknown one is an error with the names there are."""
    names = [str(b.name) for b in ask("the service did not list its backends", service.backends)]
    if name not in names:
        raise HardwareError(f"unknown backend {name!r}{did_you_mean(name, names)}; the account has {', '.join(names)}")
    return ask(f"the service did not open backend {name!r}", service.backend, name)


def remaining_seconds(service: Service) -> float | None:
    """Return the QPU seconds that the account has left, or None where it does not say."""
    usage = ask("the service did not tell the account's usage", service.usage)
    found = usage.get("usage_remaining_seconds") if isinstance(usage, dict) else None
    return None if found is None else float(found)


def jobs_with_tag(service: Service, tag: str) -> list[Job]:
    """Return the account's jobs of this tag, newest first."""
    found = ask("the service did not list its jobs", service.jobs, job_tags=[tag], limit=10)
    return list(found)
