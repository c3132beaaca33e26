"""One of two processes of test_simultaneous.py: ``python simultaneous.py <task> <me> <other> <folder> [undone]``.

Both processes meet at gates: files in the folder ``gates``, which the other one waits for. So what must happen at the
same time does, on any machine. ``undone`` removes the protection under test, to show that the test would notice.
"""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

import qfl_core.runs.run as run_module
import qfl_core.runs.sweep as sweep_module
from qfl_core.base import files
from qfl_core.config import load_profile

TASK, ME, OTHER, FOLDER, *UNDONE = sys.argv[1:]
GATES = Path(FOLDER) / "gates"
RESULTS = Path(FOLDER) / "results"
CONFIGS = [
    load_profile("smoke").config(
        "breast-cancer", rounds=1, clients=2, chunk=8, unfolds=1, spsa_iterations=1, seed=seed, train_size=200
    )
    for seed in (0, 1)
]


def say(gate: str) -> None:
    """Open this process's side of a gate."""
    (GATES / f"{gate}-{ME}").touch()


def wait_for(*gates: str) -> None:
    """Wait until the other process has opened one of the gates, or has ended."""
    awaited = [GATES / f"{gate}-{OTHER}" for gate in (*gates, "ended")]
    deadline = time.monotonic() + 300
    while not any(path.exists() for path in awaited):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{OTHER} came to none of {gates}")
        time.sleep(0.005)


def meet(gate: str) -> None:
    """Go on when both processes are here."""
    say(gate)
    wait_for(gate)


def write_figures() -> None:
    """Write the files that the other process writes, too; both have a whole temporary file before either renames."""
    if UNDONE:
        files.secrets.token_hex = lambda size: "fixed"
    replace = Path.replace

    def replace_together(self, target):
        meet(f"replace-{Path(target).name}")
        return replace(self, target)

    Path.replace = replace_together
    for name in ("metrics.svg", "metrics.png", "table.csv"):
        files.write_text(Path(FOLDER) / name, f"{ME}\n" * 2000)


@contextmanager
def unlocked(path):
    """Let everybody in; the second one when the first trains, because both would break each other's files before."""
    if ME == "right":
        wait_for(f"trains-{path.parent.name}")
    yield


def run_sweep() -> None:
    """Run the same sweep as the other process; both find nothing finished before either trains."""
    if UNDONE:
        run_module.locked = unlocked
    acquire, prepare, train = FileLock.acquire, run_module.prepare, run_module.train

    def acquire_or_say(self, *arguments, **options):
        try:
            return acquire(self, timeout=0)
        except Timeout:
            say(f"blocked-{Path(self.lock_file).parent.name}")
            return acquire(self, *arguments, **options)

    def prepare_together(config, splits):
        meet(f"nothing-found-seed-{config.seed}")
        return prepare(config, splits)

    def train_when_the_other_waits(federation, *rest):
        seed = f"seed-{federation.config.seed}"
        say(f"trains-{seed}")
        wait_for(f"blocked-{seed}", f"trains-{seed}")
        return train(federation, *rest)

    FileLock.acquire = acquire_or_say
    run_module.prepare, run_module.train = prepare_together, train_when_the_other_waits
    # In this process, however long a run takes: the gates are here.
    for run in sweep_module.sweep(CONFIGS, RESULTS, jobs=1, progress=False):
        print(os.path.relpath(run.path, RESULTS))


if __name__ == "__main__":
    try:
        {"figures": write_figures, "sweep": run_sweep}[TASK]()
    finally:
        say("ended")
