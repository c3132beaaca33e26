"""Ports of kernels that nobody else gets; also a plugin for pytest: ``-p tools.kernel_ports``.

Jupyter looks for free ports, closes them, and starts a kernel that listens there a second later. Meanwhile the
operating system may give one of them to another kernel that starts at the same moment, and one of the two dies.
"""

from __future__ import annotations

import socket
import sys

from jupyter_client.connect import LocalPortCache

_HELD: dict[int, socket.socket] = {}
_return_port = LocalPortCache.return_port


def hold_ports() -> None:
    """Let this process hold the ports of its kernels until they have ended.

    Only on Linux: there a kernel can listen on a port that is held, because both allow its address to be reused.
    """
    if sys.platform == "linux":
        LocalPortCache.find_available_port = _held_port
        LocalPortCache.return_port = _released


def pytest_configure() -> None:
    """Hold the ports of kernels that tests start."""
    hold_ports()


def _held_port(cache: LocalPortCache, ip: str) -> int:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((ip, 0))
    port = int(held.getsockname()[1])
    _HELD[port] = held
    cache.currently_used_ports.add(port)
    return port


def _released(cache: LocalPortCache, port: int) -> None:
    _return_port(cache, port)
    if held := _HELD.pop(port, None):
        held.close()
