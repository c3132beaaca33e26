"""Build the report of a profile from what ``make reproduce`` left on disk; nothing is trained."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from qfl_core.base.errors import exit_code
from qfl_core.base.numbers import number
from qfl_core.base.paths import repository_root


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return 0, or 1 with what is missing on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tools.report", description=__doc__)
    parser.add_argument("--profile", default="paper", help="smoke, quick or paper (default: paper)")
    parser.add_argument("--out", type=Path, help="folder to write to (default: build/report)")
    asked = parser.parse_args(arguments)
    return exit_code("tools.report", lambda: _build(asked), "every page is either the old one or the new one")


def _build(asked: argparse.Namespace) -> int:
    import matplotlib

    matplotlib.use("Agg")
    from tools.report.collect import collect
    from tools.report.page import write_report

    root = repository_root() or Path.cwd()
    pages = write_report(collect(asked.profile), asked.out or root / "build" / "report")
    megabytes = number(pages[0].stat().st_size / 1e6, 1)
    print(f"{_shown(pages[0], root)}: {megabytes} MB, works without network, alone or with its notebooks")
    for page in pages[1:]:
        print(f"  {_shown(page, root)}")
    return 0


def _shown(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


if __name__ == "__main__":
    sys.exit(main())
