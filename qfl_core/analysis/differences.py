"""Verdicts on differences between settings or methods, where no direction is claimed: higher, lower, absent, undecided.

The rules are those of the claims (:mod:`qfl_core.analysis.verdicts`). A difference is **higher** or **lower** where its
sign is shown. It is **absent** where no sign is shown, but a difference of the margin or more is excluded in both
directions (two one-sided tests). Otherwise it is **undecided**. "Shown" means that the sign-flip test over paired seeds
rejects, corrected for all differences of the table, and that the 95 % interval agrees. Signs and absences are two lists
that share the level of 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import mean_interval
from qfl_core.analysis.statements import p_values
from qfl_core.base.errors import AnalysisError
from qfl_core.base.numbers import interval
from qfl_core.base.streams import stream

LEVEL = 0.05
HIGHER, LOWER, ABSENT, UNDECIDED = VERDICTS = ("higher", "lower", "absent", "undecided")
_LISTS = 2


def judge_differences(
    differences: pd.DataFrame, margins: Sequence[float], purpose: str = "differences", seed: int = 0
) -> pd.DataFrame:
    """Return mean, low, high (95 %), seeds, margin, p and verdict: one row per column of the table.

    Parameters
    ----------
    differences : one row per seed, one column per difference; NaN where a seed has no value.
    margins : the smallest difference worth claiming, one per column (:mod:`qfl_core.analysis.margins`).
    purpose, seed : name the random streams of the bootstrap and, beyond 14 seeds, of the flips.

    Notes
    -----
    ``p`` is the corrected p value of the verdict, and of the larger sign where nothing is shown.
    """
    if differences.empty:
        raise AnalysisError("there are no differences to judge: name at least two levels or methods")
    few = differences.columns[differences.notna().sum() < 2]
    if len(few):
        raise AnalysisError(f"{few[0]!r} has fewer than 2 paired seeds; an interval needs at least 2")
    values, wide = differences.to_numpy(float), np.asarray(margins, float)
    count = values.shape[1]
    tests = np.concatenate([values, -values, wide + values, wide - values], axis=1)
    places = np.arange(4 * count).reshape(4, count)
    lists = (places[:2].reshape(-1, 1).tolist(), places[2:].T.tolist())
    (_, signs), (_, absences) = p_values(tests, lists, stream(seed, f"{purpose}-flips"))
    signs = signs.reshape(2, count)
    rows = []
    for j, margin in enumerate(wide):
        x = values[np.isfinite(values[:, j]), j]
        low, high, _ = mean_interval(x, stream(seed, purpose, j))
        found = {
            HIGHER: (signs[0, j], low > 0),
            LOWER: (signs[1, j], high < 0),
            ABSENT: (absences[j], -margin < low and high < margin),
        }
        p = {name: min(_LISTS * float(one), 1.0) for name, (one, _) in found.items()}
        verdict = next((name for name, (_, agrees) in found.items() if p[name] <= LEVEL and agrees), UNDECIDED)
        rows.append(
            {
                "mean": x.mean(),
                "low": low,
                "high": high,
                "seeds": len(x),
                "margin": margin,
                "p": p.get(verdict, min(p[HIGHER], p[LOWER])),
                "verdict": verdict,
            }
        )
    return pd.DataFrame(rows, index=differences.columns)


def told(judged: pd.DataFrame) -> list[str]:
    """Return each judged difference as text: ``+0.072 [+0.063, +0.081] higher``."""
    columns = (judged[name] for name in ("mean", "low", "high", "verdict"))
    return [f"{interval(*numbers, signed=True)} {verdict}" for *numbers, verdict in zip(*columns, strict=True)]


def side_by_side(judged: pd.DataFrame, rows: str | list[str], columns: str) -> pd.DataFrame:
    """Return judged differences as a table of texts, in the order in which rows and columns first occur.

    Parameters
    ----------
    judged : what :func:`judge_differences` returns, its keys as columns; one difference per pair of row and column.
    rows, columns : the keys that name the rows and the columns of the table.
    """
    keys = [rows] if isinstance(rows, str) else rows
    texts = judged[[*keys, columns]].assign(text=told(judged)).set_index([*keys, columns])["text"]
    return texts.unstack(columns, sort=False, fill_value="")
