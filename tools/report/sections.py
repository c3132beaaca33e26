"""The report's sections, each from the material to HTML."""

from __future__ import annotations

import html

import pandas as pd

from qfl_core.analysis.claim_tables import shown_numbers
from qfl_core.analysis.verdicts import VERDICTS
from tools.report.captions import FIGURES, TABLES
from tools.report.collect import Material
from tools.report.markup import figure, folded, slug, table, text
from tools.report.mathml import mathml

#: As in the forest plots: a sign beside the word, so that colour is not needed.
SIGNS = dict(zip(VERDICTS, "●✕◆○", strict=True))


def claims(material: Material) -> str:
    """Return how many claims hold, and every claim with its parts folded in."""
    if "claims" not in material.tables:
        return "<p>The claims were not judged with these datasets.</p>"
    told, parts = (material.tables[name] for name in ("claims", "claim_parts"))
    counts = {verdict: int((told["verdict"] == verdict).sum()) for verdict in VERDICTS}
    tiles = "".join(
        f'<li><button type="button" class="tile {verdict}" data-verdict="{verdict}" aria-pressed="false">'
        f"<strong>{count}</strong> {_badge(verdict)}</button></li>"
        for verdict, count in counts.items()
        if count
    )
    board = f'<ul class="tiles" aria-label="Show only the claims with this verdict">{tiles}</ul>'
    listed = "\n".join(_claim(row, parts[parts["id"] == row.id]) for row in told.itertuples())
    return f'{board}\n<div id="claim-list">\n{listed}\n</div>'


def _badge(verdict: str) -> str:
    return f'<span class="badge {html.escape(verdict)}">{SIGNS.get(verdict, "")} {html.escape(verdict)}</span>'


def _claim(row, parts: pd.DataFrame) -> str:
    numbers = pd.DataFrame(
        {"part": part.part, "what is measured": part.text, "verdict": part.verdict, **shown_numbers(part)}
        for part in parts.itertuples()
    )
    notes = f"<p>Note: {text(row.note)}.</p>" if row.note else ""
    return (
        f'<details class="claim" data-verdict="{text(row.verdict)}"><summary><span class="id">{text(row.id)}</span> '
        f'{_badge(row.verdict)} <span class="said">{text(row.claim)}</span></summary>\n'
        f"<p>{text(row.rule)}</p>\n{table(numbers, f'parts of claim {row.id}', raw={'verdict': _badge})}\n"
        f'{notes}<p class="quiet">Data: {text(row.source) or "none"}.</p></details>'
    )


def figures(material: Material) -> str:
    """Return every figure with its caption, under the headings of :data:`FIGURES`."""
    parts, captioned = [], set()
    for title, group in FIGURES.items():
        found = {name: caption for name, caption in group.items() if name in material.figures}
        captioned |= set(group)
        if found:
            drawn = "\n".join(figure(name, material.figures[name], caption) for name, caption in found.items())
            parts.append(f'<h3 id="{slug(title)}">{text(title)}</h3>\n{drawn}')
    others = [name for name in material.figures if name not in captioned]
    if others:
        drawn = "\n".join(figure(name, material.figures[name], name.replace("_", " ")) for name in others)
        parts.append(f'<h3 id="other-figures">Others</h3>\n{drawn}')
    if material.not_drawn:
        parts.append(f"<p>Not drawn with these datasets: {text(', '.join(material.not_drawn))}.</p>")
    return "\n".join(parts)


def tables(material: Material) -> str:
    """Return every table of :data:`TABLES`, folded; the first is open."""
    parts = []
    for name, (title, caption) in TABLES.items():
        if name in material.tables:
            raw = {"Symbol": mathml} if name == "notation" else {}
            inside = table(material.tables[name], title, raw)
            parts.append(folded(title, inside, f"table-{name}", is_open=not parts, note=caption))
    return "\n".join(parts)


def notebooks(material: Material) -> str:
    """Return links to the executed notebooks' pages, with their titles and times."""
    items = []
    for book in material.notebooks:
        took = f", {book.seconds:.0f} s" if book.seconds else ""
        items.append(f'<li><a href="notebooks/{page_name(book.path.stem)}">{text(book.title)}</a>{took}</li>')
    return f"<ul>{''.join(items)}</ul>"


def page_name(stem: str) -> str:
    """Return the file of a notebook's page: its number, e.g. ``03.html``."""
    return f"{stem.partition('_')[0]}.html"
