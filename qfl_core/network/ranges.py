"""The range of every number that a client may send up: a number outside of it would spoil the round for all.

The limits hold for every honest client. So they are wide, and whether an upload is far from those of its round is
decided where all uploads are known (:mod:`qfl_core.algorithm.server`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import FederationError
from qfl_core.config.limits import GROWTH_LIMIT

#: Weights and distances stay below this, because their squares must be finite.
LARGEST = 10.0**GROWTH_LIMIT
#: Room for the rounding of a mean.
ROUNDING = 1e-9
SHARES = ("train_accuracy", "test_accuracy", "test_recall", "val_accuracy")
#: Rates that an optimiser chose by itself are only recorded.
RATES = ("eta", "delta")
#: Columns that may be NaN: an optimiser without such a rate, test rows without a positive one.
MAY_BE_NAN = (*RATES, "test_recall")


def check_weights(name: str, values: np.ndarray) -> None:
    """Refuse weights that are not finite or that no optimiser reaches."""
    if not np.isfinite(values).all():
        raise FederationError(f"{name} that are not finite")
    if (np.abs(values) > LARGEST).any():
        raise FederationError(f"{name} beyond {LARGEST:.0e}")


def check_trace(federation: Federation, trace: Mapping[str, np.ndarray]) -> None:
    """Refuse a trace, (K,) per column, with a number outside its range; the error names the column and the range.

    A measured loss is at most -log of the smallest probability that counts. The proximal term adds
    (mu / 2) |theta_k - theta_t|^2, where the distance is at most the sum of the displacements.
    """
    for name, (low, high) in limits(federation, trace["displacement"]).items():
        if name in trace:
            values = trace[name]
            inside = (values >= low) & (values <= high) | (np.isnan(values) & (name in MAY_BE_NAN))
            if not inside.all():
                wrong = values[~inside][0]
                raise FederationError(f"{name} = {wrong:g}, expected {low:g} to {high:g}")


def limits(federation: Federation, displacement: np.ndarray) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of every column of a trace with these displacements (K,)."""
    log_loss = -np.log(federation.model.margin) * (1 + ROUNDING)
    task = max(1.0 + ROUNDING, log_loss)  # the squared error is at most 1
    distance = min(float(np.abs(displacement).sum()), LARGEST)
    proximal = task + (1 + ROUNDING) * 0.5 * federation.mu * distance**2
    return {
        "displacement": (0.0, LARGEST),
        "loss_before": (0.0, proximal),
        "loss_after": (0.0, proximal),
        "task_loss_before": (0.0, task),
        "task_loss_after": (0.0, task),
        "val_loss": (0.0, log_loss),
        **dict.fromkeys(SHARES, (0.0, 1.0)),
        **dict.fromkeys(RATES, (0.0, np.inf)),
        "clipped": (0.0, 1.0),
    }
