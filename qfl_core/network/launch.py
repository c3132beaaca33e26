"""``make federate``: one experiment over nodes on this machine, every client with a folder and a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qfl_core.base.errors import FederationError
from qfl_core.config import ExperimentConfig
from qfl_core.data import data_source, load_splits
from qfl_core.network.deployment import Deployment
from qfl_core.network.nodes import DEPLOYMENT, refuse_foreign
from qfl_core.network.site import export_client
from qfl_core.runs.experiment import Row
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.identity import run_identity
from qfl_core.runs.prepare import make_federation
from qfl_core.runs.results import RunResult
from qfl_core.runs.run import run_folders

ASK_SECONDS = 5.0


def federate(
    config: ExperimentConfig,
    results_dir: str | Path = "results/federation",
    *,
    insecure: bool = False,
    timeout: float = 300.0,
    min_clients: int = 2,
    repeat: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunResult:
    """Run an experiment over a SuperLink and one SuperNode per client on loopback; stop them all at the end.

    The results folder is the one of :func:`qfl_core.run_experiment`, and so are its numbers, to the bit. A run that
    was cut off is resumed from its last complete round.

    Parameters
    ----------
    insecure : without TLS and node keys.
    timeout : seconds that a phase of a round waits for answers.
    min_clients : fewest clients whose answers must be valid for a round to count.
    repeat : run again although a finished run exists.
    say : takes the progress, one line at a time; stderr by default.
    """
    refuse_foreign(config)
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    results = Path(results_dir).resolve()
    runs = _Runs(config, results, run_identity(config, data_source(config).sha256, DEPLOYMENT))
    before = runs.finished()
    if before and not repeat:
        say(f"finished before: {before[-1].path}")
        return RunResult(before[-1].path)
    splits = load_splits(config)
    federation = make_federation(config, splits)
    with _terminable(), Deployment(insecure=insecure) as deployment:
        say(f"SuperLink on {deployment.address}{'' if insecure else ', TLS'}")
        for i in range(config.clients):
            folder = deployment.folder / "data" / f"client-{i}"
            export_client(splits, federation, i, folder)
            node = {"partition-id": i, "num-partitions": config.clients, "data-dir": str(folder)}
            deployment.start_node(f"node-{i}", node)
        say(f"{config.clients} SuperNodes started{', without keys' if insecure else ', their keys on the list'}")
        settings = {
            "experiment": json.dumps(config.to_dict()),
            "results-dir": str(results),
            "timeout": float(timeout),
            "wait": 120.0,
            "min-clients": min_clients,
            "repeat": repeat,
        }
        identifier = deployment.submit(bundle(deployment.folder / "app"), settings)
        _follow(deployment, identifier, runs, before, say)
    return RunResult(runs.finished()[-1].path)


@dataclass(frozen=True)
class _Runs:
    """The folders of one run, the oldest first: the one that goes on, and the finished ones."""

    config: ExperimentConfig
    results: Path
    identity: str

    def folders(self) -> list[RunFolder]:
        return run_folders(self.config, self.results, self.identity)

    def finished(self) -> list[RunFolder]:
        done = [folder for folder in self.folders() if folder.is_done]
        return [folder for folder in done if not folder.is_of_another(self.identity)]


def _follow(
    deployment: Deployment, identifier: str, runs: _Runs, before: list[RunFolder], say: Callable[[str], None]
) -> None:
    """Tell every round as it is written, until the run is sealed, fails, or loses its SuperLink."""
    told, asked = -1, time.monotonic()
    while True:
        new = [folder for folder in runs.folders() if folder not in before]
        rounds = _rounds(new[-1]) if new else []
        for row in rounds[told + 1 :]:
            say(_line(row, runs.config.rounds))
        told = max(told, len(rounds) - 1)
        if new and new[-1].is_done and told == runs.config.rounds:
            return
        if not deployment.is_alive():
            log = deployment.log("superlink")
            raise FederationError(f"the SuperLink stopped; the same command resumes the run:\n{log}")
        if time.monotonic() > asked + ASK_SECONDS:
            status, asked = deployment.status(identifier), time.monotonic()
            if status.is_over and status.state != "finished:completed":
                raise FederationError(f"the run ended as {status.state}: {status.details}")
        time.sleep(0.3)


def _rounds(folder: RunFolder) -> list[Row]:
    """Return what is known of every round, from the journal or, once the run is sealed, from its tables."""
    if folder.is_done:
        tables = zip(*(folder.rows(name) for name in ("global_accuracies", "validation", "timings")), strict=True)
        further = {
            name: folder.rows(name) if (folder.path / f"{name}.csv").is_file() else []
            for name in ("exclusions", "privacy")
        }
        return [
            accuracies
            | validation
            | timing
            | {name: [row for row in rows if row["round"] == timing["round"]] for name, rows in further.items()}
            for accuracies, validation, timing in tables
        ]
    return [
        record["global_accuracies"][0]
        | record["validation"][0]
        | {"seconds": record["seconds"]}
        | {name: record.get(name, []) for name in ("exclusions", "privacy")}
        for record in folder.journal.records()
    ]


def _line(row: Row, rounds: int) -> str:
    line = f"round {row['round']:>2}/{rounds}  accuracy {row['global_accuracy']:.4f}  val loss {row['val_loss']:.4f}"
    if row["round"]:
        line += f"  clients {int(row['clients'])}  {row['seconds']:.1f} s"
    line += "".join(f"  epsilon {p['epsilon']:.2f}, at the server {p['epsilon_server']:.2f}" for p in row["privacy"])
    return line + "".join(f"\n  without client {int(e['client'])}: {e['reason']}" for e in row["exclusions"])


def bundle(folder: Path) -> Path:
    """Make the folder of the Flower app, which holds settings only: every node runs the package that it has."""
    folder.mkdir()
    shutil.copyfile(Path(__file__).with_name("app.toml"), folder / "pyproject.toml")
    return folder


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that processes are stopped."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
