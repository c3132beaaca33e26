"""Figures of the data: encodings, client mixes, and the audit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qfl_core.data.splits import Splits
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import CLASS_COLOURS, REFERENCE_LINES, Look, titled, track_title


def encoding_against_position(
    found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], facts: tuple[str, ...]
) -> Sheet:
    """Return the first angle of every sequence against its position in the class-sorted file list.

    ``found`` maps an encoding to (position (n,), angle (n,), label (n,)). A line that rises with position is the leak:
    the list is sorted by class.
    """
    panels = {f"genome_{name}_position": partial(_position, name=name, found=found[name]) for name in found}
    return Sheet("genome_encodings", panels, facts, size=(3.4, 3.0))


def _position(axis: Axes, name: str, found: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    position, angle, label = found
    for value, kind in enumerate(("human", "worm")):
        mine = label == value
        axis.scatter(position[mine], angle[mine], s=3, alpha=0.5, color=CLASS_COLOURS[value], rasterized=True)
        axis.scatter([], [], s=30, color=CLASS_COLOURS[value], label=kind)  # a marker that the legend can show
    axis.set(title=titled(name, "genome"), xlabel="position in the file list", ylabel="first feature (angle)")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def angles_by_class(splits: Splits, class_names: tuple[str, str], facts: tuple[str, ...]) -> Sheet:
    """Return the density of each training angle, one curve per class; smoothing lets it run out beyond the data."""
    panels = {
        f"baf_angle_{column + 1}": partial(_density, splits=splits, column=column, class_names=class_names)
        for column in range(splits.train.X.shape[1])
    }
    return Sheet("baf_angles", panels, facts, size=(2.8, 2.8))


def _density(axis: Axes, splits: Splits, column: int, class_names: tuple[str, str]) -> None:
    for value, name in enumerate(class_names):
        angle = splits.train.X[splits.train.y == value, column]
        label = f"{name} ({len(angle):,} rows)"
        sns.kdeplot(x=angle, ax=axis, color=CLASS_COLOURS[value], label=label, fill=True, alpha=0.25)
    axis.set(title=titled(f"Feature {column + 1}", "baf"), xlabel="angle", ylabel="smoothed density")


def client_mix(table: pd.DataFrame, dataset: str, split: str, facts: tuple[str, ...]) -> Sheet:
    """Return label share and chunk size of every client and round, from :meth:`Partition.table`."""
    share: Look = {"values": "share_of_label_1", "vmax": 1, "cmap": "vlag", "fmt": ".2f", "label": "share of label 1"}
    size: Look = {"values": "samples", "vmax": None, "cmap": "Blues", "fmt": "d", "label": "samples"}
    told = f"{track_title(dataset)}, {split.replace('-', ' ')}"
    panels = {
        f"{dataset}_label_mix": partial(_mix, table=table, title=f"Label mix, {told}", **share),
        f"{dataset}_quantity_mix": partial(_mix, table=table, title=f"Quantity mix, {told}", **size),
    }
    return Sheet(f"{dataset}_client_mix", panels, facts, size=(4.5, 3.2))


def _mix(axis: Axes, table: pd.DataFrame, title: str, values: str, label: str, **heatmap: object) -> None:
    wide = table.pivot(index="client", columns="round", values=values)
    sns.heatmap(
        wide,
        ax=axis,
        vmin=0,
        cbar_kws={"label": label},
        annot=wide.shape[1] <= 12,  # more numbers would run into each other
        annot_kws={"fontsize": 7},
        linewidths=0.5,
        xticklabels=-(-wide.shape[1] // 10),
        yticklabels=-(-wide.shape[0] // 20),
        **heatmap,
    )
    axis.tick_params(axis="both", rotation=0)
    axis.set(title=title, xlabel="round t (the first is 0)")


def leak_audit(table: pd.DataFrame, facts: tuple[str, ...]) -> Sheet:
    """Return the references' balanced accuracy on every encoding, rows met in file order and shuffled.

    ``table`` has the columns encoding, model, order, balanced_accuracy. A gap between the two markers is the leak.
    """
    panels = {
        f"leak_audit_{encoding}": partial(_leak, table=mine, encoding=str(encoding))
        for encoding, mine in table.groupby("encoding", sort=False)
    }
    return Sheet("leak_audit", panels, facts, size=(3.4, 2.8))


def _leak(axis: Axes, table: pd.DataFrame, encoding: str) -> None:
    sns.stripplot(
        table,
        x="balanced_accuracy",
        y="model",
        hue="order",
        ax=axis,
        palette=CLASS_COLOURS,
        dodge=True,
        jitter=False,
        size=7,
    )
    axis.axvline(0.5, label="chance", **REFERENCE_LINES["chance"])
    title = titled(encoding, "genome")
    axis.set(title=title, xlabel="balanced accuracy", ylabel="", xlim=(0.44, 1.04), xticks=[0.5, 0.75, 1.0])
