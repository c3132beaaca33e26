"""What we change in Flower: each setting in one place, and refused where a version of Flower does not have it."""

from __future__ import annotations

import ssl
import time
from typing import Any

#: Seconds that a SuperLink waits for its database while another process holds it; Flower's own value is five.
BUSY_SECONDS = 60
#: Seconds that a node asks again while the SuperLink refuses to let it join.
TAKEN_SECONDS = 90.0


def patient(pragmas: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return Flower's settings of a database connection with a longer time-out for a busy database."""
    if "busy_timeout" not in dict(pragmas):
        raise RuntimeError("this version of Flower has no busy_timeout: start its own flower-superlink")
    return tuple((name, str(BUSY_SECONDS * 1000) if name == "busy_timeout" else value) for name, value in pragmas)


def wait_for_database() -> None:
    """Let the SuperLink of this process wait for a busy database."""
    from flwr.supercore import sql_mixin

    sql_mixin.SQLITE_PRAGMAS = patient(sql_mixin.SQLITE_PRAGMAS)


def ask_again_when_cut() -> None:
    """Let the connections of this process ask again after three failures that Flower takes for final.

    - HTTP 500: a SuperLink whose database is busy answers so. Flower asks again after 502, 503 and 504 only.
    - A node that the SuperLink takes for online: one that was killed and starts again at once. The SuperLink waits a
      minute for its heartbeat, and so does the node. A node whose key is not on the list gets the same answer, so a
      node gives up after :data:`TAKEN_SECONDS`.
    - A TLS connection that ends in mid-message: Flower takes every error that names SSL for a wrong certificate.

    An answer of a client that is not sent again would be lost. A request that is sent twice does no harm, because
    Flower names messages and objects by their content.
    """
    import httpx
    from flwr.supercore.protobuf.client import ProtobufClient

    send, refused_since = ProtobufClient._send, list[float]()
    if getattr(send, "is_patient", False):
        return

    def patient_send(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            response = send(self, *arguments, **options)
        except httpx.TransportError as error:
            if is_cut(error):
                raise httpx.ReadError("the connection was cut") from error
            raise
        taken = is_taken(response.status_code, response.text)
        if taken:
            refused_since.append(time.monotonic())
        else:
            refused_since.clear()
        if response.status_code == 500 or (taken and refused_since[-1] - refused_since[0] < TAKEN_SECONDS):
            response.status_code = 503
        return response

    patient_send.is_patient = True  # type: ignore[attr-defined]
    ProtobufClient._send = patient_send


def is_taken(status: int, text: str) -> bool:
    """Tell whether a SuperLink refuses a node because it takes it for online already."""
    from flwr.supercore.error import ApiErrorCode, FlowerError

    error = FlowerError.from_json(text) if status == 412 else None
    return error is not None and error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED


def is_cut(error: BaseException | None) -> bool:
    """Tell whether an error comes from a TLS connection that ended too early, and not from a certificate."""
    while error is not None:
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return True
        error = error.__cause__ or error.__context__
    return False
