"""A sheet: one figure made of panels, each of which can also stand alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qfl_core.figures.style import finish, write

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

Panel = Callable[[Axes], None]


@dataclass(frozen=True)
class Sheet:
    """A named figure. ``panels`` maps the file name of each panel to the function that draws it on an axis.

    ``facts`` are the footer: where the numbers come from. ``size`` is one panel's width and height in inches,
    ``columns`` the panels in a row (all by default), ``legend`` the entries in a row of the common legend. In a single
    column, ``heights`` gives panels a height of their own.
    """

    name: str
    panels: Mapping[str, Panel]
    facts: tuple[str, ...]
    size: tuple[float, float] = (3.25, 3.1)
    columns: int | None = None
    legend: int = 6
    legend_title: str | None = None
    heights: Mapping[str, float] | None = None

    def draw(self, *names: str) -> Figure:
        """Draw the panels, all or the named ones, with one legend below and the footer."""
        chosen = {name: self.panels[name] for name in names or self.panels}
        columns = min(self.columns or len(chosen), len(chosen))
        rows = -(-len(chosen) // columns)
        width, height = self.size
        alone = 1.25 if len(chosen) == 1 < len(self.panels) else 1.0
        heights = [self.heights[name] for name in chosen] if self.heights else [height] * rows
        size = (alone * width * columns, sum(heights) + (0.5 if self.heights else 0.0))
        figure = plt.figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, height_ratios=heights, squeeze=False)
        for axis, panel in zip(axes.flat, chosen.values(), strict=False):
            panel(axis)
        for axis in axes.flat[len(chosen) :]:
            axis.set_axis_off()
        finish(figure, self.facts, self.legend if len(chosen) > 1 else 2, self.legend_title)
        return figure

    def show(self) -> None:
        """Draw the whole figure and leave it open, so that a notebook shows it."""
        self.draw()

    def save(self, folder: Path, *, panels: bool = False, show: bool = True, jobs: int = 1) -> None:
        """Write the figure to the folder, as PDF and PNG.

        Parameters
        ----------
        panels : also write each panel to ``panels/`` in the folder.
        show : leave the whole figure open, so that a notebook shows it.
        jobs : processes that draw the panels, -1 for one per core. They start slowly, so drafts are done sooner in one.
        """
        figure = self.draw()
        write(figure, self.name, folder)
        if not show:
            plt.close(figure)
        if panels:
            # Another process begins without the style: it gets a copy of ours.
            style = {key: plt.rcParams[key] for key in plt.rcParams if not key.startswith("backend")}
            tasks = (joblib.delayed(_write_panel)(self, name, folder / "panels", style) for name in self.panels)
            joblib.Parallel(n_jobs=jobs, batch_size=1)(tasks)


def _write_panel(sheet: Sheet, name: str, folder: Path, style: dict[RcKeyType, Any]) -> None:
    with plt.rc_context(style):
        figure = sheet.draw(name)
        write(figure, name, folder)
    plt.close(figure)
