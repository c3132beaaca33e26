"""What a round over Flower nodes costs beside the same round in one process, in seconds of processor time (Linux)."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from qfl_core.config import ExperimentConfig
from qfl_core.network.launch import federate
from qfl_core.runs import run_experiment


class FederationCost(NamedTuple):
    """CPU seconds per round over nodes with TLS and in one process, and wall seconds from start to end.

    The first round is left out, because the nodes prepare their data in it.
    """

    clients: int
    rounds: int
    network: float
    in_process: float
    wall: float

    @property
    def ratio(self) -> float:
        """How many times the round in one process the round over nodes costs."""
        return self.network / self.in_process


def federation_config(clients: int, rounds: int, masked: bool = False) -> ExperimentConfig:
    """Return the settings of ``make federate CLIENTS=... ROUNDS=...`` on the stand-in."""
    config = ExperimentConfig(dataset="baf", source="stand-in", clients=clients, rounds=rounds)
    return config.replace(uploads="masked", outer_period=0) if masked else config


def measure_federation(clients: int = 5, rounds: int = 6, masked: bool = False) -> FederationCost:
    """Run the same rounds over nodes and in one process; at least three rounds, because the first does not count."""
    config, marks = federation_config(clients, max(rounds, 3), masked), []
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        federate(config, Path(folder) / "network", say=lambda line: marks.append((line, descendants_cpu())))
        wall = time.perf_counter() - begun
        told = [cpu for line, cpu in marks if line.startswith("round")]  # one per round, the initial weights first
        network = (told[-1] - told[1]) / (len(told) - 2)
        run_experiment(config.replace(seed=1), Path(folder) / "warm")
        begun = time.process_time()
        run_experiment(config, Path(folder) / "here")
        in_process = (time.process_time() - begun) / config.rounds
    return FederationCost(clients, config.rounds, network, in_process, wall)


def descendants_cpu(ancestor: int | None = None) -> float:
    """Return the CPU seconds that the running processes below a process, by default this one, have spent."""
    parents, spent = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        spent[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for process, seconds in spent.items() if _is_below(process, ancestor or os.getpid(), parents))


def _is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while (process := parents.get(process, 0)) > 1:
        if process == ancestor:
            return True
    return False


def main(arguments: list[str] | None = None) -> None:
    """Measure federations of the given numbers of clients and print one line for each."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.federation", description=__doc__)
    parser.add_argument("clients", type=int, nargs="*", default=[5, 10], help="numbers of clients (5 10)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--masked", action="store_true", help="secure aggregation, without outer updates")
    options = parser.parse_args(arguments)
    for clients in options.clients:
        found = measure_federation(clients, options.rounds, options.masked)
        print(
            f"{found.clients} nodes, {found.rounds} rounds: {found.network:.2f} CPU s per round over nodes, "
            f"{found.in_process:.3f} in one process ({found.ratio:.0f} times), {found.wall:.0f} s from start to end",
            flush=True,
        )


if __name__ == "__main__":
    main()
