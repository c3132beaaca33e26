"""Flower's SuperLink, with a database that waits: ``python -m qfl_core.network.superlink`` takes Flower's own options.

Another process may hold the SuperLink's SQLite database for seconds on a busy machine. Flower waits five seconds, then
it answers with HTTP 500. Its nodes do not ask again, so the answer of a client is lost. This program waits a minute.
"""

from __future__ import annotations

import sys

BUSY_SECONDS = 60


def patient(pragmas: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return Flower's settings of a connection with a longer time-out for a busy database."""
    if "busy_timeout" not in dict(pragmas):
        raise RuntimeError("this version of Flower has no busy_timeout: start its own flower-superlink")
    return tuple((name, str(BUSY_SECONDS * 1000) if name == "busy_timeout" else value) for name, value in pragmas)


def main() -> None:
    """Start the SuperLink with the options of the command line."""
    from flwr.supercore import sql_mixin
    from flwr.superlink.cli import flower_superlink

    sql_mixin.SQLITE_PRAGMAS = patient(sql_mixin.SQLITE_PRAGMAS)
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
