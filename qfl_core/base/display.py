"""How objects show themselves in a notebook: small HTML tables, every value escaped.

Marks are words and symbols, never colours alone, and text keeps the notebook's own colour: both themes stay readable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from qfl_core.base.numbers import significant

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")

CHANGED = "●"
#: Rounds shown of a run, at most: the first and the last ones.
SHOWN_ROUNDS = 12
#: Notebooks put the cells of tables on the right, where sentences are hard to read.
_LEFT = "<style>.qfl-table :is(caption, th, td) { text-align: left !important; }</style>"
ROUND_COLUMNS = ("round", "global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap", "val_loss")


class ShownConfig(Protocol):
    """What is shown of a config; its other fields are found by name."""

    @property
    def digest(self) -> str:
        """The digest of all settings."""


class ShownRun(Protocol):
    """What is shown of a finished run."""

    @property
    def path(self) -> Path:
        """The run's folder."""

    @property
    def config(self) -> Any:
        """The experiment's config: this floor does not know its class."""

    @property
    def environment(self) -> Mapping[str, Any]:
        """Where the numbers come from, as JSON."""

    @property
    def rounds(self) -> pd.DataFrame:
        """One row per round."""

    def changed_files(self) -> list[str]:
        """Return the files that are not as they were sealed."""


class ShownSplits(Protocol):
    """What is shown of a dataset's parts."""

    @property
    def notes(self) -> Mapping[str, object]:
        """What the rules removed, and how many rows."""

    @property
    def provenance(self) -> object:
        """Where the data come from; its text is the caption."""

    def table(self) -> pd.DataFrame:
        """Return one row per part."""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return an HTML table of these rows; the caption, column names and values are escaped."""
    import pandas as pd  # here, because whoever only trains shows no table

    frame = pd.DataFrame([[_text(value) for value in row] for row in rows], columns=list(columns))
    shown = frame.style.hide().format(escape="html").format_index(escape="html", axis="columns")
    if caption:
        shown = shown.set_caption(escape(caption))
    return f'<div class="qfl-table">{_LEFT}{shown.to_html(exclude_styles=True)}</div>'


def _text(value: object) -> str:
    """Return a value as a reader sees it."""
    if isinstance(value, bool):
        return "✓" if value else "×"
    if isinstance(value, float):  # NumPy's too
        return significant(value)
    if isinstance(value, tuple):
        return ", ".join(_text(part) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = (getattr(value, field.name) for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(map(_text, held))})"
    return "none" if value is None else str(getattr(value, "__name__", value))


def config_html(config: ShownConfig, defaults: Mapping[str, object], meanings: Mapping[str, str]) -> str:
    """Return a config's fields: those that differ from their defaults first and marked, the others folded away."""
    values = {name: getattr(config, name) for name in meanings}
    changed = [name for name in values if values[name] != defaults[name]]
    own = html_table(
        ("", "changed", "value", "default", "meaning"),
        [(CHANGED, name, values[name], defaults[name], meanings[name]) for name in changed],
        f"{type(config).__name__} {config.digest[:8]}: {len(changed)} of {len(values)} fields changed",
    )
    rest = [(name, values[name], meanings[name]) for name in values if name not in changed]
    folded = f"<details><summary>{len(rest)} at their defaults</summary>"
    return f"{own}{folded}{html_table(('field', 'value', 'meaning'), rest)}</details>"


def run_html(run: ShownRun) -> str:
    """Return a finished run: what it is, where its numbers come from, its rounds; altered files are named."""
    config, data, engine = run.config, run.environment["data"], run.environment["engine"]
    rounds = run.rounds[list(ROUND_COLUMNS)].to_dict("split")["data"]
    if len(rounds) > SHOWN_ROUNDS:
        rounds = [*rounds[:1], ["..."] * len(ROUND_COLUMNS), *rounds[2 - SHOWN_ROUNDS :]]
    changed = ", ".join(run.changed_files())
    flag = f"<p><b>CHANGED since the run was sealed: {escape(changed)}</b></p>" if changed else ""
    caption = (
        f"{config.method}, {config.dataset} ({config.encoding}), {config.split}, seed {config.seed}; "
        f"data: {data['source']}; engine: {engine['engine']}, {engine['kind']}; run {run.path.name}"
    )
    return flag + html_table(ROUND_COLUMNS, rounds, caption)


def splits_html(splits: ShownSplits) -> str:
    """Return the parts of a dataset, where they came from, and what the rules removed."""
    table = splits.table().reset_index()
    notes = [f"{escape(str(name))}: {escape(str(count))}" for name, count in splits.notes.items()]
    below = f"<p>{'; '.join(notes)}</p>" if notes else ""
    return html_table(list(table.columns), table.to_dict("split")["data"], str(splits.provenance)) + below


class ShownTable(dict[str, Row]):
    """A dict of frozen dataclasses that shows itself as a table: one row per key, one column per field."""

    def _repr_html_(self) -> str:
        fields = [field.name for field in dataclasses.fields(next(iter(self.values())))] if self else []
        rows = [(key, *(getattr(value, name) for name in fields)) for key, value in self.items()]
        return html_table(("", *(name.replace("_", " ") for name in fields)), rows)
