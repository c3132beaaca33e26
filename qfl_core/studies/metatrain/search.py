"""The search for phi: an evolution strategy (CMA-ES) that sees only ranks, because losses of different tasks differ."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qfl_core.algorithm.controller import FEATURES, initial_phi
from qfl_core.base.progress import bar
from qfl_core.base.source_code import package_digest
from qfl_core.base.streams import stream
from qfl_core.config import load_profile
from qfl_core.runs.identity import code_digest
from qfl_core.runs.journal import Journal
from qfl_core.studies.metatrain.tasks import Family, Task, tasks_of

#: Losses (tasks, controllers) of controllers (2, 7) on tasks.
Evaluate = Callable[[Sequence[Task], Sequence[np.ndarray]], list[list[float]]]
#: Losses (tasks, points) of the points of the generation with this number.
Judge = Callable[[int, Sequence[np.ndarray]], list[list[float]]]
#: How far the first generation spreads: the constants by 1, in units of log rate, and the other entries by 0.3.
CONSTANT_SPREAD, FEATURE_SPREAD = 1.0, 0.3
#: What decides a search beside the code that trains.
SEARCH_CODE = ("studies/metatrain",)
#: Decimals of the controllers that are judged. The library's linear algebra differs between processors in the last
#: digits of a number; cut to so few decimals, all processors judge the same controllers and end in the same file.
JUDGED_DECIMALS = 6


def search_origin(
    decides: Mapping[str, object], families: Sequence[Family], profile: str, rounds: int, *code: str
) -> str:
    """Return a digest of what decides a search, so that a journal of another one is not continued.

    That is ``decides``, the settings of every family's federations, the library, the code that trains and the code that
    searches: :data:`SEARCH_CODE` and ``code``, files or folders of the package.
    """
    settings = load_profile(profile)
    configs = [task.config(settings, rounds).digest for task in tasks_of(families, 0, 0, len(families))]
    library = f"cma {importlib.metadata.version('cma')}"
    parts = [dict(decides), configs, library, code_digest(), package_digest((*SEARCH_CODE, *code))]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """How long to search.

    Every generation tries ``population`` controllers on ``tasks`` federations of ``rounds`` rounds that no other
    generation uses. The search starts at the paper's rates.
    """

    generations: int = 40
    population: int = 12
    tasks: int = 18
    rounds: int = 8
    seed: int = 0
    learning_rate: float = 0.13
    perturbation: float = 0.13


def search(families: Sequence[Family], plan: Plan, evaluate: Evaluate, journal: Journal) -> np.ndarray:
    """Return phi (2, 7), the centre of the last generation; see :func:`evolved`."""
    begin = initial_phi(plan.learning_rate, plan.perturbation)

    def judge(generation: int, points: Sequence[np.ndarray]) -> list[list[float]]:
        tasks = tasks_of(families, plan.seed, generation, plan.tasks)
        return evaluate(tasks, [np.reshape(point, begin.shape) for point in points])

    stds = np.tile([CONSTANT_SPREAD, *[FEATURE_SPREAD] * (len(FEATURES) - 1)], 2)
    options = {"popsize": plan.population, "CMA_stds": stds}
    rng = stream(plan.seed, "metatrain-search")
    return evolved(begin.ravel(), 1.0, options, plan.generations, judge, journal, rng).reshape(begin.shape)


def evolved(
    begin: np.ndarray,
    spread: float,
    options: dict[str, Any],
    generations: int,
    judge: Judge,
    journal: Journal,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the centre (n,) of the last generation of an evolution search (CMA-ES) that sees mean ranks over tasks.

    The journal keeps the losses of every generation. A search that was interrupted asks for the same points again,
    reads the losses that it knows, and ends in the same numbers.

    Parameters
    ----------
    begin, spread : centre (n,) and standard deviation of the first generation.
    options : more options of the library's search.
    judge : returns the losses (tasks, points) of a generation's points.
    """
    import cma  # here, because only these searches need it

    fixed = {
        "randn": lambda *shape: rng.standard_normal(shape),
        "seed": np.nan,  # the global generator of NumPy stays as it is
        "verbose": -9,
        "tolfun": 0,
        "tolfunhist": 0,
        "tolx": 0,
    }
    strategy = cma.CMAEvolutionStrategy(begin, spread, options | fixed)
    known = journal.records()
    with bar(generations, "generation", desc=journal.path.stem) as shown:
        for generation in range(generations):
            points = strategy.ask()
            if generation < len(known):
                losses = known[generation]["losses"]
            else:
                losses = judge(generation, [np.round(point, JUDGED_DECIMALS) for point in points])
                journal.append({"state": {"done": generation}, "losses": losses})
            strategy.tell(points, list(mean_ranks(np.array(losses))))
            shown.update()
    found: np.ndarray = strategy.result.xfavorite
    return found


def mean_ranks(losses: np.ndarray) -> np.ndarray:
    """Return the mean rank (controllers,) over tasks of losses (tasks, controllers); 0 is the best, ties share."""
    from scipy.stats import rankdata

    ranks: np.ndarray = rankdata(losses, axis=1).mean(axis=0) - 1
    return ranks
