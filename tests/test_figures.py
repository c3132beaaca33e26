"""Figures: equal results give equal bytes, nothing half-written, no axis without a label."""

import matplotlib.pyplot as plt
import pytest
from test_architecture import PACKAGE, imports

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import cost_table
from qfl_core.config import load_profile
from qfl_core.figures import apply_style, results
from qfl_core.figures.style import METHOD_COLOURS, write
from qfl_core.runs.study import get_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    small = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}
    folder = tmp_path_factory.mktemp("results")
    return get_study(load_profile("smoke"), "baf", ["default-qfl", "duqfl-prox"], [0, 1], folder, **small)


@pytest.fixture
def sheets(study):
    apply_style()
    ours = study.of("duqfl-prox")
    yield [
        results.federated_metrics(study, "federated", "baf"),
        results.classification_curves(study, "metrics_BAF_1", results.CLASSIFICATION_1),
        results.classification_curves(study, "metrics_BAF_2", results.CLASSIFICATION_2, fairness=True),
        results.controller_behaviour(ours),
        results.controller_heatmaps(ours),
        results.loss_shift_trace(ours),
        results.unfold_level_behaviour(ours),
        results.cost_per_method({"baf": study}, {"baf": cost_table(study.rounds)}),
    ]
    plt.close("all")


def test_every_figure_is_labelled_and_tells_its_origin(sheets):
    for sheet in sheets:
        figure = sheet.draw()
        panels = [axis for axis in figure.axes if axis.get_title()]
        assert len(panels) == len(sheet.panels), sheet.name
        assert all(axis.get_xlabel() and axis.has_data() for axis in panels), sheet.name
        assert "data: stand-in" in figure.get_supxlabel(), sheet.name


def test_a_panel_alone_keeps_its_title_legend_and_origin(sheets):
    whole = sheets[0].draw()
    for axis, name in zip(whole.axes, sheets[0].panels, strict=True):
        alone = sheets[0].draw(name)
        assert [a.get_title() for a in alone.axes] == [axis.get_title()]
        entries = {text.get_text() for text in alone.legends[0].get_texts()}
        assert entries <= {text.get_text() for text in whole.legends[0].get_texts()}
        assert "DUQFL-Prox" in entries
        assert alone.get_supxlabel().split() == whole.get_supxlabel().split()


def test_neither_legend_nor_footer_covers_a_panel_also_once_written(sheets, tmp_path):
    for sheet in sheets:
        figure = sheet.draw()
        write(figure, sheet.name, tmp_path)
        lowest = min(axis.get_tightbbox().y0 for axis in figure.axes)
        footer = figure._supxlabel.get_window_extent()
        for legend in figure.legends:
            assert legend.get_window_extent().y1 <= lowest + 1, sheet.name
            assert footer.y1 <= legend.get_window_extent().y0 + 1, sheet.name
        assert footer.y1 <= lowest + 1, sheet.name


def test_no_two_panels_share_a_file(sheets):
    names = [name for sheet in sheets for name in (sheet.name, *sheet.panels)]
    assert len(names) == len(set(names))


def test_the_same_results_draw_the_same_bytes(sheets, tmp_path):
    for folder in ("one", "two"):
        sheets[0].save(tmp_path / folder, panels=True, jobs=1 if folder == "one" else 2)
    first = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    names = ["federated", *(f"panels/{name}" for name in sheets[0].panels)]
    assert sorted(map(str, first)) == sorted(f"{name}.{ending}" for name in names for ending in ("pdf", "png"))
    for path in first:
        one, two = ((tmp_path / folder / path).read_bytes() for folder in ("one", "two"))
        assert one == two
        assert len(one) > 5_000


def imported(room: str) -> set[str]:
    """Return everything that a room's modules import, as dotted names."""
    return {name for path in (PACKAGE / room).rglob("*.py") for name in imports(path)}


@pytest.mark.parametrize("room", ["analysis", "figures"])
def test_analysis_and_figures_train_nothing(room):
    trainers = ("client", "server", "meta", "federation", "optimizers")
    modules = (*(f"qfl_core.algorithm.{name}." for name in trainers), "qfl_core.runs.sweep.", "sklearn")
    names = imported(room)
    assert not [name for name in names if name.startswith(modules)]
    functions = {"run_experiment", "get_study", "get_variants", "pooled_scores", "encoding_search", "clean_study"}
    functions |= {"sensitivity_study", "controller_study", "extras_study", "protocol_search", "check_theory"}
    assert not functions & {name.rpartition(".")[2] for name in names}
    if room == "analysis":
        assert not [name for name in names if name.startswith(("qfl_core.studies", "qfl_core.figures"))]


def test_panels_drawn_in_other_processes_have_the_style_of_this_one(sheets, tmp_path):
    apply_style(final=False)
    sheets[0].save(tmp_path, panels=True, jobs=2)
    name = next(iter(sheets[0].panels))
    write(sheets[0].draw(name), name, tmp_path)
    assert (tmp_path / "panels" / f"{name}.pdf").read_bytes() == (tmp_path / f"{name}.pdf").read_bytes()


def test_every_method_has_a_colour_of_its_own():
    assert set(METHOD_COLOURS) == set(METHODS)
    assert len(set(METHOD_COLOURS.values())) == len(METHODS)
