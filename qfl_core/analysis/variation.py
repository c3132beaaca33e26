"""How much the controller's rates vary across clients, unfolds and rounds, as three numbers for each rate."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from qfl_core.analysis.inference import intervals
from qfl_core.base.numbers import significant

RATES = {"eta": "η", "delta": "δ"}
#: Column of a client trace -> what the number says the rate varies across.
ACROSS = {"client": "clients", "unfold": "unfolds", "round": "rounds"}


def variation_by_seed(trace: pd.DataFrame) -> pd.DataFrame:
    """Return coefficients of variation in percent: one row per seed, rate and :data:`ACROSS`.

    Across clients, say, a rate is first averaged over all rounds and unfolds of each client. The coefficient is the
    standard deviation of these means over their mean: 0 where all clients have the same rate.

    Parameters
    ----------
    trace : the client trace of one method, see :meth:`qfl_core.runs.study.Study.table`.
    """
    rows = []
    for seed, mine in trace.groupby("seed", sort=False):
        for rate in RATES:
            for column, across in ACROSS.items():
                means = mine.groupby(column)[rate].mean()
                value = 100 * means.std(ddof=0) / means.mean()
                rows.append({"seed": seed, "rate": rate, "across": across, "variation": value})
    return pd.DataFrame(rows)


def variation(trace: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over seeds of :func:`variation_by_seed` with its 95 % interval, by rate and ``across``."""
    found = intervals(variation_by_seed(trace), "variation", ["rate", "across"])
    return found.assign(low=found["low"].clip(lower=0))  # a coefficient of variation has no sign


def variation_table(traces: Mapping[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    """Return the variations in percent, one row per track, controller and rate; ``traces`` maps the first two."""
    parts = []
    for (track, controller), trace in traces.items():
        found = variation(trace)
        wide = found.pivot(index="rate", columns="across", values="mean").loc[list(RATES), list(ACROSS.values())]
        wide = wide.rename(index=RATES, columns=lambda across: f"across {across} (%)").reset_index()
        wide.insert(0, "controller", controller)
        wide.insert(0, "track", track)
        parts.append(wide.assign(seeds=int(found["seeds"].min())))
    return pd.concat(parts, ignore_index=True).rename_axis(columns=None)


def variation_text(found: pd.DataFrame, rate: str) -> str:
    """Return the three numbers of one rate in words, in two lines, from a table of :func:`variation`.

    They say how much the rate varies within one run. Means over seeds vary less, because runs differ.
    """
    mine = found[found["rate"] == rate].set_index("across")["mean"]
    clients, unfolds, rounds = (f"{across} {significant(mine[across], 2)} %" for across in ACROSS.values())
    return f"variation of {RATES[rate]} within one run:\n{clients}, {unfolds}, {rounds}"
