"""Run the bench, print its table and write ``bench.json``, ``bench.png`` and ``bench.pdf``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    """Run with command-line ``arguments``."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: rough numbers, in seconds")
    options = parser.parse_args(arguments)
    import matplotlib

    matplotlib.use("Agg")
    from qfl_core.base.files import write_text
    from qfl_core.figures.style import write
    from tools.bench import draw, run_bench, table

    results = run_bench(quick=options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "bench.json", json.dumps(results, indent=2) + "\n")
    write(draw(results), "bench", options.out)
    print(table(results))


if __name__ == "__main__":
    main()
