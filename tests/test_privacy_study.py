"""The privacy study: its cases, what is compared with what, reading back, its figure, its section in the profiles."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from qfl_core.base.errors import ConfigError, RunError
from qfl_core.config import load_profile
from qfl_core.extras.accountant import epsilon, gaussian_rdp
from qfl_core.figures.privacy import privacy as sheet
from qfl_core.studies.privacy import OPEN, Case, PrivacyStudy, metric_of, privacy_study, privacy_variants

SMALL = {"train_size": 300, "val_size": 80, "test_size": 80, "source": "stand-in", "rounds": 2, "spsa_iterations": 1}
SECTION = {"tracks": ["baf-clean"], "clients": [3, 6], "noise": [0, 2], "clip": 0.5, "seeds": [0, 1]}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> PrivacyStudy:
    profile, folder = load_profile("smoke", experiment={"common": SMALL}), tmp_path_factory.mktemp("privacy")
    with pytest.raises(RunError, match="12 runs of"):
        privacy_study(profile, SECTION, folder, train=False)
    ran = privacy_study(profile, SECTION, folder)
    pd.testing.assert_frame_equal(ran.table(), privacy_study(profile, SECTION, folder, train=False).table())
    return ran


def test_every_case_reaches_its_runs(found):
    assert list(found.studies["baf-clean"]) == [Case(n, z) for n in (3, 6) for z in (OPEN, 0.0, 2.0)]
    for case, study in found.studies["baf-clean"].items():
        for run in study.runs:
            noise = None if case.noise == OPEN else case.noise
            assert (run.config.clients, run.config.dp_noise, run.config.dp_clip) == (case.clients, noise, 0.5)
            assert run.config.outer_period == 0


def test_epsilon_is_that_of_all_rounds_and_the_same_for_few_and_many(found):
    expected = epsilon(2 * gaussian_rdp(2.0), 1e-5)
    assert found.epsilons["baf-clean", Case(3, 2.0)] == found.epsilons["baf-clean", Case(6, 2.0)]
    assert found.epsilons["baf-clean", Case(3, 2.0)] == pytest.approx(expected)
    assert np.isinf(found.epsilons["baf-clean", Case(3, 0.0)])


def test_differences_are_paired_with_as_many_clients_without_privacy(found):
    rows = found.differences.set_index(["clients", "noise"])
    assert len(rows) == 4
    of = {case: found._last("baf-clean", case) for case in found.studies["baf-clean"]}
    assert rows.loc[(6, 2.0), "mean"] == pytest.approx((of[Case(6, 2.0)] - of[Case(6, OPEN)]).mean())
    table = found.verdicts()
    assert list(table) == ["clipping alone", "noise z = 2"]
    assert table.loc[("baf-clean, ROC-AUC", 6), "noise z = 2"].startswith(f"{rows.loc[(6, 2.0), 'mean']:+.3f} [")
    assert found.budgets().loc["baf-clean", 2.0] == pytest.approx(epsilon(2 * gaussian_rdp(2.0), 1e-5))


def test_fraud_is_scored_by_roc_auc_and_genome_by_accuracy():
    assert (metric_of("baf-clean"), metric_of("genome-clean")) == ("test_roc_auc", "global_accuracy")


def test_the_figure_has_a_panel_per_track_and_the_unprotected_runs(found):
    figure = sheet(found).draw()
    (panel,) = (axis for axis in figure.axes if axis.get_title())
    assert panel.get_title().startswith("BAF clean: ROC-AUC")
    assert panel.get_xscale() == "steady log"
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert sorted(labels) == ["3 clients", "6 clients", "the same clients without privacy", "untrained"]
    plt.close(figure)


def test_a_section_without_clients_or_noise_is_refused():
    for name in ("clients", "noise", "seeds", "tracks", "clip"):
        with pytest.raises(ConfigError, match=f"privacy: {name} must have at least one value"):
            privacy_study(load_profile("smoke"), SECTION | {name: []})


@pytest.mark.parametrize("name", ["paper", "quick", "smoke"])
def test_every_case_of_the_profiles_makes_a_config_of_its_own(name):
    profile = load_profile(name)
    section = profile.sections["privacy"]
    for track in section["tracks"]:
        variants = privacy_variants(section, track)
        assert len({profile.config(track, **overrides) for overrides in variants.values()}) == len(variants)
