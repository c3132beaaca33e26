"""Every test runs offline, with its own cache and without the caller's data folder, unless it asks for real data."""

import math
import os
import socket
import subprocess
from pathlib import Path

import joblib
import pytest
from hypothesis import HealthCheck, settings
from tqdm import tqdm

from qfl_core.runs import sweep

# How long an example takes depends on what else the machine does, so no test may fail by it. Nor may a test fail by
# chance, or by examples that an earlier run left on this machine: HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("any-machine", settings.get_profile("explore"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any-machine"))

# No thread that looks after progress bars: a warning of its own would end it and fail whichever test is running.
tqdm.monitor_interval = 0

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = os.environ.get("QFL_DATA_DIR")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
#: Programs that are asked for one fact in passing: the commit, the number of cores.
BRIEF = ("git", "lscpu", "sysctl", "powershell.exe")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Block the network and the start of processes for a test and all its fixtures, unless its marks allow them."""
    with pytest.MonkeyPatch.context() as patch:
        _block_network(patch, item)
        _block_processes(patch, item)
        # A sweep that is not told otherwise uses processes where its runs take long; here that would be a busy machine.
        patch.setattr(sweep, "WORTH_PROCESSES", math.inf)
        return (yield)


def _block_network(patch, item):
    """Let a test reach nothing, or this machine alone where it is marked so."""
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
    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    patch.setattr(socket, "getaddrinfo", resolve)


#: The fixtures that are being set up.
_SETTING_UP = []


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    _SETTING_UP.append(fixturedef)
    try:
        return (yield)
    finally:
        _SETTING_UP.pop()


def _block_processes(patch, item):
    """Let a test start processes only where it is marked so: then `make test-load` repeats it on a busy machine.

    A fixture that several tests share is set up by whichever comes first, so all of them need the mark.
    """

    def guarded(original, program):
        def call(*arguments, **options):
            if Path(str(program(*arguments, **options))).name not in BRIEF:
                users = [item, *(other for other in item.session.items if _shares(other))]
                if bare := [one.nodeid for one in users if not any(map(one.get_closest_marker, ("outside", "flower")))]:
                    pytest.fail(f"a test starts a process without the mark 'outside': {bare[0]}")
            return original(*arguments, **options)

        return call

    def first(_, arguments=(), *rest, **options):
        arguments = options.get("args", arguments)
        return arguments[0] if isinstance(arguments, (list, tuple)) else arguments

    patch.setattr(subprocess.Popen, "__init__", guarded(subprocess.Popen.__init__, first))
    if hasattr(os, "fork"):
        import _posixsubprocess

        patch.setattr(os, "fork", guarded(os.fork, lambda: ""))
        patch.setattr(_posixsubprocess, "fork_exec", guarded(_posixsubprocess.fork_exec, lambda *_: ""))

    def parallel(self, tasks):
        # Its processes stay for the next test, so that their start alone would be noticed in the first one only.
        return (in_processes if joblib.effective_n_jobs(self.n_jobs) > 1 else in_this_process)(self, tasks)

    in_this_process = joblib.Parallel.__call__
    in_processes = guarded(in_this_process, lambda *_: "")
    patch.setattr(joblib.Parallel, "__call__", parallel)


def _shares(item):
    """Return whether a test uses a fixture that is being set up."""
    used = [definition for found in item._fixtureinfo.name2fixturedefs.values() for definition in found]
    return any(definition in used for definition in _SETTING_UP)


@pytest.fixture(scope="session")
def ipython(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ipython")


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path_factory, ipython):
    monkeypatch.delenv("QFL_DATA_DIR", raising=False)
    monkeypatch.setenv("QFL_OFFLINE", "1")
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # processes run this clone, whatever is installed
    monkeypatch.setenv("IPYTHONDIR", str(ipython))  # kernels run no file of the caller's home, which may be read-only


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
