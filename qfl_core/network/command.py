"""The commands ``federate`` (Flower nodes on this machine) and ``network`` (what a federation of machines needs)."""

from __future__ import annotations

import argparse
from pathlib import Path

from qfl_core.base.checks import integer, number
from qfl_core.base.errors import ConfigError
from qfl_core.base.options import option, path_option
from qfl_core.config import ExperimentConfig
from qfl_core.runs.command import add_experiment, experiment, flags_changes, print_run


def add_federate(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``federate``."""
    parser.description = "Start a SuperLink, and one SuperNode per client, on loopback with TLS and node keys."
    parser.add_argument("--insecure", action="store_true", help="no TLS and no node keys")
    parser.add_argument("--timeout", type=option(float), default=300, help="seconds for the answers of one phase")
    parser.add_argument("--min-clients", type=option(int), default=2, help="fewest valid answers for a round to count")
    add_experiment(parser, results="results/federation")
    parser.set_defaults(command=flags_changes(_federate))


def add_network(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``network`` and their options."""
    commands = parser.add_subparsers(required=True, metavar="command")
    certificates = commands.add_parser("certificates", help="make an authority and the server's certificate")
    certificates.add_argument(
        "hosts", nargs="+", type=option(str), help="names and addresses under which nodes reach the SuperLink"
    )
    key = commands.add_parser("node-key", help="make a node's key pair; its .pub goes to the SuperLink's owner")
    key.add_argument("name", type=option(str), help="file name of the private key")
    export = commands.add_parser("export", help="write every participant's folder from data that is in one place")
    export.add_argument("config", type=path_option, help="the experiment as YAML or JSON")
    for command, write in ((certificates, _certificates), (key, _node_key), (export, _export)):
        command.add_argument("--out", type=path_option, required=True, help="folder, outside the repository")
        command.set_defaults(command=_write_folder, write=write, interrupted="the folder may be incomplete")


def _federate(asked: argparse.Namespace) -> int:
    from qfl_core.network.launch import federate

    config = experiment(asked)
    result = federate(
        config,
        asked.results,
        insecure=asked.insecure,
        timeout=number(0, 365 * 24 * 3600, above=True)("timeout", asked.timeout),
        min_clients=integer(1, 100_000)("min_clients", asked.min_clients),
        repeat=asked.repeat,
    )
    print_run(result)
    return 0


def _write_folder(asked: argparse.Namespace) -> int:
    """Write what the command makes into ``--out``, and name the files; a refusal leaves no folder behind."""
    from qfl_core.base.errors import FederationError, RunError
    from qfl_core.base.files import new_folder
    from qfl_core.base.paths import repository_root

    root, folder = repository_root(), asked.out
    try:
        if root is not None and folder.resolve().is_relative_to(root):
            raise FederationError(f"--out {folder} is inside the repository: keys and data must not get into it")
        with new_folder(folder, mode=0o700):
            asked.write(asked)
        written = sorted(path.name for path in folder.iterdir())
    except RunError:
        raise
    except (OSError, RuntimeError) as error:  # Python tells loops of links, and paths without end, as RuntimeErrors
        raise FederationError(f"cannot write to {folder}: {getattr(error, 'strerror', None) or error}") from None
    print(f"written to {folder}: {', '.join(written)}")
    return 0


def _certificates(asked: argparse.Namespace) -> None:
    from qfl_core.network.credentials import make_certificates

    make_certificates(asked.out, tuple(asked.hosts))


def _node_key(asked: argparse.Namespace) -> None:
    from qfl_core.network.credentials import make_node_key

    make_node_key(asked.out, asked.name)


def _export(asked: argparse.Namespace) -> None:
    from qfl_core.network.site import export_sites

    export_sites(_read_config(asked.config), asked.out)


def _read_config(path: Path) -> ExperimentConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return ExperimentConfig.from_json(text) if path.suffix == ".json" else ExperimentConfig.from_yaml(text)
