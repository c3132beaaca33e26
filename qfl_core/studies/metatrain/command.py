"""The command ``metatrain``: train the controller over many federations and write the file that configs start from."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from qfl_core.algorithm.controller import FEATURES, initial_phi
from qfl_core.base.checks import integer
from qfl_core.base.files import write_text
from qfl_core.base.options import option, path_option
from qfl_core.base.paths import results_dir
from qfl_core.base.processes import in_processes
from qfl_core.config import load_profile
from qfl_core.extras import pretrained
from qfl_core.runs.journal import Journal
from qfl_core.studies.metatrain.curve import curve_means
from qfl_core.studies.metatrain.search import Evaluate, Plan, search, search_origin
from qfl_core.studies.metatrain.tasks import FAMILIES, Family, Task, tasks_of

#: Decimals of phi in the file: a thousandth of a log rate is a tenth of a percent of a rate.
DECIMALS = 3
#: Decimals of the losses in the file.
LOSS_DECIMALS = 6


def add_metatrain(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``metatrain``."""
    parser.add_argument("--profile", type=option(str), default="paper", help="whose tracks to train on; default: paper")
    parser.add_argument("--generations", type=option(int), default=Plan.generations, help="length of each search")
    parser.add_argument("--jobs", type=option(int), default=-1, help="processes (default: one per core)")
    parser.add_argument("--out", type=path_option, help="the file to write (default: the package's own)")
    parser.set_defaults(command=_metatrain, interrupted="the same command goes on")


def _metatrain(asked: argparse.Namespace) -> int:
    load_profile(asked.profile)  # an unknown name is refused here
    plan = Plan(generations=integer(1)("generations", asked.generations))
    if asked.jobs != -1:
        integer(1)("jobs", asked.jobs)
    out = asked.out or Path(pretrained.__file__).with_name(pretrained.FILE)
    folder = results_dir(asked.profile) / "metatrain"
    write_text(out, file_text(trained(plan, asked.profile, folder, asked.jobs), plan, asked.profile))
    print(f"controller: {out}")
    return 0


def trained(
    plan: Plan, profile: str, folder: Path, jobs: int = 1, families: Sequence[Family] = FAMILIES
) -> dict[str, np.ndarray]:
    """Return phi by name: trained on everything, and without each dataset of the package's tracks."""
    own = dict.fromkeys(family.data for family in families if family.track)
    parts = {pretrained.ALL: list(families)}
    parts |= {f"without {data}": [family for family in families if family.data != data] for data in own}
    found = {}
    for name, some in parts.items():
        origin = _origin(plan, profile, some)
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder / f"{name.replace(' ', '-')}-{origin[:12]}.jsonl", origin)
        journal.mend()
        found[name] = search(some, plan, evaluator(profile, plan.rounds, jobs), journal)
        print(f"{name}: eta {np.exp(found[name][0, 0]):.3f}, delta {np.exp(found[name][1, 0]):.3f}", flush=True)
    return found


def evaluator(profile: str, rounds: int, jobs: int) -> Evaluate:
    """Return the function that judges controllers on tasks, each task in a process of its own."""

    def evaluate(tasks: Sequence[Task], controllers: Sequence[np.ndarray]) -> list[list[float]]:
        return list(in_processes(curve_means, ((task, controllers, profile, rounds) for task in tasks), jobs))

    return evaluate


def starting_losses(plan: Plan, profile: str, families: Sequence[Family] = FAMILIES) -> dict[str, float]:
    """Return the loss of the rates that the search starts from, on the first federation of every family.

    The file keeps these numbers. Where today's package gives other ones, because a setting of a track or the training
    itself has changed, ``make metatrain`` would write another file: a test compares.
    """
    begin = [initial_phi(plan.learning_rate, plan.perturbation)]
    tasks = tasks_of(families, plan.seed, 0, len(families))
    losses = {task.family.name: curve_means(task, begin, profile, plan.rounds)[0] for task in tasks}
    return {name: round(loss, LOSS_DECIMALS) for name, loss in losses.items()}


def file_text(found: dict[str, np.ndarray], plan: Plan, profile: str, families: Sequence[Family] = FAMILIES) -> str:
    """Return the file: phi by name, what its columns and rows are, and where it comes from."""
    content: dict[str, Any] = {
        "phi": {name: np.round(phi, DECIMALS).tolist() for name, phi in found.items()},
        "rows": ["eta", "delta"],
        "columns": list(FEATURES),
        "provenance": {
            "command": "make metatrain",
            "profile": profile,
            "plan": asdict(plan),
            "families": {family.name: family.data for family in families},
            "starting_losses": starting_losses(plan, profile, families),
            "data": "stand-in and bundled",
            "optimiser": f"cma {importlib.metadata.version('cma')}",
        },
    }
    return json.dumps(content, indent=1) + "\n"


def _origin(plan: Plan, profile: str, families: Sequence[Family]) -> str:
    # The length may grow: a longer search begins with the generations of a shorter one.
    decides = {**asdict(plan), "generations": None, "profile": profile, "families": [f.name for f in families]}
    return search_origin(decides, families, profile, plan.rounds)
