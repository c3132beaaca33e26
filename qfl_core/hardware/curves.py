"""The curves of the paper's validation figure, each with its shot interval and the kind of what computed it.

All curves but the first are of the samples that the backend executes, so that they differ by nothing else.

all          exact probabilities on all samples of the plan                             exact
noiseless    exact probabilities of the circuit                                         exact
shots        the same, sampled                                                          shots
noise        the transpiled circuit under the backend's calibration, sampled            noisy
execution    the same circuit through the runtime's SamplerV2                           fake or hardware
corrected    the execution's counts after readout correction, where calibrated          as the execution
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from qfl_core.algorithm.metrics import classification
from qfl_core.analysis.inference import repeats_interval
from qfl_core.base.streams import stream
from qfl_core.engines import make_engine
from qfl_core.engines.base import sample
from qfl_core.hardware.device import two_qubit_gates
from qfl_core.hardware.mitigation import correct, measured_confusion, odd_share
from qfl_core.hardware.plan import CALIBRATION, Plan
from qfl_core.hardware.store import Folder

REPEATS = 200  # of the shots, behind every interval
#: Curve -> what tables call it, as the figure's legend does; the grey line of the figure is the first.
WORDS = {
    "all": "noiseless, more samples",
    "noiseless": "noiseless",
    "shots": "sampled",
    "noise": "device noise",
    "execution": "SamplerV2",
    "corrected": "SamplerV2, readout corrected",
}
#: What every row scores, each with its low and high.
METRICS = ("accuracy", "roc_auc", "tvd")


def simulated_curves(plan: Plan) -> pd.DataFrame:
    """Return the simulated curves of all methods: on the executed samples, and the exact one on all samples, too."""
    shots, seed, y = plan.config.shots, plan.config.seed, plan.local.y
    exact = make_engine("statevector", plan.qnn)
    noisy = plan.device.density()
    ideal = plan.qnn.circuit.decompose()
    logical = {"depth": ideal.depth(), "two_qubit_gates": two_qubit_gates(ideal)}
    physical = {"depth": plan.device.depth, "two_qubit_gates": plan.device.two_qubit_gates}
    rows = []
    for number, one in enumerate(plan.series):
        whole = exact.probabilities(exact.encode(plan.samples.X), one.weights)
        p0 = exact.probabilities(exact.encode(plan.local.X), one.weights)
        p1 = noisy.probabilities(noisy.encode(plan.local.X), one.weights)
        for c, checkpoint in enumerate(one.rounds):
            facts = {"method": one.method, "seed": one.seed, "checkpoint": int(checkpoint), "samples": len(y)}
            rng = stream(seed, "hardware-shots", number, c)
            for curve, part, p in (("all", plan.samples, whole), ("noiseless", plan.local, p0)):
                certain = with_interval(part.y, p[c], p[c : c + 1], p[c])
                told = {"samples": len(part.y), "curve": curve, "kind": exact.kind, "shots": 0}
                rows.append(facts | told | logical | certain)
            for curve, p, kind, size in (("shots", p0, "shots", logical), ("noise", p1, noisy.kind, physical)):
                measured = sample(p[c], shots, rng)
                again = rng.binomial(shots, np.broadcast_to(measured, (REPEATS, len(y)))) / shots
                found = with_interval(y, measured, again, p0[c])
                rows.append(facts | {"curve": curve, "kind": kind, "shots": shots} | size | found)
    return pd.DataFrame(rows)


def executed_curves(folder: Folder) -> pd.DataFrame:
    """Return the curves of what the backend measured, raw and readout-corrected."""
    plan, inputs, records = folder.plan(), folder.inputs(), folder.ledger.jobs()
    confusion = None
    calibration = records.get(CALIBRATION)
    if calibration is not None and calibration.state == "finished":
        zeros, ones = folder.counts(calibration.facts["counts"], calibration.facts["counts_sha256"])
        confusion = measured_confusion(zeros[0], ones[0])
    rows = []
    for number, method in enumerate(plan["methods"]):
        record = records.get(method)
        if record is None or record.state != "finished":
            continue
        pubs = folder.counts(record.facts["counts"], record.facts["counts_sha256"])
        for c, (checkpoint, counts) in enumerate(zip(inputs[f"{method}/rounds"], pubs, strict=True)):
            rng = stream(plan["config"]["seed"], "hardware-repeats", number, c)
            shots = record.facts["shots"]
            again = rng.multinomial(shots, counts / counts.sum(axis=1, keepdims=True), size=(REPEATS, len(counts)))
            facts = {
                "method": method,
                "seed": plan["seed"],
                "checkpoint": int(checkpoint),
                "samples": len(counts),
                "kind": record.facts["kind"],
                "shots": shots,
                "depth": plan["depth"],
                "two_qubit_gates": plan["two_qubit_gates"],
            }
            reference = inputs[f"{method}/noiseless"][c]
            raw = with_interval(inputs["y"], odd_share(counts), odd_share(again), reference)
            rows.append(facts | {"curve": "execution"} | raw)
            if confusion is not None:
                better = odd_share(correct(counts, confusion)), odd_share(correct(again, confusion))
                rows.append(facts | {"curve": "corrected"} | with_interval(inputs["y"], *better, reference))
    return pd.DataFrame(rows)


def scores(y: np.ndarray, p: np.ndarray, reference: np.ndarray) -> dict[str, np.ndarray]:
    """Return accuracy, ROC-AUC and total variation distance from the noiseless model of p (..., n), each as (...,).

    The predicted distribution of a sample is (1 - p, p), so its distance is |p - p_noiseless|; the mean over samples.
    """
    found = [classification(y, row) for row in p.reshape(-1, len(y))]
    shares = {name: np.reshape([one[name] for one in found], p.shape[:-1]) for name in ("accuracy", "roc_auc")}
    return shares | {"tvd": np.abs(p - reference).mean(axis=-1)}


def with_interval(y: np.ndarray, p: np.ndarray, again: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Return the scores of ``p`` (n,) with the central 95 % of ``again`` (repeats, n), widened to hold the score.

    ``again`` are repeats of the shots: what measuring once more would give if the measured shares were the truth.
    """
    found, repeats = scores(y, p, reference), scores(y, again, reference)
    row: dict[str, float] = {}
    for name, value in found.items():
        low, high = repeats_interval(float(value), repeats[name])
        row |= {name: float(value), f"{name}_low": low, f"{name}_high": high}
    return row
