"""A small report for tests: planted runs of two tracks, small pictures, the repository's own tables and notebooks."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from planted import planted_splits, small
from planted_claims import device_table, world

from qfl_core.analysis import judge, write_claims
from qfl_core.base.paths import figures_dir, repository_root
from qfl_core.runs import run_experiment
from qfl_core.runs.study import REFERENCES, Study
from tools.report.captions import figure_names
from tools.report.collect import ExecutedNotebook, Material, read_tables

SEEDS = (0, 1, 2)
METHODS = ("default-qfl", "fedprox-qfl", "duqfl-prox")
NOTEBOOKS = ("02_baselines", "04_ablations")


def planted_study(track: str, folder: Path, rounds: int, methods=METHODS) -> Study:
    """Train the methods on planted data."""
    splits = planted_splits()
    configs = [small(method=method, seed=seed, rounds=rounds) for method in methods for seed in SEEDS]
    runs = [run_experiment(config, folder / track, splits=splits) for config in configs]
    return Study(track, "smoke", tuple(runs), folder / track)


def planted_references(level: float) -> pd.DataFrame:
    """Return classical scores, one row per seed and model, as a study has them; they differ between seeds."""
    scores = ("accuracy", "balanced_accuracy", "roc_auc")
    rows = [
        {"model": model, "seed": seed, **dict.fromkeys(scores, level + 0.01 * i + 0.02 * seed)}
        for i, model in enumerate(REFERENCES)
        for seed in SEEDS
    ]
    return pd.DataFrame(rows)


def planted_figures(folder: Path) -> dict[str, Path]:
    """Write a picture of noise for every captioned figure; every second one is wide."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = {name: folder / f"{name}.png" for name in figure_names()}
    for i, path in enumerate(paths.values()):
        Image.fromarray(rng.integers(0, 255, (90, 400 if i % 2 else 120), dtype=np.uint8)).save(path)
    return paths


def planted_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the repository's own tables, and those of the claims in a world where some hold and some fail."""
    exchanged = {"adam-qfl": "fedprox-qfl", "fedprox-qfl": "adam-qfl"}
    write_claims(judge(world(exchanged), device_table()), folder)
    return read_tables(figures_dir("paper") / "tables") | read_tables(folder)


def planted_material(folder: Path) -> Material:
    """Return the material of a report, as :func:`tools.report.collect.collect` does for a profile."""
    stored = repository_root() / "notebooks"
    studies = {
        "baf": planted_study("baf", folder, rounds=3),
        "genome-clean": planted_study("genome-clean", folder, rounds=4, methods=METHODS[::2]),
    }
    return Material(
        profile="smoke",
        studies=studies,
        references={"baf": planted_references(0.8)},
        figures=planted_figures(folder / "figures"),
        tables=planted_tables(folder / "tables"),
        notebooks=tuple(ExecutedNotebook.read(stored / f"{name}.ipynb") for name in NOTEBOOKS),
    )
