"""Timing of calls side by side."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each call; the calls take turns, so that a busy moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = perf_counter()
            call()
            times[name].append(perf_counter() - start)
    return {name: float(np.median(t)) for name, t in times.items()}


def once(call: Callable[[], object]) -> tuple[float, object]:
    """Return the seconds of one call and its result, for peers that take seconds."""
    start = perf_counter()
    result = call()
    return perf_counter() - start, result
