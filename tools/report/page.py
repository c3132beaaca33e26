"""The pages themselves: templates and material are put together, and every page is written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import nbformat
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from qfl_core.base.files import write_text
from qfl_core.base.numbers import number
from tools.report import sections
from tools.report.collect import Material
from tools.report.explorer import explorer_data
from tools.report.formulas import formula
from tools.report.notebooks import body, highlight_style
from tools.report.provenance import provenance

#: Letters of a column's longest cell up to which the column is not broken into lines.
SHORT = 30


def write_report(material: Material, folder: Path) -> list[Path]:
    """Write ``index.html`` and ``notebooks/<number>.html``; return their paths, the index first."""
    pages = {folder / "index.html": index_page(material)}
    for book in material.notebooks:
        path = folder / "notebooks" / sections.page_name(book.path)
        pages[path] = notebook_page(nbformat.read(book.path, as_version=4), book.title, material.profile)
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for old in (folder / "notebooks").glob("*.html"):
        if old not in pages:
            old.unlink()
    for path, page in pages.items():
        write_text(path, page)
    return list(pages)


def index_page(material: Material) -> str:
    """Return the report. It needs no other file and, by its own policy, can load none."""
    script = _asset("report.js")
    return _rendered(
        "index.html",
        profile=material.profile,
        policy=_policy(script),
        style=_asset("report.css"),
        script=script,
        data=explorer_data(material.studies, material.references),
        warnings=sections.warnings(material),
        claims=sections.claims(material),
        figures=sections.figures(material),
        not_drawn=material.not_drawn,
        tables=sections.tables(material),
        provenance=provenance(material),
        notebooks={sections.page_name(book.path): book for book in material.notebooks},
    )


def notebook_page(book: nbformat.NotebookNode, title: str, profile: str) -> str:
    """Return an executed notebook as a page; scripts in its outputs, if there are any, do not run."""
    style = _asset("report.css") + Markup(highlight_style())
    return _rendered("notebook.html", title=title, profile=profile, policy=_policy(), style=style, body=body(book))


def shown(value: object) -> object:
    """Return what the templates print for a value: fractions have three decimals, what is missing is empty."""
    if isinstance(value, Markup):
        return value
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A per cent sign stays on the line of its number.
    return number(value, missing="") if isinstance(value, float) else str(value).replace(" %", "\N{NO-BREAK SPACE}%")


def column_kinds(rows: pd.DataFrame) -> list[tuple[str, str | None]]:
    """Return every column's name and the class of its cells: numbers stand on the right, long words may break."""
    return [(name, _kind(rows[name])) for name in rows.columns]


def _kind(column: pd.Series) -> str | None:
    if pd.api.types.is_numeric_dtype(column):
        return "number"
    return "long" if column.astype(str).str.len().max() > SHORT else None


@cache
def _templates() -> Environment:
    """Return the templates. They escape every value that is not :class:`~markupsafe.Markup`."""
    templates = Environment(
        loader=PackageLoader("tools.report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    templates.globals |= {"formula": formula, "column_kinds": column_kinds, "number": number, "signs": sections.SIGNS}
    return templates


def _rendered(template: str, **values: object) -> str:
    return _templates().get_template(template).render(values)


def _asset(name: str) -> Markup:
    """Return a style sheet or script of ours, which goes into a page as it is."""
    return Markup((Path(__file__).parent / "assets" / name).read_text(encoding="utf-8"))


def _policy(script: str | None = None) -> str:
    """Return a content policy: nothing is loaded, pictures are inside the page, and only this script runs."""
    runs = "'none'"
    if script is not None:
        digest = hashlib.sha256(script.encode()).digest()
        runs = f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {runs}"
