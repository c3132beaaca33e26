"""Errors that a user can act on: each message names the value and the choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of its range."""


class DataError(ValueError):
    """A data file is missing, damaged or not in the official format."""


class RunError(RuntimeError):
    """A run cannot start, go on or be read."""


class AnalysisError(ValueError):
    """Runs cannot be compared as asked, or a claim names what does not exist."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of the known names, or an empty string."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
