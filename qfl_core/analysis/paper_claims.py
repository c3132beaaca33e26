"""The twenty claims and three theory points of the paper, in our words, each with the rule that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis import measures as m
from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.paper import PAPER
from qfl_core.base.numbers import number

NAMES = {
    "global_accuracy": "global accuracy",
    "client_test_accuracy": "client test accuracy",
    "train_test_gap": "train-test gap",
    "fairness_gap": "fairness gap",
}
#: Five points count as close, ten as far.
CLOSE, FAR = 0.05, 0.10


def _minus(track: str, what: str, measure: m.Measure, a: str, b: str, claimed: str = "above", **more: Any) -> Part:
    """Return the part on the measure of method ``a`` minus that of ``b``; ``more`` are fields of :class:`Part`."""
    return Part(f"{_label(a)} − {_label(b)}, {what}", track, (a, b), m.minus(measure), claimed, **more)


def _label(method: str) -> str:
    return METHODS[method].label if method in METHODS else method


def _final(track: str, column: str, a: str, b: str, claimed: str = "above", **more: Any) -> Part:
    """Return the part that final values of a and b differ, with the paper's difference where it prints both."""
    printed = PAPER.get((track, column), {})
    paper = round(printed[a] - printed[b], 4) if a in printed and b in printed else None
    return _minus(track, f"final {NAMES[column]}", m.final(column), a, b, claimed, paper=paper, **more)


def _against(track: str, column: str, a: str, others: tuple[str, ...], claimed: str = "above") -> tuple[Part, ...]:
    return tuple(_final(track, column, a, b, claimed) for b in others)


PROX, FEDPROX, DEFAULT, ADAM = "duqfl-prox", "fedprox-qfl", "default-qfl", "adam-qfl"
LAST, BEST, DRIFT = "duqfl-last", "duqfl-best", "duqfl-drift"
_BASELINES = (FEDPROX, DEFAULT, ADAM)
_VARIANTS = (LAST, BEST, DRIFT)


def _on_baf() -> Iterator[Claim]:
    ordered = "DUQFL-Prox ends above FedProx-QFL and FedProx-QFL above Default-QFL in the last round."
    for claim_id, column in (("1", "global_accuracy"), ("3", "client_test_accuracy")):
        parts = (_final("baf", column, PROX, FEDPROX), _final("baf", column, FEDPROX, DEFAULT))
        yield Claim(claim_id, f"BAF {NAMES[column]}: DUQFL-Prox, then FedProx-QFL, then Default-QFL", ordered, parts)
    middle = Part(
        "Default-QFL, middle − last third, global accuracy", "baf", (DEFAULT,), m.fall("global_accuracy", 1, 2)
    )
    yield Claim(
        "2",
        "BAF: Default-QFL peaks in mid-run and falls back",
        "Its mean accuracy over the middle third of the rounds is above that over the last third. The peak itself is "
        "not used: the largest of noisy values is above the last one for any method.",
        (middle,),
    )
    near = Part(
        "DUQFL-Prox, final train-test gap",
        "baf",
        (PROX,),
        m.final("train_test_gap"),
        "within",
        CLOSE,
        PAPER["baf", "train_test_gap"][PROX],
    )
    yield Claim(
        "4",
        "BAF train-test gap: DUQFL-Prox has the lowest, near 0",
        f"Its final gap is below that of FedProx-QFL and Default-QFL, and within ±{CLOSE} of 0.",
        (*_against("baf", "train_test_gap", PROX, (FEDPROX, DEFAULT), "below"), near),
    )
    yield Claim(
        "5",
        "BAF fairness gap: DUQFL-Prox has the lowest",
        "Its final gap is below that of FedProx-QFL and of Default-QFL.",
        _against("baf", "fairness_gap", PROX, (FEDPROX, DEFAULT), "below"),
    )
    recall = m.mean_of_rounds("test_recall")
    yield Claim(
        "6",
        "BAF: Adam-QFL has a high recall and a falling specificity",
        "Its test recall, averaged over rounds, is above DUQFL-Prox's and Default-QFL's (the three that the paper "
        "draws), and its specificity is lower in the last third of the rounds than in the first.",
        (
            *(_minus("baf", "mean recall", recall, ADAM, other, unit="score") for other in (PROX, DEFAULT)),
            Part(
                "Adam-QFL, first − last third, specificity",
                "baf",
                (ADAM,),
                m.fall("test_specificity", 0, 2),
                unit="score",
            ),
        ),
    )
    steady = {"f1": "F1", "mcc": "MCC", "roc_auc": "ROC-AUC", "precision": "precision", "specificity": "specificity"}
    yield Claim(
        "7",
        "BAF: DUQFL-Prox is steadier than Default-QFL in late rounds in F1, MCC, ROC-AUC, precision, specificity",
        "The standard deviation of the test metric's changes from round to round, over the second half of the rounds, "
        "is lower for DUQFL-Prox in each of the five metrics.",
        tuple(
            _minus(
                "baf",
                f"late unsteadiness of {name}",
                m.late_unsteadiness(f"test_{metric}"),
                PROX,
                DEFAULT,
                "below",
                unit="unsteadiness",
            )
            for metric, name in steady.items()
        ),
    )
    noisy = {"pr_auc": "PR-AUC", "mcc": "MCC", "precision": "precision", "recall": "recall"}
    yield Claim(
        "8",
        "BAF: validation curves are noisier than test curves",
        "The standard deviation of changes from round to round is higher on validation than on test, averaged over "
        "Default-QFL, Adam-QFL and DUQFL-Prox (the three that the paper draws), in each of the four metrics it names.",
        tuple(
            Part(
                f"validation − test unsteadiness of {name}",
                "baf",
                (DEFAULT, ADAM, PROX),
                m.average(m.validation_excess(metric)),
                unit="unsteadiness",
            )
            for metric, name in noisy.items()
        ),
    )


def _on_genome() -> Iterator[Claim]:
    accuracy = "global_accuracy"
    yield Claim(
        "9",
        "Genome global accuracy: FedProx-QFL is best, DUQFL-Prox close, Default-QFL far below",
        f"FedProx-QFL ends above DUQFL-Prox, Default-QFL and Adam-QFL, DUQFL-Prox within ±{CLOSE} of FedProx-QFL, and "
        f"more than {number(FAR, 2)} above Default-QFL.",
        (
            *_against("genome", accuracy, FEDPROX, (PROX, DEFAULT, ADAM)),
            _final("genome", accuracy, PROX, FEDPROX, "within", bound=CLOSE),
            _final("genome", accuracy, PROX, DEFAULT, "above", bound=FAR),
        ),
    )
    for claim_id, column, claimed, best in (
        ("10", "client_test_accuracy", "above", "highest"),
        ("11", "train_test_gap", "below", "lowest"),
        ("12", "fairness_gap", "below", "lowest"),
    ):
        yield Claim(
            claim_id,
            f"Genome {NAMES[column]}: DUQFL-Prox has the {best}",
            f"Its final value is {claimed} that of FedProx-QFL, Default-QFL and Adam-QFL.",
            _against("genome", column, PROX, _BASELINES, claimed),
        )
    yield Claim(
        "13",
        "Genome: DUQFL-best and DUQFL-drift beat Default-QFL",
        "Both end above Default-QFL in global accuracy and in mean client test accuracy.",
        tuple(
            _final("genome", column, variant, DEFAULT)
            for column in (accuracy, "client_test_accuracy")
            for variant in (BEST, DRIFT)
        ),
    )
    yield Claim(
        "14",
        "Genome: Adam-QFL peaks highest and ends weak",
        "The highest global accuracy of any round is above that of DUQFL-Prox, FedProx-QFL and Default-QFL, but the "
        "last is below that of DUQFL-Prox and FedProx-QFL.",
        (
            *(_minus("genome", "peak accuracy", m.peak(accuracy), ADAM, b) for b in (PROX, FEDPROX, DEFAULT)),
            *_against("genome", accuracy, ADAM, (PROX, FEDPROX), "below"),
        ),
    )
    column = "client_test_accuracy"
    unsteady = m.late_unsteadiness(column)
    yield Claim(
        "15",
        "Genome: DUQFL-last beats Default-QFL in some rounds, and is less steady than DUQFL-best and DUQFL-Prox",
        "Its mean client test accuracy is above Default-QFL's in more than one round in ten, and the standard "
        "deviation of its changes from round to round, over the second half, is above that of both.",
        (
            Part(
                "share of rounds DUQFL-last > Default-QFL",
                "genome",
                (LAST, DEFAULT),
                m.share_of_rounds_above(column),
                bound=0.1,
                unit="share",
            ),
            *(
                _minus("genome", "late unsteadiness", unsteady, LAST, other, unit="unsteadiness")
                for other in (BEST, PROX)
            ),
        ),
    )
    yield Claim(
        "16",
        "Genome: DUQFL-Prox is the best DUQFL variant in mean client test accuracy, train-test gap and fairness gap",
        "It ends better than DUQFL-last, DUQFL-best and DUQFL-drift in each of the three.",
        (
            *_against("genome", column, PROX, _VARIANTS),
            *_against("genome", "train_test_gap", PROX, _VARIANTS, "below"),
            *_against("genome", "fairness_gap", PROX, _VARIANTS, "below"),
        ),
    )


def _on_traces() -> Iterator[Claim]:
    def prox(text: str, measure: m.Measure, bound: float, unit: str = "share") -> Part:
        return Part(f"DUQFL-Prox, {text}", "baf", (PROX,), measure, "above", bound, unit=unit)

    yield Claim(
        "17",
        "The controller's eta and delta vary, inside their bounds",
        "Over all clients, unfolds and rounds, eta and delta each vary by more than 1 % (standard deviation of the "
        "logarithm), and more than 95 % of them lie strictly inside the bounds, not clipped to one.",
        (
            prox("variation of η", m.log_variation("eta"), 0.01, "log rate"),
            prox("variation of δ", m.log_variation("delta"), 0.01, "log rate"),
            prox("share of η, δ inside bounds", m.share_inside_bounds, 0.95),
        ),
    )
    yield Claim(
        "18",
        "Most unfold steps reduce the client's loss, the early ones most",
        "More than half of all unfolds lower the proximal loss, and the mean reduction of the first unfolds (2 of 5) "
        "is above that of the others.",
        (
            prox("share of unfolds that reduce the loss", m.share_of_reductions, 0.5),
            prox("loss reduction, early − later unfolds", m.early_reduction_excess, 0.0, "loss"),
        ),
    )
    yield Claim(
        "19",
        "The last unfold is not always the one uploaded",
        "More than one upload in twenty is an earlier unfold.",
        (prox("share of uploads of an earlier unfold", m.share_of_earlier_uploads, 0.05),),
    )


def _on_devices_and_theory() -> Iterator[Claim]:
    yield Claim(
        "20",
        "On (simulated) hardware, DUQFL-Prox's checkpoints are steadier than Default-QFL's and close to the exact ones",
        "The standard deviation of accuracy changes from checkpoint to checkpoint is higher for Default-QFL, and "
        f"DUQFL-Prox's mean distance from the exact accuracy is below {CLOSE}. The device is the most real one "
        "in the table.",
        (
            _minus("hardware", "unsteadiness on the device", m.device_unsteadiness, DEFAULT, PROX),
            Part("DUQFL-Prox, |device − exact|", "hardware", (PROX,), m.device_distance, "below", CLOSE),
        ),
    )
    yield Claim(
        "T1",
        "Step projection bounds a client's drift in a round by K r",
        "In every round and client of DUQFL-drift, the lengths of the K steps add up to at most K r.",
        tuple(
            Part(
                f"DUQFL-drift, longest path / K r, {track}",
                track,
                (DRIFT,),
                m.largest_drift_ratio,
                "always",
                1 + 1e-9,
                unit="ratio",
            )
            for track in ("baf", "genome")
        ),
    )
    yield Claim(
        "T2",
        "The gradient of the proximal objective is grad L + mu (theta - theta_t)",
        "The package's gradient agrees with central differences of its proximal loss to one part in a million.",
        (Part("largest relative error of the gradient", "theory", (), m.gradient_error, "always", 1e-6, unit="ratio"),),
    )
    yield Claim(
        "T3",
        "The outer SPSA estimate points downhill in expectation",
        "The cosine between the mean estimate and the gradient of the meta-loss is above 0 over small federations.",
        (Part("cosine of estimate and gradient", "theory", (), m.descent_cosines, "above", 0.0, unit="cosine"),),
    )


CLAIMS: tuple[Claim, ...] = tuple(
    sorted(
        (*_on_baf(), *_on_genome(), *_on_traces(), *_on_devices_and_theory()),
        key=lambda claim: (claim.id.startswith("T"), int(claim.id.removeprefix("T"))),
    )
)
