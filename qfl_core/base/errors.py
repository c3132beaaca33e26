"""Errors that a user can act on: each message names the value and the choices."""

from __future__ import annotations

import difflib
import io
import sys
from collections.abc import Callable, Iterable


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type or out of its range."""


class DataError(ValueError):
    """A data file is missing, damaged or not in the official format."""


class NotFiniteError(ValueError):
    """Weights or losses left the range of floating-point numbers."""


class RunError(RuntimeError):
    """A run cannot start, go on or be read."""


class ChangedResults(UserWarning):
    """A finished run's files are not the ones that were sealed."""


class MendedJournal(UserWarning):
    """The journal of an unfinished run is not whole; the run goes on from its last good round."""


class HardwareError(RunError):
    """A backend, its service, a job or a ledger does not allow what was asked; nothing was submitted twice."""


class FederationError(RunError):
    """A federation over a network cannot start or go on; the message holds no data and may travel."""


class AnalysisError(ValueError):
    """Runs cannot be compared as asked, or a claim names what does not exist."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest of the known names, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""


def one_line(text: str) -> str:
    """Return text on one line; characters that a terminal would act on are written as escapes."""
    words = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)


def _print_everything() -> None:
    """Let stdout write what it cannot encode, such as a folder's name in other letters, as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def exit_code(program: str, command: Callable[[], int], interrupted: str) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    program : what the line on stderr begins with.
    command : returns the exit status. A wrong value becomes one line on stderr and status 2; another error that a user
        can act on becomes one line and status 1.
    interrupted : what the line says after Ctrl-C, which gives status 130.
    """
    _print_everything()
    try:
        return command()
    except ConfigError as error:
        print(one_line(f"{program}: {error}"), file=sys.stderr)
        return 2
    except (DataError, RunError, AnalysisError, OSError) as error:
        print(one_line(f"{program}: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted; {interrupted}", file=sys.stderr)
        return 130
