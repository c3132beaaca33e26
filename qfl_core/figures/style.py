"""One style for all figures: a palette fixed per method, a footer that tells the origin, files without dates."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from qfl_core.registry import METHOD_NAMES

#: Seaborn's colour-blind safe palette.
SAFE = sns.color_palette("colorblind").as_hex()

#: The proposed method is blue everywhere; neighbours in the table are easy to tell apart without colour vision.
METHOD_COLOURS = dict(
    zip(METHOD_NAMES, (SAFE[7], SAFE[1], SAFE[2], SAFE[5], SAFE[9], SAFE[4], SAFE[0]), strict=True)
)
CLASS_COLOURS = (SAFE[0], SAFE[1])
PNG_DPI = 200


def apply_style() -> None:
    """Set the common style for figures drawn from here on."""
    sns.set_theme(
        context="paper",
        style="whitegrid",
        palette="colorblind",
        rc={
            "figure.dpi": 80,
            "savefig.dpi": PNG_DPI,
            "figure.constrained_layout.use": True,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "legend.frameon": False,
            "pdf.fonttype": 42,
        },
    )


def footer(figure: Figure, *facts: str) -> None:
    """Print where a figure's numbers come from in its lower right corner, e.g. data source, engine, seeds."""
    figure.supxlabel("  ·  ".join(facts), x=0.995, ha="right", fontsize=7, color="0.4")


def save(figure: Figure, name: str, folder: Path) -> None:
    """Write ``<name>.pdf`` and ``<name>.png`` under temporary names first; equal figures give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    # Dates and library versions out: the same results draw the same file.
    clean = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    for ending, metadata in clean.items():
        target = folder / f"{name}.{ending}"
        temporary = folder / f".{name}.{ending}.part"
        figure.savefig(temporary, format=ending, metadata=metadata, bbox_inches="tight")
        temporary.replace(target)


def legend_below(figure: Figure, axes: plt.Axes, columns: int) -> None:
    """Place one legend under all panels, taken from the given axes, and remove the panels' own."""
    handles, labels = axes.get_legend_handles_labels()
    for panel in figure.axes:
        if panel.get_legend():
            panel.get_legend().remove()
    figure.legend(handles, labels, loc="outside lower left", ncols=columns)
