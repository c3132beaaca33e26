"""The bar of a notebook counts the runs of all its sweeps, or its cells; what is planned is what notebooks train."""

import io
import os
import select
import threading
from pathlib import Path

import pytest
from tqdm import tqdm

from qfl_core.base.progress import VARIABLE, bar
from qfl_core.config import load_profile, read_profile
from tools.planned import Remaining, planned_configs, runs_left
from tools.whole_bar import WholeBar, whole_bar


@pytest.fixture
def counted():
    with tqdm(total=10, file=io.StringIO()) as drawn:
        yield drawn


def test_the_runs_of_all_sweeps_are_added(counted):
    shown = WholeBar(counted, 10, by_runs=True)
    for text, done in (
        ("  0%|          | 0/4 [00:00<?, ?run/s]", 0),
        ("\r 50%|#####     | 2/4 [00:01<00:01,  1.70run/s]", 2),
        ("\r100%|##########| 4/4 [00:02<00:00,  1.70s/run]\n", 4),
        ("  0%|          | 0/4 [00:00<?, ?run/s]", 4),  # another sweep of as many runs
        ("\r 25%|##        | 1/4 [00:00<?, ?run/s]\r 75%|###   | 3/4 [00:01<00:00,  2.11run/s]", 7),
        ("  0%|          | 0/9 [00:00<?, ?run/s]", 7),
        ("\r 10%|          | 1/9 [00:00<?, 1.0run/s]", 8),
        ("\r 50%|#####     | 7/14 [00:01<00:01,  1.70round/s]", 8),  # not a sweep's
        ("\r100%|##########| 9/9 [00:09<00:00,  1.0run/s]", 10),  # never past the end
    ):
        shown.heard(text)
        assert counted.n == done, text
    shown.cell_done(3, 20)
    assert counted.n == 10
    assert counted.postfix == "cell 3 of 20"


def test_cells_are_counted_where_nothing_is_trained(counted):
    shown = WholeBar(counted, 10, by_runs=False)
    shown.heard("1/4 [00:00<?, ?run/s]")
    assert counted.n == 0
    shown.cell_done(3, 10)
    assert counted.n == 3


def test_the_bars_of_a_kernel_reach_the_bar_of_the_whole(monkeypatch, capsys):
    monkeypatch.delenv(VARIABLE, raising=False)
    with whole_bar("04_ablations", runs=3, cells=5) as shown:
        for runs in (2, 1):
            with bar(runs, "run") as sweep:  # finds the pipe as a kernel does
                sweep.update(runs)
    assert VARIABLE not in os.environ
    told = capsys.readouterr().err
    assert "04_ablations: 100%" in told
    assert "3/3" in told
    assert "2/2" not in told  # the sweep's own bar is not shown
    assert shown is not None


def test_a_bar_that_fails_does_not_stop_the_kernel(monkeypatch):
    """More than a pipe holds is written; if nobody read it, the writer would wait for ever."""
    monkeypatch.delenv(VARIABLE, raising=False)
    failed, fails = threading.Event(), [OSError("the results folder is gone")]

    def others():
        if fails:
            failed.set()
            raise fails.pop()
        return ""

    with whole_bar("04_ablations", runs=3, cells=5, others=others):
        with bar(3, "run") as sweep:
            sweep.update(1)
        assert failed.wait(600)
        pipe = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_NONBLOCK)
        for _ in range(1000):
            until_written(pipe, b"\r 50%|#####     | 2/4 [00:01<00:01,  1.70run/s]" * 10)
        os.close(pipe)


def until_written(pipe: int, text: bytes) -> None:
    """Write to a pipe that somebody reads; wait for the reader where it is full, but not for ever."""
    _, ready, _ = select.select([], [pipe], [], 600)
    assert ready, "nobody reads the pipe"
    os.write(pipe, text)


def test_a_bar_that_the_reader_asked_for_elsewhere_stays_there(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "terminal"))
    with whole_bar("04_ablations", runs=3, cells=5), bar(2, "run") as sweep:
        sweep.update(2)
    assert os.environ[VARIABLE] == str(tmp_path / "terminal")
    assert "2/2" in (tmp_path / "terminal").read_text(encoding="utf-8")
    assert "04_ablations" in capsys.readouterr().err


@pytest.mark.parametrize("profile", ["smoke", "quick", "paper"])
def test_what_notebooks_train_is_planned(profile):
    settings, values = load_profile(profile), read_profile(profile)
    planned = {number: planned_configs(f"{number}_x.ipynb", settings, values) for number in ("01", "02", "04", "06")}
    assert planned["01"] == []
    # Three baselines and the untrained model.
    assert len(planned["02"]) == 4 * len(values["seeds"]) * len(values["datasets"])
    assert {config.method for config in planned["06"]} == {"duqfl-prox", "default-qfl"}
    assert len(set(planned["04"])) == len(planned["04"])
    assert {config.dataset for config in planned["04"]} == {"baf", "genome", "breast-cancer"}
    one = planned_configs("03_x.ipynb", settings, values | {"seeds": [7], "datasets": ["baf"]})
    assert {(config.dataset, config.seed) for config in one} == {("baf", 7)}


def test_finished_runs_are_not_left(tmp_path: Path):
    settings, values = load_profile("smoke"), read_profile("smoke")
    planned = planned_configs("02_x.ipynb", settings, values)
    assert runs_left(planned, tmp_path) == planned
    assert runs_left([], tmp_path) == []


def test_the_remaining_time_of_all_notebooks_follows_the_runs_that_are_missing(tmp_path: Path, monkeypatch):
    settings, values = load_profile("smoke"), read_profile("smoke")
    planned = planned_configs("02_x.ipynb", settings, values)[:10]
    finished, now = set(), [100.0]
    monkeypatch.setattr("qfl_core.runs.finished_run", lambda config, *_: "a run" if config in finished else None)
    left = Remaining(planned, tmp_path, clock=lambda: now[0])
    assert left.told() == "all notebooks: 10 runs left"
    finished |= set(planned[:4])
    assert left.told() == "all notebooks: 10 runs left"  # the folder is not asked at every update
    now[0] += 40.0
    assert left.told() == "all notebooks: 6 runs left, 01:00"  # 4 in 40 seconds
    finished |= set(planned)
    now[0] += 40.0
    assert left.told() == ""
    assert Remaining([], tmp_path).told() == ""


def test_the_bar_of_a_notebook_tells_what_all_notebooks_have_left(counted):
    shown = WholeBar(counted, 10, True, lambda: "all notebooks: 6 runs left, 01:00")
    shown.heard("\r 50%|#####     | 2/4 [00:01<00:01,  1.70run/s]")
    assert counted.n == 2
    shown.cell_done(3, 20)
    assert counted.n == 2
    assert counted.postfix == "cell 3 of 20; all notebooks: 6 runs left, 01:00"
