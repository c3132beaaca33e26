"""The protocol search: the fraction is balanced, the distance is the stated one, and a planted truth wins."""

import dataclasses
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from qfl_core.__main__ import main
from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.figures import studies
from qfl_core.studies.protocol import (
    ALL,
    DEFAULTS,
    Plan,
    Search,
    Stage,
    finalists,
    paper_numbers,
    predicted,
    profile_candidate,
    protocol_search,
    write_search,
)
from qfl_core.studies.protocol.command import report
from qfl_core.studies.protocol.distance import distance, half_interval


def plan(complete=True) -> Plan:
    return Plan.of(load_profile("paper").sections["protocol"], complete)


def two_levels(**changes) -> Plan:
    section = {
        "tracks": ["baf"],
        "factors": {
            "clients": {"2": {"clients": 2}, "3": {"clients": 3}},
            "loss": {"cross entropy": {"loss": "cross_entropy"}, "squared error": {"loss": "squared_error"}},
        },
        "seeds": [100, 101],
        "finalists": 1,
        "final_seeds": [110, 111, 112],
    }
    return Plan.of(section | changes)


def levels(candidates) -> np.ndarray:
    return np.array([[1 - 2 * int(digit) for digit in candidate] for candidate in candidates])


@pytest.mark.parametrize("complete", [False, True])
def test_no_main_effect_of_the_paper_profile_is_mixed_with_another_or_with_a_pair(complete):
    found = levels(plan(complete).candidates)
    assert len(found) == (32 if complete else 16)
    assert (found.sum(axis=0) == 0).all()
    for i, j in itertools.combinations(range(8), 2):
        assert (found[:, i] * found[:, j]).sum() == 0
        for k in set(range(8)) - {i, j}:
            assert abs((found[:, i] * found[:, j] * found[:, k]).sum()) < len(found)


def test_the_search_never_uses_a_seed_whose_results_are_reported():
    reported = set(load_profile("paper").seeds)
    for complete in (False, True):
        used = plan(complete)
        assert not reported & {*used.seeds, *used.final_seeds}
        assert not set(used.seeds) & set(used.final_seeds)


def test_the_settings_of_every_combination_make_a_config():
    profile, tried = load_profile("paper"), plan()
    assert len(tried.combinations) == 256
    found = {profile.config("baf", **tried.settings(candidate)).digest for candidate in tried.combinations}
    assert len(found) == 256
    assert tried.settings(DEFAULTS) == {}


def test_the_twelve_numbers_of_baf_and_the_four_of_genome_are_the_targets():
    counts = paper_numbers(["baf", "genome"]).groupby("track").size()
    assert counts.to_dict() == {"baf": 12, "genome": 4}


def test_distance_is_the_root_mean_square():
    assert distance(np.array([0.3, 0.5]), np.array([0.0, 0.1])) == pytest.approx(np.sqrt((0.09 + 0.16) / 2))
    assert distance(paper_numbers(["baf"]).to_numpy(), paper_numbers(["baf"]).to_numpy()) == 0


def test_the_jackknife_interval_of_a_mean_is_students():
    values = np.random.default_rng(0).normal(size=(1, 7, 1))
    half = half_interval(lambda kept: kept.mean(axis=1)[:, 0], values)
    assert half[0] == pytest.approx(2.446912 * values.std(ddof=1) / np.sqrt(7))
    assert np.isnan(half_interval(lambda kept: kept.mean(axis=1)[:, 0], values[:, :2])).all()


def planted(tried: Plan, truth: str, seed: int = 0) -> Stage:
    """Return a screening whose numbers are additive in the levels and the paper's where all levels are the truth's."""
    rng = np.random.default_rng(seed)
    paper = paper_numbers(tried.tracks)
    wrong = np.array([[a != b for a, b in zip(c, truth, strict=True)] for c in tried.candidates])
    shifts = rng.choice([-1, 1], (len(truth), len(paper))) * rng.uniform(0.02, 0.08, (len(truth), len(paper)))
    mean = paper.to_numpy() + wrong @ shifts
    noise = rng.normal(0, 0.01, (len(mean), len(tried.seeds), len(paper)))
    return Stage(tuple(tried.candidates), mean[:, None] + noise, paper)


@pytest.mark.parametrize("truth", ["01101001", "10000000"])
def test_a_planted_protocol_is_predicted_even_where_it_was_not_screened(truth):
    tried = plan()
    screening = planted(tried, truth)
    assert predicted(tried, screening)[ALL].idxmin() == truth
    assert truth not in tried.candidates
    chosen = finalists(tried, screening)
    assert chosen[:2] == [DEFAULTS, truth]
    assert len(chosen) == len(set(chosen))


def test_a_factor_that_does_nothing_shows_no_effect_and_one_that_does_shows_its_own():
    tried = plan()
    screening = planted(tried, "00000000")
    first = np.array([int(c[0]) for c in screening.candidates])
    only_loss = screening.paper.to_numpy() + 0.2 * first[:, None, None] + 0.05
    rng = np.random.default_rng(1)
    numbers = np.repeat(only_loss, len(tried.seeds), axis=1) + rng.normal(0, 0.01, screening.numbers.shape)
    search = Search(tried, dataclasses.replace(screening, numbers=numbers), None, ())
    effects = search.effects[search.effects["track"] == ALL].set_index("factor")
    assert effects.loc["loss", "effect"] == pytest.approx(0.2, abs=0.01)
    others = effects.drop(index="loss")
    assert (others["effect"].abs() < 0.01).all()
    assert (effects["low"] < effects["effect"]).all()


def test_the_difference_of_two_candidates_is_paired_over_seeds():
    """Noise that both share cancels: the interval of the difference is far below that of either distance."""
    paper = paper_numbers(["baf"])
    shared = np.random.default_rng(2).normal(0, 0.1, (6, 1))
    numbers = np.stack([paper.to_numpy() + 0.3 + shared, paper.to_numpy() + 0.35 + shared])
    stage = Stage(("a", "b"), numbers, paper)
    difference, half = stage.difference("a", "b")
    assert difference == pytest.approx(-0.05, abs=1e-9)
    assert half < 1e-6 < 0.01 < stage.table[f"{ALL} ±"].min()
    assert stage.ranked() == ["a", "b"]


def test_the_profiles_own_settings_are_recognised_among_the_candidates():
    """Else they would run in the final twice, under two names."""
    tried = two_levels()
    assert profile_candidate(load_profile("smoke", experiment={"baf": {"clients": 3}}), tried) == "10"
    assert profile_candidate(load_profile("smoke", experiment={"baf": {"clients": 9}}), tried) == DEFAULTS
    screening = planted(plan(), "01101001")
    assert finalists(plan(), screening, "01101001").count("01101001") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factor": {}}, "unknown key 'factor' .did you mean 'factors'"),
        ({"tracks": ["genome-clean"]}, "the paper prints no numbers for 'genome-clean'"),
        ({"seeds": []}, "seeds must name at least one"),
        ({"final_seeds": [100, 120]}, "seeds that screening does not use"),
        ({"parity": {"loss": ["client"]}}, "parity takes factors of two levels, got 'client'"),
    ],
)
def test_a_wrong_plan_is_refused_with_the_reason(changes, message):
    with pytest.raises(ConfigError, match=message):
        two_levels(**changes)


def test_a_search_runs_then_reads_back_the_same_and_trains_nothing(tmp_path):
    small = {
        "rounds": 1,
        "train_size": 200,
        "val_size": 60,
        "test_size": 60,
        "source": "stand-in",
        "spsa_iterations": 1,
    }
    profile = load_profile("smoke", experiment={"common": small})
    tried = two_levels()
    with pytest.raises(RunError, match="24 runs of track"):
        protocol_search(profile, tried, tmp_path, train=False)
    ran = protocol_search(profile, tried, tmp_path)
    again = protocol_search(profile, tried, tmp_path, train=False)
    pd.testing.assert_frame_equal(ran.candidates, again.candidates)
    assert ran.winner == again.winner != ran.runner_up
    assert DEFAULTS in ran.final.candidates
    written = write_search(ran, tmp_path / "tables")
    table = pd.read_csv(written[0])
    assert table["stage"].value_counts().to_dict() == {"screening": 4, "final": len(ran.final.candidates)}
    assert table["origin"].str.contains("data: stand-in").all()
    # The command's report names the deciding candidates with what the seeds say of them.
    told = report(ran)
    assert told.startswith("4 candidates screened")
    for role in ("winner: all", "runner-up: all", "profile: all", "closest on baf", "winner - "):
        assert f"\n{role}" in told
    figure = studies.protocol_search(ran).draw()
    assert len(figure.axes) == 3
    assert all(axis.get_title() and axis.get_xlabel() and axis.has_data() for axis in figure.axes)
    assert "4 candidates screened with 2 seeds" in figure.get_supxlabel()
    plt.close(figure)


def test_the_command_writes_tables_figure_and_report_or_says_why_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("qfl_core.runs.study.results_dir", lambda profile: tmp_path / "results" / profile)
    assert main(["protocol", "--profile", "nonsense", "--out", str(tmp_path / "out")]) == 2
    assert "unknown profile 'nonsense'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with plt.rc_context():
        assert main(["protocol", "--profile", "smoke", "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figure = {"protocol_search.pdf", "protocol_search.png"}
    assert names == {"protocol_candidates.csv", "protocol_effects.csv", "report.txt"} | figure
    assert (tmp_path / "out" / "report.txt").read_text(encoding="utf-8") in capsys.readouterr().out
