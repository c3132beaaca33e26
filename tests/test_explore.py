"""Exploring in a notebook: train with a bar, interrupt, go on; the end is the same to the byte."""

import os
import re
import socket
import sys
import time
from pathlib import Path
from queue import Empty

import pytest
import zmq
from jupyter_client.connect import LocalPortCache
from jupyter_client.manager import KernelManager
from planted import contents, planted_splits, small

from qfl_core.algorithm.model import Model
from qfl_core.config import load_profile
from qfl_core.runs import RunResult, run_experiment
from qfl_core.runs.identity import commit
from tools import kernel_ports
from tools.kernel_ports import hold_ports

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 600  # seconds until a kernel counts as hung; no test waits so long
SETTINGS = {"source": "stand-in", "rounds": 40, "train_size": 400, "val_size": 100, "test_size": 100}


@pytest.mark.parametrize("call", [1, 12, 30])
def test_an_interrupt_inside_a_round_loses_that_round_only(tmp_path, monkeypatch, call):
    """Ctrl-C strikes within an evaluation; the same process goes on with the same call."""
    config, splits = small(rounds=3, outer_period=2), planted_splits()
    whole = run_experiment(config, tmp_path / "whole", splits=splits)
    calls, original = iter(range(1, 10**6)), Model.means

    def struck(self, *arguments, **options):
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(self, *arguments, **options)

    monkeypatch.setattr(Model, "means", struck)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, tmp_path / "cut", splits=splits)
    assert contents(run_experiment(config, tmp_path / "cut", splits=splits)) == contents(whole)


class Notebook:
    """A kernel, and what its cells answered."""

    def __init__(self, folder: Path):
        hold_ports()
        self.manager = KernelManager(kernel_name="python3")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.manager.start_kernel(cwd=str(folder), env=os.environ | {"PYTHONPATH": path, "QFL_PROGRESS": "on"})
        self.client = self.manager.blocking_client()
        self.client.start_channels()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def cell(self, source: str, interrupt_at: str | None = None) -> tuple[dict, dict, str]:
        """Run a cell; return its reply, what it displayed by kind, and its standard error.

        The kernel is interrupted when the standard error has shown ``interrupt_at``.
        """
        asked, errors, shown = self.client.execute(source), "", {}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=1)
            except Empty:
                continue
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if content.get("name") == "stderr":
                errors += content["text"]
                if interrupt_at and re.search(interrupt_at, errors):
                    self.manager.interrupt_kernel()
                    interrupt_at = None
            shown |= content.get("data", {}) if message["msg_type"] == "execute_result" else {}
            if content.get("execution_state") == "idle":
                return self.reply(asked), shown, errors
        raise TimeoutError(errors)

    def reply(self, asked: str) -> dict:
        """Return the answer to one request.

        A kernel that starts slowly is asked several times whether it is ready, so answers to older requests may come
        first.
        """
        while True:
            message = self.client.get_shell_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == asked:
                return message["content"]


@pytest.fixture
def notebook(tmp_path):
    opened = Notebook(tmp_path)
    try:
        opened.client.wait_for_ready(timeout=PATIENCE)
        yield opened
    finally:
        opened.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a held port would be closed to the kernel, too")
def test_the_ports_of_a_kernel_are_held_until_it_has_ended():
    """Another kernel that starts at the same moment does not get them; the kernel itself does."""
    hold_ports()
    cache = LocalPortCache()
    port = cache.find_available_port("127.0.0.1")
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as kernel:
        kernel.bind(f"tcp://127.0.0.1:{port}")
    cache.return_port(port)
    assert port not in cache.currently_used_ports
    assert port not in kernel_ports._HELD


@pytest.mark.outside
@pytest.mark.skipif(sys.platform == "win32", reason="kernels are interrupted by a signal")
def test_a_cell_trains_with_a_bar_is_interrupted_and_goes_on(notebook, tmp_path):
    train = "run = run_experiment(config, 'results', progress=True)\nrun"
    reply, shown, _ = notebook.cell(
        "from qfl_core import load_profile, run_experiment\n"
        # Somebody may edit files, and so make the checkout "-dirty", while the tests run.
        f"from qfl_core.runs import identity\nidentity.commit = lambda: {commit()!r}\n"
        f"config = load_profile('smoke').config('baf', **{SETTINGS!r})\nconfig"
    )
    assert reply["status"] == "ok", reply
    assert "rounds" in shown["text/html"]
    # The fifth round waits behind a gate, so that the interrupt meets a run that goes on, however fast it is.
    held = (
        "import sys, time\nfrom qfl_core.runs.journal import Journal\nappend = Journal.append\n"
        "def wait(self, record):\n"
        "    append(self, record)\n"
        "    if record['state']['done'] == 5:\n"
        "        print('held', file=sys.stderr, flush=True)\n"
        "    while record['state']['done'] == 5:\n"
        "        time.sleep(0.01)\n"
        "Journal.append = wait"
    )
    assert notebook.cell(held)[0]["status"] == "ok"
    reply, _, bar = notebook.cell(train, interrupt_at="held")
    assert reply["ename"] == "KeyboardInterrupt"
    assert notebook.cell("Journal.append = append")[0]["status"] == "ok"
    assert "duqfl-prox baf seed 0" in bar
    reply, shown, bar = notebook.cell(train)
    assert reply["status"] == "ok", reply
    assert not re.search(r"\b0/40", bar)  # it goes on where it was
    assert "40/40" in bar
    assert "data: stand-in" in shown["text/html"]
    (done,) = tmp_path.rglob("DONE")
    whole = run_experiment(load_profile("smoke").config("baf", **SETTINGS), tmp_path / "whole")
    assert contents(RunResult(done.parent)) == contents(whole)
