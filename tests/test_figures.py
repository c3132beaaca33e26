"""Figures: equal results give equal bytes, nothing half-written, no axis without a label."""

import ast
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from test_architecture import PACKAGE, imports

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import cost_table
from qfl_core.analysis.paper import PAPER
from qfl_core.analysis.untrained import UNTRAINED, level
from qfl_core.analysis.variation import variation, variation_table, variation_text
from qfl_core.config import load_profile
from qfl_core.figures import apply_style, controller, drawn, results, style
from qfl_core.figures import sheet as sheet_module
from qfl_core.figures.results import curves_of
from qfl_core.figures.style import METHOD_COLOURS, picture, steady, write
from qfl_core.runs.study import REFERENCES, get_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    small = {"rounds": 2, "clients": 2, "train_size": 300, "val_size": 100, "test_size": 100, "source": "stand-in"}
    folder = tmp_path_factory.mktemp("results")
    return get_study(load_profile("smoke"), "baf", ["default-qfl", "duqfl-prox", UNTRAINED], [0, 1], folder, **small)


@pytest.fixture
def sheets(study):
    apply_style(final=False)
    ours = study.of("duqfl-prox")
    yield [
        results.federated_metrics(study, "federated", "baf"),
        results.classification_curves(study, "metrics_BAF_1", results.CLASSIFICATION_1),
        results.classification_curves(study, "metrics_BAF_2", results.CLASSIFICATION_2, fairness=True),
        controller.controller_behaviour(ours),
        controller.controller_heatmaps(ours),
        controller.loss_shift_trace(ours),
        controller.unfold_level_behaviour(ours),
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


def test_the_paper_s_numbers_stand_beside_the_last_round_in_the_methods_colours(study):
    """Outside the frame and hollow, they do not hide our means; no panel ends below or above them."""
    sheet = results.federated_metrics(study, "federated", "baf")
    figure, last = sheet.draw(), int(study.rounds["round"].max())
    figure.draw_without_rendering()
    for axis, metric in zip(figure.axes, results.FEDERATED, strict=True):
        marks = [line for line in axis.lines if line.get_marker() == "<" and len(line.get_xdata())]
        places = {mark.get_color(): mark.get_transform().transform(mark.get_xydata())[0] for mark in marks}
        expected = {name: PAPER["baf", metric][name] for name in ("default-qfl", "duqfl-prox")}
        assert places.keys() == {METHOD_COLOURS[name] for name in expected}
        for name, value in expected.items():
            x, y = places[METHOD_COLOURS[name]]
            assert axis.bbox.x1 < x < axis.bbox.x1 + 0.1 * figure.dpi
            assert y == pytest.approx(axis.transData.transform((last, value))[1])
            assert axis.bbox.y0 < y < axis.bbox.y1
        assert all(mark.get_markerfacecolor() == "none" for mark in marks)
        frame = axis.bbox.x1 - 0.5  # pixels
        assert all(mark.get_window_extent().x0 >= frame for mark in marks)
        assert axis.get_xlim() == pytest.approx((0, last), abs=0.05 * last)
        assert axis.get_title().endswith(", BAF")
    assert [text.get_text() for text in figure.legends[0].get_texts()].count(results.PAPER_LABEL) == 1
    plt.close(figure)


def test_every_panel_of_results_has_the_line_of_the_untrained_model(sheets, study):
    metrics = [*results.FEDERATED, *(f"test_{name}" for name in results.CLASSIFICATION_1 | results.CLASSIFICATION_2)]
    drawn_panels = [axis for sheet in sheets[:3] for axis in sheet.draw().axes]
    for axis, metric in zip(drawn_panels, [*metrics, "fairness_gap"], strict=True):
        (line,) = [line for line in axis.lines if str(line.get_label()).startswith(UNTRAINED)]
        assert line.get_ydata()[0] == pytest.approx(level(study.rounds, metric)), metric
        assert line.get_linestyle() == "-."
        assert line.get_linestyle() not in [other.get_linestyle() for other in axis.lines if other is not line]
    assert all("untrained: mean over seeds and rounds" in sheet.facts for sheet in sheets[:3])


def dashes(line) -> object:
    """Return how a line is dashed, as numbers: names do not tell dashes of our own apart."""
    return line._unscaled_dash_pattern


def test_horizontal_lines_of_reference_have_one_key_in_all_figures(sheets):
    looks = [(look["color"], str(look["linestyle"])) for look in style.REFERENCE_LINES.values()]
    assert len(set(looks)) == len(looks)
    names = set()
    for axis in (axis for sheet in sheets for axis in sheet.draw().axes):
        for line in axis.lines:
            name = str(line.get_label())
            if name in style.REFERENCE_LINES:
                key = Line2D([], [], **style.REFERENCE_LINES[name])
                assert (line.get_color(), dashes(line)) == (key.get_color(), dashes(key)), name
                names.add(name)
    assert names == {*REFERENCES, UNTRAINED}


def test_no_figure_draws_a_dashed_line_of_reference_of_its_own():
    """A horizontal line with a name in the legend is drawn by :func:`reference_line`, which has the key."""
    for path in (PACKAGE / "figures").glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        lines = [call for call in calls if getattr(call.func, "attr", "") == "axhline"]
        named = [line for line in lines if any(keyword.arg in ("label", None) for keyword in line.keywords)]
        assert not named or path.stem == "style", path.name


def test_a_method_has_one_marker_in_all_panels_of_a_sheet(sheets):
    for sheet in sheets:
        markers: dict[str, set[object]] = {}
        for line in (line for axis in sheet.draw().axes for line in axis.lines):
            if not str(line.get_label()).startswith("_"):
                markers.setdefault(str(line.get_label()), set()).add(line.get_marker())
        assert all(len(found) == 1 for found in markers.values()), (sheet.name, markers)


def test_a_footer_mentions_bands_and_bars_only_where_they_are_drawn(sheets):
    for sheet in sheets:
        for name in (None, *sheet.panels):
            figure = sheet.draw(*([name] if name else []))
            areas = [area for axis in figure.axes for area in axis.collections if isinstance(area, PolyCollection)]
            bars = [bar for axis in figure.axes for bar in axis.containers if isinstance(bar, ErrorbarContainer)]
            untrained = [
                line for axis in figure.axes for line in axis.lines if str(line.get_label()).startswith(UNTRAINED)
            ]
            footer = figure.get_supxlabel()
            assert ("bands:" in footer) == bool(areas), (sheet.name, name)
            assert ("bars:" in footer) == bool(bars), (sheet.name, name)
            assert (f"{UNTRAINED}:" in footer) == bool(untrained), (sheet.name, name)
            plt.close(figure)


@pytest.mark.parametrize("columns", range(3, 9))
def test_a_legend_has_as_few_rows_as_fit_and_no_orphan(columns):
    for entries in range(1, 40):
        rows = style.legend_rows(["line"] * entries, columns, np.inf)
        assert sum(rows) == entries
        assert len(rows) == -(-entries // columns)
        assert max(rows) - min(rows) <= 1
        assert rows == sorted(rows, reverse=True)
        assert rows[-1] > 1 or entries == 1


def test_a_narrow_legend_has_no_orphan_either():
    short, long = ["line"] * 3, ["a line with a long name"] * 4
    for labels in (short + long[:2], short + long, short + long + long[:2]):  # two columns would leave one entry
        rows = style.legend_rows(labels, 6, room=4.0)
        assert rows[0] == 3 > rows[-1] > 1
    assert style.legend_rows(long[:3], 6, room=4.0) == [1, 1, 1]  # no room for three


def test_no_panel_has_an_orphan_in_its_legend_and_all_legends_are_inside_the_figure(sheets):
    for sheet in sheets:
        for name in (None, *sheet.panels):
            figure = sheet.draw(*([name] if name else []))
            figure.draw_without_rendering()
            for legend in figure.legends:
                places = [round(text.get_window_extent().y0) for text in legend.get_texts()]
                counts = [places.count(place) for place in sorted(set(places))]
                assert counts[0] > 1 or set(counts) == {1}, (sheet.name, name)  # the lowest row
                frame = legend.get_window_extent()
                assert 0 <= frame.x0 <= frame.x1 <= figure.bbox.x1, (sheet.name, name)
            plt.close(figure)


@pytest.mark.parametrize("entries", [5, 7, 9, 13])
def test_the_rows_of_a_legend_are_centred(entries):
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    for number in range(entries):
        axis.plot([0, 1], [0, number], label=f"line {number}")
    style.finish(figure, ("data: planted",), columns=4)
    figure.draw_without_rendering()
    legend = figure.legends[0]
    boxes = [text.get_window_extent() for text in legend.get_texts()]
    rows = [
        [box for box in boxes if round(box.y0) == y] for y in sorted({round(box.y0) for box in boxes}, reverse=True)
    ]
    labels = [text.get_text() for text in legend.get_texts()]
    assert [len(row) for row in rows] == style.legend_rows(labels, 4, 6)
    middles = [(min(box.x0 for box in row) + max(box.x1 for box in row)) / 2 for row in rows]
    assert max(middles) - min(middles) < 2  # pixels
    frame = legend.get_window_extent()
    assert all(frame.x0 <= box.x0 <= box.x1 <= frame.x1 and frame.y0 <= box.y0 <= box.y1 <= frame.y1 for box in boxes)
    plt.close(figure)


def test_what_is_spent_once_is_spread_over_the_rounds(study):
    costs = cost_table(study.rounds).assign(**{"tuning (once)": [1000, 0]})
    (axis,) = results.cost_per_method({"baf": study}, {"baf": costs}).draw().axes
    (bars,) = (bars for bars in axis.containers if "tuning" in bars.get_label())
    rounds = study.rounds["round"].max()
    assert bars.get_label() == f"tuning: once, spread over {rounds} rounds"
    assert bars[0].get_width() == pytest.approx(1000 / rounds / 1e3)


def test_the_untrained_model_costs_nothing(study):
    assert list(cost_table(study.rounds).index) == ["Default-QFL", "DUQFL-Prox"]


def test_a_panel_alone_keeps_its_title_legend_and_origin(sheets):
    whole = sheets[0].draw()
    for axis, name in zip(whole.axes, sheets[0].panels, strict=True):
        alone = sheets[0].draw(name)
        assert [a.get_title() for a in alone.axes] == [axis.get_title()]
        entries = {text.get_text() for text in alone.legends[0].get_texts()}
        assert entries <= {text.get_text() for text in whole.legends[0].get_texts()}
        assert "DUQFL-Prox" in entries
        told = [figure.get_supxlabel().replace("·", " ").split() for figure in (alone, whole)]  # lines break elsewhere
        assert told[0] == told[1]


@pytest.mark.parametrize("shown", [False, True], ids=["written", "shown in a notebook"])
def test_neither_legend_nor_footer_covers_a_panel(sheets, tmp_path, monkeypatch, shown):
    if not shown:
        monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # the places are fixed before it
    for sheet in sheets:
        figure = sheet.draw()
        if shown:
            picture(figure)
        else:
            write(figure, sheet.name, tmp_path)
        lowest = min(axis.get_tightbbox().y0 for axis in figure.axes)
        footer = figure._supxlabel.get_window_extent()
        for legend in figure.legends:
            assert legend.get_window_extent().y1 <= lowest + 1, sheet.name
            assert footer.y1 <= legend.get_window_extent().y0 + 1, sheet.name
        assert footer.y1 <= lowest + 1, sheet.name


def test_the_size_of_a_sheet_is_the_same_in_every_version_of_python():
    """Ten tenths are 1 in Python 3.12, where sum() makes up for what rounding loses, and a bit less before."""
    panels = {f"p{i}": lambda axis: None for i in range(10)}
    sheet = sheet_module.Sheet("s", panels, (), size=(3, 1), columns=1, heights=dict.fromkeys(panels, 0.1))
    figure = sheet.draw()
    assert figure.get_size_inches()[1] == 1.5
    plt.close(figure)


def test_no_two_panels_share_a_file(sheets):
    names = [name for sheet in sheets for name in (sheet.name, *sheet.panels)]
    assert len(names) == len(set(names))


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}


def test_the_same_results_draw_the_same_bytes(sheets, tmp_path):
    for folder in ("one", "two"):
        sheets[0].save(tmp_path / folder, panels=True)
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    names = ["federated", *(f"panels/{name}" for name in sheets[0].panels)]
    assert sorted(one) == sorted(f"{name}.{ending}" for name in names for ending in ("pdf", "png"))
    assert one == two
    assert min(map(len, one.values())) > 5_000


@pytest.fixture
def drawings(monkeypatch):
    """Return the names of the files that are drawn, in order; their content is a word, because that is faster."""
    names = []

    def quick(figure, name, folder):
        names.append(name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for ending in drawn.ENDINGS:
            (folder / f"{name}.{ending}").write_bytes(b"drawn")
        return dict.fromkeys(drawn.ENDINGS, b"drawn")

    monkeypatch.setattr(sheet_module, "write", quick)
    return names


def test_a_figure_is_drawn_once_while_nothing_changes(sheets, tmp_path, drawings):
    for _ in range(2):
        sheets[3].save(tmp_path, panels=True)
    assert drawings == [sheets[3].name, *(f"panels/{name}" for name in sheets[3].panels)]


@pytest.mark.parametrize("ending", ["pdf", "png"])
def test_a_file_that_is_missing_or_edited_is_drawn_again_alone(sheets, tmp_path, drawings, ending):
    sheet = sheets[6]
    sheet.save(tmp_path, panels=True)
    before = files(tmp_path)
    drawings.clear()
    panel = f"panels/{next(iter(sheet.panels))}"
    (tmp_path / f"{sheet.name}.{ending}").unlink()
    (tmp_path / f"{panel}.{ending}").write_bytes(before[f"{panel}.{ending}"][:-1])
    sheet.save(tmp_path, panels=True)
    assert drawings == [sheet.name, panel]
    assert files(tmp_path) == before


def test_a_change_of_data_style_or_code_draws_again_what_it_concerns(sheets, study, tmp_path, drawings, monkeypatch):
    sheet = sheets[6]
    sheet.save(tmp_path, panels=True)
    drawings.clear()
    shares = next(panel for panel in sheet.panels if panel.startswith("selected"))
    other = partial(sheet.panels[shares].func, **sheet.panels[shares].keywords | {"title": "Another title"})
    replace(sheet, panels={**sheet.panels, shares: other}).save(tmp_path, panels=True)
    assert drawings == [sheet.name, f"panels/{shares}"]  # the other panel holds the same data
    sheet.save(tmp_path, panels=True)
    drawings.clear()
    with plt.rc_context({"lines.linewidth": 3}):
        sheet.save(tmp_path)
    sheet.save(tmp_path)
    assert drawings == [sheet.name] * 2
    drawings.clear()
    monkeypatch.setattr(drawn, "_code", lambda: "another code")
    sheet.save(tmp_path)
    assert drawings == [sheet.name]


def test_a_figure_is_drawn_again_where_the_record_cannot_be_kept(sheets, tmp_path, drawings, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("no folder")
    monkeypatch.setenv("QFL_CACHE_DIR", str(blocked))
    for _ in range(2):
        sheets[7].save(tmp_path / "out")
    assert drawings == [sheets[7].name] * 2


def test_a_digest_tells_values_apart_and_does_not_depend_on_the_object():
    table = pd.DataFrame({"x": [1.0, 2.0], "y": ["a", "b"]})
    assert drawn.digest_of(table) == drawn.digest_of(table.copy())
    others = [
        table.rename(columns={"x": "z"}), table.iloc[::-1], table.assign(x=[1, 2]), table.assign(y=["a", "c"]),
        table[["y", "x"]], table["x"], np.array([1.0, 2.0]), np.array([[1.0, 2.0]]), [1.0, 2.0], (1.0, 2.0),
        ["1.0", 2.0], {"x": 1.0}, {"x": 1}, partial(files, 1), partial(curves_of, by=("a",)), partial(curves_of), None,
        [["a"], "b"], [["a", "b"]], ["ab"],
    ]  # fmt: skip
    digests = {drawn.digest_of(value) for value in [table, *others]}
    assert len(digests) == len(others) + 1


def test_what_has_no_digest_is_refused(study):
    with pytest.raises(TypeError, match="PosixPath has no digest: give the figure the table that it draws"):
        drawn.digest_of({"panel": partial(curves_of, table=study)})


def test_the_places_of_all_marks_have_nine_digits_once_written(tmp_path):
    exact = np.array([0.0, 1 / 3, -2e5 / 3, 4e-17, np.nan])
    figure, axis = plt.subplots(layout="constrained")
    (line,) = axis.plot(exact, exact)
    points, area = axis.scatter(exact, exact), axis.fill_between([0, 1], [1 / 3, 2 / 3])
    write(figure, "marks", tmp_path)
    told = [0.0, 0.333333333, -66666.6667, 0.0, np.nan]
    assert np.array_equal(line.get_ydata(), told, equal_nan=True)
    assert np.array_equal(np.ma.filled(points.get_offsets(), np.nan)[:, 0], told, equal_nan=True)
    assert {0.333333333, 0.666666667} <= set(area.get_paths()[0].vertices[:, 1])
    plt.close(figure)


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


def test_every_method_has_a_colour_of_its_own():
    assert set(METHOD_COLOURS) == set(METHODS)
    assert len(set(METHOD_COLOURS.values())) == len(METHODS)


def test_steady_keeps_columns_whose_names_are_numbers():
    table = pd.DataFrame({1: [1 / 3], 2: [2 / 3]}, index=["a"])
    shown = steady(table)
    assert list(shown.columns) == [1, 2]
    assert shown.loc["a"].tolist() == [0.333333333, 0.666666667]


def test_rates_are_drawn_on_a_scale_that_does_not_exaggerate(study):
    config = study.runs[0].config
    still = pd.DataFrame({"eta": [0.13, 0.131], "delta": [0.13, 0.129]})
    scales = controller.rate_scales(config, still)
    assert [(scale.low, scale.high) for scale in scales.values()] == [(0.065, 0.26)] * 2
    moved = controller.rate_scales(config, still.assign(delta=[0.13, 0.013]))  # by a factor of ten
    assert {scale.factor for scale in moved.values()} == {10.5}
    assert moved["delta"].low < 0.013


def test_the_panels_of_the_rates_tell_their_variation(sheets, study):
    found = variation(study.of("duqfl-prox").table("client_trace"))
    for sheet in sheets[3:5]:
        axes = sheet.draw().axes
        for axis, rate in zip(axes, ("eta", "delta"), strict=False):
            assert variation_text(found, rate) in axis.get_xlabel(), sheet.name
    clients, unfolds = (study.table("client_trace")[name].nunique() for name in ("client", "unfold"))
    assert len(sheets[4].draw().axes[0].texts) == clients * unfolds


def test_the_variation_has_the_other_two_averaged_out():
    grid = pd.MultiIndex.from_product(
        [[0, 1], range(4), range(2), range(3)], names=["seed", "client", "unfold", "round"]
    )
    trace = grid.to_frame(index=False)
    trace["eta"] = 0.1 * (1 + 0.1 * (2 * trace["unfold"] - 1))  # 0.09 and 0.11
    trace["delta"] = np.where(trace["seed"] == 0, 0.2, 0.1 + 0.1 * (trace["round"] == 2))
    found = variation(trace).set_index(["rate", "across"])["mean"]
    assert found["eta"].tolist() == pytest.approx([0, 10, 0])
    means = np.array([0.1, 0.1, 0.2])
    assert found["delta"].tolist() == pytest.approx([0, 0, 50 * means.std() / means.mean()])
    table = variation_table({("baf", "profile"): trace})
    assert table[["rate", "across unfolds (%)", "seeds"]].to_numpy()[0].tolist() == ["η", pytest.approx(10), 2]
