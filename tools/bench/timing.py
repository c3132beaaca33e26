"""How long calls take: the only place that reads the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np

Result = TypeVar("Result")


#: Reads the processor time of this process: for work in one thread, because other processes do not disturb it.
one_thread = process_time


def once(call: Callable[[], Result], clock: Callable[[], float] = perf_counter) -> tuple[float, Result]:
    """Return the seconds of one call and its result."""
    start = clock()
    result = call()
    return clock() - start, result


def seconds(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: bool = True,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each call over the rounds.

    The calls take turns, so that a busy moment of the machine slows all of them alike. Without ``warm_up``, nothing is
    called before the clock runs; that is for calls that take seconds. ``clock`` is :data:`one_thread` for calls that
    use one thread.
    """
    if warm_up:
        for call in calls.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(once(call, clock)[0])
    return {name: float(np.median(measured)) for name, measured in times.items()}
