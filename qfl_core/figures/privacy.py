"""The figure of differential privacy: the score of the last round against epsilon, by the number of clients."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.untrained import START_FACT, UNTRAINED
from qfl_core.figures.sheet import Panel, Sheet
from qfl_core.figures.style import SAFE, SteadyLogScale, reference_line, steady, track_title
from qfl_core.studies.privacy import METHOD, NAMES, OPEN, PrivacyStudy, metric_of

COLOURS, MARKERS = (SAFE[1], SAFE[0], SAFE[2], SAFE[3]), ("o", "s", "^", "D")


def privacy(found: PrivacyStudy) -> Sheet:
    """Return one panel per track; a band of the same colour is the same clients without privacy."""
    table = steady(found.table())
    panels: dict[str, Panel] = {
        f"privacy_{track.replace('-', '_')}": partial(
            _panel,
            table=table[table["track"] == track],
            title=track_title(track),
            metric=NAMES[metric_of(track)],
            untrained=found.start(track),
        )
        for track in found.studies
    }
    return Sheet(
        "privacy",
        panels,
        (*found.facts, method_named(METHOD).label, "bars and bands: 95 % intervals over seeds", START_FACT),
        size=(4.4, 3.2),
        legend=4,
    )


def _panel(axis: Axes, table: pd.DataFrame, title: str, metric: str, untrained: float) -> None:
    for place, (clients, colour, marker) in enumerate(zip(table["clients"].unique(), COLOURS, MARKERS, strict=False)):
        mine = table[table["clients"] == clients]
        unprotected = mine[mine["noise"] == OPEN].iloc[0]
        dashes = (5 * place, (5, 5))  # side by side, so that two lines at the same height are both seen
        axis.axhline(unprotected["mean"], color=colour, linewidth=1.2, linestyle=dashes)
        axis.axhspan(unprotected["low"], unprotected["high"], color=colour, alpha=0.12, linewidth=0)
        noisy = mine[np.isfinite(mine["epsilon"])].sort_values("epsilon")
        ends = np.abs(noisy[["low", "high"]].to_numpy().T - noisy["mean"].to_numpy())
        axis.errorbar(
            *(noisy["epsilon"], noisy["mean"]), yerr=ends, color=colour, marker=marker, markersize=4, linewidth=1.2,
            label=f"{clients} clients",
        )  # fmt: skip
    axis.plot([], [], color="0.3", linestyle="--", linewidth=1, label="the same clients without privacy")
    reference_line(axis, UNTRAINED, untrained)
    axis.set_xscale(SteadyLogScale.name)
    spent = sorted(set(table.loc[np.isfinite(table["epsilon"]), "epsilon"]))
    axis.set_xticks(spent, [f"{value:.2g}" for value in spent])
    axis.minorticks_off()
    axis.set(title=f"{title}: {metric} in the last round", xlabel="ε after the last round (left is more private)")
    axis.set_ylabel(metric)
