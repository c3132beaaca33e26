"""The command ``hardware``: plan, run, look at, retry and replay a validation on a backend."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from qfl_core.base.errors import ConfigError
from qfl_core.base.options import option, path_option, read_pair
from qfl_core.base.paths import figures_dir, results_dir
from qfl_core.config import load_profile

if TYPE_CHECKING:
    from qfl_core.hardware.pipeline import Validation
    from qfl_core.hardware.store import Folder


def add_hardware(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``hardware`` and their options."""
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser("run", help="run the four curves, or fetch what already ran, and draw the figures")
    dry = commands.add_parser("dry-run", help="do everything but submit: circuits, shots, estimated QPU seconds")
    retry = commands.add_parser("retry", help="as run, and submit failed and cancelled jobs again")
    for command in (run, dry, retry):
        command.add_argument(
            "--backend", type=option(str), help="fake_... or a device of the account (default: the profile's)"
        )
        command.add_argument(
            "--dataset", type=option(str), default="genome", help="baf, genome or a clean track (default: genome)"
        )
        command.add_argument("--seed", type=option(int), default=0, help="whose checkpoints")
        command.add_argument("--max-seconds", type=option(float), help="refuse past these estimated QPU seconds")
        command.add_argument("--yes", action="store_true", help="submit although the estimate passes the limit")
        command.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other hardware settings")
        command.add_argument("--dry-run", action="store_true", help="submit nothing")
    run.set_defaults(command=_run, retry=False)
    retry.set_defaults(command=_run, retry=True)
    dry.set_defaults(command=_run, retry=False, dry_run=True)
    status = commands.add_parser("status", help="show the ledger of a validation")
    status.set_defaults(command=_status)
    replay = commands.add_parser("replay", help="draw the figures from saved counts: no account, no network")
    replay.set_defaults(command=_replay)
    for command in (status, replay):
        command.add_argument(
            "name", nargs="?", default="", help="a validation's name or its beginning (default: the last)"
        )
    for command in (run, dry, retry, status, replay):
        told = "smoke, quick or paper (default: paper)"
        command.add_argument("--profile", type=option(str), default="paper", help=told)
        command.add_argument("--results", type=path_option, help="results folder (default: results/<profile>)")
        command.add_argument("--figures", type=path_option, help="figures folder (default: the profile's)")
        command.set_defaults(interrupted="jobs go on, and the same command fetches them")


def _run(asked: argparse.Namespace) -> int:
    from qfl_core.hardware import HardwareConfig, dry_run, validate
    from qfl_core.hardware.pipeline import open_backend
    from qfl_core.runs.study import get_study

    settings = load_profile(asked.profile)
    given = dict(read_pair(HardwareConfig, text) for text in asked.set)
    given |= {k: v for k, v in (("backend", asked.backend), ("max_seconds", asked.max_seconds)) if v is not None}
    config = HardwareConfig.from_dict(settings.section("hardware", given))
    folder = asked.results or results_dir(asked.profile)
    # Before any training: a missing account or a misspelt backend is told at once.
    service = None if asked.dry_run else open_backend(config)[1]
    study = get_study(settings, asked.dataset, config.methods, [asked.seed], folder)
    if asked.dry_run:
        print(dry_run(study, config))
        return 0
    found = validate(study, config, service=service, retry=asked.retry, confirmed=asked.yes)
    return _show(found, asked)


def _status(asked: argparse.Namespace) -> int:
    folder = _folder(asked)
    print(folder.path.name)
    for record in folder.ledger.jobs().values():
        facts = record.facts
        print(
            f"  {record.key:<20} attempt {record.attempt}  {record.state:<10} kind {facts.get('kind', 'none yet'):<9} "
            f"{facts.get('job_id', '')}  {facts.get('reason', '')}".rstrip()
        )
    return 0


def _replay(asked: argparse.Namespace) -> int:
    from qfl_core.hardware import replay

    return _show(replay(_folder(asked)), asked)


def _folder(asked: argparse.Namespace) -> Folder:
    from qfl_core.hardware.store import folders

    load_profile(asked.profile)  # a name that no profile has is refused before any folder is looked for
    root = asked.results or results_dir(asked.profile)
    known = [folder for folder in folders(root) if folder.path.name.startswith(asked.name)]
    if not known:
        names = ", ".join(folder.path.name for folder in folders(root)) or "none"
        raise ConfigError(f"no validation begins with {asked.name!r}; there are: {names}")
    return known[-1]


def _show(validation: Validation, asked: argparse.Namespace) -> int:
    import matplotlib

    matplotlib.use("Agg")
    from qfl_core.figures import apply_style
    from qfl_core.figures import hardware as figures

    apply_style()
    folder = asked.figures or figures_dir(asked.profile)
    figures.real_ibm_validation(validation).save(folder, panels=True)
    figures.ibm_workload_evidence(validation).save(folder)
    print(validation.table().to_string(index=False))
    print(validation.workload.to_string(index=False))
    kinds = set(validation.workload["kind"])
    print("every job ran on a quantum computer" if kinds == {"hardware"} else f"kinds of the jobs: {', '.join(kinds)}")
    return 0
