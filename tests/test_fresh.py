"""Tasks that nothing was developed on: their data, their runs beside those of the comparison, and the page's block."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from qfl_core.__main__ import main
from qfl_core.config import load_profile
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_federation
from qfl_core.studies.controllers import fresh
from qfl_core.studies.controllers.fresh import BLOCK, FILE, SEEDS, TASKS, compared_fresh, fresh_blocks, fresh_plan
from qfl_core.studies.controllers.page import PAGE, empty_page, with_blocks
from qfl_core.studies.controllers.plan import BOTH, CONSTANT, JUDGED, OFFLINE, TUNED, Plan
from qfl_core.studies.metatrain.tasks import FAMILIES

DOCS = Path(__file__).resolve().parent.parent / "docs"
SMOKE = load_profile("smoke")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return fresh_plan(SMOKE, [2_690, 2_691])


@pytest.fixture(scope="module")
def by_run(plan) -> pd.DataFrame:
    return compared_fresh(SMOKE, plan, jobs=1)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_both_labels_in_every_split_and_depends_on_the_seed_alone(name):
    config = SMOKE.config(fresh.TRACK, seed=2_690, **TASKS[name].settings)
    splits = TASKS[name].splits(config)
    taken = np.concatenate([part.origin for part in splits.parts.values()])
    assert len(set(taken)) == len(taken) == config.train_size + config.val_size + config.test_size
    assert all(0.4 < part.y.mean() < 0.6 for part in splits.parts.values())
    assert splits.train.X.shape[1] == config.features
    assert splits.digest == TASKS[name].splits(config).digest
    assert splits.digest != TASKS[name].splits(config.replace(seed=2_691)).digest


def test_nothing_else_has_used_the_tasks_or_the_seeds():
    settings = load_profile("paper")
    assert not {*TASKS} & {family.data for family in FAMILIES}
    compared = Plan.of(settings).tasks
    assert not {*TASKS} & {task.name for task in compared}
    numbers = {int(text) for text in re.findall(r"\d+", f"{settings.seeds} {settings.sections} {settings.commands}")}
    assert not {*SEEDS} & {*numbers, *(seed for task in compared for seed in task.seeds)}


def test_all_that_the_goal_asks_for_is_there(by_run, plan):
    assert {*JUDGED, CONSTANT, TUNED} <= set(by_run["method"])
    assert by_run.groupby(["task", "method", "start"])["seed"].nunique().eq(2).all()
    text = fresh_blocks(by_run, plan)[BLOCK]
    assert sum(line.startswith(tuple(f"| {name} | " for name in JUDGED)) for line in text.splitlines()) == 4 * len(
        JUDGED
    )
    assert set(by_run.loc[by_run["method"] == TUNED, "chosen"]) <= {"0.13", "0.5 / 0.13"}


def test_the_controller_of_foreign_data_starts_where_the_others_do(by_run, plan, monkeypatch):
    task, seed = plan.tasks[0], 2_690
    arms = {arm.method: arm for arm in plan.arms(task)}
    base = SMOKE.config(task.track, seed=seed, **task.settings)
    splits = TASKS[task.name].splits(base)
    offline = fresh._curve(base.replace(**arms[OFFLINE].settings), splits)
    assert [row["round"] for row in offline] == list(range(1, base.rounds + 1))
    # With the paper's rates handed in as phi, it is the constant's run.
    federation = make_federation(base.replace(**arms[CONSTANT].settings), splits)
    known = [fresh._row(record) for record in train(federation)]
    phi = {"all": [[np.log(0.13), *[0.0] * 6]] * 2}
    monkeypatch.setattr("qfl_core.extras.pretrained.read", lambda: {"phi": phi})
    assert fresh._curve(base.replace(**arms[OFFLINE].settings), splits) == known[1:]
    both = by_run[(by_run["task"] == task.name) & (by_run["seed"] == seed)].set_index("method")["spent"]
    assert both[OFFLINE] == both[CONSTANT] == 1
    assert both[BOTH] > 1  # its virtual rounds are counted


def test_the_command_writes_table_and_block(by_run, plan, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fresh, "compared_fresh", lambda settings, asked: by_run)
    (tmp_path / PAGE).write_text(empty_page([BLOCK]), encoding="utf-8")
    asked = ["controllers", "--fresh", "--profile", "smoke", "--out", str(tmp_path)]
    assert main(asked) == 0
    assert "table:" in capsys.readouterr().out
    page = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert page == with_blocks(page, fresh_blocks(by_run, plan))
    (tmp_path / PAGE).write_text(empty_page([BLOCK]), encoding="utf-8")
    assert main([*asked, "--no-training"]) == 0  # from the table that is there
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == page


def test_the_page_shows_the_table_that_the_command_wrote():
    """After a change: python -m qfl_core controllers --fresh --no-training."""
    rows = pd.read_csv(DOCS / "controller" / FILE, dtype={"start": str}).fillna({"start": ""})
    assert set(rows["seed"]) == set(SEEDS)
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert text == with_blocks(text, fresh_blocks(rows, fresh_plan(load_profile("paper"))))
