"""Sensitivity: each setting reaches the config, gains are paired over seeds, studies read back without training."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from qfl_core.analysis.untrained import START_FACT
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.base.numbers import significant
from qfl_core.config import load_profile
from qfl_core.figures import studies
from qfl_core.studies.sensitivity import (
    FROZEN,
    METRICS,
    SETTINGS,
    ControllerStudy,
    controller_section,
    controller_study,
    sensitivity_study,
)

SMALL = {"train_size": 300, "val_size": 80, "test_size": 80, "source": "stand-in", "rounds": 2, "spsa_iterations": 1}
SECTION = {
    "tracks": ["baf"],
    "seeds": [0, 1],
    "settings": {"baf": {"clients": 3}},
    "controller": {
        "tracks": ["baf"],
        "levels": {f"rate {rate}": {"outer_period": 1, "outer_learning_rate": rate} for rate in (1, 50)},
    },
    "mu": [0, 1],
    "dirichlet_alpha": ["iid", 0.5],
}


@pytest.fixture(scope="module")
def profile():
    return load_profile("smoke", experiment={"common": SMALL})


@pytest.mark.parametrize("name", ["paper", "quick", "smoke"])
def test_every_level_of_the_profiles_makes_a_config_of_its_own(name):
    profile = load_profile(name)
    section = profile.sections["sensitivity"]
    for setting, how in SETTINGS.items():
        configs = {profile.config(section["tracks"][0], **how.overrides(level)) for level in section[setting]}
        assert len(configs) == len(section[setting]), setting
    learnt = controller_section(section)
    for track in learnt["tracks"]:
        configs = {profile.config(track, **level) for level in learnt["levels"].values()}
        assert len(configs) == len(learnt["levels"]), track


def test_the_levels_reach_the_runs_and_read_back_without_training(profile, tmp_path):
    with pytest.raises(RunError, match="4 runs of"):
        sensitivity_study(profile, SECTION, "dirichlet_alpha", tmp_path, train=False)
    ran = sensitivity_study(profile, SECTION, "dirichlet_alpha", tmp_path)
    configs = {level: study.runs[0].config for level, study in ran.studies["baf"].items()}
    assert {level: config.split for level, config in configs.items()} == {"iid": "iid", 0.5: "dirichlet"}
    assert {config.clients for config in configs.values()} == {3}
    again = sensitivity_study(profile, SECTION, "dirichlet_alpha", tmp_path, train=False)
    pd.testing.assert_frame_equal(ran.table(), again.table())
    assert set(ran.table()["metric"]) == set(METRICS)
    assert list(ran.summary().index) == [("baf", "iid"), ("baf", 0.5)]
    figure = studies.sensitivity(ran, "concentration").draw()
    assert [axis.get_title() for axis in figure.axes] == [f"{title}, BAF" for title in METRICS.values()]
    untrained = [
        [line for line in axis.lines if line.get_linestyle() == "-." and len(line.get_xdata())] for axis in figure.axes
    ]
    assert [len(lines) for lines in untrained] == [1, 1, 0, 0]  # the gaps are not scores of the global model
    start = pd.concat([study.rounds for study in ran.studies["baf"].values()]).query("round == 0")
    for (line,), metric in zip(untrained[:2], METRICS, strict=False):
        assert line.get_ydata()[0] == pytest.approx(start[metric].mean())
    assert START_FACT in figure.get_supxlabel()
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["iid", "0.5"]
    plt.close(figure)


def test_frozen_controllers_keep_their_rates_and_learnt_ones_move_them(profile, tmp_path):
    found = controller_study(profile, SECTION, tmp_path)
    rates = found.rates().set_index("level")
    assert rates.loc[FROZEN, "eta"] == pytest.approx(0.13)
    assert rates["eta"].drop(index=FROZEN).sub(0.13).abs().min() > 1e-6
    pd.testing.assert_frame_equal(found.gains(), controller_study(profile, SECTION, tmp_path, train=False).gains())
    figure = studies.controller_learning(found).draw()
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert len(panels) == 5
    assert all(axis.get_xlabel() for axis in panels)
    assert all(axis.has_data() for axis in panels[:-1])
    told = [text.get_text() for text in panels[-1].texts]
    assert len(told) == 3 * len(found.traces)  # across clients, unfolds, rounds
    eta = found.variations().query("rate == 'eta' and across == 'rounds'")["mean"]
    assert {text.split(" / ")[0] for text in told} >= {significant(value, 2) for value in eta if value >= 0.1}
    plt.close(figure)


def test_a_bar_is_cut_where_it_alone_would_set_the_scale_and_a_number_tells_its_end():
    lows = [-0.67, -0.08, -0.008, -0.004, -0.001]
    table = pd.DataFrame({"track": "baf", "level": list("abcde"), "mean": [-0.07, -0.02, 0, 0, 0], "low": lows})
    table = table.assign(high=0.01, margin=0.02, verdict="absent")
    shown = studies._shown(table)
    assert shown["from"].tolist() == pytest.approx([-0.096, *lows[1:]])  # a little longer than the longest of the rest
    assert shown["to"].tolist() == table["high"].tolist()
    figure, axis = plt.subplots()
    studies._gains(axis, shown, ("baf",), dict(zip("abcde", "abcde", strict=True)), "gains")
    assert [text.get_text() for text in axis.texts if text.get_text() != "absent"] == ["−0.67"]
    assert axis.get_xlim()[0] > -0.12
    plt.close(figure)
    alike = studies._shown(table.assign(low=-0.67, high=0.5))
    assert not studies._cut(alike).any(axis=None)  # where most are long, the axis is


def test_the_profile_s_own_level_is_known_where_its_runs_have_the_profile_s_settings(profile, tmp_path):
    plain = load_profile("smoke")
    runs = SECTION | {"settings": {}, "clients": [2, plain.config("baf").clients], "seeds": [0]}
    found = sensitivity_study(plain, runs, "clients", tmp_path)
    assert studies.own_levels(found) == {"baf": plain.config("baf").clients}
    changed = sensitivity_study(profile, SECTION | {"mu": [0, 0.01]}, "mu", tmp_path)
    assert studies.own_levels(changed) == {}


def planted(shifts: dict[str, float]) -> ControllerStudy:
    """Return a study whose learnt levels differ from the frozen one by a shift and a little noise."""
    rows = []
    for seed in range(8):
        base = 0.3 + 0.1 * seed  # seeds differ far more than controllers do
        rows.append({"track": "baf", "seed": seed, "level": FROZEN, "global_accuracy": base})
        for level, shift in shifts.items():
            noise = 0.004 * (-1) ** seed
            rows.append({"track": "baf", "seed": seed, "level": level, "global_accuracy": base + shift + noise})
    study = ControllerStudy("controller", {}, FROZEN)
    study.__dict__["last"] = pd.DataFrame(rows)
    return study


def test_gains_are_paired_so_that_a_small_steady_one_is_seen_and_none_is_not_claimed():
    study = planted({"up": 0.02, "down": -0.02, "same": 0.0})
    verdicts = study.gains().set_index("level")["verdict"].to_dict()
    assert verdicts == {"up": "higher", "down": "lower", "same": "absent"}
    texts = study.verdicts()["baf"]
    assert [text.split()[-1] for text in texts[["up", "down", "same"]]] == ["higher", "lower", "absent"]
    assert texts["up"].startswith("+0.020 [")


def test_levels_are_compared_with_the_profile_s_own_where_it_is_one_of_them(profile, tmp_path):
    section = SECTION | {"mu": [0, 0.01, 1]}
    assert profile.config("baf").mu == 0.01
    found = sensitivity_study(profile, section, "mu", tmp_path)
    assert found.base == 0.01
    gains = found.gains("fairness_gap").set_index("level")
    assert list(gains.index) == [0, 1]
    last = found.last.set_index(["level", "seed"])["fairness_gap"]
    assert gains.loc[1, "mean"] == pytest.approx((last[1] - last[0.01]).mean())
    assert set(gains["verdict"]) == {"undecided"}  # two seeds cannot show anything
    assert (
        sensitivity_study(profile, SECTION, "dirichlet_alpha", tmp_path).base == "iid"
    )  # the profile has none of them


def test_a_wrong_section_is_refused_with_the_choices(profile, tmp_path):
    with pytest.raises(ConfigError, match="unknown sensitivity 'client' .did you mean 'clients'"):
        sensitivity_study(profile, SECTION, "client", tmp_path)
    with pytest.raises(ConfigError, match="controller must list at least one value"):
        controller_study(profile, SECTION | {"controller": {}}, tmp_path)
    with pytest.raises(ConfigError, match="levels must list at least one value"):
        controller_study(profile, SECTION | {"controller": {"tracks": ["baf"]}}, tmp_path)
    with pytest.raises(ConfigError, match="participation must list at least one value"):
        sensitivity_study(profile, SECTION, "participation", tmp_path)
