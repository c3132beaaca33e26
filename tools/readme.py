"""Write the numbers of README.md and data/README.md from figures/tables.

They stand between ``<!-- numbers: NAME -->`` and ``<!-- end -->``.

python -m tools.readme           # rewrite the blocks
python -m tools.readme --check   # say which blocks do not agree with the tables, and end with 1

So no number of the README is typed by hand, and a test compares.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from qfl_core.analysis.fresh_claims import FreshClaims, read_fresh, remaining_text
from qfl_core.base.files import write_text
from qfl_core.base.numbers import interval
from qfl_core.studies.real.hybrids import CHANGES, MEASURES, hybrids_table

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"(<!-- numbers: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
#: A verdict as a sentence says it, of one claim and of several.
VERDICTS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "absent": ("is absent", "are absent"),
    "undecided": ("is undecided", "are undecided"),
}
SHOWN = ("DUQFL-Prox", "FedProx-QFL", "Default-QFL")
ROWS = ("global accuracy", "mean client test accuracy", "train-test gap", "client fairness gap")
#: The changes from Default-QFL to DUQFL-Prox, as the table and as a sentence name them.
LINKS = {
    "fixed rates": "fixed rates",
    "unfolding": "unfolding",
    "controller": "the controller",
    "best unfold": "best unfold",
    "proximal term": "the proximal term",
}
_ENDS = ("estimate", "low", "high")
TRACKS = {"baf": "BAF", "genome": "Genome (word-id)"}


@dataclass(frozen=True)
class Tables:
    """The CSV tables of a folder; each is read when it is asked for."""

    folder: Path

    def __call__(self, name: str) -> pd.DataFrame:
        """Return a table, e.g. ``claims`` or ``real/claims``."""
        return pd.read_csv(self.folder / f"{name}.csv")

    @property
    def fresh(self) -> FreshClaims | None:
        """The claims on fresh seeds; None where these were not judged."""
        return read_fresh(self.folder)


def verdict(tables: Tables) -> str:
    """Return the result in six lines."""
    told, told_real = _counts(tables("claims")), _counts(tables("real/claims"))
    seeds = int(tables("claims")["seeds"].max())
    lines = [
        f"**Claims.** Of the paper's 20 claims and 3 theory points, {told} on the stand-in data, over {seeds} paired "
        f"seeds (fewer for devices and theory, see the [table](figures/tables/claims.md) and the "
        f"[rules](docs/claims.md)){_second_look(tables)}.",
        f"**BAF.** {_accuracies(tables, 'baf')} ([figure](figures/baf_global_client_metrics.png)).",
        f"**Genome.** {_accuracies(tables, 'genome')} ([figure](figures/genome_global_client_metrics.png)).",
        f"**What does the work.** {_links(tables)} (all five changes: [figure](figures/attribution.png), "
        "[table](figures/tables/attribution.md)).",
        f"**What it is not.** {_ranking(tables)} ([figure](figures/metrics_BAF_2.png)).",
        f"**Real files.** On samples of both official files, {told_real} ([table](figures/tables/real/claims.md)); "
        f"{_agreeing(tables)} ([comparison](figures/tables/real/compared.md)). {_margins(tables)}.",
    ]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _counts(claims: pd.DataFrame) -> str:
    counts = claims["verdict"].value_counts()
    return ", ".join(
        f"{counts[name]} {words[int(counts[name] > 1)]}" for name, words in VERDICTS.items() if name in counts
    )


def _second_look(tables: Tables) -> str:
    """Return how many claims remain undecided after the second look, where there was one."""
    fresh = tables.fresh
    if fresh is None:
        return ""
    left = remaining_text(fresh.remaining(_verdicts(tables)))
    return f"; {left} after a second look on {fresh.seeds} fresh seeds ([table](figures/tables/follow_up.md))"


def _verdicts(tables: Tables) -> dict[str, str]:
    claims = tables("claims")
    return dict(zip(claims["id"].astype(str), claims["verdict"], strict=True))


def _last_round(tables: Tables) -> dict[tuple[str, str, str], pd.Series]:
    return {(row["track"], row["metric"], row["method"]): row for _, row in tables("final_metrics").iterrows()}


def _accuracies(tables: Tables, track: str) -> str:
    table = _last_round(tables)
    rows = {method: table[track, "global accuracy", method] for method in (*SHOWN, "untrained")}
    ours = ", ".join(f"{method} {row['mean']:.3f}" for method, row in rows.items())
    papers = ", ".join(f"{method} {row['paper']:.3f}" for method, row in rows.items() if pd.notna(row["paper"]))
    return f"Last-round accuracy: {ours}; in the paper {papers}"


def _links(tables: Tables) -> str:
    """Return the one or two changes that matter most on the way from Default-QFL to DUQFL-Prox.

    They are the largest changes of the mean global accuracy, of those that are larger than the margin.
    """
    table, told = tables("attribution"), []
    for track, label in TRACKS.items():
        mine = table[(table["track"] == track) & (table["metric"] == "global_accuracy")]
        mine = mine[mine["validation"] == mine["validation"].iloc[0]].set_index("link")
        whole = mine.loc["DUQFL-Prox − Default-QFL"]
        links = mine.loc[list(LINKS)]
        most = links[links["mean"].abs() > links["margin"]].sort_values("mean", key=abs, ascending=False).head(2)
        steps = " and ".join(
            f"{LINKS[str(name)]} ({row['mean']:+.3f}{', undecided' * (row['verdict'] == 'undecided')})"
            for name, row in most.iterrows()
        )
        mainly = f"with the largest step{'s' * (len(most) > 1)} {steps}" if steps else "with no step beyond the margin"
        told.append(f"by {whole['mean']:+.3f} [{whole['low']:.3f}, {whole['high']:.3f}] on {label}, {mainly}")
    return f"From Default-QFL to DUQFL-Prox the accuracy changes {', and '.join(told)}"


def _ranking(tables: Tables) -> str:
    table = _last_round(tables)
    found = {method: table["baf", "ROC-AUC", method]["mean"] for method in ("DUQFL-Prox", "FedProx-QFL", "untrained")}
    told = ", ".join(f"{method} {value:.3f}" for method, value in found.items())
    return f"Fraud detection: on BAF the ROC-AUC is {told}, and accuracy rises because fewer samples are called frauds"


def _agreeing(tables: Tables) -> str:
    """Return how many claims and points have the same verdict, of those that real/compared.md compares."""
    both = tables("claims").merge(tables("real/claims"), on="id", suffixes=("", "_real"))
    both = both[both["id"].astype(str).isin(tables("real/compared")["id"].astype(str))]
    same = int((both["verdict"] == both["verdict_real"]).sum())
    return f"{same} of {len(both)} claims and theory points have the same verdict as on the stand-in"


def _margins(tables: Tables) -> str:
    """Return how far DUQFL-Prox is ahead on BAF on both kinds of data, because the stand-in overstates it."""
    compared = tables("real/compared")
    (side,) = compared[compared["part"] == "1a"].to_dict("records")
    ours, theirs = (float(side[f"estimate_{kind}"]) for kind in ("stand_in", "real"))
    return (
        f"DUQFL-Prox is ahead of FedProx-QFL on BAF by {ours:.3f} on the stand-in and by {theirs:.3f} on the sample "
        "([which rows make the difference](data/README.md#where-the-baf-stand-in-differs))"
    )


def final_metrics(tables: Tables) -> str:
    """Return the last round of three methods beside the paper's numbers."""
    table = _last_round(tables)
    lines = ["| | | " + " | ".join((*SHOWN, "untrained")) + " |", "|---|---|" + "---|" * (len(SHOWN) + 1)]
    for track, label in TRACKS.items():
        for metric in ROWS:
            rows = [table[track, metric, method] for method in (*SHOWN, "untrained")]
            ours = [f"{row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in rows]
            lines.append(f"| {label}, {metric} | here | {' | '.join(ours)} |")
            if any(pd.notna(row["paper"]) for row in rows):
                papers = ["" if pd.isna(row["paper"]) else f"{row['paper']:.3f}" for row in rows]
                lines.append(f"| | paper | {' | '.join(papers)} |")
    return "\n".join(lines)


def claims(tables: Tables) -> str:
    """Return which claims have each verdict, on the stand-ins, on fresh seeds and on the samples of the real files."""
    first, real, fresh = _verdicts(tables), tables("real/claims"), tables.fresh
    columns = {"stand-in data": first}
    if fresh is not None:
        columns["of the undecided, on fresh seeds"] = {claim: fresh.of(claim, told) for claim, told in first.items()}
    columns["samples of the real files"] = dict(zip(real["id"].astype(str), real["verdict"], strict=True))
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for verdict in VERDICTS:
        cells = [
            ", ".join(claim for claim, told in found.items() if told == verdict) or "none" for found in columns.values()
        ]
        lines.append(f"| {verdict} | {' | '.join(cells)} |")
    untested = ", ".join(claim for claim in first if columns["samples of the real files"].get(claim) not in VERDICTS)
    lines.append(f"| not tested |{' |' * (len(columns) - 1)} {untested or 'none'} |")
    return "\n".join(lines)


def clean(tables: Tables) -> str:
    """Return the clean track's scores of all models."""
    lines = ["| | genome, accuracy | BAF, ROC-AUC |", "|---|---|---|"]
    genome, baf = (tables(f"clean_{name}").set_index("model") for name in ("genome", "baf"))
    lines += [f"| {name} | {genome.loc[name, 'accuracy']} | {baf.loc[name, 'roc auc']} |" for name in genome.index]
    return "\n".join(lines)


def stand_in(tables: Tables) -> str:
    """Return where the BAF stand-in differs from the real sample: the margin, and what makes it differ."""
    compared = tables("real/compared")
    (side,) = compared[compared["part"] == "1a"].to_dict("records")
    margins = [interval(*(side[f"{name}_{kind}"] for name in _ENDS)) for kind in ("stand_in", "real")]
    table = hybrids_table(tables("real/hybrids"))
    shown = ["stand-in", "real", *CHANGES.values()]
    lines = [f"| | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    lines.append(f"| {side['text']}, {side['seeds_real']:.0f} seeds | {' | '.join(margins)} | | |")
    for row in table.to_dict("records"):
        words = f"{row['']}, in populations of the same size" if row[""] == MEASURES["margin"] else row[""]
        lines.append(f"| {words} | {' | '.join(row[name] for name in shown)} |")
    return "\n".join(lines)


#: Every block of the README, by name.
BLOCKS: dict[str, Callable[[Tables], str]] = {
    "verdict": verdict,
    "final-metrics": final_metrics,
    "claims": claims,
    "clean": clean,
}


#: The blocks of data/README.md.
DATA_BLOCKS: dict[str, Callable[[Tables], str]] = {"stand-in": stand_in}


def rewritten(text: str, tables: Tables, blocks: Mapping[str, Callable[[Tables], str]] | None = None) -> str:
    """Return a page's text with every block made anew; without ``blocks``, the README's."""
    known = BLOCKS if blocks is None else blocks

    def block(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        return f"{begin}\n{known[name](tables)}\n\n{end}"

    return MARKED.sub(block, text)


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(prog="python -m tools.readme", description="Write the README's numbers.")
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 where a number differs")
    asked = parser.parse_args(arguments)
    tables, wrong = Tables(ROOT / "figures" / "tables"), []
    for name, blocks in {"README.md": BLOCKS, "data/README.md": DATA_BLOCKS}.items():
        page = ROOT / name
        before = page.read_text(encoding="utf-8") if page.is_file() else ""
        after = rewritten(before, tables, blocks)
        if before == after:
            continue
        wrong.append(name)
        if not asked.check:
            write_text(page, after)
    names = " and ".join(wrong)
    if not wrong:
        print("readme: its numbers are those of figures/tables")
    elif asked.check:
        print(f"{names}: the numbers are not those of figures/tables; `make readme` writes them", file=sys.stderr)
        return 1
    else:
        print(f"{names}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
