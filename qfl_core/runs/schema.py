"""Every column of every table of a run, in order: the file format that results are promised in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qfl_core.algorithm.client import TRACE
from qfl_core.algorithm.controller import FEATURES
from qfl_core.algorithm.metrics import CLASSIFICATION
from qfl_core.base.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

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
        "drift_from_broadcast",
        "upload_spread",
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
#: What a run with differential privacy has spent after each round; other runs have no such file.
PRIVACY = ("round", "epsilon", "epsilon_server", "delta")
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
    import pandas as pd  # here, because training needs no table
    from pandas.api.types import is_integer_dtype, is_numeric_dtype

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
    """Return rows as CSV with exactly these columns; a value without a column is an error.

    The text is the one that pandas writes, to the byte: NaN and missing values are empty, and the whole numbers of a
    column that also has other numbers or gaps are written with a point. It is written here because a run that only
    trains needs nothing else of pandas, which takes half a second to import.
    """
    columns = list(columns)
    unknown = {key for row in rows for key in row} - set(columns)
    if unknown:
        raise RunError(f"columns {sorted(unknown)} are not in the schema")
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_cells([row.get(name) for row in rows]) for name in columns), strict=True))
    return written.getvalue()


def _cells(values: Sequence[Any]) -> list[Any]:
    """Return what stands in one column."""
    kinds = set(map(type, values))
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return list(values)
    if kinds <= {int, float, type(None)}:
        return ["" if value is None or value != value else float(value) for value in values]  # NaN is not itself
    gaps = [value is None or value != value for value in values]
    present = [value for value, gap in zip(values, gaps, strict=True) if not gap]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)
    if numbers and (any(gaps) or any(isinstance(value, float) for value in present)):
        return ["" if gap else float(value) for value, gap in zip(values, gaps, strict=True)]
    return ["" if gap else value for value, gap in zip(values, gaps, strict=True)]


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read a table as :func:`read_csv` does, without pandas: one mapping of columns to values per row.

    Raises
    ------
    ValueError
        When the file has other columns, no rows, or text where numbers belong.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    if not lines or lines[0] != list(columns):
        raise ValueError("its columns are not those of the schema")
    if len(lines) == 1:
        raise ValueError("it has no rows")
    return [{name: _value(name, text) for name, text in zip(columns, line, strict=True)} for line in lines[1:]]


def _value(column: str, text: str) -> int | float | str:
    if column == "round":
        return int(text)
    if column in _TEXTS:
        return text
    if text in ("True", "False"):
        return text == "True"
    return float(text) if text else float("nan")
