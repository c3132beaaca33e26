"""The set-up script: skipped when nothing changed, redone when the lock changed, never built on a broken half."""

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parent.parent

# An interpreter that only plays its part: it reports a version, "builds" an environment and logs what pip is told.
FAKE_PYTHON = """#!/usr/bin/env bash
case "$*" in
  *version_info*print*|*print*version_info*) echo {version};;
  *"sys.exit(sys.version_info"*) exit {too_old};;
  *hashlib*) sha256sum requirements.lock | cut -d' ' -f1;;
  "-m venv"*) echo venv >> log; mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
  *"pip"*) echo "pip ${{*: -2}}" >> log; [ ! -e fail_pip ];;
esac
"""


@pytest.fixture
def project(tmp_path):
    shutil.copy(ROOT / "tools" / "setup.sh", tmp_path / "setup.sh")
    (tmp_path / "requirements.lock").write_text("numpy==1\n")
    return tmp_path


def interpreter(project: Path, version: str, name: str = "python") -> str:
    path = project / name
    path.write_text(FAKE_PYTHON.format(version=version, too_old=int(tuple(map(int, version.split("."))) < (3, 11))))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def run_setup(project: Path, python: str, named: bool = False) -> subprocess.CompletedProcess:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": python, "NAMED": "yes" if named else ""}
    return subprocess.run(
        ["bash", "setup.sh", ".venv"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def builds(project: Path) -> int:
    log = project / "log"
    return log.read_text().count("venv\n") if log.exists() else 0


def test_the_environment_is_built_once(project):
    python = interpreter(project, "3.12")
    assert run_setup(project, python).returncode == 0
    second = run_setup(project, python)
    assert (second.returncode, second.stderr) == (0, "")
    assert builds(project) == 1


def test_a_changed_lock_rebuilds(project):
    python = interpreter(project, "3.12")
    run_setup(project, python)
    (project / "requirements.lock").write_text("numpy==2\n")
    run_setup(project, python)
    assert builds(project) == 2


def test_a_touched_lock_does_not_rebuild(project):
    python = interpreter(project, "3.12")
    run_setup(project, python)
    (project / "requirements.lock").touch()
    run_setup(project, python)
    assert builds(project) == 1


def test_a_half_made_environment_is_rebuilt(project):
    python = interpreter(project, "3.12")
    (project / "fail_pip").touch()
    failed = run_setup(project, python)
    assert failed.returncode == 1
    assert "PIP_FIND_LINKS" in failed.stderr
    (project / "fail_pip").unlink()
    (project / ".venv" / "leftover").touch()
    assert run_setup(project, python).returncode == 0
    assert not (project / ".venv" / "leftover").exists()
    assert builds(project) == 2


def test_an_environment_that_no_longer_runs_is_rebuilt(project):
    python = interpreter(project, "3.12")
    run_setup(project, python)
    (project / ".venv" / "bin" / "python").unlink()
    assert run_setup(project, python).returncode == 0
    assert builds(project) == 2


def test_naming_another_interpreter_rebuilds_but_a_default_one_does_not(project):
    run_setup(project, interpreter(project, "3.12"))
    other = interpreter(project, "3.13", name="python313")
    run_setup(project, other)
    assert builds(project) == 1
    run_setup(project, other, named=True)
    assert builds(project) == 2


@pytest.mark.parametrize(("version", "word"), [("3.10", "is Python 3.10"), (None, "cannot run")])
def test_an_unusable_interpreter_gets_one_line(project, version, word):
    python = interpreter(project, version) if version else "no-such-python"
    failed = run_setup(project, python)
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1
    assert word in failed.stderr
    assert "3.11 or newer" in failed.stderr
    assert not (project / ".venv").exists()


def test_a_moved_clone_gets_a_new_environment(project, tmp_path_factory):
    """An environment names its folder in every script, and the package in it points to the old clone."""
    run_setup(project, interpreter(project, "3.12"))
    moved = tmp_path_factory.mktemp("elsewhere") / "clone"
    shutil.copytree(project, moved)
    run_setup(moved, str(moved / "python"))
    assert builds(moved) == 2
