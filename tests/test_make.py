"""What make reruns, and what it leaves behind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A Python that only plays the notebook runner: it logs the call and writes the output, or fails.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$2" >> log
[ ! -e fail ] || exit 1
mkdir -p "$(dirname "$3")"
echo done > "$3"
"""


@pytest.fixture
def clone(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("notebooks/params/smoke.yaml", "notebooks/01.ipynb", "notebooks/02.ipynb", "requirements.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, text in (("tools/setup.sh", ""), ("tools/run_notebook.py", ""), (".venv/bin/python", FAKE_PYTHON)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "qfl_core").mkdir()
    return tmp_path


def reproduce(clone: Path, *variables: str, **environment: str) -> tuple[int, list[str]]:
    """Return make's status and the notebooks that it ran."""
    log = clone / "log"
    log.unlink(missing_ok=True)
    command = ["make", "reproduce", "PROFILE=smoke", *variables]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("QFL_", "MAKE"))}
    done = subprocess.run(command, cwd=clone, env=kept | environment, capture_output=True, text=True, check=False)
    for path in clone.rglob("*"):  # age everything alike: what a test writes next is newer, also on a coarse clock
        if path.is_file():
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**11))
    return done.returncode, [Path(line).stem for line in log.read_text().split()] if log.exists() else []


def test_notebooks_run_in_order_and_only_once(clone):
    assert reproduce(clone) == (0, ["01", "02"])
    assert reproduce(clone) == (0, [])


def test_other_seeds_datasets_or_data_run_them_again(clone):
    reproduce(clone)
    assert reproduce(clone, "SEEDS=3")[1] == ["01", "02"]
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf")[1] == ["01", "02"]
    (clone / "mine").mkdir()
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == ["01", "02"]
    (clone / "mine" / "Base.csv").touch()
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == ["01", "02"]
    assert reproduce(clone, "SEEDS=3", "DATASETS=baf", QFL_DATA_DIR="mine")[1] == []


def test_a_failure_stops_make_and_leaves_no_output(clone):
    (clone / "fail").touch()
    status, ran = reproduce(clone)
    assert status != 0
    assert ran == ["01"]
    assert not list((clone / "build" / "smoke").glob("*.ipynb"))
