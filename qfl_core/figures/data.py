"""Figures of the data: encodings, client mixes, and the audit."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from qfl_core.data.splits import Splits
from qfl_core.figures.style import CLASS_COLOURS, footer, legend_below


def encoding_against_position(
    panels: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], facts: tuple[str, ...]
) -> Figure:
    """Draw the first angle of every sequence against its position in the class-sorted file list.

    ``panels`` maps an encoding to (position (n,), angle (n,), label (n,)). A line that rises with position is the leak:
    the list is sorted by class.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.0), sharex=True)
    for axis, (encoding, (position, angle, label)) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        for value, name in enumerate(("human", "worm")):
            mine = label == value
            axis.scatter(
                position[mine], angle[mine], s=3, alpha=0.5, color=CLASS_COLOURS[value], label=name, rasterized=True
            )
        axis.set(title=encoding, xlabel="position in the file list", ylabel="first feature (angle)")
    legend_below(figure, figure.axes[0], columns=2)
    for handle in figure.legends[0].legend_handles:
        handle.set(sizes=[30], alpha=1)
    footer(figure, *facts)
    return figure


def angles_by_class(splits: Splits, class_names: tuple[str, str], facts: tuple[str, ...]) -> Figure:
    """Draw the density of each training angle, one curve a class."""
    features = splits.train.X.shape[1]
    figure, axes = plt.subplots(1, features, figsize=(2.6 * features, 2.6), sharey=True)
    for column, axis in enumerate(np.atleast_1d(axes)):
        for value, name in enumerate(class_names):
            angle = splits.train.X[splits.train.y == value, column]
            sns.kdeplot(x=angle, ax=axis, color=CLASS_COLOURS[value], label=name, fill=True, alpha=0.25, cut=0)
        axis.set(title=f"feature {column + 1}", xlabel="angle", ylabel="density")
    legend_below(figure, figure.axes[0], columns=2)
    footer(figure, *facts)
    return figure


def client_mix(table: pd.DataFrame, title: str, facts: tuple[str, ...]) -> Figure:
    """Draw label share and chunk size of every client and round, from :meth:`Partition.table`."""
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.2))
    share = table.pivot(index="client", columns="round", values="share_of_label_1")
    size = table.pivot(index="client", columns="round", values="samples")
    common = {"annot": True, "annot_kws": {"fontsize": 7}, "linewidths": 0.5}
    sns.heatmap(
        share, ax=axes[0], vmin=0, vmax=1, cmap="vlag", fmt=".2f", cbar_kws={"label": "share of label 1"}, **common
    )
    sns.heatmap(size, ax=axes[1], vmin=0, cmap="Blues", fmt="d", cbar_kws={"label": "samples"}, **common)
    axes[0].set_title(f"{title}: label mix")
    axes[1].set_title(f"{title}: quantity mix")
    footer(figure, *facts)
    return figure


def leak_audit(table: pd.DataFrame, facts: tuple[str, ...]) -> Figure:
    """Draw the references' balanced accuracy on every encoding, rows met in file order and shuffled.

    ``table`` has the columns encoding, model, order, balanced_accuracy. A gap between the two markers is the leak.
    """
    encodings = list(table["encoding"].unique())
    figure, axes = plt.subplots(1, len(encodings), figsize=(1.0 + 2.8 * len(encodings), 2.8), sharey=True)
    for axis, encoding in zip(np.atleast_1d(axes), encodings, strict=True):
        mine = table[table["encoding"] == encoding]
        sns.stripplot(
            mine,
            x="balanced_accuracy",
            y="model",
            hue="order",
            ax=axis,
            palette=CLASS_COLOURS,
            dodge=True,
            jitter=False,
            size=7,
        )
        axis.axvline(0.5, color="0.6", linestyle="--", linewidth=1, label="chance")
        axis.set(title=encoding, xlabel="balanced accuracy", ylabel="", xlim=(0.44, 1.04), xticks=[0.5, 0.75, 1.0])
    legend_below(figure, figure.axes[0], columns=3)
    footer(figure, *facts)
    return figure
