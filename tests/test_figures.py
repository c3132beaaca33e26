"""Figures: equal results give equal bytes, nothing half-written, no axis without a label."""

import matplotlib.pyplot as plt
import pytest

from qfl_core.analysis import tidy
from qfl_core.config import load_profile
from qfl_core.figures import apply_style, results, save
from qfl_core.figures.style import METHOD_COLOURS
from qfl_core.methods import METHODS
from qfl_core.sweep import grid, sweep

FACTS = ("data: stand-in", "2 seeds")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    small = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100}
    base = load_profile("smoke").config("baf", source="stand-in", **small)
    folder = tmp_path_factory.mktemp("results")
    return sweep(grid(base, method=["default-qfl", "duqfl-prox"], seed=[0, 1]), folder, jobs=1, progress=False)


def drawn(runs):
    trace = tidy([run for run in runs if run.config.method == "duqfl-prox"], "client_trace")
    methods = ["default-qfl", "duqfl-prox"]
    metrics = tidy(runs, "classification_metrics")
    return {
        "federated": results.federated_metrics(tidy(runs), methods, FACTS, {"majority class": 0.9}),
        "classification_1": results.classification_curves(metrics, methods, results.CLASSIFICATION_1, FACTS),
        "classification_2": results.classification_curves(metrics, methods, results.CLASSIFICATION_2, FACTS),
        "behaviour": results.controller_behaviour(trace, FACTS),
        "heatmaps": results.controller_heatmaps(trace, FACTS),
        "shift": results.loss_shift_trace(trace, FACTS),
        "unfold": results.unfold_level_behaviour(trace, FACTS),
    }


def test_every_figure_is_labelled_and_tells_its_origin(runs):
    apply_style()
    for name, figure in drawn(runs).items():
        panels = [axis for axis in figure.axes if axis.get_title()]
        assert len(panels) >= 2, name
        assert all(axis.get_xlabel() and axis.has_data() for axis in panels), name
        assert figure.get_supxlabel() == "data: stand-in  ·  2 seeds", name
    plt.close("all")


def test_the_same_results_draw_the_same_bytes(runs, tmp_path):
    apply_style()
    for folder in ("one", "two"):
        save(drawn(runs)["federated"], "figure", tmp_path / folder)
        plt.close("all")
    for ending in ("pdf", "png"):
        one, two = ((tmp_path / folder / f"figure.{ending}").read_bytes() for folder in ("one", "two"))
        assert one == two
        assert len(one) > 5_000
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == ["figure.pdf", "figure.png"]


def test_every_method_has_a_colour_of_its_own():
    assert set(METHOD_COLOURS) == set(METHODS)
    assert len(set(METHOD_COLOURS.values())) == len(METHODS)
