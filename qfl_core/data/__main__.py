"""``python -m qfl_core.data``: find or download the official files, and print which data will be used."""

from __future__ import annotations

import argparse
import sys

from qfl_core.base.errors import DataError
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits


def main(arguments: list[str] | None = None) -> int:
    """Load every dataset once; return 1 where the requested source does not have one of them."""
    parser = argparse.ArgumentParser(prog="python -m qfl_core.data", description=__doc__)
    parser.add_argument(
        "--source", choices=("auto", "official", "stand-in"), default="auto", help="official refuses to fall back"
    )
    source = parser.parse_args(arguments).source
    failed = False
    for dataset in DATASETS:
        try:
            splits = load_splits(ExperimentConfig(dataset=dataset, source=source))
        except DataError as error:
            print(f"[data] {dataset}: {error}", file=sys.stderr)
            failed = True
            continue
        sizes = " / ".join(f"{len(split):,}" for split in splits.parts.values())
        print(f"       train / validation / test {sizes}; SHA-256 {splits.provenance.sha256[:16]}; {splits.notes}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
