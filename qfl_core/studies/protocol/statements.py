"""What the paper says about the course of training, each statement as a condition that a run meets or not.

A statement is graded for every seed by a number from 0 (not met) to 1 (met). Conditions compare thirds of the rounds
that are fixed before looking, because the highest of many noisy rounds always lies above a single one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from qfl_core.analysis.paper import PAPER

PROX, FEDPROX, DEFAULT, ADAM = "duqfl-prox", "fedprox-qfl", "default-qfl", "adam-qfl"
#: The methods with printed numbers; Adam-QFL has none and is judged by statements alone.
PRINTED = tuple(dict.fromkeys(method for values in PAPER.values() for method in values))
IMPROVING = ("f1", "mcc", "roc_auc", "precision", "specificity")
#: A coefficient of variation that a heat map shows; below it the grade falls linearly.
VISIBLE = 0.05
#: "Substantially lower", as a difference of accuracies.
SUBSTANTIAL = 0.1
#: "Many" uploads, as a share of all.
MANY = 0.5


@dataclass(frozen=True, eq=False)
class Course:
    """One run: ``rounds`` (one row per round, 0 first) and the client ``trace``, None where no statement needs it."""

    rounds: pd.DataFrame
    trace: pd.DataFrame | None = None

    def curve(self, column: str) -> np.ndarray:
        """Return a column over rounds, round 0 first."""
        return self.rounds[column].to_numpy(float)

    def thirds(self, column: str) -> np.ndarray:
        """Return the means (3,) of the first, middle and last third of the rounds; round 0 is not trained."""
        return np.array([part.mean() if len(part) else np.nan for part in np.array_split(self.curve(column)[1:], 3)])

    @property
    def clients(self) -> pd.DataFrame:
        """The client trace."""
        if self.trace is None:
            raise ValueError("this statement needs the client trace, which was not read")
        return self.trace


@dataclass(frozen=True)
class Statement:
    """A statement of the paper: its ``words``, shortened, the ``condition`` for them, and its ``grade`` of one seed.

    ``grade`` takes one :class:`Course` per method, in the order of ``methods``; ``tracks`` are those it speaks of.
    """

    name: str
    words: str
    condition: str
    tracks: tuple[str, ...]
    methods: tuple[str, ...]
    grade: Callable[..., float]


def _share(*met: bool | np.bool_) -> float:
    return float(np.mean(np.array(met, float)))


def _peaks_and_falls(default: Course) -> float:
    first, middle, last = default.thirds("global_accuracy")
    return _share(middle > first, middle > last)


def _improves(prox: Course) -> float:
    met = []
    for metric in IMPROVING:
        first, _, last = prox.thirds(f"test_{metric}")
        met.append(last > max(first, prox.curve(f"test_{metric}")[0]))
    return _share(*met)


def _recall_and_specificity(adam: Course, prox: Course, default: Course) -> float:
    others = max(course.curve("test_recall")[1:].mean() for course in (prox, default))
    first, _, last = adam.thirds("test_specificity")
    return _share(adam.curve("test_recall")[1:].mean() > others, last < first)


def _peaks_highest_and_ends_weak(adam: Course, prox: Course, fedprox: Course, default: Course) -> float:
    curves = [course.curve("global_accuracy")[1:] for course in (prox, fedprox, default)]
    mine = adam.curve("global_accuracy")[1:]
    return _share(mine.max() > max(curve.max() for curve in curves), mine[-1] < min(curve[-1] for curve in curves[:2]))


def _rates_vary(prox: Course) -> float:
    grades = []
    for rate in ("eta", "delta"):
        heat = prox.clients.groupby(["client", "unfold"])[rate].mean().unstack()
        for axis in (0, 1):  # across clients, across unfolds
            variation = heat.to_numpy().std(axis=axis).mean() / heat.to_numpy().mean()
            grades.append(min(1.0, variation / VISIBLE))
    return float(np.mean(grades))


def _early_unfolds(prox: Course) -> float:
    trace = prox.clients
    fall = (trace["loss_before"] - trace["loss_after"]).groupby(trace["unfold"]).mean().to_numpy()
    return _share(fall[0] > 0, fall[0] > fall[1:].mean()) if len(fall) > 1 else 0.0


def _earlier_uploads(prox: Course) -> float:
    uploads = prox.clients[prox.clients["is_selected"].astype(bool)]
    return float(min(1.0, (uploads["unfold"] < prox.clients["unfold"].max()).mean() / MANY))


def _displacement_follows(prox: Course) -> float:
    eta, moved = prox.clients["eta"].to_numpy(float), prox.clients["displacement"].to_numpy(float)
    if np.ptp(eta) == 0 or np.ptp(moved) == 0:
        return 0.0  # nothing varies, so nothing follows
    return _share(spearmanr(eta, moved).statistic > 0)


def _checkpoints(prox: Course, default: Course) -> float:
    ours, theirs = prox.thirds("global_accuracy"), default.thirds("global_accuracy")
    return _share(ours[2] > ours[0], theirs[2] - theirs[0] < ours[2] - ours[0])


def _genome_order(fedprox: Course, prox: Course, default: Course) -> float:
    first, second, third = (course.curve("global_accuracy")[-1] for course in (fedprox, prox, default))
    return _share(first >= second, third <= second - SUBSTANTIAL)


BOTH = ("baf", "genome")
STATEMENTS = (
    Statement(
        "Default-QFL peaks and falls",
        "Default-QFL reaches a temporary peak during intermediate rounds, its late-round performance decreases",
        "global accuracy: mean of the middle third above that of the first (half) and of the last (half)",
        ("baf",), (DEFAULT,), _peaks_and_falls,
    ),
    Statement(
        "DUQFL-Prox's scores improve",
        "more consistent improvements in test F1, MCC, ROC-AUC, precision, and specificity",
        "share of the five whose mean of the last third is above that of the first and above the untrained model's",
        ("baf",), (PROX,), _improves,
    ),
    Statement(
        "eta and delta vary",
        "the generated SPSA learning rate and perturbation scale vary across clients and unfold steps",
        f"coefficient of variation of each rate's heat map across clients and across unfolds, at least {VISIBLE:g}; "
        "linear below",
        BOTH, (PROX,), _rates_vary,
    ),
    Statement(
        "early unfolds help most",
        "the largest average loss reduction often occurs during early unfold steps",
        "the first unfold reduces the loss (half), and more than the later ones on average (half)",
        BOTH, (PROX,), _early_unfolds,
    ),
    Statement(
        "uploads are often earlier unfolds",
        "the last unfolded state is not always uploaded",
        f"share of uploads that are not the last unfold, at least {MANY:g}; linear below",
        BOTH, (PROX,), _earlier_uploads,
    ),
    Statement(
        "displacement follows eta",
        "the parameter-shift curve monitors local movement; controller-guided local optimization",
        "rank correlation of an unfold's displacement with its eta above 0; not met where eta does not vary",
        BOTH, (PROX,), _displacement_follows,
    ),
    Statement(
        "DUQFL-Prox's checkpoints improve",
        "a more stable and improving hardware trajectory than Default-QFL",
        "global accuracy: last third above first for DUQFL-Prox (half), by more than for Default-QFL (half)",
        BOTH, (PROX, DEFAULT), _checkpoints,
    ),
    Statement(
        "order on genome",
        "FedProx-QFL achieves the highest final global accuracy; DUQFL-Prox remains competitive; Default-QFL ends with "
        "substantially lower global accuracy",
        f"last round: FedProx-QFL at least DUQFL-Prox (half), Default-QFL {SUBSTANTIAL:g} or more below it (half)",
        ("genome",), (FEDPROX, PROX, DEFAULT), _genome_order,
    ),
    Statement(
        "Adam-QFL's recall and specificity",
        "high recall for much of training, accompanied by a decline in specificity",
        "mean recall above DUQFL-Prox's and Default-QFL's (half), specificity falls from first to last third (half)",
        ("baf",), (ADAM, PROX, DEFAULT), _recall_and_specificity,
    ),
    Statement(
        "Adam-QFL peaks highest and ends weak",
        "the table of qualities: strongest peak accuracy, weak final accuracy",
        "highest round above that of all others (half), last round below DUQFL-Prox and FedProx-QFL (half)",
        ("genome",), (ADAM, PROX, FEDPROX, DEFAULT), _peaks_highest_and_ends_weak,
    ),
)  # fmt: skip


def stated(tracks: tuple[str, ...], adam: bool = False) -> list[tuple[str, Statement]]:
    """Return (track, statement) for all statements about these tracks: those about Adam-QFL, or all others."""
    return [(track, s) for track in tracks for s in STATEMENTS if track in s.tracks and (ADAM in s.methods) == adam]
