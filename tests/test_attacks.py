"""The attack study: its cases, what is compared with what, reading back, its figure, its section in the profiles."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.figures.attacks import attacks as sheet
from qfl_core.studies import attacks
from qfl_core.studies.attacks import DEFENCES, AttackStudy, Case, attack_study

SMALL = {"train_size": 300, "val_size": 80, "test_size": 80, "source": "stand-in", "rounds": 1, "spsa_iterations": 1}
SECTION = {"tracks": {"baf": ["collusion"]}, "share": 0.25, "shares": [0.5], "seeds": [0, 1]}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> AttackStudy:
    profile, folder = load_profile("smoke", experiment={"common": SMALL}), tmp_path_factory.mktemp("attacks")
    with pytest.raises(RunError, match="42 runs of"):
        attack_study(profile, SECTION, folder, train=False)
    ran = attack_study(profile, SECTION, folder)
    pd.testing.assert_frame_equal(ran.table(), attack_study(profile, SECTION, folder, train=False).table())
    return ran


def test_every_case_reaches_its_runs(found):
    assert list(found.studies["baf"]) == [Case("none", 0.0, d) for d in DEFENCES] + [
        Case("collusion", share, d) for share in (0.25, 0.5) for d in DEFENCES
    ]
    for case, study in found.studies["baf"].items():
        for run in study.runs:
            config = run.config
            assert (config.attack, config.attackers, config.tolerated) == (case.attack, case.share, 0.25)
            defence = {"aggregation": "own", "screening": None} | DEFENCES[case.defence]
            assert {name: getattr(config, name) for name in defence} == defence


def test_differences_are_paired_over_seeds_and_compare_like_with_like(found):
    last = found.last.set_index(["attack", "share", "defence", "seed"])["global_accuracy"].sort_index()
    rows = found.differences.set_index(["compared", "attack", "defence"]).sort_index()
    assert len(rows) == 6 + 1 + 6
    expected = {
        ("harm", "collusion", "mean"): last["collusion", 0.25, "mean"] - last["none", 0.0, "mean"],
        ("gain", "collusion", "krum"): last["collusion", 0.25, "krum"] - last["collusion", 0.25, "mean"],
        ("cost", "none", "krum"): last["none", 0.0, "krum"] - last["none", 0.0, "mean"],
    }
    for key, values in expected.items():
        assert rows.loc[key, "mean"] == pytest.approx(values.mean())


def test_the_figure_has_a_table_the_cost_and_the_shares(found):
    figure = sheet(found).draw()
    matrix, cost, shares = (axis for axis in figure.axes if axis.get_title())
    assert len(matrix.texts) == 2 * len(DEFENCES)
    assert [tick.get_text() for tick in matrix.get_yticklabels()] == ["nobody attacks", "collusion"]
    assert len(cost.get_yticks()) == len(DEFENCES) - 1
    curves = [line for line in shares.lines if len(line.get_xdata()) == 3]
    assert {tuple(line.get_xdata()) for line in curves} == {(0, 0.25, 0.5)}
    assert len({line.get_marker() for line in curves}) == len(DEFENCES)  # told apart without colours
    assert shares.get_title().startswith("Global accuracy")
    written = [
        tick.get_text() for axis in (matrix, cost) for tick in (*axis.get_xticklabels(), *axis.get_yticklabels())
    ]
    assert "trimmed mean" in written
    assert not set(DEFENCES) & set(written) - {"mean", "median", "screening"}
    assert "no sign: undecided or absent" in matrix.get_xlabel()
    assert "intervals are not" in figure.get_supxlabel()
    (untrained,) = (line for line in shares.lines if line.get_label() == "untrained")
    start = pd.concat([study.rounds for study in found.studies["baf"].values()]).query("round == 0")
    assert untrained.get_ydata()[0] == pytest.approx(start["global_accuracy"].mean())
    plt.close(figure)


def planted(attack: float, median: float, cost: float) -> AttackStudy:
    """Return a study of one attack whose differences are given, with a little noise over twelve seeds."""

    class Planted:
        def __init__(self, mean: float, tilt: float):
            values = [mean + 1e-3 * tilt * (seed % 4 - 1.5) for seed in range(12)]
            self.rounds = pd.DataFrame({"seed": range(12), "round": 1, "global_accuracy": values})

    means = {("none", "mean"): 0.9, ("none", "median"): 0.9 + cost}
    means |= {("noise", "mean"): 0.9 + attack, ("noise", "median"): 0.9 + attack + median}
    cases = {
        Case(a, 0.2 if a != "none" else 0.0, d): Planted(mean, 1 + i) for i, ((a, d), mean) in enumerate(means.items())
    }
    return AttackStudy({"baf": cases}, 0.2)


def test_the_verdicts_say_what_harms_what_protects_and_what_it_costs():
    found = planted(-0.3, 0.25, -0.1).verdicts().loc["baf"]
    assert found.loc["noise", "without a defence"].startswith("-0.300 [")
    assert found.loc["noise", "without a defence"].endswith("] lower")
    assert list(found.loc["noise"])[1:] == ["median (+0.250)", "none shown"]
    assert list(found.loc["nobody attacks"]) == ["", "none shown", "median (-0.100)"]
    found = planted(0.0, -0.2, 0.0).verdicts().loc["baf"]
    assert found.loc["noise", "without a defence"].endswith("] absent")
    assert list(found.loc["noise"])[1:] == ["none shown", "median (-0.200)"]
    assert list(found.loc["nobody attacks"])[1:] == ["none shown", "none shown"]


def test_a_section_without_attacks_or_with_an_unknown_one_is_refused():
    profile = load_profile("smoke")
    with pytest.raises(ConfigError, match="attacks: seeds must have at least one value"):
        attack_study(profile, SECTION | {"seeds": []})
    with pytest.raises(ConfigError, match="'bribe' is not valid: expected one of none, noise"):
        attack_study(profile, SECTION | {"tracks": {"baf": ["bribe"]}})


@pytest.mark.parametrize("name", ["paper", "quick", "smoke"])
def test_every_case_of_the_profiles_makes_a_config_of_its_own(name):
    profile = load_profile(name)
    section = profile.sections["attacks"]
    for track in section["tracks"]:
        variants = attacks.attack_variants(section, track)
        assert len({profile.config(track, **overrides) for overrides in variants.values()}) == len(variants)
