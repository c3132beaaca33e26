"""The command ``protocol``: run the complete protocol search, write its tables and figure, say what it found."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.base.files import write_text
from qfl_core.base.numbers import number, plus_minus
from qfl_core.base.options import folder_option, option
from qfl_core.config import load_profile
from qfl_core.studies.protocol import ALL, Plan, Search, protocol_search, write_search


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``protocol``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke or paper (default: paper)")
    parser.add_argument(
        "--out", type=folder_option, default=Path("build/protocol-search"), help="folder of tables and figure"
    )
    parser.set_defaults(command=_search, interrupted="the same command goes on")


def _search(asked: argparse.Namespace) -> int:
    import matplotlib

    matplotlib.use("Agg")
    from qfl_core.figures import apply_style
    from qfl_core.figures import studies as figures

    settings = load_profile(asked.profile)
    search = protocol_search(settings, Plan.of(settings.section("protocol", {}), complete=True))
    out = asked.out
    write_search(search, out)
    apply_style(final=True)
    figures.protocol_search(search).save(out)
    write_text(out / "report.txt", report(search) + "\n")
    print(report(search))
    print(f"tables and figure: {out}")
    return 0


def report(search: Search) -> str:
    """Return winner, runner-up and the profile's settings with their distances, and the closest of each track."""
    stage, tracks = search.best, search.plan.tracks
    lines = [
        f"{len(search.screening.candidates)} candidates screened; distances from the paper, {'; '.join(search.facts)}"
    ]
    shown = {"winner": search.winner, "runner-up": search.runner_up, "profile": search.profile}
    shown |= {f"closest on {track}": stage.ranked(track)[0] for track in tracks}
    for role, candidate in shown.items():
        if candidate in stage.candidates:
            row = stage.table.to_dict("index")[candidate]
            distances = ", ".join(f"{name} {_shown(row[name], row[f'{name} ±'])}" for name in (ALL, *tracks))
            levels = ", ".join(f"{factor} {level}" for factor, level in search.plan.levels(candidate).items())
            lines.append(f"{role}: {distances} ({levels or 'its own settings'})")
    others = {"profile": search.profile} if search.winner != search.profile else {"runner-up": search.runner_up}
    for role, other in others.items():
        if other in stage.candidates:
            gap, half = stage.difference(search.winner, other)
            lines.append(f"winner - {role}: {_shown(gap, half, signed=True)}, paired over seeds")
    lines.append(f"standard deviation of a number from seed to seed: {number(stage.spread, missing='nan')}")
    return "\n".join(lines)


def _shown(value: float, half: float, signed: bool = False) -> str:
    return plus_minus(value, half, signed=signed, missing="nan")
