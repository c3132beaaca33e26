"""A test that starts a process says so with the mark ``outside``, because `make test-load` repeats those tests."""

import os
import subprocess
import sys
from pathlib import Path

import joblib
import pytest

pytest_plugins = ["pytester"]

SHARED = """
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def process():
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.outside
def test_marked(process):
    subprocess.run([sys.executable, "-c", ""], check=True)


def test_unmarked(process):
    pass
"""


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda: subprocess.Popen(args="true", shell=True),
        lambda: joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(number) for number in range(2)),
        pytest.param(
            lambda: os.fork(), marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
        ),
    ],
    ids=["run", "Popen", "joblib", "fork"],
)
def test_without_the_mark_no_process_starts(start):
    with pytest.raises(pytest.fail.Exception, match="a test starts a process without the mark 'outside'"):
        start()


def test_a_program_that_is_asked_for_one_fact_may_start():
    subprocess.run(["git", "--version"], check=True, capture_output=True)


@pytest.mark.outside
@pytest.mark.filterwarnings("default")
def test_all_tests_that_share_a_process_need_the_mark(pytester):
    """Otherwise it would depend on their order which of them fails."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n  outside\n  loopback\n  flower\n")
    pytester.makepyfile(SHARED)
    refused = pytester.runpytest_inprocess()
    refused.assert_outcomes(errors=2)
    refused.stdout.fnmatch_lines(["*without the mark 'outside': *test_unmarked*"])
    pytester.runpytest_inprocess("-m", "outside").assert_outcomes(passed=1, deselected=1)
