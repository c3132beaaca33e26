"""The page of fidelity: it covers every line of the paper, agrees with the list, and shows current numbers."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from qfl_core.__main__ import main
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.runs.study import get_study
from qfl_core.studies.fidelity import CHOICES, PARTS, SEEDS, Choice, measure, page
from qfl_core.studies.fidelity.choices import ALGORITHM_1, ALGORITHM_2, ALGORITHM_3
from qfl_core.studies.fidelity.differences import COLUMNS, METRICS, applicable, settings_digest
from qfl_core.studies.fidelity.markdown import NOT_MEASURED, read_measured

DOCS = Path(__file__).resolve().parent.parent / "docs"
SMALL = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}


def small_profile():
    smoke = load_profile("smoke", experiment={"common": SMALL, "genome": SMALL})
    return replace(smoke, datasets=("baf",))


def planted(settings, choice: Choice, name: str, track: str, **changes) -> pd.DataFrame:
    digest = settings_digest(settings.config(track), choice, name)
    row = {"choice": choice.key, "alternative": name, "method": choice.method, "track": track, "mean": 0.0125}
    row |= {"low": -0.25, "high": 0.275, "seeds": 10, "settings": digest}
    return pd.DataFrame([row | {"metric": metric} | changes for metric in METRICS])[list(COLUMNS)]


def choice_of(key: str) -> Choice:
    return next(choice for choice in CHOICES if choice.key == key)


def test_the_page_is_the_one_that_the_command_writes():
    """After a change of the list or of the profile: python -m qfl_core fidelity --no-training."""
    written = (DOCS / "fidelity.md").read_text(encoding="utf-8")
    assert written == page(load_profile("paper"), read_measured(DOCS / "fidelity" / "measured.csv"))


def test_what_was_measured_is_on_the_list():
    measured = read_measured(DOCS / "fidelity" / "measured.csv")
    known = {(choice.key, name) for choice in CHOICES for name in choice.alternatives}
    assert set(zip(measured["choice"], measured["alternative"], strict=True)) <= known


@pytest.mark.parametrize(("part", "last"), [(ALGORITHM_1, 19), (ALGORITHM_2, 8), (ALGORITHM_3, 7)])
def test_every_line_of_an_algorithm_has_a_row(part, last):
    covered = set()
    for choice in CHOICES:
        if choice.part == part:
            for first, end in re.findall(r"(\d+)(?: to (\d+))?", choice.where):
                covered |= set(range(int(first), int(end or first) + 1))
    assert covered == set(range(1, last + 1))


def test_every_choice_says_what_another_would_change():
    assert len({choice.key for choice in CHOICES}) == len(CHOICES)
    assert {choice.part for choice in CHOICES} == set(PARTS)
    for choice in CHOICES:
        assert bool(choice.other) != bool(choice.alternatives), choice.key


@pytest.mark.parametrize("profile", ["paper", "smoke"])
def test_every_alternative_is_a_valid_config_and_some_other_than_ours(profile):
    settings = load_profile(profile)
    for track in settings.datasets:
        base = settings.config(track)
        for choice in applicable(CHOICES, track):
            asked = choice.to_train(base)
            assert not choice.alternatives or asked, (choice.key, track)
            for changes in asked.values():
                other = settings.config(track, **changes)
                assert other == base.replace(**changes) != base
                differing = {k for k, v in other.to_dict().items() if v != base.to_dict()[k]}
                assert differing <= set(changes), choice.key


def test_another_encoding_keeps_the_angles():
    base = load_profile("paper").config("genome")
    other = base.replace(**choice_of("genome-dictionary").to_train(base)["ids along a shuffled list"])
    assert (other.angle_range, other.features) == (base.angle_range, base.features)
    assert other.encoding != base.encoding


def test_no_reported_or_searching_seed_is_used():
    for profile in ("paper", "quick", "smoke"):
        settings = load_profile(profile)
        numbers = {int(text) for text in re.findall(r"\d+", f"{settings.seeds} {settings.sections}")}
        assert not numbers & set(SEEDS), profile


def test_our_choice_shows_the_values_of_the_profile_and_names_tracks_that_differ():
    settings = load_profile("paper", experiment={"genome": {"rounds": 33}, "baf": {"rounds": 11}})
    (line,) = [row for row in page(settings, read_measured(Path("nowhere"))).splitlines() if "Communication" in row]
    assert "| baf 11, genome 33. |" in line


def test_a_number_is_shown_for_the_settings_that_it_was_measured_with_alone():
    settings, choice = load_profile("paper"), choice_of("clients")
    (name,) = choice.to_train(settings.config("baf"))
    table = planted(settings, choice, name, "baf")
    (line,) = [row for row in page(settings, table).splitlines() if row.startswith("| Number of clients")]
    assert f"**{name}**: baf global +0.013 [-0.250, +0.275], client" in line
    assert f"genome {NOT_MEASURED}" in line
    moved = load_profile("paper", experiment={"baf": {"mu": 0.5}})
    (line,) = [row for row in page(moved, table).splitlines() if row.startswith("| Number of clients")]
    assert f"baf {NOT_MEASURED}" in line


def test_differences_are_paired_and_finished_runs_are_not_repeated(tmp_path, monkeypatch):
    settings, choice = small_profile(), choice_of("initial")
    table = measure(settings, [0, 1, 2], tmp_path, [choice, choice_of("after")])
    assert list(table.columns) == list(COLUMNS)
    assert table["alternative"].unique().tolist() == ["± 0.1"]  # ± π is the profile's
    last = {
        name: get_study(settings, "baf", ["duqfl-prox"], [0, 1, 2], tmp_path, train=False, **changes).rounds
        for name, changes in {"ours": {}, "other": {"initial_range": 0.1}}.items()
    }
    ends = {name: rounds[rounds["round"] == 2].set_index("seed") for name, rounds in last.items()}
    for row in table.itertuples():
        difference = ends["other"][row.metric] - ends["ours"][row.metric]
        assert row.mean == pytest.approx(difference.mean())
        assert (row.high - row.mean) == pytest.approx(4.302653 * difference.sem(), rel=1e-5)
    monkeypatch.setattr("qfl_core.runs.study.sweep", lambda *_: pytest.fail("trained again"))
    pd.testing.assert_frame_equal(measure(settings, [0, 1, 2], tmp_path, [choice]), table)


def test_the_command_writes_page_and_numbers(tmp_path, monkeypatch, capsys):
    measured = planted(load_profile("smoke"), choice_of("simulator"), "exact probabilities", "baf")
    asked = []
    monkeypatch.setattr(
        "qfl_core.studies.fidelity.differences.measure", lambda settings, seeds: asked.append(list(seeds)) or measured
    )
    assert main(["fidelity", "--profile", "smoke", "--seeds", "3", "--out", str(tmp_path)]) == 0
    assert asked == [[2000, 2001, 2002]]
    written = (tmp_path / "fidelity.md").read_text(encoding="utf-8")
    assert "**exact probabilities**: baf global +0.013" in written
    assert main(["fidelity", "--profile", "smoke", "--no-training", "--out", str(tmp_path)]) == 0
    assert len(asked) == 1
    assert (tmp_path / "fidelity.md").read_text(encoding="utf-8") == written
    capsys.readouterr()
    assert main(["fidelity", "--seeds", "1", "--out", str(tmp_path)]) == 2
    assert "seeds" in capsys.readouterr().err


def test_a_config_of_the_package_describes_every_field_that_a_sentence_names():
    known = ExperimentConfig.describe()
    for choice in CHOICES:
        assert set(re.findall(r"\{(\w+)\}", choice.ours + choice.other)) <= set(known), choice.key
