"""The untrained model: what the initial weights score on the same clients and data, measured in the same way.

A study that holds runs of the method ``untrained`` has this reference: its tables get a row for it, its figures a line.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from qfl_core.base.errors import RunError
from qfl_core.base.numbers import rounded
from qfl_core.runs.study import Study

UNTRAINED = "untrained"
#: What a figure's footer says of the line.
LEVEL_FACT = "untrained: mean over seeds and rounds"
#: The same, where the line comes from round 0 of trained runs.
START_FACT = "untrained: round 0 of the same runs, mean over seeds"


def untrained_rounds(study: Study) -> pd.DataFrame:
    """Return the rounds of the study's untrained runs, with the columns that every method has.

    The weights are the initial ones in all rounds. Shots and the clients' chunks differ from round to round, so the
    numbers of a run vary a little; their mean over rounds is the steadiest estimate.

    Raises
    ------
    RunError
        When the study has no untrained run.
    """
    mine = study.of(UNTRAINED)
    if not mine.runs:
        listed = ", ".join(study.methods)
        raise RunError(f"track {study.track!r} has no run of method {UNTRAINED!r}; its methods are {listed}")
    return mine.rounds


def level(table: pd.DataFrame, metric: str) -> float:
    """Return the untrained model's mean of a metric over seeds and rounds; NaN where the table has no such row."""
    return float(table.loc[table["method"] == UNTRAINED, metric].mean())


def start_level(rounds: pd.DataFrame, metric: str) -> float:
    """Return the mean of a global model's metric in round 0 of runs of any method: that of their initial weights."""
    return float(rounds.loc[rounds["round"] == 0, metric].mean())


def common_start(studies: Iterable[Study], metric: str) -> float:
    """Return :func:`start_level` over all runs of several studies of one track, without the digits of a machine."""
    return rounded(start_level(pd.concat([study.rounds for study in studies]), metric), 9)


def level_facts(study: Study) -> tuple[str, ...]:
    """Return the footer of a figure that draws the study's untrained model as a line."""
    return (*study.facts, LEVEL_FACT) if UNTRAINED in study.methods else study.facts
