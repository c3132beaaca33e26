"""How much noise and how few shots can our trained models bear? Computed with the density engine, over seeds.

Two tables: the last checkpoint of every run over noise scale and shots, and every checkpoint under the device's own
noise, which is what the claim "Prox checkpoints are steadier, and close to the simulators" is tested on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from qiskit.providers import BackendV2

from qfl_core.algorithm.metrics import classification
from qfl_core.analysis.measures import device_distance, device_unsteadiness
from qfl_core.analysis.untrained import UNTRAINED, start_level
from qfl_core.base.files import write_text
from qfl_core.base.streams import stream
from qfl_core.data import load_splits
from qfl_core.engines import make_engine
from qfl_core.engines.base import sample
from qfl_core.hardware.checkpoints import load_checkpoints
from qfl_core.hardware.config import HardwareConfig
from qfl_core.hardware.device import Device, compile_for, fake_backend, fake_twin
from qfl_core.runs import RunResult
from qfl_core.runs.prepare import make_qnn


def study_device(run: RunResult, config: HardwareConfig) -> Device:
    """Return the device whose noise is studied: always a snapshot, so that the study needs no account."""
    return compile_for(make_qnn(run.config), snapshot(config), config.optimization_level)


def snapshot(config: HardwareConfig) -> BackendV2:
    """Return the fake backend of the config, or that of the device it names."""
    return fake_backend(config.backend) if config.is_local else fake_twin(config.backend)


def noise_grid(runs: Sequence[RunResult], config: HardwareConfig, device: Device | None = None) -> pd.DataFrame:
    """Return the last checkpoints' scores for every noise scale and number of shots; 0 shots means exact values.

    One row per method, seed, noise scale and number of shots, on the whole test part; runs share features and circuit.
    ``untrained`` is the accuracy in round 0 of the run itself.
    """
    device = device or study_device(runs[0], config)
    parts = {run.config.seed: load_splits(run.config).test for run in runs}
    rows = []
    for level, scale in enumerate(config.noise_scales):
        engine = device.density(noise_scale=scale)
        encoded = {seed: engine.encode(part.X) for seed, part in parts.items()}
        for run in runs:
            seed, part = run.config.seed, parts[run.config.seed]
            p = engine.probabilities(encoded[seed], run.weights[-1])
            for shots in (0, *config.study_shots):
                # The same stream for both methods: their comparison is paired.
                measured = sample(p, shots, stream(seed, "noise-study", level, shots)) if shots else p
                facts = {"method": run.config.method, "seed": seed, "noise_scale": scale, "shots": shots}
                rows.append(
                    facts
                    | {"kind": engine.kind if scale else "shots" if shots else "exact"}
                    | _scores(part.y, measured)
                    | {UNTRAINED: start_level(run.rounds, "global_accuracy")}
                )
    return pd.DataFrame(rows)


def checkpoint_table(runs: Sequence[RunResult], config: HardwareConfig, device: Device | None = None) -> pd.DataFrame:
    """Return every checkpoint's accuracy, noiseless and under the device's noise at ``config.shots``.

    One row per method, seed, checkpoint and kind (exact, shots, noisy), on the whole test part.
    """
    device = device or study_device(runs[0], config)
    exact, noisy = make_engine("statevector", device.qnn), device.density()
    rows = []
    for run in runs:
        one, part = load_checkpoints(run, config.checkpoints, device.qnn), load_splits(run.config).test
        p0 = exact.probabilities(exact.encode(part.X), one.weights)
        p1 = noisy.probabilities(noisy.encode(part.X), one.weights)
        for c, checkpoint in enumerate(one.rounds):
            rng = stream(one.seed, "noise-checkpoints", c)
            measured = {"exact": p0[c], "shots": sample(p0[c], config.shots, rng)}
            measured[noisy.kind] = sample(p1[c], config.shots, rng)
            for kind, p in measured.items():
                facts = {"method": one.method, "seed": one.seed, "checkpoint": int(checkpoint), "kind": kind}
                facts |= {"shots": 0 if kind == "exact" else config.shots, "tvd": float(np.abs(p - p0[c]).mean())}
                rows.append(facts | _scores(part.y, p))
    return pd.DataFrame(rows)


def checkpoints_file(runs: Sequence[RunResult], config: HardwareConfig, folder: Path) -> Path:
    """Return the path of the checkpoint table of these runs under this config; other runs have another file."""
    parts = [repr(config), *sorted(run.environment["identity"] for run in runs)]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return folder / "studies" / f"checkpoints-{digest[:12]}.csv"


def store_checkpoints(table: pd.DataFrame, path: Path) -> None:
    """Keep a checkpoint table, so that the claims can be judged again without the circuits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, table.to_csv(index=False, lineterminator="\n"))


def steadiness(table: pd.DataFrame, kind: str = "noisy") -> pd.DataFrame:
    """Return how unsteady the checkpoints are and how far from the exact ones, one row per method and seed.

    ``unsteadiness`` and ``distance`` are the measures that the claim uses, of the accuracies of this kind; ``tvd`` is
    the mean total variation distance. Lower is better in all three.
    """
    rows = []
    for (method, seed), found in table.groupby(["method", "seed"], sort=False):
        accuracy = found.pivot(index="checkpoint", columns="kind", values="accuracy").sort_index()
        accuracy = accuracy.rename(columns={kind: "device"})
        rows.append(
            {
                "method": method,
                "seed": seed,
                "kind": kind,
                "checkpoints": len(accuracy),
                "unsteadiness": device_unsteadiness(accuracy),
                "distance": device_distance(accuracy),
                "tvd": float(found.loc[found["kind"] == kind, "tvd"].mean()),
            }
        )
    return pd.DataFrame(rows)


def _scores(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    found = classification(y, p)
    return {name: found[name] for name in ("accuracy", "balanced_accuracy", "roc_auc")}
