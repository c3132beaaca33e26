"""What readers see in place of the names that code has for tracks and sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from qfl_core.config import track_dataset
from qfl_core.runs.study import Study

#: What titles, legends and footers call a dataset; one without a title keeps its name.
TITLES = {"baf": "BAF", "breast-cancer": "breast cancer"}
#: The same for the source of data that readers could take for generated.
SOURCES = {"bundled": "real (bundled)"}


def track_title(track: str) -> str:
    """Return what titles, legends and footers call a track.

    Examples
    --------
    >>> track_title("baf-clean")
    'BAF clean'
    """
    dataset = track_dataset(track)
    return TITLES.get(dataset, dataset) + (" clean" if track != dataset else "")


def with_titles(text: str, tracks: Iterable[str]) -> str:
    """Return a text with the titles of these tracks in place of their names.

    Examples
    --------
    >>> with_titles("closest on baf", ["baf", "genome"])
    'closest on BAF'
    """
    for track in tracks:
        text = re.sub(rf"(?<![\w-]){re.escape(track)}(?![\w-])", track_title(track), text)
    return text


def tracks_facts(studies: Mapping[str, Study]) -> tuple[str, ...]:
    """Return what a figure's footer says of several tracks: the source of each track's data, then what all share."""
    sources = {track: study.rounds["source"].iloc[0] for track, study in studies.items()}
    data = ", ".join(f"{track_title(track)} {SOURCES.get(source, source)}" for track, source in sources.items())
    return (f"data: {data}", *next(iter(studies.values())).facts[1:])
