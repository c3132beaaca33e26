"""Figures of the data show the planted truth; the schematics keep their words inside their boxes."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from planted import planted_splits, small

from qfl_core.data.partition import make_partition
from qfl_core.figures import apply_style, data, schematics
from qfl_core.figures.style import CLASS_COLOURS

FACTS = ("data: stand-in",)
SPLITS = planted_splits()


@pytest.fixture(autouse=True)
def _style():
    apply_style(final=False)
    yield
    plt.close("all")


def colours(axis) -> list[str]:
    return [plt.matplotlib.colors.to_hex(c.get_facecolor()[0]) for c in axis.collections if len(c.get_offsets())]


def labelled(sheet) -> list:
    figure = sheet.draw()
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert len(panels) == len(sheet.panels)
    assert all(axis.get_xlabel() and axis.has_data() for axis in panels)
    assert "data: stand-in" in figure.get_supxlabel()
    return panels


def test_a_leaking_encoding_rises_with_position_and_each_class_has_its_colour():
    position, label = np.arange(40), np.repeat([0, 1], 20)
    found = {"word-id": (position, position / 40, label), "kmer": (position, np.tile([0.2, 0.4], 20), label)}
    leak, sound = labelled(data.encoding_against_position(found, FACTS))
    assert (leak.get_title(), sound.get_title()) == ("word-id, genome", "kmer, genome")
    assert colours(leak) == [plt.matplotlib.colors.to_hex(c) for c in CLASS_COLOURS[:2]]
    points = np.concatenate([c.get_offsets() for c in leak.collections if len(c.get_offsets())])
    assert np.allclose(points[:, 1], points[:, 0] / 40)


def test_every_angle_has_a_density_for_each_class():
    panels = labelled(data.angles_by_class(planted_splits(features=3), ("legitimate", "fraud"), FACTS))
    assert [axis.get_title() for axis in panels] == ["Feature 1, BAF", "Feature 2, BAF", "Feature 3, BAF"]
    for axis in panels:
        assert [str(c.get_label()).split(" (")[0] for c in axis.collections] == ["legitimate", "fraud"]
    for collection in (collection for axis in panels for collection in axis.collections):
        outline = collection.get_paths()[0].vertices
        ends = outline[np.isin(outline[:, 0], [outline[:, 0].min(), outline[:, 0].max()]), 1]
        assert ends.max() < 0.05 * outline[:, 1].max()  # a density runs out and is not cut
    outlines = [collection.get_paths()[0].vertices for collection in panels[0].collections]
    low, high = (outline[outline[:, 1].argmax(), 0] for outline in outlines)
    assert low < np.pi / 2 < high  # the first angle decides the label


@pytest.mark.parametrize("rounds", [3, 13])
def test_the_client_mix_has_a_cell_a_client_and_round_and_numbers_only_where_they_fit(rounds):
    table = make_partition(SPLITS, small(rounds=rounds)).table(SPLITS)
    mix, sizes = labelled(data.client_mix(table, "baf", "label-skew", FACTS))
    assert mix.collections[0].get_array().size == sizes.collections[0].get_array().size == 3 * rounds
    assert np.isclose(np.asarray(sizes.collections[0].get_array()).sum(), table["samples"].sum())
    assert len(sizes.texts) == (3 * rounds if rounds <= 12 else 0)


def test_the_leak_audit_sets_both_orders_beside_each_other_with_the_line_of_chance():
    rows = [
        {"encoding": encoding, "model": model, "order": order, "balanced_accuracy": score}
        for encoding, scores in (("word-id", (0.99, 0.5)), ("kmer", (0.93, 0.93)))
        for model in ("logistic regression", "tree")
        for order, score in zip(("file order", "shuffled"), scores, strict=True)
    ]
    leak, sound = labelled(data.leak_audit(pd.DataFrame(rows), FACTS))
    for axis, drawn in ((leak, {0.99, 0.5}), (sound, {0.93})):
        points = np.concatenate([c.get_offsets() for c in axis.collections if len(c.get_offsets())])
        assert set(np.round(points[:, 0], 2)) == drawn
        assert [line.get_xdata()[0] for line in axis.lines if line.get_label() == "chance"] == [0.5]


@pytest.mark.parametrize("sheet", [schematics.architecture(), schematics.overview()], ids=lambda s: s.name)
def test_no_word_of_a_schematic_leaves_the_page_or_runs_into_another(sheet):
    figure = sheet.draw()
    figure.canvas.draw()
    (axis,) = figure.axes
    extents = {text.get_text(): text.get_window_extent() for text in axis.texts}
    assert len(extents) > 8
    page = figure.bbox
    for words, box in extents.items():
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, words
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, words
    boxes = list(extents.items())
    for i, (first, a) in enumerate(boxes):
        for second, b in boxes[i + 1 :]:
            width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert width <= 1 or height <= 1, (first, second)
