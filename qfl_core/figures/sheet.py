"""A sheet: one figure made of panels, each of which can also stand alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import PIL.Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qfl_core.figures.drawn import Record, drawing_key
from qfl_core.figures.pictures import with_few_colours
from qfl_core.figures.style import finish, picture, write

Panel = Callable[[Axes], None]
#: Least width in inches of a panel that stands alone: printed in a column, its letters are still large enough.
ALONE = 4.0


@dataclass(frozen=True)
class Sheet:
    """A named figure. ``panels`` maps the file name of each panel to the function that draws it on an axis.

    ``facts`` are the footer: where the numbers come from. ``notes`` add to it what only some panels show, by file name
    of the panel, e.g. that bands are intervals; a footer has the notes of the panels that are drawn, each once.
    ``size`` is one panel's width and height in inches, ``columns`` the panels in a row (all by default), ``legend`` the
    entries in a row of the common legend. In a single column, ``heights`` gives panels a height of their own.
    """

    name: str
    panels: Mapping[str, Panel]
    facts: tuple[str, ...]
    size: tuple[float, float] = (2.8, 2.75)
    columns: int | None = None
    legend: int = 6
    legend_title: str | None = None
    heights: Mapping[str, float] | None = None
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def draw(self, *names: str) -> Figure:
        """Draw the panels, all or the named ones, with one legend below and the footer."""
        chosen = {name: self.panels[name] for name in names or self.panels}
        columns = min(self.columns or len(chosen), len(chosen))
        rows = -(-len(chosen) // columns)
        width, height = self.size
        alone = max(1.0, ALONE / width) if len(chosen) == 1 < len(self.panels) else 1.0
        height = height if alone == 1 else max(height, 0.8 * ALONE)
        heights = [self.heights[name] for name in chosen] if self.heights else [height] * rows
        # fsum, because sum() of numbers differs between Python 3.11 and 3.12 in the last digit.
        size = (alone * width * columns, math.fsum(heights) + (0.5 if self.heights else 0.0))
        figure = plt.figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, height_ratios=heights, squeeze=False)
        for axis, panel in zip(axes.flat, chosen.values(), strict=False):
            panel(axis)
        for axis in axes.flat[len(chosen) :]:
            axis.set_axis_off()
        notes = dict.fromkeys(note for name in chosen for note in self.notes.get(name, ()))
        finish(figure, (*self.facts, *notes), self.legend, self.legend_title)
        return figure

    def show(self) -> None:
        """Draw the whole figure; a notebook shows it, and elsewhere it stays open."""
        figure = self.draw()
        if _in_notebook():
            _display(picture(figure))
            plt.close(figure)

    def save(self, folder: Path, *, panels: bool = False, show: bool = True) -> None:
        """Write the figure to the folder, as PDF and PNG, where it is not there already.

        A figure is drawn again when its data, its code or the style changed, or when a file is missing or was edited.

        Parameters
        ----------
        panels : also write each panel to ``panels/`` in the folder.
        show : let a notebook show the whole figure, as it was written.
        """
        files: dict[str, tuple[str, ...]] = {self.name: ()}
        if panels:
            files |= {f"panels/{name}": (name,) for name in self.panels}
        for name, chosen in files.items():
            record, key = Record(folder, name), self._key(chosen)
            if not record.is_drawn(key):
                figure = self.draw(*chosen)
                record.store(key, write(figure, name, folder))
                plt.close(figure)
        if show and _in_notebook():
            _display(_reduced(folder / f"{self.name}.png"))

    def _key(self, chosen: tuple[str, ...]) -> str:
        """Return the key of the whole figure, or of the chosen panels alone: the data of others do not count."""
        shown = replace(self, panels={name: self.panels[name] for name in chosen or self.panels})
        return drawing_key(shown, len(self.panels))


def _in_notebook() -> bool:
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


def _display(png: bytes) -> None:
    import IPython.display

    display: Any = IPython.display  # it has no types
    display.display(display.Image(data=png, format="png"))


def _reduced(path: Path) -> bytes:
    """Return a written PNG file in the resolution that the style gives to the figures of a notebook."""
    share = plt.rcParams["figure.dpi"] / plt.rcParams["savefig.dpi"]
    with PIL.Image.open(path) as image:
        width, height = (max(1, round(share * pixels)) for pixels in image.size)
        small = image.convert("RGB").resize((width, height), PIL.Image.Resampling.LANCZOS)
    stored = BytesIO()
    with_few_colours(small).save(stored, format="png")
    return stored.getvalue()
