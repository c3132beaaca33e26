"""Run the tests that start processes, kernels or browsers, or wait for locks, again and again on a busy machine.

Two busy loops run beside the tests, so that a test that rests on timing has every chance to fail. The first failure
ends the command. Usage: ``python tests/under_load.py [TIMES] [FILES]``, by default 20 times all tests that are marked
``outside`` or ``loopback`` and need no Flower federation.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUSY_LOOPS = 2
MARKERS = "(outside or loopback) and not (flower and slow)"


def spin() -> None:
    """Keep one core busy until the process is ended."""
    while True:
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
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", MARKERS, *(files or ["tests"])]
    with load():
        for i in range(times):
            print(f"under load: {i + 1} of {times}", flush=True)
            code = subprocess.run(command).returncode
            if code:
                return code
    print(f"under load: {times} times without a failure")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2]), *sys.argv[2:]))
