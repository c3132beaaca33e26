"""Executed notebooks as pages that need nothing but themselves: no script, no style sheet, no font from elsewhere."""

from __future__ import annotations

import re

import nbformat

from qfl_core.report.mathml import mathml

#: Code spans, which stay as they are, then display and inline mathematics.
_MATH = re.compile(r"(`+)(?:.|\n)*?\1|\$\$(?P<display>(?:.|\n)+?)\$\$|(?<![\\\w$])\$(?P<inline>[^$\n]+?)\$(?!\w)")


def with_mathml(markdown: str) -> str:
    """Return Markdown whose TeX is MathML."""

    def convert(found: re.Match) -> str:
        if found["display"]:
            return mathml(found["display"], display=True)
        return mathml(found["inline"]) if found["inline"] else found[0]

    return _MATH.sub(convert, markdown)


def title(book: nbformat.NotebookNode) -> str:
    """Return the notebook's first heading, without its marks."""
    heading = next((c.source for c in book.cells if c.cell_type == "markdown" and c.source.startswith("# ")), "")
    return heading.partition("\n")[0].removeprefix("# ").strip()


def body(book: nbformat.NotebookNode) -> str:
    """Return the notebook's cells as HTML: Markdown, highlighted code and outputs, images inside."""
    from nbconvert import HTMLExporter

    pictures = 0
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = with_mathml(cell.source)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                pictures += 1
                said = f"Picture {pictures} of this notebook; the text around it says what to see."
                output.metadata["image/png"] = {**output.metadata.get("image/png", {}), "alt": said}
    exporter = HTMLExporter(template_name="basic", exclude_anchor_links=True)
    return exporter.from_notebook_node(book)[0]


def highlight_style() -> str:
    """Return the colours of highlighted code, for light and for dark."""
    from pygments.formatters import HtmlFormatter

    def rules(style: str) -> str:
        lines = HtmlFormatter(style=style, nobackground=True).get_style_defs(".highlight").splitlines()
        return "\n".join(line for line in lines if line.startswith(".highlight ."))

    return f"{rules('xcode')}\n@media (prefers-color-scheme: dark) {{\n{rules('github-dark')}\n}}"
