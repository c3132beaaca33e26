"""What make reruns, and what it leaves behind."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parent.parent

# A Python that only plays the notebook runner: it logs the call and writes the output, or fails.
FAKE_PYTHON = """#!/usr/bin/env bash
[ "$2" = tools.run_notebook ] || exit 0
notebook=${@: -2:1} output=${@: -1}
echo "$notebook" >> log
[ ! -e fail ] || exit 1
mkdir -p "$(dirname "$output")"
echo done > "$output"
"""
ALL = ["01", "02", "06", "05"]
NAMES = ("01_preprocessing", "02_baselines", "05_plotting", "06_hardware")


@pytest.fixture
def clone(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    profile = "qfl_core/config/profiles/smoke.yaml"
    for name in (profile, "requirements.lock", *(f"notebooks/{name}.ipynb" for name in NAMES)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, text in (("tools/setup.sh", ""), ("tools/run_notebook.py", ""), (".venv/bin/python", FAKE_PYTHON)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def reproduce(clone: Path, *variables: str, **environment: str) -> tuple[int, list[str]]:
    return make(clone, "reproduce", *variables, **environment)


def make(clone: Path, *asked: str, **environment: str) -> tuple[int, list[str]]:
    """Return make's status and the notebooks that it ran."""
    log = clone / "log"
    log.unlink(missing_ok=True)
    # One at a time, so that the log is in order; with a PYTHON, make does not ask which interpreters there are.
    command = ["make", f"PYTHON={sys.executable}", "PROFILE=smoke", "JOBS=1", *asked]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("QFL_", "MAKE"))}
    done = subprocess.run(
        command,
        cwd=clone,
        env=kept | environment,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    for path in clone.rglob("*"):  # age everything alike: what a test writes next is newer, also on a coarse clock
        if path.is_file():
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**11))
    return done.returncode, [Path(line).stem[:2] for line in log.read_text().split()] if log.exists() else []


def test_notebooks_run_in_order_and_only_once(clone):
    assert reproduce(clone) == (0, ALL)
    assert reproduce(clone) == (0, [])


def test_other_seeds_datasets_or_data_run_them_again(clone):
    reproduce(clone)
    assert reproduce(clone, "SEEDS=3")[1] == ALL
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf")[1] == ALL
    (clone / "mine").mkdir()
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == ALL
    (clone / "mine" / "Base.csv").touch()
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == ALL
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == []


def test_what_reads_results_runs_after_what_makes_them_also_in_parallel(clone):
    status, ran = reproduce(clone, "-j2")
    assert status == 0
    assert ran[-1] == "05"
    (clone / "notebooks" / "02_baselines.ipynb").touch()
    assert reproduce(clone) == (0, ["02", "05"])


def test_one_notebook_runs_by_its_number_with_what_it_reads(clone):
    assert make(clone, "notebook-05") == (0, ["02", "06", "05"])
    assert make(clone, "notebook-01") == (0, ["01"])
    assert make(clone, "notebook-01") == (0, [])


def test_figures_are_redrawn_without_running_anything_else(clone):
    assert make(clone, "figures") == (0, ["05"])
    assert make(clone, "figures") == (0, ["05"])


def test_the_report_is_built_without_running_anything(clone):
    assert make(clone, "report") == (0, [])


@pytest.mark.parametrize("writable", [True, False])
def test_a_home_that_cannot_be_written_is_not_used(clone, writable, monkeypatch):
    for name in ("IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.delenv(name, raising=False)
    home = clone if writable else clone / "missing"
    (clone / ".venv" / "bin" / "python").write_text('#!/usr/bin/env bash\necho "$IPYTHONDIR,$MPLCONFIGDIR" > log\n')
    assert make(clone, "report", HOME=str(home))[0] == 0
    folders = (clone / "log").read_text().strip().split(",")
    expected = [] if writable else [str(clone / "build" / "home" / name) for name in ("ipython", "matplotlib")]
    assert list(filter(None, folders)) == expected
    assert all(Path(folder).is_dir() for folder in expected)


def test_the_continuous_integration_runs_each_part_once():
    """Both targets of tests, one after the other, and nothing that asks a second time."""
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not line.startswith("#")]
    asked = [line for line in lines if "make" in line.split() or "pytest" in line]
    assert asked == ["make test", "make test-federation"]
    assert not any(word in line.split() for line in lines for word in ("for", "while", "until", "||", "retry"))


def test_results_are_removed_only_after_a_yes(clone):
    (clone / "results").mkdir()
    make(clone, "clean")
    make(clone, "clean-results")  # nobody answers
    assert (clone / "results").is_dir()
    make(clone, "clean-results", "YES=1")
    assert not (clone / "results").exists()


def test_a_failure_stops_make_and_leaves_no_output(clone):
    (clone / "fail").touch()
    status, ran = reproduce(clone)
    assert status != 0
    assert ran == ["01"]
    assert not list((clone / "build" / "smoke").glob("*.ipynb"))
