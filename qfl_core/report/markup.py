"""Pieces of HTML; whatever comes from data is escaped here."""

from __future__ import annotations

import base64
import html
import struct
from collections.abc import Mapping
from pathlib import Path

import pandas as pd


def text(value: object) -> str:
    """Return a value as escaped text; numbers with a fraction keep four digits, what is missing is empty."""
    if value is None or value is pd.NA or (isinstance(value, float) and pd.isna(value)):
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def slug(title: str) -> str:
    """Return an id for a heading."""
    letters = "".join(letter if letter.isalnum() else " " for letter in title.lower())
    return "-".join(letters.split())


def table(rows: pd.DataFrame, label: str, raw: Mapping[str, object] | None = None) -> str:
    """Return a table in a box of its own that scrolls where it is wider than the page.

    ``raw`` maps a column to a function that makes its cells' HTML.
    """
    raw = raw or {}
    numbers = {name for name in rows.columns if pd.api.types.is_numeric_dtype(rows[name])}
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in rows.columns)
    lines = []
    for values in rows.itertuples(index=False, name=None):
        cells = []
        for name, value in zip(rows.columns, values, strict=True):
            kind = ' class="number"' if name in numbers else ""
            cells.append(f"<td{kind}>{raw[name](value) if name in raw else text(value)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(lines)
    return scrolling(f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>", label)


def scrolling(inside: str, label: str) -> str:
    """Return a box that scrolls sideways, by keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(label)}">{inside}</div>'


def figure(name: str, path: Path, caption: str) -> str:
    """Return a figure with its PNG inside the page; the caption is also what a screen reader says."""
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])  # of the header chunk, which is always first
    source = f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
    wide = " wide" if width > 1.8 * height else ""
    image = f'<img src="{source}" width="{width}" height="{height}" alt="{html.escape(caption)}" loading="lazy">'
    return (
        f'<figure id="figure-{html.escape(name)}" class="card{wide}">{scrolling(image, f"figure {name}")}\n'
        f"<figcaption>{html.escape(caption)} <code>{html.escape(name)}</code></figcaption></figure>"
    )


def facts(rows: Mapping[str, object]) -> str:
    """Return names and values as a description list."""
    pairs = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in rows.items())
    return f"<dl>{pairs}</dl>"


def folded(title: str, inside: str, name: str, is_open: bool = False, note: str = "") -> str:
    """Return a part that opens and closes, with a heading."""
    mark = " open" if is_open else ""
    said = f"<p>{html.escape(note)}</p>\n" if note else ""
    heading = f"<summary><h3>{html.escape(title)}</h3></summary>"
    return f'<details id="{html.escape(name)}"{mark}>{heading}\n{said}{inside}</details>'
