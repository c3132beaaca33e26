"""``python -m qfl_core.network``: certificates, node keys and participants' folders for a federation of machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from qfl_core.base.errors import ConfigError, DataError, FederationError, RunError
from qfl_core.base.paths import repository_root
from qfl_core.config import ExperimentConfig
from qfl_core.network.credentials import make_certificates, make_node_key
from qfl_core.network.site import export_sites


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m qfl_core.network", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    certificates = commands.add_parser("certificates", help="make an authority and the server's certificate")
    certificates.add_argument("hosts", nargs="+", help="names and addresses under which nodes reach the SuperLink")
    certificates.set_defaults(command=lambda asked: make_certificates(asked.out, tuple(asked.hosts)))
    key = commands.add_parser("node-key", help="make a node's key pair; its .pub goes to the SuperLink's owner")
    key.add_argument("name", help="file name of the private key")
    key.set_defaults(command=lambda asked: make_node_key(asked.out, asked.name))
    export = commands.add_parser("export", help="write every participant's folder from data that is in one place")
    export.add_argument("config", type=Path, help="the experiment as YAML or JSON")
    export.set_defaults(command=_export)
    for command in (certificates, key, export):
        command.add_argument("--out", type=Path, required=True, help="folder, outside the repository")
    asked = parser.parse_args(arguments)
    try:
        _make_folder(asked.out)
        asked.command(asked)
    except (ConfigError, DataError, RunError, OSError) as error:
        print(f"qfl_core.network: {error}", file=sys.stderr)
        return 1
    print(f"written to {asked.out}: {', '.join(sorted(path.name for path in asked.out.iterdir()))}")
    return 0


def _make_folder(folder: Path) -> None:
    root = repository_root()
    if root is not None and folder.resolve().is_relative_to(root):
        raise FederationError(f"--out {folder} is inside the repository: keys and data must not get into it")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _export(asked: argparse.Namespace) -> None:
    text = asked.config.read_text(encoding="utf-8")
    read = ExperimentConfig.from_json if asked.config.suffix == ".json" else ExperimentConfig.from_yaml
    export_sites(read(text), asked.out)


if __name__ == "__main__":
    sys.exit(main())
