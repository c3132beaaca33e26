"""Attribution: one change at a time, paired over seeds, and a gain in accuracy that is split without a rest."""

import itertools
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted import planted_splits, small
from sklearn.metrics import accuracy_score, recall_score

from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.figures.attribution import SIGNS, attribution
from qfl_core.runs.run import run_experiment
from qfl_core.studies.attribution import (
    LINKS,
    METRICS,
    NAMES,
    OTHER,
    OWN,
    PARTS,
    WHOLE,
    Attribution,
    attribution_study,
    chain,
    last_round,
    seeds_of,
)

SMALL = {"train_size": 300, "val_size": 80, "test_size": 80, "source": "stand-in", "rounds": 2, "spsa_iterations": 1}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    profile = load_profile("smoke", experiment={"common": SMALL})
    folder = tmp_path_factory.mktemp("attribution")
    with pytest.raises(RunError, match="20 runs of track 'baf'"):
        attribution_study(profile, {"tracks": ["baf"]}, [0, 1], folder, train=False)
    attribution_study(profile, {"tracks": ["baf"]}, [0, 1], folder)
    return attribution_study(profile, {"tracks": ["baf"]}, [0, 1], folder, train=False)


@pytest.mark.parametrize("profile", ["paper", "quick", "smoke"])
def test_neighbours_of_the_chain_differ_in_one_thing(profile):
    settings = load_profile(profile)
    for track in settings.sections["attribution"]["tracks"]:
        links = {key: settings.config(track, **link) for key, link in chain(settings.config(track).client_val).items()}
        assert len(set(links.values())) == len(links)
        changed = []
        for before, after in itertools.pairwise(NAMES):
            one, two = (links[name, OWN].to_dict() for name in (before, after))
            # No method but Default-QFL reads its setting.
            unread = {"default_spsa"} if {one["method"], two["method"]} != {"default-qfl"} else set()
            changed.append({field for field in one if one[field] != two[field]} - unread)
        # Unfolding is another method with a controller that stands still; the next link lets it move.
        assert changed == [
            {"method"},
            {"default_spsa"},
            {"method", "outer_period"},
            {"outer_period"},
            {"method"},
            {"method"},
        ]
        for link in LINKS:
            if link.validated:
                one, two = (links[link.name, which].to_dict() for which in (OWN, OTHER))
                assert {field for field in one if one[field] != two[field]} == {"client_val"}


def test_without_shot_noise_unfolding_alone_changes_nothing():
    """The same steps in one block or in K: only the shots that are drawn in between could make a difference."""
    common = {"shots": None, "seed": 3}
    fixed = {"method": "default-qfl", "default_spsa": "fixed"}
    ends = [run_weights(small(**common, **link)) for link in (fixed, {"method": "duqfl-last", "outer_period": 0})]
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-12)
    assert np.abs(ends[0][-1] - ends[0][0]).max() > 1e-3


def run_weights(config):
    with tempfile.TemporaryDirectory() as folder:
        return run_experiment(config, folder, splits=planted_splits()).weights


def test_client_validation_plays_no_role_before_the_controller(tmp_path):
    for link in LINKS:
        runs = [
            run_experiment(
                small(method=link.method, client_val=mix, **link.settings), tmp_path, splits=planted_splits()
            )
            for mix in ("natural", "skewed")
        ]
        same = np.array_equal(runs[0].weights, runs[1].weights)
        # Cut into blocks, a run draws its validation shots in between; untrained and one block never notice.
        assert same == (not link.validated and link.name != "unfolding"), link.name


def test_both_parts_add_up_to_the_accuracy(found):
    last = found.last
    np.testing.assert_allclose(last["by_calls"] + last["by_telling"], last["global_accuracy"], atol=1e-12)


@pytest.mark.parametrize("share", [0.011, 0.5])
def test_a_coin_has_the_first_part_and_nothing_of_the_second(share):
    rng = np.random.default_rng(0)
    y = (np.arange(200_000) < share * 200_000).astype(int)
    for called in (0.2, 0.7):
        calls = (rng.uniform(size=len(y)) < called).astype(int)
        tp, fp = int((calls & y).sum()), int((calls & (1 - y)).sum())
        counts = {"test_tp": tp, "test_fp": fp, "test_fn": int(y.sum()) - tp, "test_tn": int((1 - y).sum()) - fp}
        rates = {"test_recall": recall_score(y, calls), "test_specificity": recall_score(1 - y, 1 - calls)}
        row = {"round": 1, "seed": 0, "global_accuracy": accuracy_score(y, calls), **counts, **rates}
        table = pd.DataFrame([row | dict.fromkeys(set(METRICS) - {*row, "called_positive"}, 0.0)])
        end = last_round(type("Rounds", (), {"rounds": table})).iloc[0]
        assert end["by_calls"] + end["by_telling"] == pytest.approx(end["global_accuracy"], abs=1e-12)
        assert end["called_positive"] == pytest.approx(called, abs=0.01)
        assert abs(end["by_telling"]) < 0.005


def test_differences_are_paired_and_add_up_to_the_whole(found):
    last = found.last[found.last["validation"] == OWN].set_index(["link", "seed"])
    rows = found.differences[found.differences["validation"] == OWN].set_index(["metric", "link"])["mean"]
    for metric in METRICS:
        expected = (last.loc[NAMES[-1], metric] - last.loc[NAMES[1], metric]).mean()
        assert rows[metric, WHOLE] == pytest.approx(expected)
        assert sum(rows[metric, name] for name in NAMES[2:]) == pytest.approx(expected)
    parts = found.parts[found.parts["validation"] == OWN].set_index(["part", "link"])["mean"]
    for name in (*NAMES[1:], WHOLE):
        assert sum(parts[part, name] for part in PARTS) == pytest.approx(rows["global_accuracy", name])


def planted(gains):
    """Return a chain on which each link adds its gain in accuracy, a little noise and nothing else."""
    rows = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        level = 0.4 + 0.2 * rng.uniform()  # seeds differ far more than links do
        for link in NAMES:
            level += gains.get(link, 0.0)
            for validation in (OWN, OTHER):
                noise = dict.fromkeys((*METRICS, *PARTS), 0.0) | {"global_accuracy": level + rng.normal(0, 0.004)}
                rows.append({"track": "baf", "validation": validation, "link": link, "seed": seed, **noise})
    return Attribution(pd.DataFrame(rows), {"baf": "natural"}, ())


def test_verdicts_tell_which_link_makes_the_difference_and_the_tables_say_so():
    study = planted({"fixed rates": 0.08, "best unfold": -0.03})
    rows = study.differences[
        (study.differences["metric"] == "global_accuracy") & (study.differences["validation"] == OWN)
    ]
    verdicts = rows.set_index("link")["verdict"].to_dict()
    assert verdicts == {
        **dict.fromkeys(NAMES[1:], "absent"),
        "fixed rates": "higher",
        "best unfold": "lower",
        WHOLE: "higher",
    }
    steps, mean = study.steps()["baf"], rows.set_index("link").loc["fixed rates", "mean"]
    assert list(steps.index) == [*NAMES[2:], WHOLE]
    assert steps["fixed rates"].startswith(f"{mean:+.3f} [")
    assert steps["fixed rates"].endswith("] higher")
    whole = study.whole()["baf"]
    assert whole["global accuracy"] == steps[WHOLE]
    assert whole["clients' validation rows"] == "natural"
    assert whole["share called positive"] == "0.000 → 0.000"


def test_the_table_has_each_level_once_and_the_figure_every_change(found):
    table = found.table()
    assert not table.duplicated(["track", "validation", "link", "metric"]).any()
    assert list(dict.fromkeys(table["link"])) == [*NAMES, WHOLE]
    assert set(table["validation"]) == {"natural", "skewed"}
    figure = attribution(found).draw()
    assert "seeds: BAF" in figure.get_supxlabel()
    assert "intervals are not" in figure.get_supxlabel()
    axes = figure.axes[: len(METRICS)]
    assert [tick.get_text() for tick in axes[0].get_yticklabels()][:3] == ["untrained", "Default-QFL", "+ fixed rates"]
    for axis in axes[:-1]:
        assert len(axis.texts) == len(NAMES) - 1
        assert all(text.get_text()[-1] in {sign for sign, _ in SIGNS.values()} for text in axis.texts)
    assert len(axes[-1].patches) == len(PARTS) * (len(NAMES) - 1)
    plt.close(figure)


def test_clean_tracks_take_the_seeds_of_studies_and_a_section_without_tracks_is_refused():
    settings = load_profile("paper")
    assert len(seeds_of(settings, "baf", settings.seeds)) == 150
    assert seeds_of(settings, "baf-clean", settings.seeds) == list(range(30))
    with pytest.raises(ConfigError, match="attribution: tracks must list at least one value, got None"):
        attribution_study(settings, {}, [0])
