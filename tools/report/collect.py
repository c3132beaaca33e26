"""What the report is made of: found on disk, all of it, before anything is written. Nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.kept import kept
from qfl_core.analysis.real_claims import RealClaims, read_real
from qfl_core.base.errors import RunError
from qfl_core.base.paths import figures_dir, repository_root
from qfl_core.config import CLEAN, Profile, load_profile
from qfl_core.runs.study import Study, get_study
from qfl_core.studies.extras import extras_study
from tools.report.captions import BY_COMMAND, TABLES, figure_names
from tools.report.notebooks import title

#: Tables that the section of claims is made from.
CLAIM_TABLES = ("claims", "claim_parts")

#: Figures of notebooks 01 and 06; notebook 05 draws all others.
DRAWN_BY = {
    "01": ("baf_angles", "genome_encodings", "leak_audit", "baf_client_mix", "genome_client_mix"),
    "06": ("real_ibm_validation", "ibm_workload_evidence", "noise_study"),
}


@dataclass(frozen=True)
class ExecutedNotebook:
    """A notebook that ran: its file, first heading, seconds and parameters."""

    path: Path
    title: str
    seconds: float
    parameters: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> ExecutedNotebook:
        """Read what papermill stored of the execution."""
        book = nbformat.read(path, as_version=4)
        stored = book.metadata.get("papermill", {})
        return cls(path, title(book), float(stored.get("duration") or 0.0), dict(stored.get("parameters", {})))


@dataclass(frozen=True, eq=False)
class Material:
    """Everything that a report shows; ``not_drawn`` names captioned figures that these datasets do not make.

    ``real`` holds the claims on real samples, where they were judged.
    """

    profile: str
    studies: Mapping[str, Study]
    references: Mapping[str, pd.DataFrame]
    figures: Mapping[str, Path]
    tables: Mapping[str, pd.DataFrame]
    notebooks: tuple[ExecutedNotebook, ...]
    not_drawn: tuple[str, ...] = ()
    real: RealClaims | None = None


def collect(profile: str) -> Material:
    """Find the profile's results, figures, tables and executed notebooks.

    Raises
    ------
    RunError
        When something is missing: it lists everything that is, and names the command that makes it.
    """
    root = repository_root() or Path.cwd()
    folder, build = figures_dir(profile), root / "build" / profile
    settings = load_profile(profile)
    named = sorted(path.name for path in (root / "notebooks").glob("*.ipynb"))
    notebooks = {name: ExecutedNotebook.read(build / name) for name in named if (build / name).is_file()}
    plotting = next((book.parameters for name, book in notebooks.items() if name.startswith("05")), {})
    seeds = plotting.get("seeds", list(settings.seeds))
    datasets = plotting.get("datasets", list(settings.datasets))
    settings = load_profile(profile, experiment=plotting.get("experiment"))

    drawn = [path.stem for path in sorted(folder.glob("*.png"))]
    ordered = [name for name in figure_names() if name in drawn]
    absent = [name for name in figure_names() if name not in drawn]
    needed = [name for name in (*CLAIM_TABLES, *TABLES) if name not in BY_COMMAND]
    no_tables = [name for name in needed if not (folder / "tables" / f"{name}.csv").is_file()]
    studies, no_runs = _studies(settings, datasets, seeds)

    lacking = [name for name in named if name not in notebooks]
    missing = _told(lacking, f"of {len(named)} executed notebooks in build/{profile}") + no_runs
    commands = ["make reproduce"] if missing else _drawing(absent, no_tables, named)
    if not set(datasets) < set(settings.datasets):  # one dataset alone does not make them all
        place = folder.relative_to(root).as_posix()
        missing += _told(absent, f"figures in {place}") + _told(no_tables, f"tables in {place}/tables")
    if missing:
        listed = "".join(f"\n  - {line}" for line in missing)
        asked = "".join(f"\n  {command} PROFILE={profile}" for command in commands)
        raise RunError(f"nothing was written; the report of profile {profile!r} needs{listed}\nmake them:{asked}")

    return Material(
        profile=profile,
        studies=studies,
        references={track: study.reference_scores for track, study in studies.items()},
        figures={name: folder / f"{name}.png" for name in (*ordered, *(n for n in drawn if n not in ordered))},
        tables=read_tables(folder / "tables"),
        notebooks=tuple(notebooks.values()),
        not_drawn=tuple(absent),
        real=read_real(folder / "tables"),
    )


def _drawing(figures: list[str], tables: list[str], notebooks: list[str]) -> list[str]:
    """Return the commands that draw figures and tables again from saved results."""
    drawn_by = {number: [name for name in figures if name in mine] for number, mine in DRAWN_BY.items()}
    commands = [
        f"make -W notebooks/{name} notebook-{number}"
        for number, mine in drawn_by.items()
        for name in notebooks
        if mine and name.startswith(number)
    ]
    others = set(figures) - {name for mine in drawn_by.values() for name in mine}
    return [*commands, *(["make figures"] if others or tables else [])]


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Read the tables of claims and those of :data:`TABLES` that are there; a word that is missing is empty."""
    paths = {name: folder / f"{name}.csv" for name in (*CLAIM_TABLES, *TABLES)}
    words = ("id", "part", "source", "rule", "note", "untrained", "candidate", "Symbol")
    as_text, empty = dict.fromkeys(words, str), dict.fromkeys(words, "")
    return {name: pd.read_csv(path, dtype=as_text).fillna(empty) for name, path in paths.items() if path.is_file()}


def _studies(settings: Profile, datasets: list[str], seeds: list[int]) -> tuple[dict[str, Study], list[str]]:
    """Return the studies of both tracks of every dataset with our extras, and what is missing of them."""
    studies, missing = {}, []
    for track in (*datasets, *(f"{name}{CLEAN}" for name in datasets)):
        try:
            held = settings.for_studies(seeds) if track.endswith(CLEAN) else seeds
            studies[track] = kept(get_study(settings, track, METHODS, held, train=False))
        except RunError as error:
            missing.append(str(error).partition(";")[0])
    try:
        extras = extras_study(settings, settings.section("extensions", {}), train=False).studies
    except RunError as error:
        return studies, [*missing, str(error).partition(";")[0]]
    for track, extra in extras.items():
        study = studies.get(track, replace(extra, runs=()))
        added = [run for run in extra.runs if run.config.method not in study.methods]
        studies[track] = kept(replace(study, runs=(*study.runs, *added)))
    return studies, missing


def _told(names: list[str], what: str, most: int = 4) -> list[str]:
    """Return a line that counts and names what is missing, or none."""
    some = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    return [f"{len(names)} {what}: {some}"] if names else []
