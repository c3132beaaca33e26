"""How objects show themselves in a notebook: small HTML tables, every value escaped.

Marks are words and symbols, never colours alone, and text keeps the notebook's own colour: both themes stay readable.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

CHANGED = "●"
#: Rounds shown of a run, at most: the first and the last ones.
SHOWN_ROUNDS = 12
ROUND_COLUMNS = ("round", "global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap", "val_loss")


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """Return an HTML table of these rows; captions, column names and values are escaped."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    title = f"<caption style='text-align:left'>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"<td style='text-align:left'>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "✓" if value else "×"
    if isinstance(value, float):  # NumPy's too
        return "–" if math.isnan(value) else f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(_text(part) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = (getattr(value, field.name) for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(map(_text, held))})"
    return "none" if value is None else str(getattr(value, "__name__", value))


def config_html(config: Any, defaults: Mapping[str, Any], meanings: Mapping[str, str]) -> str:
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


def run_html(run: Any) -> str:
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


def splits_html(splits: Any) -> str:
    """Return the parts of a dataset, where they came from, and what the rules removed."""
    table = splits.table().reset_index()
    notes = [f"{escape(str(name))}: {escape(str(count))}" for name, count in splits.notes.items()]
    below = f"<p>{'; '.join(notes)}</p>" if notes else ""
    return html_table(list(table.columns), table.to_dict("split")["data"], str(splits.provenance)) + below


class ShownTable(dict):
    """A dict of frozen dataclasses that shows itself as a table: a row a key, a column a field."""

    def _repr_html_(self) -> str:
        fields = [field.name for field in dataclasses.fields(next(iter(self.values())))] if self else []
        rows = [(key, *(getattr(value, name) for name in fields)) for key, value in self.items()]
        return html_table(("", *(name.replace("_", " ") for name in fields)), rows)
