"""``python -m qfl_core``: every command of the package; ``python -m qfl_core COMMAND --help`` explains one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from qfl_core.base.errors import exit_code
from qfl_core.base.options import Parser
from qfl_core.base.registry import resolve

#: Every command with the function that adds its options and with what it does. The function is imported when its
#: command is asked for, because some rooms take seconds to import.
COMMANDS = {
    "run": ("qfl_core.runs.command:add_run", "run (or resume) one experiment"),
    "list": ("qfl_core.runs.command:add_list", "list finished runs"),
    "show": ("qfl_core.runs.command:add_show", "show a run's rounds and origin"),
    "data": ("qfl_core.data.command:add_data", "find or download the official files, and say what will be used"),
    "protocol": ("qfl_core.studies.protocol.command:add_protocol", "search the readings of the paper's open points"),
    "fidelity": (
        "qfl_core.studies.fidelity.command:add_fidelity",
        "measure what other readings of the paper change, and write docs/fidelity.md",
    ),
    "metatrain": (
        "qfl_core.studies.metatrain.command:add_metatrain",
        "train the controller over many federations, for controller='pretrained'",
    ),
    "controllers": (
        "qfl_core.studies.controllers.command:add_controllers",
        "compare ways to come to the rates of SPSA, and write their part of docs/controller.md",
    ),
    "real": (
        "qfl_core.studies.real.command:add_real",
        "train on the real files of QFL_DATA_DIR, and compare the claims with the stand-ins'",
    ),
    "follow-up": (
        "qfl_core.studies.follow_up.command:add_follow_up",
        "judge the claims that are undecided once more, on fresh seeds alone",
    ),
    "hardware": ("qfl_core.hardware.command:add_hardware", "validate trained models on a simulated or real device"),
    "federate": (
        "qfl_core.network.command:add_federate",
        "run (or resume) one experiment over Flower nodes on this machine",
    ),
    "network": (
        "qfl_core.network.command:add_network",
        "make certificates, node keys and folders for a federation of machines",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it asks.

    Returns
    -------
    The exit status: 0; 1 or 2 with the reason in one line on stderr, 2 for a wrong option or value (argparse raises
    ``SystemExit(2)`` for those that it finds); 130 where Ctrl-C ended the command.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    asked = _parser(words).parse_args(words)
    return exit_code("qfl_core", lambda: asked.command(asked), asked.interrupted)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that knows the names of all commands, and the options of the one that the words ask for."""
    parser = Parser(
        prog="python -m qfl_core",
        description="Quantum federated learning, DUQFL-Prox.",
        epilog="python -m qfl_core COMMAND --help explains a command.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    wanted = next((word for word in words if not word.startswith("-")), None)
    for name, (add_options, doc) in COMMANDS.items():
        command = commands.add_parser(name, help=doc, description=f"{doc[0].upper()}{doc[1:]}.")
        if name == wanted:
            resolve(add_options)(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
