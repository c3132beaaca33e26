"""Run the tests that start processes, kernels or browsers, or wait for locks, again and again on a busy machine.

Two busy loops run beside the tests, so that a test that rests on timing has every chance to fail. The first failure
ends the command. Usage: ``python tests/under_load.py [TIMES] [FILES]``, by default 20 times all tests that are marked
``outside`` or ``loopback`` and need no Flower federation. Those of real federations are repeated where one of their
files is named, in one process, because the tests of a file share a federation.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY_LOOPS = 2
MARKERS = "(outside or loopback) and not (flower and slow)"
FEDERATIONS = "flower and slow"


def spin() -> None:
    """Keep one core busy until the process is ended, or the one that started it is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(100_000):
            pass


@contextmanager
def load(loops: int = BUSY_LOOPS) -> Iterator[None]:
    """Keep this many cores busy inside the block."""
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(loops)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.terminate()


def main(times: int = 20, *files: str) -> int:
    """Return pytest's exit code: that of the first failure, or 0."""
    federations = [name for name in files if "mark.slow" in Path(name.partition("::")[0]).read_text(encoding="utf-8")]
    others = [name for name in files if name not in federations]
    commands = [["-n", "2", "-m", MARKERS, *(others or ["tests"])]] if others or not files else []
    commands += [["-m", FEDERATIONS, *federations]] if federations else []
    with load():
        for i in range(times):
            print(f"under load: {i + 1} of {times}", flush=True)
            for options in commands:
                if code := subprocess.run([sys.executable, "-m", "pytest", *options]).returncode:
                    return code
    print(f"under load: {times} times without a failure")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
