"""Fair tuning: one grid for all methods, the best mean over methods wins, and each method's own best is told."""

import pandas as pd
import pytest

from qfl_core.algorithm.methods import METHODS
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.studies.tuning import ALL, Tuning, planned, tuning_study

SMALL = {"train_size": 300, "val_size": 80, "test_size": 80, "source": "stand-in", "rounds": 1, "spsa_iterations": 1}


def planted() -> Tuning:
    """Return scores in which DUQFL-Prox prefers combination b, and all other methods together prefer a.

    FedProx-QFL has two levels of its own: the first is better under a, the second is far better under b.
    """
    scores = {"a": dict.fromkeys(METHODS, 0.7) | {"duqfl-prox": 0.6}, "b": dict.fromkeys(METHODS, 0.6)}
    scores["b"]["duqfl-prox"] = 0.9
    rows = [
        {"setting": setting, "method": method, "own": "", "level": "", "seed": seed, "score": score + 0.01 * seed}
        for setting, mine in scores.items()
        for method, score in mine.items()
        for seed in range(3)
    ]
    table = pd.DataFrame(rows)
    fedprox = table["method"] == "fedprox-qfl"
    table.loc[fedprox, ["own", "level"]] = ["rates", "first"]
    second = table[fedprox].assign(level="second", score=table["score"] + table["setting"].map({"a": -0.2, "b": 0.05}))
    return Tuning("baf-clean", "roc_auc", pd.concat([table, second], ignore_index=True), ())


def test_no_method_decides_alone_and_each_one_s_own_best_is_told():
    found = planted()
    assert found.chosen == "a"
    table = found.table()
    assert list(table.index) == ["a", "b"]
    assert table.loc["b", "DUQFL-Prox"].startswith("0.910 ±")
    assert table.loc["b", "DUQFL-Prox"].endswith(" *")
    assert not table.loc["a", "DUQFL-Prox"].endswith("*")
    assert table.loc["a", ALL].endswith(" *")
    costs = found.costs().set_index("method")
    assert costs.loc["DUQFL-Prox", "its own best"] == "b"
    assert costs.loc["DUQFL-Prox", "cost"] == pytest.approx(0.3)
    assert costs.drop(index="DUQFL-Prox")["cost"].abs().max() == pytest.approx(0.0)


def test_a_method_s_own_level_is_its_best_under_each_combination():
    found = planted()
    assert found.means.loc["a", "fedprox-qfl"] == pytest.approx(0.71)
    assert found.means.loc["b", "fedprox-qfl"] == pytest.approx(0.66)  # the second level there
    levels = found.levels().set_index("level")
    assert levels["taken"].to_dict() == {"first": True, "second": False}  # under the chosen combination
    assert levels["score"].to_dict() == pytest.approx({"first": 0.71, "second": 0.51})


def test_all_methods_run_every_setting_on_validation_and_read_back(tmp_path):
    profile = load_profile("smoke", experiment={"common": SMALL})
    grid = {"score": "accuracy", "choices": {"loss": ["cross_entropy", "squared_error"]}}
    own = {"rates": {"methods": ["fedprox-qfl"], "levels": {k: {"fedprox_spsa": k} for k in ("calibrated", "fixed")}}}
    section = {"seeds": [7], "tracks": {"genome-clean": grid}, "own": own}
    with pytest.raises(ConfigError, match="no grid for track 'baf-clean'; tracks: genome-clean"):
        tuning_study(profile, "baf-clean", section, tmp_path)
    with pytest.raises(ConfigError, match="score must be one of accuracy, roc_auc, got 'f1'"):
        tuning_study(profile, "genome-clean", {"seeds": [7], "tracks": {"genome-clean": grid | {"score": "f1"}}})
    with pytest.raises(RunError, match="4 runs of track"):
        tuning_study(profile, "genome-clean", section, tmp_path, train=False)
    ran = tuning_study(profile, "genome-clean", section, tmp_path)
    again = tuning_study(profile, "genome-clean", section, tmp_path, train=False)
    pd.testing.assert_frame_equal(ran.scores, again.scores)
    assert set(ran.scores["setting"]) == {"loss cross_entropy", "loss squared_error"}
    runs = ran.scores.groupby("method").size().to_dict()
    assert runs == dict.fromkeys(METHODS, 2) | {"fedprox-qfl": 4}


@pytest.mark.parametrize("name", ["paper", "quick", "smoke"])
def test_seeds_of_the_tuning_are_no_one_s_else_and_the_profile_s_setting_is_in_its_grid(name):
    profile = load_profile(name)
    section = profile.sections["protocol"]
    tuning = section["tuning"]
    others = {*profile.seeds, *section["seeds"], *section["final_seeds"], *section["refinement_seeds"]}
    assert not set(tuning["seeds"]) & {
        *others,
        *section["encodings"]["seeds"],
        *profile.sections["sensitivity"]["seeds"],
    }
    for track, mine in tuning["tracks"].items():
        config = profile.config(track)
        for field, values in mine["choices"].items():
            assert getattr(config, field) in values
        for own, _ in planned(profile, track, tuning):
            assert any(config.replace(**changes) == config for changes in own.levels.values()), own.name
