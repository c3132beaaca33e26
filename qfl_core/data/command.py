"""The command ``data``: find or download the official files, and say what will be used."""

from __future__ import annotations

import argparse
import sys


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``data``."""
    parser.add_argument(
        "--source", choices=("auto", "official", "stand-in"), default="auto", help="official refuses to fall back"
    )
    parser.set_defaults(command=_load_all, interrupted="the same command downloads what is missing")


def _load_all(asked: argparse.Namespace) -> int:
    """Load every dataset once; return 1 where one cannot be had from the source asked for."""
    from qfl_core.base.errors import DataError
    from qfl_core.base.registry import DATASETS
    from qfl_core.config import ExperimentConfig
    from qfl_core.data import load_splits

    failed = False
    for dataset in DATASETS:
        try:
            splits = load_splits(ExperimentConfig(dataset=dataset, source=asked.source))
        except DataError as error:
            print(f"[data] {dataset}: {error}", file=sys.stderr)
            failed = True
            continue
        sizes = " / ".join(f"{len(part):,}" for part in splits.parts.values())
        notes = "".join(f"; {name}: {value}" for name, value in splits.notes.items())
        print(f"       train / validation / test {sizes}; SHA-256 {splits.provenance.sha256[:16]}{notes}")
    return int(failed)
