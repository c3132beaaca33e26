"""Two notebooks and two sweeps at once, in one folder: nothing is lost, nothing is half, nothing is done twice."""

import subprocess
import sys
from pathlib import Path

import pytest

from qfl_core.runs import find_runs

pytestmark = pytest.mark.outside
SCRIPT = Path(__file__).with_name("simultaneous.py")
FIGURES = ("metrics.svg", "metrics.png", "table.csv")


def both(task, folder, *undone):
    """Run the task in two processes at once; return the exit code and the printed lines of each."""
    (folder / "gates").mkdir()
    pairs = (("left", "right"), ("right", "left"))
    processes = [
        subprocess.Popen([sys.executable, SCRIPT, task, *names, folder, *undone], stdout=-1, stderr=-1, text=True)
        for names in pairs
    ]
    told = [process.communicate()[0] for process in processes]
    lines = [[line for line in text.splitlines() if not line.startswith("[data]")] for text in told]
    return [process.returncode for process in processes], lines


def trained(folder):
    """Return who trained which seed."""
    return sorted(gate.name for gate in (folder / "gates").glob("trains-*"))


def test_two_notebooks_write_the_same_figures_at_once(tmp_path):
    codes, _ = both("figures", tmp_path)
    assert codes == [0, 0]
    for name in FIGURES:
        lines = (tmp_path / name).read_text().splitlines()
        assert len(lines) == 2000
        assert set(lines) in ({"left"}, {"right"})
    assert {path.name for path in tmp_path.iterdir()} == {*FIGURES, "gates"}


def test_with_one_fixed_temporary_name_a_notebook_would_fail(tmp_path):
    """The test above rests on the unique temporary names of ``base.files``."""
    codes, _ = both("figures", tmp_path, "undone")
    assert sorted(map(bool, codes)) != [False, False]


def test_two_sweeps_at_once_train_every_run_once_and_return_the_same_runs(tmp_path):
    codes, (left, right) = both("sweep", tmp_path)
    assert codes == [0, 0]
    assert left == right
    found = find_runs(tmp_path / "results")
    assert [str(run.path.relative_to(tmp_path / "results")) for run in found] == sorted(left)
    assert not any(run.changed_files() for run in found)
    assert not list(tmp_path.rglob("*.part"))
    assert [name.rpartition("-")[0] for name in trained(tmp_path)] == ["trains-seed-0", "trains-seed-1"]


def test_without_the_lock_both_sweeps_would_train(tmp_path):
    """The test above rests on the lock of a run."""
    both("sweep", tmp_path, "undone")
    assert {"trains-seed-0-left", "trains-seed-0-right"} <= set(trained(tmp_path))
