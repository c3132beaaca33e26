"""The command ``follow-up``: judge the claims that are undecided once more, on fresh seeds, and write the table."""

from __future__ import annotations

import argparse

from qfl_core.base.options import option


def add_follow_up(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``follow-up``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke, quick or paper (default: paper)")
    parser.set_defaults(command=_follow_up, interrupted="the same command goes on")


def _follow_up(asked: argparse.Namespace) -> int:
    from qfl_core.analysis.claim_tables import rewrite_page
    from qfl_core.base.paths import figures_dir, results_dir
    from qfl_core.config import load_profile
    from qfl_core.studies.follow_up.first_stage import FirstStage
    from qfl_core.studies.follow_up.study import follow_up
    from qfl_core.studies.follow_up.tables import told, write_follow_up

    settings = load_profile(asked.profile)
    tables = figures_dir(settings.name) / "tables"
    first = FirstStage.read(tables)
    if not first.open_claims:
        print("no claim on runs is undecided: there is nothing to judge once more")
        return 0
    found = follow_up(settings, first, results_dir(f"{settings.name}-follow-up"))
    paths = [*write_follow_up(found, tables), rewrite_page(tables)]
    print(told(found, tables))
    print(f"tables: {', '.join(str(path) for path in paths)}")
    return 0
