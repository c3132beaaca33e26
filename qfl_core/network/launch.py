"""``make federate``: one experiment over nodes on this machine, every client with a folder and a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.methods import method_named
from qfl_core.base.errors import FederationError
from qfl_core.base.paths import repository_root
from qfl_core.config import ExperimentConfig
from qfl_core.network.deployment import Deployment
from qfl_core.network.nodes import DEPLOYMENT, require_no_memory
from qfl_core.network.site import export_client
from qfl_core.runs import RunResult, run_identity, run_parent
from qfl_core.runs.folder import RunFolder

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
    """Run an experiment over a SuperLink and one SuperNode a client on loopback; stop them all at the end.

    The results folder is the one of :func:`qfl_core.run_experiment`, and so are its numbers, to the bit. A run that
    was cut off is resumed from its last complete round.

    Parameters
    ----------
    insecure : without TLS and node keys.
    timeout : seconds that a phase of a round waits for answers.
    min_clients : fewest clients whose answers must be valid for a round to count.
    repeat : run again although a finished run exists.
    say : takes the progress, a line at a time; stderr by default.
    """
    require_no_memory(method_named(config.method))
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    app, federation, results = _app(), Federation.create(config), Path(results_dir).resolve()
    run = _Runs(config, federation, results)
    if run.finished() and not repeat:
        say(f"finished before: {run.finished()[-1]}")
        return RunResult(run.finished()[-1])
    before = set(run.finished())
    with _terminable(), Deployment(insecure=insecure, poll=max(0.25, config.clients / 20)) as deployment:
        say(f"SuperLink on {deployment.address}{'' if insecure else ', TLS'}")
        for i in range(config.clients):
            folder = deployment.folder / "data" / f"client-{i}"
            export_client(federation, i, folder)
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
        identifier = deployment.submit(bundle(app, deployment.folder / "app"), settings)
        _follow(deployment, identifier, run, before, say)
    return RunResult(run.finished()[-1])


class _Runs:
    """The folders of this run: the one that goes on, and the finished ones."""

    def __init__(self, config: ExperimentConfig, federation: Federation, results: Path):
        self.config = config
        self.parent = run_parent(config, results)
        self.mark = run_identity(config, federation.splits.provenance.sha256, DEPLOYMENT)[:8]

    def folders(self) -> list[Path]:
        return sorted(self.parent.glob(f"*-{self.mark}"))

    def finished(self) -> list[Path]:
        return [path for path in self.folders() if RunFolder(path).is_done]


def _follow(deployment: Deployment, identifier: str, run: _Runs, before: set[Path], say: Callable[[str], None]) -> None:
    """Tell every round as it is written, until the run is sealed, fails, or loses its SuperLink."""
    told, asked = -1, time.monotonic()
    while True:
        new = [path for path in run.folders() if path not in before]
        rounds = _rounds(new[-1]) if new else []
        for row in rounds[told + 1 :]:
            say(_line(row, run.config.rounds))
        told = max(told, len(rounds) - 1)
        if new and RunFolder(new[-1]).is_done and told == run.config.rounds:
            return
        if not deployment.is_alive():
            log = deployment.log("superlink")
            raise FederationError(f"the SuperLink stopped; the same command resumes the run:\n{log}")
        if time.monotonic() > asked + ASK_SECONDS:
            status, asked = deployment.status(identifier), time.monotonic()
            if status.is_over and status.state != "finished:completed":
                raise FederationError(f"the run ended as {status.state}: {status.details}")
        time.sleep(0.3)


def _rounds(path: Path) -> list[dict]:
    """Return what is known of every round, from the journal or, once the run is sealed, from its tables."""
    folder = RunFolder(path)
    if folder.is_done:
        rounds = folder.table("global_accuracies").merge(folder.table("validation"), on="round")
        rounds = rounds.merge(folder.table("timings"), on="round").to_dict("records")
        left_out = folder.table("exclusions").to_dict("records") if (path / "exclusions.csv").is_file() else []
        return [row | {"exclusions": [e for e in left_out if e["round"] == row["round"]]} for row in rounds]
    return [
        record["global_accuracies"][0]
        | record["validation"][0]
        | {"seconds": record["seconds"], "exclusions": record.get("exclusions", [])}
        for record in folder.records()
    ]


def _line(row: dict, rounds: int) -> str:
    line = f"round {row['round']:>2}/{rounds}  accuracy {row['global_accuracy']:.4f}  val loss {row['val_loss']:.4f}"
    if row["round"]:
        line += f"  clients {int(row['clients'])}  {row['seconds']:.1f} s"
    return line + "".join(f"\n  without client {e['client']}: {e['reason']}" for e in row["exclusions"])


def _app() -> Path:
    root = repository_root()
    if root is None or not (root / "pyproject.toml").is_file():
        raise FederationError("the Flower app is the repository's pyproject.toml; run this from a checkout")
    return root


def bundle(app: Path, folder: Path) -> Path:
    """Copy what Flower bundles: building from the repository itself would walk through all its files."""
    folder.mkdir()
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(app / name, folder / name)
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
