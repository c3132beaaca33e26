"""A first look: train all methods once on one seed with the paper's settings, print the last round, draw the picture.

python -m tools.demo --dataset baf

One seed shows how a run goes, and nothing about which method is better: `make reproduce` takes 150.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.summary import FINAL_METRICS
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.base.errors import exit_code
from qfl_core.base.options import Parser
from qfl_core.config import load_profile
from qfl_core.figures import apply_style
from qfl_core.figures.results import federated_metrics
from qfl_core.runs.study import get_study

FOLDER = Path("build") / "demo"


def show(dataset: str, seed: int) -> Path:
    """Train, print the last round of every method, and return the picture's file."""
    study = get_study(load_profile("paper"), dataset, [*METHODS, UNTRAINED], [seed])
    last = study.rounds[study.rounds["round"] == study.rounds["round"].max()].set_index("method")
    print(last[list(FINAL_METRICS)].rename(columns=FINAL_METRICS).round(3).to_string())
    apply_style()
    name = f"{dataset}_one_seed"
    federated_metrics(study, name, dataset).save(FOLDER, show=False)
    return FOLDER / f"{name}.png"


def main(arguments: list[str] | None = None) -> int:
    """Read the options and show the demonstration."""
    parser = Parser(prog="python -m tools.demo", description="Train all methods on one seed and draw the picture.")
    parser.add_argument("--dataset", default="genome", choices=("genome", "baf"))
    parser.add_argument("--seed", type=int, default=0)
    asked: argparse.Namespace = parser.parse_args(arguments)

    def command() -> int:
        picture = show(asked.dataset, asked.seed)
        print(f"one seed, so no verdict: {picture}")
        webbrowser.open(picture.resolve().as_uri())
        return 0

    return exit_code("demo", command, "what was trained is kept")


if __name__ == "__main__":
    sys.exit(main())
