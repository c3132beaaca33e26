"""Calls over processes: in order or as they come, and a worker that joblib replaces stops nothing."""

import inspect
import operator
import re
import threading
import warnings

import joblib
import pytest
from joblib.externals.loky import process_executor

from qfl_core.base.processes import REPLACED, in_processes

CALLS = [(number, 2) for number in range(6)]


@pytest.mark.outside
def test_results_come_in_the_order_of_the_calls_or_as_they_are_ready():
    expected = [number**2 for number in range(6)]
    assert list(in_processes(operator.pow, CALLS, jobs=2)) == expected
    assert sorted(in_processes(operator.pow, CALLS, jobs=2, ordered=False)) == expected


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
