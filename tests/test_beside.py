"""The paper's words beside our numbers: the second line says what the runs say."""

import pandas as pd

from qfl_core.analysis import beside
from qfl_core.analysis.untrained import UNTRAINED


def planted_rounds(methods=("duqfl-prox", "fedprox-qfl", "default-qfl", UNTRAINED), seeds=(0, 1), rounds=6):
    """Return rounds in which the accuracy of method m in round r is 0.1 m + 0.01 r, and seeds differ by 0.002."""
    rows = [
        {"method": method, "seed": seed, "round": r, **dict.fromkeys(COLUMNS, 0.1 * m + 0.01 * r + 0.002 * seed)}
        for m, method in enumerate(methods)
        for seed in seeds
        for r in range(rounds + 1)
    ]
    return pd.DataFrame(rows)


METRICS = ("f1", "mcc", "roc_auc", "precision", "specificity", "recall", "balanced_accuracy")
COLUMNS = (
    *("global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap"),
    *(f"test_{metric}" for metric in METRICS),
)


def planted_trace(seeds=(0, 1)):
    """Return a trace of two clients, two rounds and three unfolds: the loss falls by 0.3, 0.1, -0.1."""
    rows = [
        {
            "seed": seed,
            "round": r,
            "client": client,
            "unfold": k,
            "eta": 0.1 * (1 + client),
            "delta": 0.2,
            "loss_before": 1.0,
            "loss_after": 1.0 - fall,
            "displacement": 0.5 / r,
            "is_selected": k == (3 if client else 1),
        }
        for seed in seeds
        for r in (1, 2)
        for client in (0, 1)
        for k, fall in ((1, 0.3), (2, 0.1), (3, -0.1))
    ]
    return pd.DataFrame(rows)


def row(found, metric):
    """Return the cells of a metric's row."""
    return next(line for line in found.here.splitlines() if line.startswith(f"| {metric} |")).split(" | ")[1:]


def test_the_last_round_of_every_method_stands_beside_the_papers_number():
    found = beside.final_numbers(planted_rounds(), "baf")
    assert "last round, mean of 2 seeds; in brackets the paper's numbers." in found.here
    assert "| | DUQFL-Prox | FedProx-QFL | Default-QFL | untrained |" in found.here
    cells = ["0.061 ± 0.013 (0.650)", "0.161 ± 0.013 (0.534)", "0.261 ± 0.013 (0.459)", "0.361 ± 0.013 |"]
    assert row(found, "global accuracy") == cells
    assert found._repr_markdown_().startswith("**The paper says:** DUQFL-Prox has the highest")
    assert str(found).splitlines()[1].startswith("Here: last round")


def test_one_seed_has_no_interval():
    found = beside.final_numbers(planted_rounds(seeds=(0,)), "genome")
    assert row(found, "client fairness gap") == ["0.060", "0.160", "0.260", "0.360 |"]
    assert "nan" not in str(found)


def test_a_dataset_of_our_own_has_no_words_of_the_paper():
    for found in (beside.final_numbers, beside.baselines):
        assert found(planted_rounds(), "breast-cancer").paper == "nothing about this dataset."


def test_baselines_show_the_methods_at_hand_alone():
    found = beside.baselines(planted_rounds(("default-qfl", "adam-qfl", UNTRAINED)), "baf")
    assert row(found, "train-test gap") == ["0.061 ± 0.013 (0.285)", "0.161 ± 0.013", "0.261 ± 0.013 |"]
    assert "DUQFL-Prox" not in str(found)


def test_baselines_tell_where_the_accuracy_is_highest_and_where_it_ends():
    rounds = planted_rounds(("default-qfl", "adam-qfl"))
    peak = (rounds["method"] == "default-qfl") & (rounds["round"] == 1)
    rounds.loc[peak, "global_accuracy"] = 0.9
    told = beside.baselines(rounds, "baf").here
    last = rounds["round"].max()
    ends = rounds[(rounds["method"] == "default-qfl") & (rounds["round"] == last)]["global_accuracy"].mean()
    assert told.startswith(
        f"global accuracy: Default-QFL is highest in round 1, 0.900, and ends at {ends:.3f}; Adam-QFL"
    )
    assert f"Adam-QFL is highest in round {last}, " in told


def test_components_and_the_rare_class_tell_first_and_last_third():
    rounds = planted_rounds(("default-qfl", "duqfl-prox", "adam-qfl"))
    assert row(beside.components(rounds, "baf"), "global accuracy")[0] == "0.061 ± 0.013 (0.459)"
    found = beside.rare_class(rounds).here
    assert "DUQFL-Prox: F1 0.116 → 0.156" in found
    assert "its mean recall is 0.236 (DUQFL-Prox 0.136, Default-QFL 0.036)" in found


def test_the_trace_in_words():
    trace = planted_trace()
    assert "eta 0.1 to 0.2 and delta 0.2 to 0.2" in beside.rates(trace).here
    assert "falls by 0.300 in the first unfold and by 0.000 in a later one; 50% of uploads" in beside.rates(trace).here
    assert "eta by 33 % across clients, 0 % across unfolds, 0 % across rounds" in beside.rates_by_client(trace).here
    assert "differ less: eta by 33 % across clients, 0 % across unfolds;" in beside.rates_by_client(trace).here
    assert "by 0.500 in the first round and by 0.250 in the last; 67% of unfolds" in beside.movement(trace).here
    assert "falls by 0.300, 0.100, -0.100; uploads: 50%, 0%, 50%" in beside.unfolds(trace).here


def test_what_differs_from_seed_to_seed_differs_less_in_the_mean_over_seeds():
    trace = planted_trace()
    other = trace["seed"] == 1
    trace.loc[other, "eta"] = 0.1 * (2 - trace.loc[other, "client"])  # the other client has the larger rate
    told = beside.rates_by_client(trace).here
    assert "within one run, mean of 2 seeds: eta by 33 % across clients" in told
    assert "differ less: eta by 0 % across clients" in told


def test_the_paper_says_of_each_dataset_what_it_says_of_it():
    rounds = planted_rounds()
    for words in (beside.baselines, beside.components, beside.final_numbers):
        assert words(rounds, "baf").paper != words(rounds, "genome").paper
    assert "falls late" in beside.baselines(rounds, "baf").paper
    assert "fall" not in beside.baselines(rounds, "genome").paper
    assert "DUQFL-drift also improve" in beside.components(rounds, "genome").paper
    assert "improve" not in beside.components(rounds, "baf").paper


def test_the_parts_of_the_gap_add_up():
    parts = {"gap": 0.3, "shift": 0.1, "rest": 0.2}
    rows = [
        {"track": track, "method": name, "label": label, "part": part, "mean": mean, "seeds": 3}
        for track in ("baf", "genome")
        for name, label in (("duqfl-prox", "DUQFL-Prox"), ("duqfl-last", "DUQFL-last"))
        for part, mean in parts.items()
    ]
    told = beside.gaps(pd.DataFrame(rows)).here
    assert "mean of 3 seeds. baf: DUQFL-Prox 0.100 + 0.200 = 0.300. genome: DUQFL-Prox 0.100 + 0.200" in told
    assert "DUQFL-last" not in told
    rows[2]["mean"], rows[0]["mean"] = -0.02, 0.08
    assert "baf: DUQFL-Prox 0.100 - 0.020 = 0.080" in beside.gaps(pd.DataFrame(rows)).here


def test_claims_are_counted():
    assert beside.claims(["holds", "holds", "fails"]).here == "2 holds, 1 fails, of 3 claims and theory points."


def test_devices_set_the_seed_of_the_picture_beside_all_seeds():
    checkpoints = pd.DataFrame(
        [
            {"method": name, "seed": seed, "checkpoint": c, "kind": kind, "accuracy": accuracy}
            for (name, seed), accuracy in {
                ("duqfl-prox", 0): 0.4,
                ("duqfl-prox", 1): 0.8,
                ("default-qfl", 0): 0.7,
                ("default-qfl", 1): 0.6,
            }.items()
            for c in (0, 2)
            for kind in ("exact", "noisy")
        ]
    )
    steady = pd.DataFrame(
        {
            "method": ["duqfl-prox", "duqfl-prox", "default-qfl", "default-qfl"],
            "kind": "noisy",
            "seed": [0, 1, 0, 1],
            "unsteadiness": [0.1, 0.1, 0.3, 0.3],
            "distance": [0.01, 0.01, 0.02, 0.02],
        }
    )
    found = beside.devices(0, checkpoints, steady)
    assert "DUQFL-Prox 0.400, Default-QFL 0.700 in seed 0, which the picture shows, and DUQFL-Prox 0.600" in found.here
    assert "lower for DUQFL-Prox than for Default-QFL in 1 of 2 seeds, this one included. " in found.here
    assert "in 1 of 2 seeds, this one not included. " in beside.devices(1, checkpoints, steady).here
    assert "seeds, this one" not in beside.devices(0, checkpoints[checkpoints["seed"] == 0], steady[::2]).here
    assert "DUQFL-Prox 0.100 ± 0.000, Default-QFL 0.300 ± 0.000" in found.here


def test_a_question_is_answered_on_the_seeds_that_both_have():
    stored = planted_rounds(("duqfl-prox",), seeds=(0, 1, 2))
    asked = planted_rounds(("duqfl-prox",), seeds=(0, 1))
    asked[list(COLUMNS)] += 0.05
    table = beside.question(stored, asked)
    assert table.loc["global accuracy"].tolist() == ["0.061", "0.111", "0.050 ± 0.000"]
