"""Flower's SuperLink, with a database that waits: ``python -m qfl_core.network.superlink`` takes Flower's own options.

Another process may hold the SuperLink's SQLite database for seconds on a busy machine. Flower waits five seconds, then
it answers with HTTP 500. Its nodes do not ask again, so the answer of a client is lost. This program waits a minute.
"""

from __future__ import annotations

import sys

from qfl_core.network.flower import wait_for_database


def main() -> None:
    """Start the SuperLink with the options of the command line."""
    from flwr.superlink.cli import flower_superlink

    wait_for_database()
    sys.argv[0] = "flower-superlink"
    flower_superlink()


if __name__ == "__main__":
    main()
