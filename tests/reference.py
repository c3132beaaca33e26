"""The smoke profile's numbers, kept in ``reference_smoke.csv``: a silent change of the science fails a test.

After a change that is meant to alter them, ``make refresh-reference`` writes the file anew.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import METHODS
from qfl_core.config import CLEAN, load_profile
from qfl_core.runs import RunResult
from qfl_core.runs.sweep import grid, sweep

FILE = Path(__file__).with_name("reference_smoke.csv")
KEYS = ["track", "method", "round"]
COLUMNS = [
    "global_accuracy",
    "client_test_accuracy",
    "train_test_gap",
    "fairness_gap",
    "drift_from_broadcast",
    "val_loss",
    "meta_loss",
    "test_roc_auc",
    "circuits_train",
]


def reference_table(folder: Path) -> pd.DataFrame:
    """Return seed 0 of every method on every track, on the stand-ins: each round's metrics and the weights' norm."""
    settings = load_profile("smoke")
    tracks = [*settings.datasets, *(name for name in settings.experiment if name.endswith(CLEAN))]
    parts = []
    for track in tracks:
        configs = grid(settings.config(track, source="stand-in", seed=0), method=METHODS)
        parts += [_rows(run, track) for run in sweep(configs, folder, progress=False)]
    return pd.concat(parts, ignore_index=True)


def _rows(run: RunResult, track: str) -> pd.DataFrame:
    rows = run.rounds[["round", *COLUMNS]].assign(track=track, method=run.config.method)
    rows["theta_norm"] = np.linalg.norm(run.weights, axis=1)
    return rows[[*KEYS, *COLUMNS, "theta_norm"]]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        reference_table(Path(temporary)).to_csv(FILE, index=False, lineterminator="\n")
    sys.stdout.write(f"{FILE.name} written\n")
