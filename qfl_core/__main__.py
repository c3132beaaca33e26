"""``python -m qfl_core``: run an experiment here or over a network, list finished runs, show one."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import yaml

from qfl_core.base.errors import ChangedResults, ConfigError, RunError, exit_code
from qfl_core.config import ExperimentConfig, load_profile


def main(arguments: list[str] | None = None) -> int:
    """Read the command line; return 0, or 1 with the reason on stderr."""
    asked = _parser().parse_args(arguments)
    again = "the same command continues after the last complete round"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChangedResults)  # said beside the run
        return exit_code("qfl_core", lambda: asked.command(asked), again)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m qfl_core", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    run = commands.add_parser(
        "run", help="run (or resume) one experiment", description="Every config field is an option."
    )
    run.set_defaults(command=_run)
    federate = commands.add_parser(
        "federate",
        help="run (or resume) one experiment over Flower nodes on this machine",
        description="Start a SuperLink and a SuperNode a client on loopback, with TLS and node keys. "
        "Every config field is an option.",
    )
    federate.add_argument("--insecure", action="store_true", help="no TLS and no node keys")
    federate.add_argument("--timeout", type=float, default=300, help="seconds for the answers of one phase")
    federate.add_argument("--min-clients", type=int, default=2, help="fewest valid answers for a round to count")
    federate.set_defaults(command=_federate)
    for command in (run, federate):
        command.add_argument("--profile", help="start from a profile: smoke or paper")
        command.add_argument("--repeat", action="store_true", help="run again although a finished run exists")
        for name, doc in ExperimentConfig.describe().items():
            command.add_argument(f"--{name.replace('_', '-')}", metavar="X", help=doc.replace("%", "%%"))
    listing = commands.add_parser("list", help="list finished runs")
    for name in ("method", "dataset", "encoding", "split"):
        listing.add_argument(f"--{name}")
    listing.set_defaults(command=_list)
    show = commands.add_parser("show", help="show a run's rounds and origin")
    show.add_argument("run", help="a run's folder name, as `list` prints it, or its beginning")
    show.set_defaults(command=_show)
    for command, folder in (
        (run, "results"),
        (federate, "results/federation"),
        (listing, "results"),
        (show, "results"),
    ):
        command.add_argument("--results", default=folder, help=f"results folder (default: {folder})")
    return parser


def _run(asked: argparse.Namespace) -> int:
    from qfl_core.runs import run_experiment

    result = run_experiment(_config(asked), asked.results, repeat=asked.repeat, progress=sys.stderr.isatty())
    _print_rounds(result)
    return 0


def _federate(asked: argparse.Namespace) -> int:
    from qfl_core.network.launch import federate

    result = federate(
        _config(asked),
        asked.results,
        insecure=asked.insecure,
        timeout=asked.timeout,
        min_clients=asked.min_clients,
        repeat=asked.repeat,
    )
    _print_rounds(result)
    return 0


def _config(asked: argparse.Namespace) -> ExperimentConfig:
    given = {name: _value(name, getattr(asked, name)) for name in ExperimentConfig.describe()}
    given = {name: value for name, value in given.items() if value is not _NOT_GIVEN}
    if asked.profile:
        return load_profile(asked.profile).config(given.pop("dataset", "baf"), **given)
    return ExperimentConfig.from_dict(given)


_NOT_GIVEN = object()


def _value(name: str, text: str | None) -> Any:
    """Read an option as YAML does, numbers in scientific notation included."""
    if text is None:
        return _NOT_GIVEN
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--{name.replace('_', '-')} {text!r} cannot be read") from None
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _list(asked: argparse.Namespace) -> int:
    from qfl_core.runs import find_runs

    filters = {n: getattr(asked, n) for n in ("method", "dataset", "encoding", "split") if getattr(asked, n)}
    for run in find_runs(asked.results, **filters):
        config, last = run.config, run.rounds.iloc[-1]
        print(
            f"{run.path.name}  {config.method:<12} {config.dataset}-{config.encoding:<17} {config.split:<10} "
            f"seed {config.seed:<3} {run.environment['data']['source']:<9} accuracy {last['global_accuracy']:.3f}"
            f"{_flag(run)}"
        )
    return 0


def _show(asked: argparse.Namespace) -> int:
    from qfl_core.runs import find_runs

    matching = [run for run in find_runs(asked.results) if run.path.name.startswith(asked.run)]
    if len(matching) != 1:
        raise RunError(f"{len(matching)} finished runs in {asked.results} begin with {asked.run!r}; one is needed")
    _print_rounds(matching[0])
    print(yaml.safe_dump({"config": matching[0].config.to_dict(), "origin": matching[0].environment}, sort_keys=False))
    return 0


def _print_rounds(result: Any) -> None:
    columns = ["round", "global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap", "test_roc_auc"]
    data, engine = result.environment["data"], result.environment["engine"]
    print(result.rounds[[*columns, "val_loss"]].round(4).to_string(index=False))
    print(f"data: {data['source']} ({data['name']})  engine: {engine['engine']}, {engine['kind']}")
    print(f"files: {result.path}{_flag(result)}")


def _flag(run: Any) -> str:
    changed = run.changed_files()
    return f"  CHANGED since the run was sealed: {', '.join(changed)}" if changed else ""


if __name__ == "__main__":
    sys.exit(main())
