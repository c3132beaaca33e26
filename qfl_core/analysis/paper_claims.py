"""The twenty claims and three theory points of the paper, in our words, each with the rule that decides it."""

from __future__ import annotations

from collections.abc import Iterator

from qfl_core.analysis import measures as m
from qfl_core.analysis.claim_parts import (
    ADAM,
    BASELINES,
    BEST,
    CLOSE,
    DEFAULT,
    DRIFT,
    FAR,
    FEDPROX,
    LAST,
    NAMES,
    PROX,
    VARIANTS,
    against,
    final,
    minus,
    near_zero,
    part,
    thirds,
    unsteadier,
)
from qfl_core.analysis.claims import Claim, Part
from qfl_core.base.numbers import number


def _on_baf() -> Iterator[Claim]:
    ordered = "DUQFL-Prox ends above FedProx-QFL and FedProx-QFL above Default-QFL in the last round."
    for claim_id, column in (("1", "global_accuracy"), ("3", "client_test_accuracy")):
        parts = (final("baf", column, PROX, FEDPROX), final("baf", column, FEDPROX, DEFAULT))
        yield Claim(claim_id, f"BAF {NAMES[column]}: DUQFL-Prox, then FedProx-QFL, then Default-QFL", ordered, parts)
    yield Claim(
        "2",
        "BAF: Default-QFL peaks in mid-run and falls back",
        "Its mean accuracy over the middle third of the rounds is above that over the last third and above that over "
        "the first. The peak itself is not used: the largest of noisy values is above the last one for any method.",
        tuple(
            thirds("baf", DEFAULT, "global_accuracy", m.MIDDLE, other, "global accuracy") for other in (m.LATE, m.EARLY)
        ),
    )
    yield Claim(
        "4",
        "BAF train-test gap: DUQFL-Prox has the lowest, near 0",
        f"Its final gap is below that of FedProx-QFL and Default-QFL, and within ±{CLOSE} of 0.",
        (
            *against("baf", "train_test_gap", PROX, (FEDPROX, DEFAULT), "below"),
            near_zero("baf", "train_test_gap", PROX),
        ),
    )
    yield Claim(
        "5",
        "BAF fairness gap: DUQFL-Prox has the lowest",
        "Its final gap is below that of FedProx-QFL and of Default-QFL.",
        against("baf", "fairness_gap", PROX, (FEDPROX, DEFAULT), "below"),
    )
    recall = m.mean_of_rounds("test_recall")
    yield Claim(
        "6",
        "BAF: Adam-QFL has a high recall and a falling specificity",
        "Its test recall, averaged over rounds, is above DUQFL-Prox's and Default-QFL's (the three that the paper "
        "draws), and its specificity is lower in the last third of the rounds than in the first.",
        (
            *(minus("baf", "mean recall", recall, ADAM, other, unit="score") for other in (PROX, DEFAULT)),
            thirds("baf", ADAM, "test_specificity", m.EARLY, m.LATE, "specificity", unit="score"),
        ),
    )
    five = {"f1": "F1", "mcc": "MCC", "roc_auc": "ROC-AUC", "precision": "precision", "specificity": "specificity"}
    yield Claim(
        "7",
        "BAF: DUQFL-Prox is steadier than Default-QFL in late rounds in F1, MCC, ROC-AUC, precision, specificity, and "
        "improves in them",
        "The standard deviation of the test metric's changes from round to round, over the second half of the rounds, "
        "is lower for DUQFL-Prox in each of the five metrics, and DUQFL-Prox's mean over the last third of the rounds "
        "is above that over the first third in each.",
        (
            *(unsteadier("baf", f"test_{metric}", PROX, DEFAULT, "below", name) for metric, name in five.items()),
            *(
                thirds("baf", PROX, f"test_{metric}", m.LATE, m.EARLY, name, unit="score")
                for metric, name in five.items()
            ),
        ),
    )
    noisy = {"pr_auc": "PR-AUC", "mcc": "MCC", "precision": "precision", "recall": "recall"}
    yield Claim(
        "8",
        "BAF: validation curves are noisier than test curves",
        "The standard deviation of changes from round to round is higher on validation than on test, averaged over "
        "Default-QFL, Adam-QFL and DUQFL-Prox (the three that the paper draws), in each of the four metrics it names.",
        tuple(
            part(
                f"validation − test unsteadiness of {name}",
                "baf",
                (DEFAULT, ADAM, PROX),
                m.average(m.validation_excess(metric)),
                unit="unsteadiness",
                metric=metric,
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
            *against("genome", accuracy, FEDPROX, (PROX, DEFAULT, ADAM)),
            final("genome", accuracy, PROX, FEDPROX, "within", bound=CLOSE),
            final("genome", accuracy, PROX, DEFAULT, "above", bound=FAR),
        ),
    )
    everyone = "Its final value is {} that of FedProx-QFL, Default-QFL and Adam-QFL"
    yield Claim(
        "10",
        "Genome client test accuracy: DUQFL-Prox has the highest",
        f"{everyone.format('above')}.",
        against("genome", "client_test_accuracy", PROX, BASELINES),
    )
    yield Claim(
        "11",
        "Genome train-test gap: DUQFL-Prox has the lowest, close to zero",
        f"{everyone.format('below')}, and within ±{CLOSE} of 0.",
        (
            *against("genome", "train_test_gap", PROX, BASELINES, "below"),
            near_zero("genome", "train_test_gap", PROX),
        ),
    )
    yield Claim(
        "12",
        "Genome fairness gap: DUQFL-Prox has the lowest",
        f"{everyone.format('below')}.",
        against("genome", "fairness_gap", PROX, BASELINES, "below"),
    )
    yield Claim(
        "13",
        "Genome: DUQFL-best and DUQFL-drift beat Default-QFL",
        "Both end above Default-QFL in global accuracy and in mean client test accuracy.",
        tuple(
            final("genome", column, variant, DEFAULT)
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
            *(minus("genome", "peak accuracy", m.peak(accuracy), ADAM, b) for b in (PROX, FEDPROX, DEFAULT)),
            final("genome", accuracy, ADAM, PROX, "below"),
            final("genome", accuracy, ADAM, FEDPROX, "below", same_as="9c"),
        ),
    )
    column = "client_test_accuracy"
    yield Claim(
        "15",
        "Genome: DUQFL-last beats Default-QFL in some rounds, and is less steady than DUQFL-best and DUQFL-Prox",
        "Its mean client test accuracy is above Default-QFL's in more than one round in ten, and the standard "
        "deviation of its changes from round to round, over the second half, is above that of both.",
        (
            part(
                "share of rounds DUQFL-last > Default-QFL",
                "genome",
                (LAST, DEFAULT),
                m.share_of_rounds_above(column),
                bound=0.1,
                unit="share",
            ),
            *(unsteadier("genome", column, LAST, other, "above") for other in (BEST, PROX)),
        ),
    )
    yield Claim(
        "16",
        "Genome: DUQFL-Prox is the best DUQFL variant in mean client test accuracy, train-test gap and fairness gap",
        "It ends better than DUQFL-last, DUQFL-best and DUQFL-drift in each of the three.",
        (
            *against("genome", column, PROX, VARIANTS),
            *against("genome", "train_test_gap", PROX, VARIANTS, "below"),
            *against("genome", "fairness_gap", PROX, VARIANTS, "below"),
        ),
    )


def _on_traces() -> Iterator[Claim]:
    def prox(text: str, measure: m.Measure, bound: float, unit: str = "share") -> Part:
        return part(f"DUQFL-Prox, {text}", "baf", (PROX,), measure, "above", bound, unit=unit)

    rates = {"eta": "η", "delta": "δ"}
    yield Claim(
        "17",
        "The controller's eta and delta vary, also across clients and unfolds, inside their bounds; steps follow eta",
        "Over all clients, unfolds and rounds, eta and delta each vary by more than 1 % (standard deviation of the "
        "logarithm), and so do their means by client and by unfold. More than 95 % of the rates lie strictly inside "
        "the bounds, not clipped to one. The displacement of an unfold is correlated with its eta.",
        (
            *(prox(f"variation of {sign}", m.log_variation(rate), 0.01, "log rate") for rate, sign in rates.items()),
            prox("share of η, δ inside bounds", m.share_inside_bounds, 0.95),
            *(
                prox(f"variation of {sign} across {index}s", m.log_variation_across(rate, index), 0.01, "log rate")
                for index in ("client", "unfold")
                for rate, sign in rates.items()
            ),
            prox("correlation of displacement and η", m.displacement_follows_eta, 0.0, "correlation"),
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
        "On (simulated) hardware, DUQFL-Prox's checkpoints are steadier than Default-QFL's, close to the exact ones, "
        "and improve",
        "The standard deviation of accuracy changes from checkpoint to checkpoint is higher for Default-QFL, "
        f"DUQFL-Prox's mean distance from the exact accuracy is below {CLOSE}, and its mean accuracy over the last "
        "third of the checkpoints is above that over the first. The device is the most real one in the table.",
        (
            minus(
                "hardware",
                "unsteadiness on the device",
                m.device_unsteadiness,
                DEFAULT,
                PROX,
                unit="unsteadiness",
                metric="accuracy",
            ),
            part("DUQFL-Prox, |device − exact|", "hardware", (PROX,), m.device_distance, "below", CLOSE),
            part("DUQFL-Prox, last − first third, accuracy on the device", "hardware", (PROX,), m.device_rise),
        ),
    )
    yield Claim(
        "T1",
        "Step projection bounds a client's drift in a round by K r",
        "In every round and client of DUQFL-drift, the lengths of the K steps add up to at most K r.",
        tuple(
            part(
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
        (part("largest relative error of the gradient", "theory", (), m.gradient_error, "always", 1e-6, unit="ratio"),),
    )
    yield Claim(
        "T3",
        "The outer SPSA estimate points downhill in expectation",
        "The cosine between the mean estimate and the gradient of the meta-loss is above 0 over small federations.",
        (part("cosine of estimate and gradient", "theory", (), m.descent_cosines, "above", 0.0, unit="cosine"),),
    )


CLAIMS: tuple[Claim, ...] = tuple(
    sorted(
        (*_on_baf(), *_on_genome(), *_on_traces(), *_on_devices_and_theory()),
        key=lambda claim: (claim.id.startswith("T"), int(claim.id.removeprefix("T"))),
    )
)
