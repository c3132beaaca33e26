"""``docs/fidelity.md``: one table per part of the paper, made from the choices and the measured numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.base.numbers import interval, span
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.studies.fidelity.choices import CHOICES, PARTS, Choice
from qfl_core.studies.fidelity.differences import COLUMNS, METRICS, applicable, settings_digest

NOT_MEASURED = "not measured yet"
_INTRODUCTION = """\
# Fidelity: the paper's words, our choices, and what other choices change

`python -m qfl_core fidelity` writes this page: do not edit it. Its lines stand in
`qfl_core/studies/fidelity/choices.py`, the values of our choices are those of the profile `{profile}`, and the measured
numbers are in [fidelity/measured.csv](fidelity/measured.csv). The command trains what is missing and goes on after an
interruption; `--no-training` writes the page again from the numbers that are there.

**How to read the last column.** Where another choice is a setting, it is trained over {seeds} seeds that no figure and
no search uses. The numbers are *other choice − ours* in the last round, with 95 % intervals over paired seeds: *global*
accuracy, mean *client* test accuracy, train-test *gap*. They are those of DUQFL-Prox unless a method is named. An
interval that holds 0 says that these seeds do not show a difference. The intervals are not corrected for their number:
if no choice changed anything, one in 20 would still exclude 0. So an interval that ends near 0 shows little.
"""


def read_measured(path: Path) -> pd.DataFrame:
    """Read the measured numbers; an empty table where there is no file yet."""
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(COLUMNS))


def page(settings: Profile, measured: pd.DataFrame) -> str:
    """Return the page in Markdown.

    A number that was measured with other settings than the profile's of now is not shown.
    """
    seeds = int(measured["seeds"].max()) if len(measured) else 0
    lines = [_INTRODUCTION.format(profile=settings.name, seeds=seeds or "several")]
    for part, title in PARTS.items():
        lines += [f"\n## {part}: {title}\n", "| where | the paper | here | why | what the other choice changes |"]
        lines += ["|---|---|---|---|---|"]
        lines += [_row(settings, choice, measured) for choice in CHOICES if choice.part == part]
    return "\n".join(lines) + "\n"


def _row(settings: Profile, choice: Choice, measured: pd.DataFrame) -> str:
    ours, other = _ours(settings, choice), _other(settings, choice, measured)
    cells = (choice.where, choice.paper, ours, choice.why, other)
    return "| " + " | ".join(cell.replace("|", r"\|") or "–" for cell in cells) + " |"


def _configs(settings: Profile, choice: Choice) -> dict[str, ExperimentConfig]:
    """Return the profile's config of every track on which the choice exists."""
    return {track: settings.config(track) for track in settings.datasets if applicable([choice], track)}


def _ours(settings: Profile, choice: Choice) -> str:
    """Return our choice with the profile's values; where tracks differ, each is named."""
    configs = _configs(settings, choice)
    return choice.ours.format_map(_Values(configs))


class _Values(dict[str, str]):
    """The text of a config field, looked up when a sentence names it."""

    def __init__(self, configs: Mapping[str, ExperimentConfig]):
        super().__init__()
        self._configs = configs

    def __missing__(self, field: str) -> str:
        texts = {track: _text(getattr(config, field)) for track, config in self._configs.items()}
        if len(set(texts.values())) == 1:
            return next(iter(texts.values()))
        return ", ".join(f"{track} {text}" for track, text in texts.items())


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return span(*value) if len(value) == 2 else ", ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("_", " ")


def _other(settings: Profile, choice: Choice, measured: pd.DataFrame) -> str:
    """Return the last cell: words, or the measured differences of every alternative."""
    if not choice.alternatives:
        return choice.other.format_map(_Values(_configs(settings, choice)))
    told = [choice.other] if choice.other else []
    for name in choice.alternatives:
        parts = []
        for track, base in _configs(settings, choice).items():
            if name in choice.to_train(base):
                parts.append(f"{track} {_numbers(measured, choice, name, track, base)}")
        if parts:
            method = "" if choice.method == "duqfl-prox" else f" ({method_named(choice.method).label})"
            told.append(f"**{name}**{method}: {'; '.join(parts)}")
    return "<br>".join(told)


def _numbers(measured: pd.DataFrame, choice: Choice, name: str, track: str, base: ExperimentConfig) -> str:
    digest = settings_digest(base, choice, name)
    wanted = {"choice": choice.key, "alternative": name, "track": track, "settings": digest}
    rows = measured
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    if rows.empty:
        return NOT_MEASURED
    texts = []
    for metric, short in METRICS.items():
        mean, low, high = rows.loc[rows["metric"] == metric, ["mean", "low", "high"]].to_numpy(dtype=float)[0]
        texts.append(f"{short} {interval(mean, low, high, signed=True)}")
    return ", ".join(texts)
