"""Tables over many runs: intervals are Student's, methods keep the paper's order, runs stay apart."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from qfl_core.analysis import FINAL_METRICS, cost_table, final_table, intervals, tidy
from qfl_core.analysis.inference import repeats_interval, student_half
from qfl_core.config import load_profile
from qfl_core.runs.study import facts
from qfl_core.runs.sweep import grid, sweep


def planted(values_by_method: dict[str, list[float]]) -> pd.DataFrame:
    rows = []
    for method, values in values_by_method.items():
        for seed, value in enumerate(values):
            for t in (0, 1):
                metrics = dict.fromkeys(FINAL_METRICS, value if t == 1 else np.nan)
                rows.append({"method": method, "seed": seed, "round": t, **metrics})
    return pd.DataFrame(rows)


def test_the_interval_is_student_s_over_seeds():
    values = [0.5, 0.6, 0.65, 0.7]
    found = intervals(planted({"duqfl-prox": values}), "global_accuracy", ["method"]).iloc[0]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((np.mean(values), low, high))
    assert found["seeds"] == 4


def test_one_seed_has_no_interval():
    found = intervals(planted({"duqfl-prox": [0.5]}), "global_accuracy", ["method"]).iloc[0]
    assert found["mean"] == 0.5
    assert np.isnan(found["low"])


def test_half_of_students_interval_has_the_shape_of_the_errors_and_needs_a_degree_of_freedom():
    errors = np.array([0.1, 0.2])
    assert student_half(errors, 3) == pytest.approx(stats.t.ppf(0.975, 3) * errors)
    assert student_half(1.0, 3, confidence=0.9) == pytest.approx(stats.t.ppf(0.95, 3))
    assert np.isnan(student_half(0.1, 0))


def test_the_interval_of_repeats_is_their_central_part_and_holds_the_value():
    repeats = np.linspace(0, 1, 201)
    assert repeats_interval(0.5, repeats) == pytest.approx((0.025, 0.975))
    assert repeats_interval(1.5, repeats) == pytest.approx((0.025, 1.5))


def test_the_final_table_reads_the_last_round_in_the_paper_s_order():
    table = final_table(planted({"duqfl-prox": [0.7, 0.8], "default-qfl": [0.4, 0.5]}))
    assert list(table.index) == ["Default-QFL", "DUQFL-Prox"]
    assert table.loc["DUQFL-Prox", "global accuracy"] == "0.75 ± 0.64"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    small = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100}
    base = load_profile("smoke").config("baf", source="stand-in", **small)
    folder = tmp_path_factory.mktemp("results")
    return sweep(grid(base, method=["adam-qfl", "duqfl-prox"], seed=[0, 1]), folder, jobs=1, progress=False)


def test_tidy_tables_tell_runs_apart(runs):
    rounds = tidy(runs)
    assert len(rounds) == 4 * 3
    assert rounds.groupby(["method", "seed"]).size().tolist() == [3, 3, 3, 3]
    trace = tidy(runs, "client_trace")
    assert set(trace["method"]) == {"adam-qfl", "duqfl-prox"}


def test_the_cost_table_counts_a_round_and_tuning_once(runs):
    rounds = tidy(runs)
    cost = cost_table(rounds)
    prox = rounds[(rounds["method"] == "duqfl-prox") & (rounds["round"] > 0)]
    assert cost.loc["DUQFL-Prox", "train"] == round(prox["circuits_train"].mean())
    assert cost.loc["DUQFL-Prox", "virtual"] > 0
    assert cost.loc["DUQFL-Prox", "tuning (once)"] == 0
    assert cost.loc["Adam-QFL", "tuning (once)"] > 0
    assert cost.loc["Adam-QFL", "virtual"] == 0


def test_a_footer_names_data_engine_seeds_and_profile(runs):
    assert facts(runs, "smoke") == ("data: stand-in", "engine: statevector (shots)", "2 seeds", "profile smoke")
