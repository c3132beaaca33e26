"""What the page's explorer draws from: every run's metrics by round, and the quantiles for its intervals."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.evidence import RUN_TRACKS
from qfl_core.analysis.inference import student_half
from qfl_core.analysis.paper import PAPER
from qfl_core.base.registry import EXTRA_METHODS
from qfl_core.config import CLEAN
from qfl_core.figures.style import method_colour
from qfl_core.runs.study import Study

#: A second sign of a method beside its colour, as SVG writes dashes; the proposed method's line is whole.
DASHES = ("6 3", "2 3", "9 3 2 3", "4 2", "12 4", "5 2 1 2", "", "8 2 2 2 2 2", "1 3")
#: Digits kept of a reference's score: far below what separates seeds.
DIGITS = 6
#: Bytes of a packed value: two where all values of a table are whole multiples of one share, otherwise three.
NARROW, WIDE = 2, 3


@dataclass(frozen=True)
class Metric:
    """A column of a run's rounds: its name on the page, what is better, and what values are possible.

    ``reference`` is the score of the classical references that means the same.
    """

    title: str
    better: str = ""
    low: float | None = None
    high: float | None = None
    reference: str | None = None


def _share(title: str, reference: str | None = None) -> Metric:
    return Metric(title, "higher", 0.0, 1.0, reference)


METRICS: dict[str, Metric] = {
    "global_accuracy": _share("Global accuracy (test)", "accuracy"),
    "client_test_accuracy": _share("Mean client test accuracy", "accuracy"),
    "client_train_accuracy": _share("Mean client training accuracy"),
    "train_test_gap": Metric("Train-test gap", "lower", -1.0, 1.0),
    "fairness_gap": Metric("Client fairness gap", "lower", 0.0, 1.0),
    "test_balanced_accuracy": _share("Balanced accuracy (test)", "balanced_accuracy"),
    "test_roc_auc": _share("ROC-AUC (test)", "roc_auc"),
    "test_pr_auc": _share("PR-AUC (test)"),
    "test_recall": _share("Recall (test)"),
    "test_precision": _share("Precision (test)"),
    "test_f1": _share("F1 (test)"),
    "test_specificity": _share("Specificity (test)"),
    "test_mcc": Metric("MCC (test)", "higher", -1.0, 1.0),
    "test_loss": Metric("Loss (test)", "lower", 0.0),
    "val_loss": Metric("Loss (validation)", "lower", 0.0),
    "meta_loss": Metric("Meta-loss", "lower", 0.0),
    "drift_from_broadcast": Metric("Client drift", "lower", 0.0),
    "circuits_train": Metric("Circuits for training in a round", "", 0.0),
}


def explorer_data(studies: Mapping[str, Study], references: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Return plain JSON types: ``tracks`` with ``values[method][metric]``, packed by :func:`packed`.

    ``references`` maps a track to its classical scores, one row per seed and model. ``quantiles[n - 2]`` is Student's
    97.5 % quantile for n seeds, as :func:`qfl_core.analysis.intervals` uses it.
    """
    tracks = {name: _track(study, references.get(name)) for name, study in studies.items()}
    most = max(len(track["seeds"]) for track in tracks.values())
    methods = dict.fromkeys(method for track in tracks.values() for method in track["values"])
    return {
        "tracks": tracks,
        "methods": {name: _look(name) for name in methods},
        "metrics": {name: asdict(metric) for name, metric in METRICS.items()},
        "quantiles": [float(student_half(1.0, n - 1)) for n in range(2, most + 1)],
    }


def _look(method: str) -> dict[str, str]:
    place = [*METHODS, *EXTRA_METHODS].index(method)
    colour = to_hex(method_colour(method))
    return {"label": method_named(method).label, "colour": colour, "dashes": DASHES[place % len(DASHES)]}


def _track(study: Study, references: pd.DataFrame | None) -> dict[str, Any]:
    table = study.rounds
    rounds, seeds = sorted(table["round"].unique()), sorted(table["seed"].unique())
    config, values = study.runs[0].config, {}
    shares = (1, config.test_size, config.test_size * config.clients)  # an accuracy, and the mean over all clients
    for method in study.methods:
        mine = table[table["method"] == method].pivot(index="seed", columns="round", values=list(METRICS))
        values[method] = {
            name: packed(mine[[name]].droplevel(0, axis=1).reindex(seeds, columns=rounds), shares) for name in METRICS
        }
    kind = "the paper's track" if study.track in RUN_TRACKS else "an extension"
    kind = "sound encoding" if study.track.endswith(CLEAN) else kind
    return {
        "label": f"{study.track}: {kind} ({config.encoding})",
        "facts": "  ·  ".join(study.facts),
        "rounds": [int(value) for value in rounds],
        "seeds": [int(value) for value in seeds],
        "values": values,
        "paper": {metric: dict(values) for (track, metric), values in PAPER.items() if track == study.track},
        "references": {} if references is None else _references(references, seeds),
    }


def _references(table: pd.DataFrame, seeds: list) -> dict[str, dict[str, list]]:
    """Return ``[score][model][seed]``."""
    scores = dict.fromkeys(metric.reference for metric in METRICS.values() if metric.reference)
    models = list(dict.fromkeys(table["model"]))
    return {
        score: {
            model: _plain(table[table["model"] == model].set_index("seed")[[score]].reindex(seeds).T)[0]
            for model in models
        }
        for score in scores
    }


def packed(table: pd.DataFrame, shares: Sequence[int] = ()) -> dict[str, Any]:
    """Return a table (seeds, rounds) as ``width``, ``scale`` and ``packed``: base64 of numbers, lowest byte first.

    A value is its number times the scale; the lowest number stands for a value that is undefined. Where all values are
    whole multiples of 1 / n for one n of ``shares``, two bytes hold them exactly. As text, the values of 150 seeds
    would double the size of the page.
    """
    values = table.to_numpy(dtype=float)
    there = np.isfinite(values)
    largest = float(np.abs(values[there]).max(initial=0.0))
    narrow = [n for n in shares if largest * n < _largest(NARROW) and _are_multiples(values[there], n)]
    width, scale = (NARROW, 1 / narrow[0]) if narrow else (WIDE, largest / _largest(WIDE) or 1.0)
    numbers = np.full(values.shape, -_largest(width) - 1, "<i4")
    numbers[there] = np.round(values[there] / scale)
    lowest = numbers.reshape(-1, 1).view(np.uint8)[:, :width]
    return {"width": width, "scale": scale, "packed": base64.b64encode(lowest.tobytes()).decode("ascii")}


def _largest(width: int) -> int:
    return int(2 ** (8 * width - 1) - 1)


def _are_multiples(values: np.ndarray, n: int) -> bool:
    """Return whether all values are whole multiples of 1 / n, but for the digits that tables leave out."""
    return bool(np.allclose(values, np.round(values * n) / n, rtol=0, atol=10.0**-DIGITS))


def _plain(table: pd.DataFrame) -> list[list[float | None]]:
    values = table.to_numpy(dtype=float).round(DIGITS)
    return [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]
