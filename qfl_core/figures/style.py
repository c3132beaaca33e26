"""One style for all figures: a palette fixed per method, a footer that tells the origin, files without dates."""

from __future__ import annotations

from pathlib import Path

import seaborn as sns
from matplotlib.figure import Figure

from qfl_core.registry import METHOD_NAMES

SAFE = sns.color_palette("colorblind").as_hex()

#: The proposed method is blue everywhere; neighbours in the table are easy to tell apart without colour vision.
METHOD_COLOURS = dict(zip(METHOD_NAMES, (SAFE[7], SAFE[1], SAFE[2], SAFE[5], SAFE[9], SAFE[4], SAFE[0]), strict=True))
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


def footer(figure: Figure, *facts: str, width: float = 9.0) -> None:
    """Print where a figure's numbers come from in its lower right corner, e.g. data source, engine, seeds."""
    lines, room = [""], int(width * 19)  # letters of 7 points that fit an inch
    for fact in facts:
        joined = f"{lines[-1]}  ·  {fact}" if lines[-1] else fact
        lines = [*lines[:-1], joined] if len(joined) <= room or not lines[-1] else [*lines, fact]
    figure.supxlabel("\n".join(lines), x=0.995, ha="right", fontsize=7, color="0.4")


def write(figure: Figure, name: str, folder: Path) -> None:
    """Write ``<name>.pdf`` and ``<name>.png`` under temporary names first; equal figures give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    # Dates and library versions out: the same results draw the same file.
    clean = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    for ending, metadata in clean.items():
        target = folder / f"{name}.{ending}"
        temporary = folder / f".{name}.{ending}.part"
        figure.savefig(temporary, format=ending, metadata=metadata, bbox_inches="tight")
        temporary.replace(target)


def legend_below(figure: Figure, columns: int, title: str | None = None) -> None:
    """Place one legend of all panels' entries under them, each label once, and remove the panels' own."""
    found: dict[str, object] = {}
    for panel in figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
        if panel.get_legend():
            panel.get_legend().remove()
    if found:
        figure.legend(
            found.values(), found.keys(), title=title, loc="outside lower center", ncols=min(columns, len(found))
        )
