"""What is compared: ways to come to the rates of SPSA, from several starts, on several tasks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qfl_core.base.errors import ConfigError
from qfl_core.base.numbers import significant
from qfl_core.config import Profile, track_dataset

CONSTANT = "constant 0.13"
TUNED = "tuned constant"
CALIBRATED = "calibrated SPSA"
PAPER = "paper's reading"
RAW = "paper's plain reading"
ONLINE = "learnt online"
OFFLINE = "learnt offline"
BOTH = "offline, then online"
FROZEN = "frozen at the start"
#: One pair of rates of the grid; together they make :data:`TUNED`.
GRID = "grid"
#: What tables and figures show, in this order.
METHODS = (CONSTANT, TUNED, CALIBRATED, FROZEN, PAPER, RAW, ONLINE, OFFLINE, BOTH)
#: The controllers that the goal is asked of.
JUDGED = (ONLINE, OFFLINE, BOTH)
#: What needs no tuning, and must therefore not beat them.
UNTUNED = (CONSTANT, CALIBRATED, PAPER, RAW, ONLINE, OFFLINE, BOTH)
#: Where the paper starts.
PAPER_START = (0.13, 0.13)
#: BAF has one fraud in ninety rows, so that accuracy says little there.
SCORES = {"baf": "roc_auc"}
#: The suffix of a task on the noisy engine.
NOISY = ", noisy"

_PROX = {"method": "duqfl-prox"}
_READING = {"outer_period": 1, "outer_learning_rate": 3.0, "controller_features": "standardised"}
_PLAIN = {"outer_period": 5, "outer_learning_rate": 1.0, "controller_features": "raw"}
_NORMALISED = {
    **{"outer_optimizer": "normalised", "outer_period": 1},
    **{"outer_perturbation": 0.5, "outer_learning_rate": 2.0},
}
#: From good rates, long steps lead away: the first one changes a rate by a quarter of a log rate at most.
_REFINED = {**_NORMALISED, "outer_learning_rate": 0.25}
_PRETRAINED = {"controller": "pretrained", "controller_features": "standardised"}

#: A learning rate eta and a perturbation delta.
Start = tuple[float, float]


@dataclass(frozen=True)
class Budget:
    """How long to train a probe: a generation tries ``population`` of them on ``tasks`` federations.

    It is small: a quarter of what one controller that comes with the package was trained with.
    """

    generations: int = 15
    population: int = 12
    tasks: int = 12
    rounds: int = 8
    seed: int = 1


SMALL = Budget()


def start_name(start: Start) -> str:
    """Return the name of a start: ``0.13`` where both rates are equal, else ``0.02 / 1`` for eta and delta."""
    eta, delta = (significant(rate) for rate in start)
    return eta if eta == delta else f"{eta} / {delta}"


@dataclass(frozen=True)
class Arm:
    """One way to come to the rates, from one start; ``start`` is empty where the start plays no role."""

    method: str
    start: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A track with its seeds: where its runs begin, the ``grid`` of constants, and the settings that they change."""

    name: str
    track: str
    seeds: tuple[int, ...]
    starts: tuple[Start, ...]
    paper_starts: tuple[Start, ...]
    grid: tuple[Start, ...]
    settings: Mapping[str, Any]

    @property
    def score(self) -> str:
        """The column of the classification metrics that counts: ``accuracy``, or ``roc_auc``."""
        return SCORES.get(track_dataset(self.track), "accuracy")

    @property
    def noisy(self) -> bool:
        """Whether the noisy engine executes the circuits."""
        return self.name.endswith(NOISY)


@dataclass(frozen=True)
class Plan:
    """All tasks, the starts outside of the goal, and what is ablated and drawn.

    The goal is asked from the starts of a task that are not in ``outside``.
    """

    tasks: tuple[Task, ...]
    outside: tuple[str, ...]
    ablation_seeds: tuple[int, ...]
    rates_task: str
    rates_starts: tuple[str, ...]
    budget: Budget = SMALL

    @classmethod
    def of(cls, settings: Profile) -> Plan:
        """Read the section ``controllers`` of a profile."""
        section = settings.section("controllers", {})
        if not section:
            raise ConfigError(f"profile {settings.name!r} has no section controllers")
        common, starts, noisy = dict(section["settings"]), section["starts"], section["noisy"]
        goal, outside, paper = (_starts(starts[name]) for name in ("goal", "outside", "paper"))
        seeds, grid = tuple(section["seeds"]), _grid(section["grid"])
        tasks = [Task(track, track, seeds, (*goal, *outside), paper, grid, common) for track in section["tracks"]]
        few, seeds, grid = _starts(noisy["starts"]), tuple(noisy["seeds"]), _grid(noisy["grid"])
        for track in noisy["tracks"]:
            own = {**common, "engine": "density"}
            tasks.append(Task(track + NOISY, track, seeds, few, (PAPER_START,), grid, own))
        return cls(
            tuple(tasks),
            tuple(map(start_name, outside)),
            tuple(section["ablation_seeds"]),
            str(section["rates"]["track"]),
            tuple(map(start_name, _starts(section["rates"]["starts"]))),
            Budget(**section.get("network") or {}),
        )

    def arms(self, task: Task) -> list[Arm]:
        """Return everything that runs on a task."""
        found = [Arm(CONSTANT, "", _frozen(PAPER_START)), Arm(OFFLINE, "", {**_PROX, **_PRETRAINED, "outer_period": 0})]
        found.append(Arm(BOTH, "", {**_PROX, **_REFINED, **_PRETRAINED}))
        found.append(Arm(CALIBRATED, "", {"method": "default-qfl", "default_spsa": "calibrated"}))
        found += [Arm(GRID, start_name(rates), _frozen(rates)) for rates in task.grid]
        found += [Arm(FROZEN, start_name(start), _frozen(start)) for start in task.starts]
        found += [Arm(PAPER, start_name(start), {**_at(start), **_READING}) for start in task.paper_starts]
        if not task.noisy:
            found.append(Arm(RAW, start_name(PAPER_START), {**_at(PAPER_START), **_PLAIN}))
        found += [Arm(ONLINE, start_name(start), {**_at(start), **_NORMALISED}) for start in task.starts]
        return found

    def goal_starts(self, task: Task) -> list[str]:
        """Return the names of the starts from which the goal is asked."""
        return [name for name in map(start_name, task.starts) if name not in self.outside]


def _grid(rates: Mapping[str, Sequence[float]]) -> tuple[Start, ...]:
    """Return every pair of a listed eta and a listed delta."""
    return tuple(itertools.product(map(float, rates["eta"]), map(float, rates["delta"])))


def _starts(listed: Sequence[Sequence[float]]) -> tuple[Start, ...]:
    return tuple((float(eta), float(delta)) for eta, delta in listed)


def _at(start: Start) -> dict[str, Any]:
    return {**_PROX, "learning_rate": start[0], "perturbation": start[1]}


def _frozen(start: Start) -> dict[str, Any]:
    return {**_at(start), "outer_period": 0}
