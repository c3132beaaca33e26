"""Runs that end badly, for test_runs.py: ``python crash.py <scenario> <folder> <commit>`` in a process without threads.

Every run is a forked child, so that it can be killed; the folders are left for the test to judge.
"""

import json
import os
import random
import resource
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

from planted import planted_splits, small
from tqdm import tqdm

from qfl_core.base.errors import RunError
from qfl_core.runs import identity, run_experiment

SETTINGS = {"rounds": 3, "outer_period": 2}
SPLITS = planted_splits()
#: What moves a file from one state to the next: dying before each of these is dying at every state.
STEPS = ("fsync", "replace", "unlink", "mkdir", "truncate")


def run(folder, progress=False, **changes):
    """Run the scenario's experiment below a folder."""
    return run_experiment(small(**(SETTINGS | changes)), folder, splits=SPLITS, progress=progress)


def fork(action, *arguments) -> int:
    """Start the action in a child; it exits with 0, with 3 on a RunError, and with 2 on anything else."""
    pid = os.fork()
    if pid:
        return pid
    try:
        action(*arguments)
    except RunError:
        os._exit(3)
    except BaseException:
        traceback.print_exc()
        os._exit(2)
    os._exit(0)


def wait(pid) -> int:
    """Return the child's exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_before_step(folder, number, **changes):
    """Run, and die by SIGKILL just before the step of this number."""
    count = 0

    def counting(original):
        def step(*arguments, **options):
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return step

    for name in STEPS:
        setattr(os, name, counting(getattr(os, name)))
    run(folder, **changes)


def every_step(folder, **changes):
    """Kill a run before its n-th step, for every n, and resume it; report both exit codes."""
    codes = []
    for number in range(1, 1000):
        below = folder / f"{number}"
        first = wait(fork(lambda below=below, n=number: killed_before_step(below, n, **changes)))
        codes.append((first, wait(fork(lambda below=below: run(below, **changes)))))
        if first == 0:
            break
    return codes


def killed_at_event(folder, number=0) -> int:
    """Run, and die by SIGKILL at the call or return of this number; return how many there were in a run that ended."""
    events = 0

    def count(*_):
        nonlocal events
        events += 1
        if events == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    run(folder)
    sys.setprofile(None)
    return events


def any_moment(folder):
    """Kill a run again and again, at moments that nobody chose, then let it end by itself.

    A moment is a share of all calls of a run, because neither a clock nor the seconds of a core, which the operating
    system counts by samples, tell how far a run has come. So the first moment is always within the run.
    """
    events = folder / "events"
    wait(fork(lambda: events.write_text(str(killed_at_event(folder / "whole")))))
    whole, rng, codes = int(events.read_text()), random.Random(), []
    for attempt in range(4):
        below = folder / f"{attempt}"
        for moment in (0.2, rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0, 1)):
            codes.append(wait(fork(killed_at_event, below, 1 + int(moment * whole))))
        codes.append(wait(fork(run, below)))
    return codes


def at_once(folder):
    """Run the same experiment in four processes at once."""
    return [wait(pid) for pid in [fork(run, folder) for _ in range(4)]]


def disk_fills(folder):
    """Let files grow no larger than a limit, so that a line of the journal is cut in the middle; then lift it."""

    def limited(below, size):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        run(below)

    codes = []
    for size in (500, 1500, 4000, 7000, 12000):
        first = wait(fork(limited, folder / f"{size}", size))
        journal = [len(path.read_bytes()) for path in (folder / f"{size}").rglob("journal.jsonl")]
        codes.append((first, journal, wait(fork(run, folder / f"{size}"))))
    return codes


def in_a_bar(folder):
    """Kill a child while it draws a progress bar, then let another one run."""

    def kill(_):
        os.kill(os.getpid(), signal.SIGKILL)

    def drawing():
        sys.stderr = SimpleNamespace(write=kill, flush=lambda: None)
        run(folder, progress=True)

    def patient():
        signal.alarm(600)  # a run takes a second; one that waits for ever is ended
        run(folder)

    return [wait(fork(drawing)), wait(fork(patient))]


SCENARIOS = {
    "every-step": every_step,
    "every-step-adam": lambda folder: every_step(folder, method="adam-qfl", rounds=1, adam_rates=(0.1,)),
    "any-moment": any_moment,
    "at-once": at_once,
    "disk-fills": disk_fills,
    "in-a-bar": in_a_bar,
}

if __name__ == "__main__":
    tqdm.monitor_interval = 0  # no thread that looks after progress bars
    # The commit that the test saw: somebody may edit files, and so make the checkout "-dirty", while the tests run.
    identity.commit = lambda: sys.argv[3]
    # Done once here, what a run imports and remembers is inherited by every child.
    for name in ("duqfl-prox", "adam-qfl"):
        run(Path(sys.argv[2]) / "warm", method=name)
    # A fork copies the locks of all threads and none of the threads: a child could wait for ever.
    assert threading.active_count() == 1, threading.enumerate()
    print(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))))
