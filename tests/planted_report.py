"""A small report for tests: planted runs of two tracks, the repository's own figures, tables and stored notebooks."""

from pathlib import Path

import numpy as np
import pandas as pd
from planted import planted_splits, small

from qfl_core.paths import figures_dir, repository_root
from qfl_core.report.captions import figure_names
from qfl_core.report.collect import ExecutedNotebook, Material, read_tables
from qfl_core.runs import run_experiment
from qfl_core.study import REFERENCES, Study

SEEDS = (0, 1, 2)
METHODS = ("default-qfl", "fedprox-qfl", "duqfl-prox")


def planted_study(track: str, folder: Path, rounds: int, methods=METHODS) -> Study:
    """Train the methods on planted data, a second or so for all."""
    splits = planted_splits()
    configs = [small(method=method, seed=seed, rounds=rounds) for method in methods for seed in SEEDS]
    runs = [run_experiment(config, folder / track, splits=splits) for config in configs]
    return Study(track, "smoke", tuple(runs), folder / track)


def planted_references(level: float) -> pd.DataFrame:
    """Return classical scores, a row a seed and model, as a study has them."""
    rng = np.random.default_rng(0)
    rows = [
        {"model": model, "seed": seed, **dict.fromkeys(("accuracy", "balanced_accuracy", "roc_auc"), level + 0.01 * i)}
        for i, model in enumerate(REFERENCES)
        for seed in SEEDS
    ]
    return pd.DataFrame(rows).assign(accuracy=lambda table: table["accuracy"] + rng.uniform(0, 0.05, len(table)))


def planted_material(folder: Path) -> Material:
    """Return the material of a report; its notebooks are those that the repository stores."""
    root, drawn = repository_root(), figures_dir("paper")
    studies = {
        "baf": planted_study("baf", folder, rounds=3),
        "baf-clean": planted_study("baf-clean", folder, rounds=4, methods=METHODS[::2]),
    }
    return Material(
        profile="smoke",
        studies=studies,
        references={"baf": planted_references(0.8)},
        figures={name: drawn / f"{name}.png" for name in figure_names()},
        tables=read_tables(drawn / "tables"),
        notebooks=tuple(ExecutedNotebook.read(path) for path in sorted((root / "notebooks").glob("*.ipynb"))),
    )
