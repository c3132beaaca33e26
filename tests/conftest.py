"""Every test runs offline, with its own cache and without the caller's data folder, unless it asks for real data."""

import os
import socket
from pathlib import Path

import pytest

REAL_DATA = os.environ.get("QFL_DATA_DIR")


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("QFL_DATA_DIR", raising=False)
    monkeypatch.setenv("QFL_OFFLINE", "1")
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    connect = socket.socket.connect

    def loopback_only(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", loopback_only)


@pytest.fixture
def real_data(monkeypatch) -> Path:
    """Point the package at the real files; skip where there are none."""
    if not REAL_DATA:
        pytest.skip("QFL_DATA_DIR is not set")
    monkeypatch.setenv("QFL_DATA_DIR", REAL_DATA)
    return Path(REAL_DATA)
