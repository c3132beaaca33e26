"""The command ``real``: train on the user's real files, and write the tables with what differs from the stand-ins."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.base.options import option, path_option
from qfl_core.config import Profile


def add_real(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``real``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="smoke, quick or paper (default: paper)")
    parser.add_argument("--seeds", type=option(int), help="how many of the profile's seeds, from the first (all)")
    parser.add_argument(
        "--out", type=path_option, help="folder of the tables (default: the folder real beside the stand-ins' tables)"
    )
    parser.add_argument(
        "--hybrids",
        action="store_true",
        help="instead, mix rows of the stand-in and of BAF's real file, and tell which of them make the margin between "
        "methods differ (some 1,300 runs; tables hybrids.csv and hybrids.md)",
    )
    parser.set_defaults(command=_real, interrupted="the same command goes on")


def _real(asked: argparse.Namespace) -> int:
    from qfl_core.analysis.claim_tables import claims_markdown, claims_table, parts_table, read_claims
    from qfl_core.analysis.tables import csv_text, markdown
    from qfl_core.base.checks import integer
    from qfl_core.base.errors import DataError
    from qfl_core.base.files import write_text
    from qfl_core.base.paths import data_dir, figures_dir, results_dir
    from qfl_core.config import load_profile
    from qfl_core.studies.real.study import compared, compared_text, real_results

    settings = load_profile(asked.profile)
    count = len(settings.seeds) if asked.seeds is None else integer(1, len(settings.seeds))("seeds", asked.seeds)
    if data_dir() is None:
        raise DataError("QFL_DATA_DIR is not set: name the folder with the real files, see the README's part on data")
    tables = figures_dir(settings.name) / "tables"
    out: Path = asked.out or tables / "real"
    if asked.hybrids:
        return _hybrids(settings, out)
    found = real_results(settings, settings.seeds[:count], results_dir(f"{settings.name}-real"))
    claims, parts, final = claims_table(found.verdicts), parts_table(found.verdicts), found.final_metrics
    note = f"\n{found.note}\n"
    texts = {
        "claims.csv": csv_text(claims),
        "claims.md": claims_markdown(found.verdicts) + note,
        "claim_parts.csv": csv_text(parts),
        "final_metrics.csv": csv_text(final),
        "final_metrics.md": markdown(final) + note,
        "files.csv": csv_text(found.files),
    }
    if (missing := _missing(tables)) is None:
        theirs, ours = read_claims(tables)
        side = compared(ours, parts)
        texts |= {"compared.csv": csv_text(side), "compared.md": compared_text(side, theirs, claims) + note}
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)
    print(found.note if missing is None else f"not compared: {missing} is not there, make reproduce writes it")
    print(f"tables: {out}")
    return 0


def _hybrids(settings: Profile, out: Path) -> int:
    from qfl_core.analysis.tables import csv_text
    from qfl_core.base.files import write_text
    from qfl_core.data import baf
    from qfl_core.studies.real import study
    from qfl_core.studies.real.hybrids import hybrids, hybrids_text

    source = baf.baf_source(settings.config("baf", source=study.OFFICIAL))
    rows = baf.official_frame(study.OFFICIAL)
    assert rows is not None, "no stand-in takes the place of a file that was asked for"
    found = hybrids(settings, baf.standin_frame(), rows)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "hybrids.csv", csv_text(found))
    file = f"File: {source.name} ({source.kind}, SHA-256 {source.sha256}); profile {settings.name}."
    note = f"{file} `python -m qfl_core real --hybrids` writes this page."
    write_text(out / "hybrids.md", f"{hybrids_text(found)}\n{note}\n")
    print(f"tables: {out}")
    return 0


def _missing(tables: Path) -> str | None:
    """Return the first table of the stand-ins that is not there."""
    return next((name for name in ("claims.csv", "claim_parts.csv") if not (tables / name).is_file()), None)
