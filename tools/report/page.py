"""The pages themselves: templates and material put together, and written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import nbformat

from qfl_core.base.files import write_text
from tools.report import sections
from tools.report.collect import Material
from tools.report.explorer import explorer_data
from tools.report.markup import text
from tools.report.notebooks import body, highlight_style
from tools.report.provenance import provenance


def write_report(material: Material, folder: Path) -> list[Path]:
    """Write ``index.html`` and ``notebooks/<number>.html``; return their paths, the index first."""
    pages = {folder / "index.html": index_page(material)}
    for book in material.notebooks:
        page = folder / "notebooks" / sections.page_name(book.path.stem)
        pages[page] = notebook_page(nbformat.read(book.path, as_version=4), book.title, material.profile)
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for old in (folder / "notebooks").glob("*.html"):
        if old not in pages:
            old.unlink()
    for path, page in pages.items():
        write_text(path, page)
    return list(pages)


def index_page(material: Material) -> str:
    """Return the report; it needs no other file and, by its own policy, may load none."""
    script = _asset("report.js")
    return Template(_asset("index.html")).substitute(
        policy=_policy(script),
        style=_asset("report.css"),
        script=script,
        data=embedded(explorer_data(material.studies, material.references)),
        profile=text(material.profile),
        warning=_warning(material),
        claims=sections.claims(material),
        figures=sections.figures(material),
        tables=sections.tables(material),
        provenance=provenance(material),
        notebooks=sections.notebooks(material),
    )


def notebook_page(book: nbformat.NotebookNode, title: str, profile: str) -> str:
    """Return an executed notebook as a page; scripts in its outputs, if any, do not run."""
    return Template(_asset("notebook.html")).substitute(
        policy=_policy(),
        style=_asset("report.css") + highlight_style(),
        title=html.escape(title),
        profile=text(profile),
        body=body(book),
    )


def embedded(data: Any) -> str:
    """Return JSON that can stand inside a script element: no character of it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", r"\u003c")


def _asset(name: str) -> str:
    return (files("tools.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(script: str | None = None) -> str:
    """Return a content policy: nothing is loaded, pictures are inside the page, only this script runs."""
    runs = "'none'"
    if script is not None:
        digest = hashlib.sha256(script.encode()).digest()
        runs = f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {runs}"


def _warning(material: Material) -> str:
    """Return what a reader must know before any number."""
    said = []
    if material.profile == "smoke":
        said.append("The smoke profile makes every experiment small: its numbers mean nothing by themselves.")
    generated = [
        track
        for track, study in material.studies.items()
        if any(run.environment["data"]["source"] == "stand-in" for run in study.runs)
    ]
    if generated:
        said.append(f"The data of {', '.join(generated)} are generated stand-ins, not the official files.")
    return f'<p class="warning">{text(" ".join(said))}</p>' if said else ""
