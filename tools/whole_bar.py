"""One bar per notebook on the terminal: how much of it is done, and how long the rest of all notebooks will take."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from qfl_core.base.progress import VARIABLE

#: What a sweep's bar in the kernel says: runs done, and runs of this sweep.
_SWEEP = re.compile(r"(\d+)/(\d+) \[[^]]*(?:run/s|s/run)")
#: Seconds between two updates where no terminal shows the bar, because a log keeps every one of them.
_LOG_SECONDS = 30.0
#: Lines of the terminal that notebooks share, one for each that runs at the same time.
_LINES = 8


class WholeBar:
    """Counts the runs of all sweeps of a notebook, or its cells where it trains nothing.

    ``others`` tells what all notebooks together have left; the bar says it beside its own count.
    """

    def __init__(self, bar: tqdm, total: int, by_runs: bool, others: Callable[[], str] = str) -> None:
        self._bar, self._total, self._by_runs, self._others = bar, total, by_runs, others
        self._before, self._sweep, self._cell = 0, (0, 0), ""

    def heard(self, text: str) -> None:
        """Take what the bars of the kernel wrote: each sweep has a bar of its own, which begins at 0."""
        for done, total in ((int(done), int(total)) for done, total in _SWEEP.findall(text)):
            if total != self._sweep[1] or done < self._sweep[0]:
                self._before += self._sweep[0]
            self._sweep = (done, total)
        if self._by_runs:
            self._move(self._before + self._sweep[0])

    def cell_done(self, done: int, cells: int) -> None:
        """Take that so many cells are done."""
        if self._by_runs:
            self._cell = f"cell {done} of {cells}"
        self._move(int(self._bar.n) if self._by_runs else done)

    def _move(self, done: int) -> None:
        self._bar.set_postfix_str("; ".join(filter(None, (self._cell, self._others()))), refresh=False)
        self._bar.update(min(done, self._total) - self._bar.n)


@contextmanager
def whole_bar(name: str, runs: int, cells: int, others: Callable[[], str] = str) -> Iterator[WholeBar]:
    """Show the bar of one notebook, which has so many runs left; without any, its cells are counted.

    ``others`` tells what all notebooks have left, see :class:`WholeBar`.
    Inside the ``with`` block, the bars of a kernel that starts go to this bar and not to the terminal.
    """
    by_runs = runs > 0
    total = runs if by_runs else cells
    is_terminal = sys.stderr.isatty()
    with ExitStack() as stack:
        line = stack.enter_context(_free_line()) if is_terminal else 0
        drawn = tqdm(
            total=total,
            unit="run" if by_runs else "cell",
            desc=name,
            position=line,
            leave=line == 0,
            dynamic_ncols=True,
            mininterval=0.5 if is_terminal else _LOG_SECONDS,
            smoothing=0.05,  # runs differ in length: the remaining time follows the mean
        )
        shown = WholeBar(stack.enter_context(drawn), total, by_runs, others)
        if by_runs and VARIABLE not in os.environ and hasattr(os, "mkfifo"):
            stack.enter_context(_heard_by(shown))
        yield shown


@contextmanager
def _heard_by(shown: WholeBar) -> Iterator[None]:
    """Let the kernel's bars write to a pipe, and hand what they write to the bar."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bars"
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)  # both ends are open, so nobody waits for the other
        listener = threading.Thread(target=_listen, args=(pipe, shown), daemon=True)
        listener.start()
        os.environ[VARIABLE] = str(path)
        try:
            yield
        finally:
            del os.environ[VARIABLE]
            os.write(pipe, _END)
            listener.join()
            os.close(pipe)


_END = b"\x04"


def _listen(pipe: int, shown: WholeBar) -> None:
    """Read the pipe to its end, whatever happens to the bar, because a kernel would wait at a full pipe for ever."""
    text = b""
    while not text.endswith(_END):
        text = os.read(pipe, 65536)
        with suppress(Exception):
            shown.heard(text.decode("utf-8", errors="replace"))


@contextmanager
def _free_line() -> Iterator[int]:
    """Hold the first line of the terminal that no other notebook's bar uses."""
    terminal = hashlib.sha256(os.ttyname(sys.stderr.fileno()).encode()).hexdigest()[:12]
    for line in range(_LINES):
        lock = FileLock(Path(tempfile.gettempdir()) / f"qfl-bar-{terminal}-{line}.lock")
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            continue
        try:
            yield line
        finally:
            lock.release()
        return
    yield 0
