"""Only finite numbers are kept: what a round starts from, and the losses that it is judged by.

Weights are angles. In double precision an angle of 10^12 has steps of 10^-4, and rounding soon loses the perturbations
of SPSA. Weights that diverge therefore stop near 10^16, finite and without meaning; they are refused before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qfl_core.base.errors import NotFiniteError
from qfl_core.runs.experiment import Record

#: The largest angle that a weight may have: a perturbation of 0.001, the lowest by default, still moves it.
MAX_WEIGHT = 1e12
#: Columns that are never empty in a round that went well; others may be, e.g. the ROC-AUC of a single class.
_LOSSES = {
    "validation": ("val_loss", "client_val_loss", "meta_loss"),
    "client_trace": (
        *("loss_before", "loss_after", "task_loss_before", "task_loss_after", "val_loss", "displacement"),
    ),
}


def check_finite(record: Record) -> None:
    """Refuse the record of a round whose weights, controller or losses are not finite, or whose weights diverged.

    What a local optimiser remembers is not looked at, because NaN there may mean that nothing is known yet.

    Raises
    ------
    NotFiniteError
        The message names the first such quantity and its value.
    """
    for name, values in _quantities(record):
        broken = np.asarray(values, dtype=float)
        broken = broken[~np.isfinite(broken)]
        if broken.size:
            raise NotFiniteError(f"{name} must be finite, got {broken.flat[0]}")
    largest = np.abs(np.asarray(record["state"]["theta"], dtype=float)).max()
    if largest > MAX_WEIGHT:
        raise NotFiniteError(f"the weights of the global model diverge: one is {largest:.1e}, above {MAX_WEIGHT:.0e}")


def _quantities(record: Record) -> Iterator[tuple[str, object]]:
    state = record["state"]
    yield "the weights of the global model", state["theta"]
    for kind, name in (("phi", "the controller's"), ("server", "the server optimiser's")):
        yield from ((f"{name} parameters {key!r}", values) for key, values in state.get(kind, {}).items())
    for table, columns in _LOSSES.items():
        for column in columns:
            yield f"{column} in {table}.csv", [row[column] for row in record[table] if column in row]
