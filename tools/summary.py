"""Say what ``make reproduce`` made: notebooks and their times, figures and tables, and from which data.

python tools/summary.py paper
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from qfl_core.base.numbers import number
from qfl_core.base.paths import figures_dir, repository_root

DATA_LINE = re.compile(r"\[data\] ([\w-]+: [\w-]+ data \(.*?\))(?=\\n|\")")  # as JSON stores it


def main(profile: str) -> int:
    """Print the summary of one profile's notebooks; return 1 where one of them has not run."""
    root = repository_root() or Path.cwd()
    folder, figures = root / "build" / profile, figures_dir(profile)
    notebooks = [folder / path.name for path in sorted((root / "notebooks").glob("*.ipynb"))]
    missing = [path.name for path in notebooks if not path.is_file()]
    if missing:
        print(f"not run yet: {', '.join(missing)}; run: make reproduce PROFILE={profile}", file=sys.stderr)
        return 1
    sources, seconds = [], 0.0
    print(f"\nreproduce, profile {profile}:")
    for path in notebooks:
        text = path.read_text(encoding="utf-8")
        took = json.loads(text)["metadata"]["papermill"]["duration"]
        sources += DATA_LINE.findall(text)
        seconds += took
        print(f"  {path.relative_to(root)}  {number(took, 0)} s")
    whole, panels = len(list(figures.glob("*.png"))), len(list(figures.glob("panels/*.png")))
    tables = len(list(figures.glob("tables/*.csv")))
    print(f"  {figures.relative_to(root)}/: {whole} figures and {panels} single panels (PDF, PNG), {tables} tables")
    for source in dict.fromkeys(sources):
        print(f"  data: {source}")
    print(f"  {number(seconds / 60, 1)} minutes of notebooks added up; what was finished before was not repeated")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
