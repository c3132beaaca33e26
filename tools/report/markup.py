"""Pieces of HTML; whatever comes from data is escaped here."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from PIL import Image

#: A table with more rows than this scrolls in its box, under its header.
LONG = 25
#: Figures are drawn for paper, where letters of seven points can be read.
ENLARGED = 1.25
#: A column whose cells are no longer than this, in letters, is not broken into lines.
SHORT = 30


def text(value: object) -> str:
    """Return a value as escaped text; fractions have three decimals, what is missing is empty."""
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A per cent sign stays with its number.
    return html.escape(f"{value:.3f}" if isinstance(value, float) else str(value)).replace(" %", "&nbsp;%")


def slug(title: str) -> str:
    """Return an id for a heading."""
    letters = "".join(letter if letter.isalnum() else " " for letter in title.lower())
    return "-".join(letters.split())


def table(rows: pd.DataFrame, label: str, raw: Mapping[str, Callable[[str], str]] | None = None) -> str:
    """Return a table in a box of its own that scrolls where it is wider than the page.

    ``raw`` maps a column to a function that makes its cells' HTML.
    """
    raw = raw or {}
    kinds = {name: _kind(rows[name]) for name in rows.columns}
    head = "".join(f'<th scope="col"{kinds[name]}>{text(name)}</th>' for name in rows.columns)
    columns = [
        [f"<td{kinds[name]}>{raw.get(name, text)(value)}</td>" for value in rows[name].tolist()]
        for name in rows.columns
    ]
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    kind = "scroll tall" if len(rows) > LONG else "scroll"
    return scrolling(f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>", label, kind)


def _kind(column: pd.Series) -> str:
    """Return the class of a column's cells: numbers stand right, short words on one line."""
    if pd.api.types.is_numeric_dtype(column):
        return ' class="number"'
    return ' class="short"' if column.astype(str).str.len().max() <= SHORT else ""


def scrolling(inside: str, label: str, kind: str = "scroll") -> str:
    """Return a box that scrolls sideways, and a tall one also down; by keyboard too."""
    return f'<div class="{kind}" tabindex="0" role="region" aria-label="{html.escape(label)}">{inside}</div>'


def figure(name: str, path: Path, caption: str) -> str:
    """Return a figure with its PNG inside the page; the caption is also what a screen reader says.

    It is shown in the size that it was drawn for, somewhat enlarged, or as wide as the page.
    """
    data = path.read_bytes()
    with Image.open(path) as image:
        size, dots = image.size, image.info.get("dpi", (96.0, 96.0))[0]
    width, height = (round(ENLARGED * 96 * pixels / dots) for pixels in size)
    source = f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
    wide = " wide" if width > 1.8 * height else ""
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{html.escape(caption)}" loading="lazy">'
    return (
        f'<figure id="figure-{html.escape(name)}" class="card{wide}">{scrolling(image, f"figure {name}")}\n'
        f"<figcaption>{text(caption)} <code>{html.escape(name)}</code></figcaption></figure>"
    )


def facts(rows: Mapping[str, object]) -> str:
    """Return names and values as a description list."""
    pairs = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in rows.items())
    return f"<dl>{pairs}</dl>"


def folded(title: str, inside: str, name: str, is_open: bool = False, note: str = "") -> str:
    """Return a part that opens and closes, with a heading."""
    mark = " open" if is_open else ""
    said = f"<p>{text(note)}</p>\n" if note else ""
    heading = f"<summary><h3>{html.escape(title)}</h3></summary>"
    return f'<details id="{html.escape(name)}"{mark}>{heading}\n{said}{inside}</details>'
