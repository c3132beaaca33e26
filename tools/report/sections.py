"""What each section of the report shows, as plain values for its template."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import cast

import pandas as pd
from markupsafe import Markup
from PIL import Image

from qfl_core.analysis.claim_tables import PartRow, shown_numbers
from qfl_core.analysis.real_claims import RealClaims
from qfl_core.analysis.verdicts import VERDICTS
from qfl_core.figures.pictures import with_few_colours
from tools.report.captions import FIGURES, TABLES
from tools.report.collect import Material

#: As in the forest plots: a sign beside the word, so that colour is not needed.
SIGNS = dict(zip(VERDICTS, "●✕■◆○", strict=True))
#: Figures are drawn for paper, where letters of seven points can be read.
ENLARGED = 1.25
#: Pixels stored for each pixel of the page: sharp enough, in a third of the bytes.
SHARP = 1.2


@dataclass(frozen=True)
class Claims:
    """How many claims have each verdict; every claim with the table of its parts and its verdict on real samples."""

    counts: dict[str, int]
    listed: list[tuple[pd.Series, pd.DataFrame, str]]


@dataclass(frozen=True)
class Picture:
    """A figure that is stored inside the page, in the size that it was drawn for, somewhat enlarged."""

    name: str
    caption: str
    source: Markup
    width: int
    height: int

    @classmethod
    def read(cls, name: str, path: Path, caption: str) -> Picture:
        """Read a PNG file; the page stores it as WebP with fewer pixels and colours, the file keeps all of its own."""
        with Image.open(path) as image:
            size, dots = image.size, image.info.get("dpi", (96.0, 96.0))[0]
            width, height = (round(ENLARGED * 96 * pixels / dots) for pixels in size)
            stored = image.convert("RGB")
        if SHARP * width < size[0]:
            stored = stored.resize((round(SHARP * width), round(SHARP * height)), Image.Resampling.LANCZOS)
        packed = BytesIO()
        with_few_colours(stored).convert("RGB").save(packed, "WEBP", lossless=True, method=2)
        source = f"data:image/webp;base64,{base64.b64encode(packed.getvalue()).decode('ascii')}"
        return cls(name, caption, Markup(source), width, height)


def warnings(material: Material) -> str:
    """Return what a reader must know before any number; it may be empty."""
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
    return " ".join(said)


def claims(material: Material) -> Claims | None:
    """Return the claims, or ``None`` where they were not judged."""
    if "claims" not in material.tables:
        return None
    told, parts = (material.tables[name] for name in ("claims", "claim_parts"))
    counts = {verdict: int((told["verdict"] == verdict).sum()) for verdict in VERDICTS}
    real, listed = material.real, []
    for _, row in told.iterrows():
        on_real = real.verdict(row["id"]) if real else ""
        listed.append((row, _parts(parts[parts["id"] == row["id"]], real), on_real))
    return Claims(counts, listed)


def _parts(rows: pd.DataFrame, real: RealClaims | None) -> pd.DataFrame:
    shown = []
    for part in cast(Iterable[PartRow], rows.itertuples()):
        row = {"part": part.part, "what is measured": part.text, "verdict": part.verdict, **shown_numbers(part)}
        if real is not None:
            row |= {"real [95 %]": real.shown(part.part), "on real": real.part_verdict(part.part)}
        shown.append(row | {"untrained": part.untrained})
    return pd.DataFrame(shown)


def figures(material: Material) -> Iterator[tuple[str, str, list[Picture]]]:
    """Yield an id, a heading of :data:`FIGURES` and its pictures; pictures without a caption come last."""
    others = dict(material.figures)
    for title, group in FIGURES.items():
        found = [Picture.read(name, others.pop(name), caption) for name, caption in group.items() if name in others]
        if found:
            yield slug(title), title, found
    if others:
        found = [Picture.read(name, path, name.replace("_", " ")) for name, path in others.items()]
        yield "other-figures", "Others", found


def tables(material: Material) -> list[tuple[str, str, str, pd.DataFrame]]:
    """Return the name, title, caption and rows of every table of :data:`TABLES` that is there."""
    return [(name, *told, material.tables[name]) for name, told in TABLES.items() if name in material.tables]


def slug(title: str) -> str:
    """Return an id for a heading: its letters and digits in lower case, joined by hyphens."""
    letters = "".join(letter if letter.isalnum() else " " for letter in title.lower())
    return "-".join(letters.split())


def page_name(notebook: Path) -> str:
    """Return the file of a notebook's page: its number, e.g. ``03.html``."""
    return f"{notebook.stem.partition('_')[0]}.html"
