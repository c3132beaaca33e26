"""``python -m qfl_core.protocol``: run the complete protocol search, write its tables and say what it found."""

from __future__ import annotations

import argparse
import sys

from qfl_core.config import load_profile
from qfl_core.errors import exit_code
from qfl_core.paths import results_dir
from qfl_core.protocol import ALL, Plan, Search, run_search, write_search


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m qfl_core.protocol", description=__doc__)
    parser.add_argument("--profile", default="paper")
    asked = parser.parse_args(arguments)
    return exit_code("qfl_core.protocol", lambda: _search(asked.profile), "the same command goes on")


def _search(profile: str) -> int:
    settings = load_profile(profile)
    search = run_search(settings, Plan.of(settings.part("protocol", {}), complete=True))
    written = write_search(search, results_dir(settings.name) / "studies" / "complete")
    print(report(search))
    print("tables:", *written)
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
            row = stage.table.loc[candidate]
            parts = ", ".join(f"{track} {row[track]:.3f} ± {row[f'{track} ±']:.3f}" for track in (ALL, *tracks))
            levels = ", ".join(f"{factor} {level}" for factor, level in search.plan.levels(candidate).items())
            lines.append(f"{role}: {parts} ({levels or 'its own settings'})")
    others = {"profile": search.profile} if search.winner != search.profile else {"runner-up": search.runner_up}
    for role, other in others.items():
        if other in stage.candidates:
            gap, half = stage.difference(search.winner, other)
            lines.append(f"winner - {role}: {gap:+.3f} ± {half:.3f}, paired over seeds")
    lines.append(f"standard deviation of a number from seed to seed: {stage.spread:.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
