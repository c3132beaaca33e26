"""Every column of every table of a run, in order: the file format that results are promised in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_integer_dtype, is_numeric_dtype

from qfl_core.algorithm.client import TRACE
from qfl_core.algorithm.controller import FEATURES
from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.base.errors import RunError

_PHI = tuple(f"phi_{rate}_{feature}" for rate in ("eta", "delta") for feature in FEATURES)
#: Every column of every table, in order. ``circuits_*`` count what clients execute for training and selection; scoring
#: a model for these records (global metrics, client test accuracy, meta-loss) is measurement, not cost, and left out.
SCHEMA: dict[str, tuple[str, ...]] = {
    "global_accuracies": (
        "round",
        "global_train_accuracy",
        "global_val_accuracy",
        "global_accuracy",
        "client_train_accuracy",
        "client_test_accuracy",
        "client_test_accuracy_min",
        "client_test_accuracy_max",
        "train_test_gap",
        "fairness_gap",
        "global_fairness_gap",
        "clients",
        "drift",
        "circuits_train",
        "circuits_calibration",
        "circuits_monitor",
        "circuits_validation",
        "circuits_virtual",
        "circuits_tuning",
        "shots",
    ),
    "validation": ("round", "val_loss", "client_val_loss", "meta_loss"),
    "client_trace": (
        "round",
        "client",
        "unfold",
        *TRACE,
        "selected_unfold",
        "is_selected",
        "client_size",
        "val_size",
        "aggregation_weight",
        "heterogeneity",
    ),
    "outer_meta": (
        "round",
        "meta_loss",
        "meta_val_loss",
        "omega_fair",
        "omega_comm",
        "omega_stab",
        "updated",
        "meta_loss_plus",
        "meta_loss_minus",
        "controller_gradient_norm",
        *_PHI,
    ),
    "classification_metrics": (
        "round",
        "part",
        *CLASSIFICATION,
        "loss",
    ),
}
#: Participants that a round had to do without; the file exists only where there were some.
EXCLUSIONS = ("round", "client", "reason")
#: How long each round took; these differ from run to run, so they are not sealed.
TIMINGS = ("round", "seconds")
#: The columns that hold text; all others hold numbers or truth values.
_TEXTS = ("part", "reason")


def read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table that :func:`to_csv` wrote.

    Raises
    ------
    ValueError
        When the file has other columns, no rows, or text where numbers belong.
    """
    table = pd.read_csv(path, low_memory=False)
    if list(table.columns) != list(columns):
        raise ValueError("its columns are not those of the schema")
    if table.empty:
        raise ValueError("it has no rows")
    if not is_integer_dtype(table.dtypes["round"]):
        raise ValueError("there is something else than whole numbers in round")
    if texts := [name for name in columns if name not in _TEXTS and not is_numeric_dtype(table.dtypes[name])]:
        raise ValueError(f"there is something else than numbers in {', '.join(texts)}")
    return table


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> str:
    """Return rows as CSV with exactly these columns; a value without a column is an error."""
    columns = list(columns)
    unknown = {key for row in rows for key in row} - set(columns)
    if unknown:
        raise RunError(f"columns {sorted(unknown)} are not in the schema")
    return pd.DataFrame(rows, columns=columns).to_csv(index=False, lineterminator="\n")
