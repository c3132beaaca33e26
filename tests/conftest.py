"""Every test runs offline, with its own cache and without the caller's data folder, unless it asks for real data."""

import os
import socket
from pathlib import Path

import pytest

REAL_DATA = os.environ.get("QFL_DATA_DIR")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Block the network for a test and all its fixtures; this machine itself is reached only by tests marked so."""
    allowed = LOOPBACK if any(map(item.get_closest_marker, ("loopback", "flower"))) else ()

    def guarded(original):
        def call(self, address, *rest):
            if isinstance(address, tuple) and address[0] not in allowed:  # others are files of this machine
                raise AssertionError(f"a test tried to reach {address}; the mark 'loopback' allows this machine alone")
            return original(self, address, *rest)

        return call

    def resolve(host, *rest, **options):
        if host not in (None, "", *allowed):
            raise AssertionError(f"a test asked for the address of {host!r}")
        return getaddrinfo(host, *rest, **options)

    getaddrinfo = socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", resolve)
        return (yield)


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path_factory):
    monkeypatch.delenv("QFL_DATA_DIR", raising=False)
    monkeypatch.setenv("QFL_OFFLINE", "1")
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def real_data(monkeypatch) -> Path:
    """Point the package at the real files; skip where there are none."""
    if not REAL_DATA:
        pytest.skip("QFL_DATA_DIR is not set")
    monkeypatch.setenv("QFL_DATA_DIR", REAL_DATA)
    return Path(REAL_DATA)


@pytest.fixture
def clean_tables():
    """Let a test register plugins; afterwards the tables are as they were."""
    from qfl_core.base import registry
    from qfl_core.runs import plugins

    before = {kind: dict(table) for kind, table in registry.PLUGIN_TABLES.items()}
    yield
    for kind, table in registry.PLUGIN_TABLES.items():
        table.clear()
        table.update(before[kind])
    plugins.REGISTERED.clear()
