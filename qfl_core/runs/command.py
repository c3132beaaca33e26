"""The commands ``run``, ``list`` and ``show``, and the options of an experiment, which ``federate`` uses too."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from qfl_core.base.errors import ChangedResults, ConfigError, RunError
from qfl_core.base.options import option, path_option, setting_types
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig, load_profile

if TYPE_CHECKING:
    from qfl_core.runs import RunResult

Command = Callable[[argparse.Namespace], int]
_FILTERS = ("method", "dataset", "encoding", "split")


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    add_experiment(parser, results="results")
    _add_plugin(parser)
    parser.set_defaults(command=flags_changes(_run))


def add_list(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``list``."""
    for name in _FILTERS:
        parser.add_argument(f"--{name}", type=option(str), help=f"only runs of this {name}")
    _add_results(parser, "results")
    _add_plugin(parser)
    parser.set_defaults(command=flags_changes(_list), interrupted="nothing was changed")


def add_show(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``show``."""
    parser.add_argument("run", type=option(str), help="a run's folder name, as `list` prints it, or its beginning")
    _add_results(parser, "results")
    _add_plugin(parser)
    parser.set_defaults(command=flags_changes(_show), interrupted="nothing was changed")


def add_experiment(parser: argparse.ArgumentParser, results: str) -> None:
    """Add the options that describe one experiment: every config field, the profile and the results folder."""
    parser.description = f"{parser.description} Every config field is an option."
    parser.epilog = (
        f"Example: {parser.prog} --dataset genome --method fedprox-qfl --seed 3 --mu 0.1. "
        "With --profile smoke a run takes a second and means little."
    )
    told = "whose settings hold for every option that is not given: paper (default), quick or smoke"
    parser.add_argument("--profile", type=option(str), default="paper", help=told)
    parser.add_argument("--repeat", action="store_true", help="run again although a finished run exists")
    _add_results(parser, results)
    kinds = setting_types(ExperimentConfig)
    for name, doc in ExperimentConfig.describe().items():
        # Suppressed, because None is a value of some fields.
        flag, told = f"--{name.replace('_', '-')}", doc.replace("%", "%%")
        parser.add_argument(flag, type=option(kinds[name]), metavar="X", default=argparse.SUPPRESS, help=told)
    parser.set_defaults(interrupted="the same command continues after the last complete round")


def experiment(asked: argparse.Namespace) -> ExperimentConfig:
    """Return the config that the options of :func:`add_experiment` describe."""
    given = {name: value for name, value in vars(asked).items() if name in ExperimentConfig.describe()}
    return load_profile(asked.profile).config(given.pop("dataset", "baf"), **given)


def print_run(run: RunResult) -> None:
    """Print a run's rounds, where its numbers come from and where its files are."""
    data, engine = run.environment["data"], run.environment["engine"]
    lines = _rounds(run)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))
    own = ", splits handed in" if "splits_sha256" in data else ""
    print(f"data: {data['source']} ({data['name']}{own})  engine: {engine['engine']}, {engine['kind']}")
    print(f"files: {run.path}{_flag(run)}")


def _rounds(run: RunResult) -> list[list[str]]:
    """Return the cells that :func:`print_run` shows: the names of the columns, then one line per round."""
    losses = {row["round"]: row["val_loss"] for row in run.rows("validation")}
    metrics = {row["round"]: row for row in run.rows("classification_metrics") if row["part"] == "test"}
    columns = ("global_accuracy", "client_test_accuracy", "train_test_gap", "fairness_gap")
    spent = {row["round"]: row["epsilon"] for row in run.rows("privacy")} if run.config.dp_noise is not None else {}
    lines = [["round", *columns, "test_roc_auc", "val_loss", *(["epsilon"] if spent else [])]]
    for row in run.rows("global_accuracies"):
        if (t := row["round"]) in losses and t in metrics:
            numbers = [*(row[name] for name in columns), metrics[t]["roc_auc"], losses[t]]
            numbers += [spent.get(t, 0.0)] if spent else []
            lines.append([str(t), *("NaN" if number != number else f"{number:.4f}" for number in numbers)])
    if len(lines) == 1:
        raise RunError(f"the tables of run {run.path.name} have no round in common")
    return lines


def flags_changes(command: Command) -> Command:
    """Silence the warning of changed files during a command, because the command prints it beside each run."""

    def quiet(asked: argparse.Namespace) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChangedResults)
            return command(asked)

    return quiet


def _run(asked: argparse.Namespace) -> int:
    from qfl_core.runs import run_experiment
    from qfl_core.runs.plugin_file import own_errors_in_a_line

    _load_plugins(asked)
    config = experiment(asked)
    print(f"settings: profile {asked.profile}, where no option says otherwise")
    with own_errors_in_a_line():
        run = run_experiment(config, asked.results, repeat=asked.repeat, progress=sys.stderr.isatty())
    print_run(run)
    return 0


def _list(asked: argparse.Namespace) -> int:
    _load_plugins(asked)
    wanted = {name: value for name in _FILTERS if (value := getattr(asked, name)) is not None}
    for name, value in wanted.items():
        ExperimentConfig.checked(name, value)
    shown, found = False, _finished(asked.results)
    for folder, runs in found.items():
        told = [(run, _facts(run)) for run in runs]
        matching = [(run, facts) for run, facts in told if all(facts[name] == wanted[name] for name in wanted)]
        if matching:
            print(f"{folder}:")
        for run, facts in matching:
            shown = True
            print(_line(run, facts))
    told_runs = {run.path for runs in found.values() for run in runs}
    for path in _closed(asked.results):
        if path not in told_runs:
            print(f"{path} CANNOT BE READ, so its runs are not listed")
    if not shown:
        print(f"no finished run in {asked.results}")
    return 0


def _line(run: RunResult, facts: dict[str, str]) -> str:
    """Return what ``list`` prints about a run."""
    return (
        f"{run.path.name}  {facts['method']:<12} {facts['dataset']}-{facts['encoding']:<17} "
        f"{facts['split']:<10} seed {facts['seed']:<3} {facts['source']:<9} accuracy {facts['accuracy']}"
        f"{facts['note']}{_flag(run)}"
    )


def _facts(run: RunResult) -> dict[str, str]:
    """Return what ``list`` tells of a run.

    Where config.json cannot be read, the names of the folders tell what they can. Everything else that cannot be read
    is ``"unknown"``.
    """
    method, data, split, seed = run.path.parts[-5:-1]
    dataset = max((name for name in DATASETS if data.startswith(f"{name}-")), key=len, default="unknown")
    facts = {
        "method": method,
        "dataset": dataset,
        "encoding": data.removeprefix(f"{dataset}-"),
        "split": split,
        "seed": seed.removeprefix("seed-"),
        "source": "unknown",
        "accuracy": "unknown",
        "note": "",
    }
    with suppress(RunError):
        facts |= {name: str(getattr(run.config, name)) for name in (*_FILTERS, "seed")}
    with suppress(RunError):
        facts["source"] = run.environment["data"]["source"]
        facts["note"] = "  splits handed in" if "splits_sha256" in run.environment["data"] else ""
    with suppress(RunError):
        facts["accuracy"] = f"{run.rows('global_accuracies')[-1]['global_accuracy']:.3f}"
    return facts


def _finished(results: Path) -> dict[Path, list[RunResult]]:
    """Return the finished runs by folder: the results folder, and those below that hold runs, such as a profile's."""
    from qfl_core.runs import find_runs

    kept = results.rglob("seed-*/*")
    folders = sorted({path.parents[4] for path in kept if len(path.relative_to(results).parts) > 4})
    return {folder: find_runs(folder) for folder in folders}


def _closed(results: Path) -> list[Path]:
    """Return the folders that this user may not look into."""
    errors: list[OSError] = []
    for _ in os.walk(results, onerror=errors.append):
        pass
    return sorted(Path(error.filename) for error in errors if isinstance(error, PermissionError))


def _show(asked: argparse.Namespace) -> int:
    from qfl_core.runs.folder import RunFolder

    _load_plugins(asked)
    runs = [run for some in _finished(asked.results).values() for run in some]
    matching = [run for run in runs if run.path.name.startswith(asked.run)]
    if len(matching) != 1:
        raise ConfigError(f"{len(matching)} finished runs in {asked.results} begin with {asked.run!r}; one is needed")
    (run,) = matching
    told = {"config": run.config.to_dict(), "origin": run.environment}
    print_run(run)
    with RunFolder(run.path).reading("environment.json"):  # which may hold lists in lists in lists, and so on
        text = yaml.safe_dump(told, sort_keys=False)
    print(text)
    if run.changes:
        raise RunError(f"run {run.path.name}: {', '.join(run.changes)} changed since the run was sealed")
    return 0


def _add_results(parser: argparse.ArgumentParser, folder: str) -> None:
    parser.add_argument("--results", type=path_option, default=Path(folder), help=f"results folder (default: {folder})")


def _add_plugin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plugin",
        action="append",
        type=option(str),
        default=[],
        metavar="FILE",
        help="load a Python file that registers methods, datasets, losses or circuits of your own; may be repeated",
    )


def _load_plugins(asked: argparse.Namespace) -> None:
    from qfl_core.runs.plugin_file import load_plugin_file

    for path in asked.plugin:
        load_plugin_file(path)


def _flag(run: RunResult) -> str:
    from qfl_core.runs.folder import RunFolder

    if RunFolder(run.path).is_closed:
        return "  CANNOT BE READ"
    return f"  CHANGED since the run was sealed: {', '.join(run.changes)}" if run.changes else ""
