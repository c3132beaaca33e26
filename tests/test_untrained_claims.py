"""The untrained model in DUQFL-Prox's place: its numbers are round 0's, and what round 0 lacks is told, not guessed."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from planted import planted_splits, small
from planted_claims import COLUMNS, device_table, world

from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.analysis import CLAIMS, claims_table, judge, parts_table
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.analysis.untrained_claims import UntrainedRun
from qfl_core.runs import run_experiment


def with_round_0(run, accuracy=0.9, gap=np.nan):
    """Return a planted run whose round 0 scores this much; it has no number of clients but for the gap."""
    rounds, rows = run.rounds.copy(), run.metrics[run.metrics["round"] == 1]
    first = rounds["round"] == 0
    rounds.loc[first, [c for c in rounds if c.startswith("test_")]] = 0.5
    rounds.loc[first, "global_accuracy"] = accuracy
    rounds.loc[first, "train_test_gap"] = gap
    start = rows.assign(round=0, **dict.fromkeys(CLASSIFICATION, 0.5))
    return dataclasses.replace(run, rounds=rounds, metrics=pd.concat([start, run.metrics], ignore_index=True))


def untrained(runs, **options):
    """Return the column by label."""
    tracks = {track: [with_round_0(run, **options) for run in mine] for track, mine in runs.items()}
    parts = parts_table(judge(tracks, device_table()))
    return parts.set_index("part")["untrained"].to_dict()


@pytest.fixture(scope="module")
def told_world():
    return world()


def test_initial_weights_that_score_well_pass_what_needs_no_training(told_world):
    found = untrained(told_world)
    for label in ("1a", "3a", "5a", "5b", "7a", "10a", "12a", "16a"):
        assert found[label] == "holds", label
    for label in ("7f", "7j"):  # a model that does not train does not improve
        assert found[label] == "absent", label
    assert found["9d"] in ("fails", "undecided")  # 0.9 against 0.85 lies at the edge of closeness


def test_initial_weights_that_score_badly_do_not_pass(told_world):
    found = untrained(told_world, accuracy=0.3)
    assert {found[label] for label in ("1a", "3a", "9e", "10a")} == {"fails"}


def test_what_round_0_lacks_is_told_with_its_reason(told_world):
    found = untrained(told_world)
    assert found["1b"] == found["2a"] == found["T2"] == "n/a: duqfl-prox is not in this part"
    assert found["4a"] == found["4c"] == found["11d"] == "n/a: round 0 has no train_test_gap"
    assert found["17a"] == found["19"] == "n/a: an untrained model has no trace"
    assert found["20b"] == "n/a: there is no round 0 of duqfl-prox on hardware"
    measured = untrained(told_world, gap=-0.4)
    assert (measured["4a"], measured["4c"]) == ("holds", "fails")  # a number that round 0 has is used
    alone = parts_table(judge({"baf": told_world["baf"]})).set_index("part")["untrained"]
    assert alone["1a"] == "n/a: round 0 has no global_accuracy"
    assert alone["10a"] == "n/a: there is no round 0 of duqfl-prox on genome"


def with_idle_runs(runs, **values):
    """Return the runs with those of the method ``untrained``, which has these values in every round but the first."""
    idle = []
    for run in runs:
        if run.config.method == "duqfl-prox":
            rounds = run.rounds.copy()
            rounds.loc[rounds["round"] > 0, list(values)] = list(values.values())
            idle.append(dataclasses.replace(run, config=run.config.replace(method=UNTRAINED), rounds=rounds))
    return [*runs, *idle]


def test_what_round_0_lacks_comes_from_the_runs_of_the_method_untrained(told_world):
    tracks = {name: with_idle_runs(runs, train_test_gap=-0.4, fairness_gap=0.9) for name, runs in told_world.items()}
    found = untrained(tracks)
    assert (found["4a"], found["4c"], found["11d"], found["16d"]) == ("holds", "fails", "fails", "holds")
    assert found["5a"] == "fails"  # the measured fairness gap counts, and not the concluded 0
    assert found["17a"] == "n/a: an untrained model has no trace"
    assert found["1a"] == untrained(told_world)["1a"] == "holds"  # a number that round 0 has stays
    seed = min(run.config.seed for run in tracks["baf"])
    told = {
        **tracks,
        "baf": [run for run in tracks["baf"] if (run.config.method, run.config.seed) != (UNTRAINED, seed)],
    }
    assert untrained(told)["4a"] == "holds"  # a seed without such a run is left out


def test_runs_of_the_method_untrained_change_no_verdict(told_world):
    columns = ["part", "verdict", "estimate", "low", "high", "p_corrected", "note"]
    tracks = {name: with_idle_runs(runs, train_test_gap=0.0) for name, runs in told_world.items()}
    pd.testing.assert_frame_equal(parts_table(judge(tracks))[columns], parts_table(judge(told_world))[columns])


def test_an_idle_run_fills_what_round_0_lacks_and_nothing_else(tmp_path):
    run = run_experiment(small(), tmp_path, splits=planted_splits())
    idle = run_experiment(small(method=UNTRAINED), tmp_path, splits=planted_splits())
    alone, both = UntrainedRun(run).rounds, UntrainedRun(run, idle).rounds
    later = both["round"] > 0
    for column in ("train_test_gap", "client_train_accuracy", "fairness_gap", "client_test_accuracy"):
        assert (both.loc[later, column] == idle.rounds.loc[idle.rounds["round"] > 0, column]).all(), column
    for column in ("global_accuracy", "test_roc_auc", "val_loss"):
        assert (both[column] == alone[column]).all()
    assert list(both["round"]) == list(alone["round"])


def test_clients_with_test_sets_of_their_own_have_no_untrained_number(told_world):
    runs = [with_round_0(run) for run in told_world["baf"]]
    own = [dataclasses.replace(run, config=run.config.replace(client_test="split")) for run in runs]
    found = parts_table(judge({"baf": own})).set_index("part")["untrained"]
    assert found["1a"] == "holds"
    assert found["3a"] == "n/a: round 0 has no client_test_accuracy"
    assert found["5a"] == "n/a: round 0 has no fairness_gap"


def test_the_verdicts_themselves_do_not_change(told_world):
    """Training's own numbers are judged as if the untrained model had not been asked."""
    with_start = {track: [with_round_0(run) for run in mine] for track, mine in told_world.items()}
    columns = ["part", "verdict", "estimate", "low", "high", "p_corrected"]
    pd.testing.assert_frame_equal(parts_table(judge(with_start))[columns], parts_table(judge(told_world))[columns])


def test_the_claims_table_counts_the_parts_that_the_untrained_model_passes(told_world):
    with_start = {track: [with_round_0(run) for run in mine] for track, mine in told_world.items()}
    table = claims_table(judge(with_start)).set_index("id")["untrained"]
    assert table["1"] == "1/1"  # the other part is not about DUQFL-Prox
    assert table["7"] == "5/10"
    assert (table["2"], table["17"], table["T3"]) == ("", "", "")


def test_an_untrained_run_repeats_round_0_of_a_real_one(tmp_path):
    run = run_experiment(small(), tmp_path, splits=planted_splits())
    idle = UntrainedRun(run)
    start = run.rounds[run.rounds["round"] == 0].iloc[0]
    assert list(idle.rounds["round"]) == list(run.rounds["round"])
    for column in ("global_accuracy", "test_roc_auc", "val_loss"):
        assert (idle.rounds[column] == start[column]).all()
    assert np.isnan(start["client_test_accuracy"])
    assert (idle.rounds["client_test_accuracy"] == start["global_accuracy"]).all()
    assert (idle.rounds["fairness_gap"] == 0).all()
    assert idle.rounds["train_test_gap"].isna().all()
    assert len(idle.metrics) == len(run.metrics)
    first = run.metrics[run.metrics["round"] == 0].set_index("part")
    for part, rows in idle.metrics.groupby("part"):
        assert (rows["mcc"] == first.loc[part, "mcc"]).all()


def test_the_written_table_has_an_answer_for_everything_that_an_untrained_run_measures():
    table = pd.read_csv(Path(__file__).resolve().parent.parent / "figures" / "tables" / "claim_parts.csv")
    reasons = set(table.loc[table["untrained"].str.startswith("n/a"), "untrained"].str.removeprefix("n/a: "))
    assert reasons == {
        "duqfl-prox is not in this part",
        "an untrained model has no trace",
        "there is no round 0 of duqfl-prox on hardware",
    }


def test_the_rules_say_whether_the_table_on_real_samples_has_the_untrained_runs():
    """Whoever writes that table anew removes the sentence."""
    root = Path(__file__).resolve().parent.parent
    table = pd.read_csv(root / "figures" / "tables" / "real" / "claim_parts.csv")
    lacking = table["untrained"].eq("n/a: round 0 has no train_test_gap").any()
    text = " ".join((root / "docs" / "claims.md").read_text(encoding="utf-8").split())
    assert ("is older and rests on round 0 alone: it says n/a for the train-test gaps." in text) == lacking


def test_every_part_about_duqfl_prox_on_runs_has_an_answer_or_a_reason(told_world):
    found = untrained(told_world)
    assert list(found) == [label for claim in CLAIMS for label in claim.labels]
    assert all(told in ("holds", "fails", "absent", "undecided") or told.startswith("n/a: ") for told in found.values())
    assert set(COLUMNS) >= {part.column for claim in CLAIMS for part in claim.parts if part.column}
