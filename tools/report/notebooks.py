"""Executed notebooks as pages that need nothing but themselves: no script, no style sheet, no font from elsewhere."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import nbformat
from markupsafe import Markup

from tools.report.formulas import formula

if TYPE_CHECKING:
    from nbconvert import HTMLExporter

#: Code, which stays as it is; display and inline mathematics; links to files.
_PIECES = re.compile(
    r"""(?P<code>(`+)(?:.|\n)*?\2)
    | \$\$(?P<display>(?:.|\n)+?)\$\$
    | (?<![\\\w$])\$(?P<inline>[^$\n]+?)\$(?!\w)
    | (?<!!)\[(?P<words>[^\]]+)\]\((?!\w+:|\#)(?P<file>[^)\s]+)\)""",
    re.VERBOSE,
)
_NOTEBOOK = re.compile(r"(?:.*/)?(\d\d)_\w+\.ipynb")


def portable(markdown: str) -> str:
    """Return Markdown that stands alone: TeX as MathML, links to notebooks to their pages, other files only named."""
    return _PIECES.sub(_portable, markdown)


def _portable(found: re.Match) -> str:
    if found["display"]:
        return formula(found["display"], display=True)
    if found["inline"]:
        return formula(found["inline"])
    if found["file"]:
        notebook = _NOTEBOOK.fullmatch(found["file"])
        return f"[{found['words']}]({notebook[1]}.html)" if notebook else found["words"]
    return found[0]


def title(book: nbformat.NotebookNode) -> str:
    """Return the notebook's first heading, without its marks."""
    heading = next((c.source for c in book.cells if c.cell_type == "markdown" and c.source.startswith("# ")), "")
    return heading.partition("\n")[0].removeprefix("# ").strip()


def body(book: nbformat.NotebookNode) -> Markup:
    """Return the notebook's cells as HTML: Markdown, highlighted code and outputs, images inside."""
    pictures = 0
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = portable(cell.source)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                pictures += 1
                said = f"Picture {pictures} of this notebook; the text around it says what to see."
                output.metadata["image/png"] = {**output.metadata.get("image/png", {}), "alt": said}
    return Markup(_exporter().from_notebook_node(book)[0])


@cache
def _exporter() -> HTMLExporter:
    """Return the exporter of all notebooks, because it compiles its templates when it is made."""
    from nbconvert import HTMLExporter

    return HTMLExporter(template_name="basic", exclude_anchor_links=True)


def highlight_style() -> str:
    """Return the colours of highlighted code, for light and for dark."""
    from pygments.formatters import HtmlFormatter

    def rules(style: str) -> str:
        lines = HtmlFormatter(style=style, nobackground=True).get_style_defs(".highlight").splitlines()
        return "\n".join(line for line in lines if line.startswith(".highlight ."))

    return f"{rules('xcode')}\n@media (prefers-color-scheme: dark) {{\n{rules('github-dark')}\n}}"
