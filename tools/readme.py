"""Write the README's numbers from figures/tables, between ``<!-- numbers: NAME -->`` and ``<!-- end -->``.

python -m tools.readme           # rewrite the blocks
python -m tools.readme --check   # say which blocks do not agree with the tables, and end with 1

So no number of the README is typed by hand, and a test compares.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.base.files import write_text

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
VERDICTS = {"holds": "hold", "fails": "fail", "absent": "are absent", "undecided": "are undecided"}
SHOWN = ("DUQFL-Prox", "FedProx-QFL", "Default-QFL")
ROWS = {
    "global accuracy": "global accuracy",
    "mean client test accuracy": "mean client test accuracy",
    "train-test gap": "train-test gap",
    "client fairness gap": "client fairness gap",
}
TRACKS = {"baf": "BAF", "genome": "Genome (word-id)"}


@dataclass(frozen=True)
class Tables:
    """The CSV tables of a folder; each is read when it is asked for."""

    folder: Path

    def __call__(self, name: str) -> pd.DataFrame:
        """Return a table, e.g. ``claims`` or ``real/claims``."""
        return pd.read_csv(self.folder / f"{name}.csv")


def final_metrics(tables: Tables) -> str:
    """Return the last round of three methods beside the paper's numbers."""
    table = {(row["track"], row["metric"], row["method"]): row for _, row in tables("final_metrics").iterrows()}
    lines = ["| | | " + " | ".join((*SHOWN, "untrained")) + " |", "|---|---|" + "---|" * (len(SHOWN) + 1)]
    for track, label in TRACKS.items():
        for metric, words in ROWS.items():
            rows = [table[track, metric, method] for method in (*SHOWN, "untrained")]
            ours = [f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in rows]
            lines.append(f"| {label}, {words} | here | {' | '.join(ours)} |")
            if any(pd.notna(row["paper"]) for row in rows):
                papers = ["" if pd.isna(row["paper"]) else f"{row['paper']:.3f}" for row in rows]
                lines.append(f"| | paper | {' | '.join(papers)} |")
    return "\n".join(lines)


def claims(tables: Tables) -> str:
    """Return how many claims have each verdict, and which, on the stand-ins and on the samples of the real files."""
    lines = []
    for name, data in (("claims", "stand-in data"), ("real/claims", "samples of the real files")):
        found = tables(name)
        told = [
            f"**{len(ids)} {words}** ({', '.join(ids)})"
            for verdict, words in VERDICTS.items()
            if (ids := list(found.loc[found["verdict"] == verdict, "id"].astype(str)))
        ]
        lines.append(f"- On {data}, {int(found['seeds'].max())} seeds: {', '.join(told)}.")
    both = tables("claims").merge(tables("real/claims"), on="id", suffixes=("", "_real"))
    same = int((both["verdict"] == both["verdict_real"]).sum())
    lines.append(f"- The two agree in {same} of {len(both)} verdicts.")
    return "\n".join(lines)


#: Every block of the README, by name.
BLOCKS: dict[str, Callable[[Tables], str]] = {"final-metrics": final_metrics, "claims": claims}


def rewritten(text: str, tables: Tables) -> str:
    """Return the README's text with every block made anew."""

    def block(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        return f"{begin}\n{BLOCKS[name](tables)}\n\n{end}"

    return MARKED.sub(block, text)


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the README, or check it."""
    parser = argparse.ArgumentParser(prog="python -m tools.readme", description="Write the README's numbers.")
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 where a number differs")
    asked = parser.parse_args(arguments)
    page = ROOT / "README.md"
    before = page.read_text(encoding="utf-8")
    after = rewritten(before, Tables(ROOT / "figures" / "tables"))
    if before == after:
        print("readme: its numbers are those of figures/tables")
        return 0
    if asked.check:
        print("readme: its numbers are not those of figures/tables; `make readme` writes them", file=sys.stderr)
        return 1
    write_text(page, after)
    print("readme: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
