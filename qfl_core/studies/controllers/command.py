"""The command ``controllers``: compare ways to come to the rates of SPSA, and write tables, figures and page."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.base.files import write_text
from qfl_core.base.options import option, path_option
from qfl_core.config import Profile


def add_controllers(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``controllers``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke, quick or paper (default: paper)")
    parser.add_argument(
        "--out",
        type=path_option,
        help="folder of the page controller.md and of the folder controller (default: docs for the profile paper, "
        "build/docs/<profile> for others)",
    )
    parser.add_argument(
        "--no-training", action="store_true", help="write page and figures from the tables that are there"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="instead, repeat the comparison on tasks that nothing was developed on (some 5,000 runs)",
    )
    parser.set_defaults(command=_controllers, interrupted="the same command goes on")


def _controllers(asked: argparse.Namespace) -> int:
    import matplotlib

    matplotlib.use("Agg")
    from qfl_core.base.paths import figures_dir, repository_root
    from qfl_core.config import load_profile
    from qfl_core.figures import apply_style
    from qfl_core.figures.controllers import controller_curves, controller_rates
    from qfl_core.studies.controllers.page import PAGE, blocks, empty_page, with_blocks
    from qfl_core.studies.controllers.plan import Plan
    from qfl_core.studies.controllers.tables import NAME, Tables, compare

    settings = load_profile(asked.profile)
    root = repository_root() or Path.cwd()
    shown = root / "docs" if settings.name == "paper" else root / "build" / "docs" / settings.name
    out: Path = asked.out or shown
    if asked.fresh:
        return _fresh(settings, out, asked.no_training)
    if not asked.no_training:
        compare(settings, Plan.of(settings)).write(out / NAME)
    tables = Tables.read(out / NAME)
    # The repository's figures are those of the documentation; another folder has its own.
    folder = figures_dir(settings.name) if asked.out is None else out / NAME
    apply_style(final=settings.name == "paper")
    for sheet in (controller_curves(tables), controller_rates(tables)):
        sheet.save(folder)
    page, found = out / PAGE, blocks(tables)
    text = page.read_text(encoding="utf-8") if page.is_file() else empty_page(list(found))
    write_text(page, with_blocks(text, found))
    print(f"page: {page}\nfigures: {folder}")
    return 0


def _fresh(settings: Profile, out: Path, no_training: bool) -> int:
    import pandas as pd

    from qfl_core.analysis.tables import csv_text
    from qfl_core.studies.controllers.fresh import FILE, compared_fresh, fresh_blocks, fresh_plan
    from qfl_core.studies.controllers.page import PAGE, with_blocks
    from qfl_core.studies.controllers.tables import NAME

    # A smaller profile tries the code, and must not look at what the paper's profile reports.
    plan = fresh_plan(settings) if settings.name == "paper" else fresh_plan(settings, range(2_790, 2_792))
    file, page = out / NAME / FILE, out / PAGE
    if not no_training:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, csv_text(compared_fresh(settings, plan)))
    found = fresh_blocks(pd.read_csv(file, dtype={"start": str}).fillna({"start": ""}), plan)
    if page.is_file():
        write_text(page, with_blocks(page.read_text(encoding="utf-8"), found))
    else:
        print("\n".join(found.values()))
    print(f"table: {file}")
    return 0
