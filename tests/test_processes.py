"""Calls over processes: in order or as they come, and a worker that joblib replaces stops nothing."""

import inspect
import operator
import os
import re
import threading
import warnings

import joblib
import pytest
from joblib.externals.loky import process_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from qfl_core.base.errors import RunError
from qfl_core.base.processes import REPLACED, in_processes

CALLS = [(number, 2) for number in range(6)]


@pytest.mark.outside
def test_results_come_in_the_order_of_the_calls_or_as_they_are_ready():
    expected = [number**2 for number in range(6)]
    assert list(in_processes(operator.pow, CALLS, jobs=2)) == expected
    assert sorted(in_processes(operator.pow, CALLS, jobs=2, ordered=False)) == expected


class Absent:
    """What no process can load, like a function that only the script that was started has."""

    def __reduce__(self):
        return operator.getitem, ({}, "absent")


@pytest.mark.outside
def test_what_a_process_cannot_load_is_a_clear_error_and_the_next_calls_work():
    with pytest.raises(RunError, match=r"cannot load what it was sent \(KeyError: 'absent'\): move .* or use jobs=1"):
        list(in_processes(operator.is_, [(Absent(), 1)] * 3, jobs=2))
    assert list(in_processes(operator.pow, CALLS, jobs=2)) == [number**2 for number in range(6)]


@pytest.mark.outside
def test_a_process_that_is_killed_is_not_told_as_one_that_cannot_load():
    with pytest.raises(TerminatedWorkerError):
        list(in_processes(os._exit, [(3,)] * 3, jobs=2))


def test_a_worker_that_is_replaced_stops_nothing(monkeypatch):
    """joblib ends a worker that was idle for long, and warns, from a thread, if a call comes in at that moment."""
    went_on = []

    def warn():
        warnings.warn(f"{REPLACED} This can be caused by ...", UserWarning, stacklevel=1)
        went_on.append(True)

    def parallel(**options):
        thread = threading.Thread(target=warn)
        thread.start()
        thread.join()
        return lambda calls: (function(*arguments) for function, arguments, _ in calls)

    monkeypatch.setattr(joblib, "Parallel", parallel)
    assert list(in_processes(operator.pow, CALLS)) == [number**2 for number in range(6)]
    assert went_on == [True]


def test_the_warning_is_still_joblibs():
    source = inspect.getsource(process_executor)
    words = re.findall(r'"([^"]*)"', source[source.index('"A worker stopped') :])
    assert "".join(words[:3]).startswith(REPLACED)
