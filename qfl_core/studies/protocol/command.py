"""The command ``protocol``: run the complete protocol search and write its page, tables and figure."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.analysis.tables import csv_text
from qfl_core.base.errors import RunError
from qfl_core.base.files import write_text
from qfl_core.base.numbers import plus_minus
from qfl_core.base.options import option, path_option
from qfl_core.base.paths import data_dir, repository_root
from qfl_core.config import Profile, load_profile
from qfl_core.studies.protocol.distance import Stage
from qfl_core.studies.protocol.page import page, real_part, real_section, with_real, words
from qfl_core.studies.protocol.plan import DEFAULTS, Plan
from qfl_core.studies.protocol.search import Search, named_roles, profile_candidate, protocol_search, variants_of
from qfl_core.studies.protocol.stages import REAL, Bench
from qfl_core.studies.protocol.tables import NAME, SearchTables


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``protocol``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke, quick or paper (default: paper)")
    parser.add_argument(
        "--out",
        type=path_option,
        help="folder of the page protocol-search.md and of the folder protocol-search (default: docs for the profile "
        "paper, build/docs/<profile> for others)",
    )
    parser.set_defaults(command=_search, interrupted="the same command goes on")


def _search(asked: argparse.Namespace) -> int:
    settings = load_profile(asked.profile)
    plan = Plan.of(settings.section("protocol", {}))
    out = asked.out or _docs(settings.name)
    path, folder = out / f"{NAME}.md", out / NAME
    if data_dir() is None:
        print(_stand_in(settings, plan, path, folder))
    else:
        print(_real(settings, plan, path, folder))
    print(f"page: {path}")
    return 0


def _docs(profile: str) -> Path:
    """Return where the page goes: the documentation shows the profile paper's search and no other."""
    root = repository_root() or Path.cwd()
    return root / "docs" if profile == "paper" else root / "build" / "docs" / profile


def _stand_in(settings: Profile, plan: Plan, path: Path, folder: Path) -> str:
    """Search, write page, tables and figure, and keep the page's part on real files."""
    import matplotlib

    matplotlib.use("Agg")
    from qfl_core.figures import apply_style
    from qfl_core.figures.protocol import protocol_search as figure

    search = protocol_search(settings, plan)
    SearchTables.of(search).write(folder)
    apply_style(final=True)
    figure(SearchTables.read(folder)).save(folder)
    kept = real_part(path.read_text(encoding="utf-8")) if path.is_file() else None
    write_text(path, page(search, kept))
    return report(search)


def _real(settings: Profile, plan: Plan, path: Path, folder: Path) -> str:
    """Run the finalists of the stand-in search on the files of ``QFL_DATA_DIR``; write that part of the page alone."""
    if not path.is_file():
        raise RunError(f"{path.name} is not there: run the command first without QFL_DATA_DIR, for the stand-in part")
    candidates = SearchTables.read(folder).candidates
    final = candidates[candidates["stage"] == "final"]
    known = {DEFAULTS, *plan.combinations}
    if final.empty or not set(final["candidate"]) <= known:
        raise RunError(f"{folder.name}/ has no finalists of this plan: run the command first without QFL_DATA_DIR")
    # The profile may have changed since the search: who has its settings is asked now.
    named = named_roles(plan, profile_candidate(settings, plan))
    roles = {
        candidate: ", ".join([*_came_out(role), *named.get(candidate, [])])
        for candidate, role in zip(final["candidate"], final["role"], strict=True)
    }
    bench = Bench(settings, plan.tracks, REAL)
    stage = bench.stage(variants_of(plan, list(roles)), plan.final_seeds)
    table = stage.table.reset_index().assign(role=list(roles.values()), origin="; ".join(bench.facts))
    write_text(folder / "protocol_real.csv", csv_text(table))
    section = real_section(plan, stage, roles, bench.facts)
    write_text(path, with_real(path.read_text(encoding="utf-8"), section))
    return section


def _came_out(roles: str) -> list[str]:
    """Return those of a candidate's roles on the stand-in that its scores gave it."""
    return [role for role in roles.split(", ") if role.startswith(("winner", "runner-up", "closest"))]


def report(search: Search) -> str:
    """Return winner, runner-up and the profile's settings with their scores, in a few lines."""
    stage, winner = search.best, search.winner
    lines = ["; ".join(search.facts), f"winner: {_scores(stage, winner)} ({words(search.plan, winner)})"]
    for role, candidate in (("runner-up", search.runner_up), ("profile", search.profile)):
        if candidate in stage.candidates and candidate != winner:
            gap, half = stage.difference(winner, candidate)
            told = plus_minus(gap, half, signed=True, missing="nan")
            lines.append(f"{role}: {_scores(stage, candidate)}; winner - {role}: {told}, paired over seeds")
    chosen = search.refinement
    for row in chosen[chosen["chosen"]].to_dict("records") if len(chosen) else ():
        lines.append(f"{row['method']}: {row['refinement']}")
    return "\n".join(lines)


def _scores(stage: Stage, candidate: str) -> str:
    row = stage.table.to_dict("index")[candidate]
    return ", ".join(f"{part} {plus_minus(row[part], row[f'{part} ±'], missing='nan')}" for part in stage.parts)
