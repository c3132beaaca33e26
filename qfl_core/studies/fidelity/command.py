"""The command ``fidelity``: measure what other readings of the paper change, and write the page that tells it."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.base.files import write_text
from qfl_core.base.options import option, path_option
from qfl_core.config import load_profile

PAGE, MEASURED = "fidelity.md", "fidelity/measured.csv"


def add_fidelity(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fidelity``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke, quick or paper (default: paper)")
    parser.add_argument(
        "--seeds", type=option(int), default=30, help="number of paired seeds, from 2000 on (default: 30)"
    )
    parser.add_argument(
        "--out", type=path_option, default=Path("docs"), help=f"folder of {PAGE} and {MEASURED} (default: docs)"
    )
    parser.add_argument("--no-training", action="store_true", help="write the page from the numbers that are there")
    parser.set_defaults(command=_fidelity, interrupted="the same command goes on")


def _fidelity(asked: argparse.Namespace) -> int:
    from qfl_core.analysis.tables import csv_text
    from qfl_core.base.checks import integer
    from qfl_core.studies.fidelity.differences import FIRST_SEED, measure
    from qfl_core.studies.fidelity.markdown import page, read_measured

    settings, numbers = load_profile(asked.profile), asked.out / MEASURED
    count = integer(2, 1000)("seeds", asked.seeds)
    numbers.parent.mkdir(parents=True, exist_ok=True)
    if not asked.no_training:
        measured = measure(settings, range(FIRST_SEED, FIRST_SEED + count))
        write_text(numbers, csv_text(measured))
    write_text(asked.out / PAGE, page(settings, read_measured(numbers)))
    print(f"page: {asked.out / PAGE}")
    return 0
