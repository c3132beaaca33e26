"""One style for all figures: a palette fixed per method, a footer that tells the origin, files without dates."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend

from qfl_core.base.files import write_bytes
from qfl_core.base.registry import METHOD_NAMES

#: Keyword arguments that several calls of matplotlib share.
Look = dict[str, Any]
#: Seaborn's colour-blind safe palette.
SAFE = sns.color_palette("colorblind").as_hex()

#: The proposed method is blue everywhere; neighbours in the table are easy to tell apart without colour vision.
METHOD_COLOURS = dict(zip(METHOD_NAMES, (SAFE[7], SAFE[1], SAFE[2], SAFE[5], SAFE[9], SAFE[4], SAFE[0]), strict=True))
#: Our extras; a method of one's own is drawn black.
EXTRA_COLOURS = {"scaffold-qfl": SAFE[3], "duqfl-learned": SAFE[6]}
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
PNG_DPI = 200


def method_colour(name: str) -> str:
    """Return a method's colour, the same in every figure."""
    return (METHOD_COLOURS | EXTRA_COLOURS).get(name, "0.1")


def offsets(count: int, widest: float) -> np.ndarray:
    """Return the places of several marks of one row, around its middle."""
    return np.linspace(-widest, widest, count) if count > 1 else np.zeros(1)


def half_width(table: pd.DataFrame, middle: str = "mean") -> pd.Series:
    """Return what an error bar shows of each row: the distance from the middle to ``high``, 0 where there is none."""
    return (table["high"] - table[middle]).fillna(0)


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


def write(figure: Figure, name: str, folder: Path) -> None:
    """Write ``<name>.pdf`` and ``<name>.png``, each whole or not at all; equal figures give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    if engine := figure.get_layout_engine():
        shown = figure.dpi
        figure.dpi = plt.rcParams["savefig.dpi"]  # letters differ in width
        engine.execute(figure)
        figure.dpi = shown
    # Dates and library versions out: the same results draw the same file.
    clean = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    with plt.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # it is laid out now, and each file would do it again
        for ending, metadata in clean.items():
            drawn = BytesIO()
            figure.savefig(drawn, format=ending, metadata=metadata)
            write_bytes(folder / f"{name}.{ending}", drawn.getvalue())


def finish(figure: Figure, facts: tuple[str, ...], columns: int = 6, legend_title: str | None = None) -> None:
    """Place one legend of all entries under the panels, and a footer with ``facts`` below it.

    Each label appears once, and the panels' own legends are removed; a legend of several rows makes the figure taller.
    ``facts`` say where the numbers come from, e.g. data source, engine and seeds.
    """
    lines, room = [""], int(figure.get_figwidth() * 19)  # letters of 7 points that fit an inch
    for fact in facts:
        joined = f"{lines[-1]}  ·  {fact}" if lines[-1] else fact
        lines = [*lines[:-1], joined] if len(joined) <= room or not lines[-1] else [*lines, fact]
    footer = 0.1 + 0.15 * len(lines)  # inches, as all heights here
    legend = _common_legend(figure, columns, legend_title)
    taken = legend.get_window_extent().height / figure.dpi + 0.05 if legend else 0.0
    figure.set_figheight(figure.get_figheight() + max(0.0, taken - 0.3))
    inch = 1 / figure.get_figheight()
    if legend:
        legend.set_bbox_to_anchor((0.5, footer * inch))
    figure.supxlabel("\n".join(lines), x=0.995, y=0.02 * inch, ha="right", fontsize=7, color="0.4")
    # The layout knows either a legend outside the panels or a footer, not one above the other: it is told the sum.
    bottom = (footer + taken) * inch
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine)  # what the style asks for
    layout.set(rect=(0, bottom, 1, 1 - bottom))


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
    return figure.legend(list(found.values()), list(found), title=title, ncols=min(columns, len(found)), **place)
