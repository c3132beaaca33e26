"""One style for all figures: a palette fixed per method, a footer that tells the origin, files without dates."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeVar

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.offsetbox import HPacker, VPacker
from matplotlib.scale import LogScale, LogTransform, register_scale
from matplotlib.textpath import text_to_path
from numpy.typing import ArrayLike

from qfl_core.analysis.tracks import track_title as track_title
from qfl_core.base.files import write_bytes
from qfl_core.base.numbers import rounded
from qfl_core.base.registry import METHOD_NAMES

#: Keyword arguments that several calls of matplotlib share.
Look = dict[str, Any]
#: An entry of a legend: its label, or what is drawn.
Entry = TypeVar("Entry")
#: Seaborn's colour-blind safe palette.
SAFE = sns.color_palette("colorblind").as_hex()

#: The proposed method is blue everywhere; neighbours in the table are easy to tell apart without colour vision.
METHOD_COLOURS = dict(zip(METHOD_NAMES, (SAFE[7], SAFE[1], SAFE[2], SAFE[5], SAFE[9], SAFE[4], SAFE[0]), strict=True))
METHOD_MARKERS = dict(zip(METHOD_NAMES, "s^DvPXo", strict=True))
#: Our extras and the untrained model; a method of one's own is drawn black.
EXTRA_COLOURS = {"untrained": "0.5", "scaffold-qfl": SAFE[3], "duqfl-learned": SAFE[6]}
#: A dataset keeps its colour on every track.
TRACK_COLOURS = {
    "baf": SAFE[0],
    "genome": SAFE[1],
    "baf-clean": SAFE[0],
    "genome-clean": SAFE[1],
    "breast-cancer": SAFE[2],
}
TRACK_MARKERS = {"baf": "o", "genome": "s", "baf-clean": "o", "genome-clean": "s", "breast-cancer": "^"}
CLASS_COLOURS = (SAFE[0], SAFE[1])
#: The one key of horizontal lines of reference, for all figures: one look per name, one name per look. What knows
#: nothing has short dashes; the untrained model's dash with a dot is thinner and paler, because it is no competitor.
REFERENCE_LINES: dict[str, Look] = {
    "majority class": {"color": "0.35", "linestyle": "--", "linewidth": 1},
    "chance": {"color": "0.6", "linestyle": "--", "linewidth": 1},
    "logistic regression": {"color": "0.35", "linestyle": ":", "linewidth": 1},
    "gradient boosting": {"color": "0.35", "linestyle": (0, (9, 2)), "linewidth": 1},
    "pooled QNN": {"color": "0.1", "linestyle": (0, (9, 1.5, 1.5, 1.5, 1.5, 1.5)), "linewidth": 1},
    "95 % of logistic regression": {"color": "0.1", "linestyle": "-", "linewidth": 1},
    "untrained": {"color": EXTRA_COLOURS["untrained"], "linestyle": "-.", "linewidth": 0.9, "zorder": 1.5},
}
PNG_DPI = 200
#: The width in inches to which a wider figure is reduced on a page.
PAGE = 7.0
_POWERS = np.array([float(f"1e{exponent}") for exponent in range(18)])
_TITLES: tuple[Literal["right", "left", "center"], ...] = ("right", "left", "center")


def method_colour(name: str) -> str:
    """Return a method's colour, the same in every figure."""
    return (METHOD_COLOURS | EXTRA_COLOURS).get(name, "0.1")


def method_marker(name: str) -> str:
    """Return a method's marker, the same in every figure with curves over rounds."""
    return METHOD_MARKERS.get(name, "h")


def titled(title: str, *tracks: str) -> str:
    """Return a panel's title with its dataset, so that a panel that stands alone says which data it shows.

    Several datasets have a line of their own, because one line would be wider than the panel.
    """
    *most, last = map(track_title, dict.fromkeys(tracks))
    return f"{title}\n{', '.join(most)} and {last}" if most else f"{title}, {last}"


def reference_line(axis: Axes, name: str, value: float, **look: Any) -> None:
    """Draw a horizontal line of reference as :data:`REFERENCE_LINES` has it, with its name in the legend.

    ``look`` wins over the key, e.g. the colour of a track where each track has its own line.
    """
    axis.axhline(value, **{"label": name, **REFERENCE_LINES[name], **look})


def offsets(count: int, widest: float) -> np.ndarray:
    """Return the places of several marks of one row, around its middle."""
    return np.linspace(-widest, widest, count) if count > 1 else np.zeros(1)


def half_width(table: pd.DataFrame, middle: str = "mean") -> pd.Series:
    """Return what an error bar shows of each row: the distance from the middle to ``high``, 0 where there is none."""
    return (table["high"] - table[middle]).fillna(0)


def steady(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of computed numbers without the last digits, which differ between machines.

    The same results then draw the same file everywhere, see :mod:`qfl_core.base.numbers`.
    """
    shown = table.copy()
    for name in table.select_dtypes("float"):  # a name may be a number, e.g. an unfold's
        shown[name] = [rounded(value, 9) for value in table[name]]
    return shown


def _steady_values(values: ArrayLike) -> np.ndarray:
    """Return numbers with nine significant digits, as :func:`steady` does for a table."""
    given = np.asarray(values, dtype=float)
    ordinary = np.isfinite(given) & (np.abs(given) > 1e-9) & (np.abs(given) < 1e9)
    size = np.floor(np.log10(np.abs(np.where(ordinary, given, 1.0)))).astype(int)
    power = _POWERS[8 - size]  # no computed power: its last digits differ, too
    return np.where(ordinary, np.rint(given * power) / power, np.where(np.abs(given) <= 1e-9, 0.0, given))


class _SteadyLog(LogTransform):
    """The logarithm without the last digits, which differ between processors."""

    def transform_non_affine(self, values: Any) -> np.ndarray:
        return np.round(np.asarray(super().transform_non_affine(values)), 9)


class SteadyLogScale(LogScale):
    """A logarithmic axis that puts every mark and tick at the same place on every processor; see :func:`steady`."""

    name = "steady log"

    def __init__(self, *, base: float = 10) -> None:
        super().__init__(base=base)

    def get_transform(self) -> LogTransform:
        """Return the rounded logarithm."""
        return _SteadyLog(self.base)


register_scale(SteadyLogScale)


def _steady_marks(figure: Figure) -> None:
    """Take the last digits off the places of all lines, points and areas; see :func:`steady`."""
    for panel in figure.axes:
        for line in panel.lines:
            x, y = line.get_data(orig=False)
            line.set_data(_steady_values(x), _steady_values(y))
        for marks in panel.collections:
            if isinstance(marks, PolyCollection):
                for path in marks.get_paths():
                    path.vertices = _steady_values(path.vertices)
            elif isinstance(marks, PathCollection):
                marks.set_offsets(_steady_values(marks.get_offsets()))


def apply_style(final: bool = True) -> None:
    """Set the common style for figures drawn from here on.

    ``final`` embeds TrueType fonts in PDF files, as publishers ask, and gives PNG files twice the resolution.
    """
    sns.set_theme(
        context="paper",
        style="whitegrid",
        palette="colorblind",
        rc={
            "figure.dpi": 80 if final else 60,  # what a notebook stores
            "savefig.dpi": PNG_DPI if final else PNG_DPI / 2,
            "figure.constrained_layout.use": True,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "legend.frameon": False,
            "pdf.fonttype": 42 if final else 3,
        },
    )


#: While a settled figure is drawn: matplotlib would otherwise lay it out anew, without the room for legend and footer.
_SETTLED = {"figure.constrained_layout.use": False}


def write(figure: Figure, name: str, folder: Path) -> dict[str, bytes]:
    """Write ``<name>.pdf`` and ``<name>.png``, each whole or not at all; equal figures give equal bytes.

    Returns the content of the files, by ending.
    """
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    # Dates and library versions out: the same results draw the same file.
    clean = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    drawn = {}
    with _no_collection(), plt.rc_context(_SETTLED):
        _steady_marks(figure)
        _settle(figure, plt.rcParams["savefig.dpi"])
        for ending, metadata in clean.items():
            file = BytesIO()
            figure.savefig(file, format=ending, metadata=metadata)
            drawn[ending] = file.getvalue()
    for ending, content in drawn.items():
        write_bytes(folder / f"{name}.{ending}", content)
    return drawn


def picture(figure: Figure) -> bytes:
    """Return the figure as PNG in the resolution that the style gives to the figures of a notebook."""
    with _no_collection(), plt.rc_context(_SETTLED):
        _settle(figure, figure.dpi)
        file = BytesIO()
        figure.savefig(file, format="png", dpi=figure.dpi, metadata={"Software": None})
    return file.getvalue()


def _settle(figure: Figure, dpi: float) -> None:
    """Lay the figure out once and fix every place, because each file would compute all of them again."""
    engine = figure.get_layout_engine()
    if engine is None:
        return
    shown = figure.dpi
    figure.dpi = dpi  # letters differ in width
    engine.execute(figure)
    figure.set_layout_engine(None)
    for panel in figure.axes:
        panel.get_tightbbox()  # places the title and the labels where the layout has moved them
        free = [place for place in _TITLES if not panel.get_title(loc=place)]
        if free:  # a height that is given, of whichever title, keeps all of them where they are
            panel.set_title("", loc=free[0], y=1.0)
        for axis in (panel.xaxis, panel.yaxis):
            label = axis.label
            if label.get_text():
                place = panel.transAxes.inverted().transform(label.get_transform().transform(label.get_position()))
                axis.set_label_coords(*place)
    figure.dpi = shown


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from searching for garbage, which a figure's many small objects would start again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def finish(figure: Figure, facts: tuple[str, ...], columns: int = 6, legend_title: str | None = None) -> None:
    """Place one legend of all entries under the panels, and a footer with ``facts`` below it.

    Each label appears once, and the panels' own legends are removed; a legend of several rows makes the figure taller.
    ``facts`` say where the numbers come from, e.g. data source, engine and seeds.
    """
    # A wide figure is reduced to a page: its footer grows with it, up to the letters of the legend.
    largest = FontProperties(size=plt.rcParams["legend.fontsize"]).get_size_in_points() / 7
    scale = min(max(1.0, figure.get_figwidth() / PAGE), largest)
    lines, room = [""], int(figure.get_figwidth() / scale * 19)  # letters of 7 points that fit an inch
    for fact in facts:
        joined = f"{lines[-1]}  ·  {fact}" if lines[-1] else fact
        lines = [*lines[:-1], joined] if len(joined) <= room or not lines[-1] else [*lines, fact]
    footer = 0.1 + 0.15 * scale * len(lines)  # inches, as all heights here
    legend = _common_legend(figure, columns, legend_title)
    taken = legend.get_window_extent().height / figure.dpi + 0.05 if legend else 0.0
    figure.set_figheight(figure.get_figheight() + max(0.0, taken - 0.3))
    inch = 1 / figure.get_figheight()
    if legend:
        legend.set_bbox_to_anchor((0.5, footer * inch))
    figure.supxlabel("\n".join(lines), x=0.995, y=0.02 * inch, ha="right", fontsize=7 * scale, color="0.4")
    # The layout knows either a legend outside the panels or a footer, not one above the other: it is told the sum.
    bottom = (footer + taken) * inch
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine)  # what the style asks for
    layout.set(rect=(0, bottom, 1, 1 - bottom), w_pad=0.07)  # inches, so that no label touches its neighbour


def _common_legend(figure: Figure, columns: int, title: str | None) -> Legend | None:
    found: dict[str, Artist] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
        if (own := panel.get_legend()) is not None:
            own.remove()
    if not found:
        return None
    place: Look = {"loc": "lower center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 0.2}
    rows = legend_rows(list(found), columns, figure.get_figwidth())
    legend = figure.legend(list(found.values()), list(found), title=title, ncols=rows[0], **place, **_CLOSE)
    if len(set(rows)) > 1:
        _centre_rows(legend, rows)
    return legend


#: Distances between handle, letters and columns of a legend, in heights of a letter.
_CLOSE = {"handletextpad": 0.5, "columnspacing": 1.2}


def legend_rows(labels: Sequence[str], columns: int, room: float) -> list[int]:
    """Return how many entries each row of a legend has: as few rows as fit into ``room`` inches.

    No row has two entries fewer than another, and the last row has no entry alone unless all rows have one.
    """
    entries = len(labels)
    for count in range(-(-entries // columns), entries):
        rows = [len(part) for part in np.array_split(np.arange(entries), count)]
        widths = [math.fsum(max(map(_entry_width, column)) for column in block) for block in _blocks(labels, rows)]
        if rows[-1] > 1 and max(widths) <= room:
            return rows
    return [1] * entries


def _entry_width(label: str) -> float:
    """Return how many inches an entry of a legend needs: the handle, the distances, and the letters."""
    font = FontProperties(size=plt.rcParams["legend.fontsize"])
    letters, _, _ = text_to_path.get_text_width_height_descent(label, font, ismath=False)
    around = plt.rcParams["legend.handlelength"] + math.fsum(_CLOSE.values())
    return float(letters + around * font.get_size_in_points()) / 72


def _blocks(entries: Sequence[Entry], rows: list[int]) -> list[list[list[Entry]]]:
    """Return the entries of a legend's rows by block of equally long rows, and by column within a block."""
    left, lengths = iter(entries), sorted(set(rows), reverse=True)
    return [[[next(left) for _ in range(rows.count(length))] for _ in range(length)] for length in lengths]


def _centre_rows(legend: Legend, rows: list[int]) -> None:
    """Place the entries of a legend in rows of these lengths, the shorter rows centred below the longer ones.

    Matplotlib fills columns instead, which leaves the last column with one entry. Rows of one length stay a block of
    columns, in which the entries run from top to bottom.
    """
    held: Any = legend  # its packers have no public name
    box = held._legend_handle_box
    entries = [entry for column in box.get_children() for entry in column.get_children()]
    letters = held._fontsize  # points, as the distances of packers are
    between = {"sep": legend.labelspacing * letters}
    blocks: list[Artist] = []
    for block in _blocks(entries, rows):
        columns: list[Artist] = [VPacker(pad=0, align="baseline", children=column, **between) for column in block]
        blocks.append(HPacker(pad=0, align="baseline", sep=legend.columnspacing * letters, children=columns))
    box._children = [VPacker(pad=0, align="center", children=blocks, **between)]
    box.set_figure(legend.get_figure())
