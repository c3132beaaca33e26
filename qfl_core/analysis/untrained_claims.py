"""Would an untrained model pass? The initial weights stand in DUQFL-Prox's place, and every part is judged again.

If the initial weights pass a claim, that claim says little about training. The untrained model's numbers are those of
round 0 of the same runs, repeated in every round: what shots would add from round to round is left out. What round 0
does not have (numbers of clients, such as the train-test gap) is taken, round by round, from the run of the method
``untrained`` with the same seed. Where there is no such run but clients share the test set, their test accuracy is the
global one and their fairness gap is 0, because all have the same model. What neither has (a trace) is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.evidence import RUN_TRACKS, Evidence, Numbers
from qfl_core.analysis.untrained import UNTRAINED
from qfl_core.base.errors import AnalysisError
from qfl_core.config import ExperimentConfig
from qfl_core.runs import RunResult

REPLACED = "duqfl-prox"


class NotMeasuredError(AnalysisError):
    """An untrained model has no such number."""


@dataclass(frozen=True, eq=False)
class UntrainedRun:
    """A run as if nothing had been trained: round 0's numbers in every round; see :class:`qfl_core.runs.RunResult`.

    ``idle`` is the run of the method ``untrained`` with the same seed: it has numbers of clients, which round 0 lacks.
    """

    run: RunResult
    idle: RunResult | None = None

    @property
    def config(self) -> ExperimentConfig:
        """The run's config."""
        return self.run.config

    @property
    def environment(self) -> dict[str, Any]:
        """The run's environment."""
        return self.run.environment

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.run.path

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Round 0's row for every round; what it lacks comes from the idle run's same round."""
        table = _repeated(self.run.rounds)
        if self.idle is not None:
            there = self.idle.rounds.set_index("round").reindex(index=table["round"], columns=table.columns)
            table = table.fillna(there.reset_index(drop=True))
        if self.run.config.client_test == "shared":
            # A number that was measured is better than one that is concluded.
            table["client_test_accuracy"] = table["client_test_accuracy"].fillna(table["global_accuracy"])
            table["fairness_gap"] = table["fairness_gap"].fillna(0.0)
        return table

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Round 0's rows for every round."""
        return _repeated(self.run.metrics, "part")

    @property
    def clients(self) -> pd.DataFrame:
        """There is no trace."""
        raise NotMeasuredError("an untrained model has no trace")


def _repeated(table: pd.DataFrame, key: str | None = None) -> pd.DataFrame:
    """Return the table with round 0's values in every round; the column ``key`` tells the rows of a round apart."""
    start = table[table["round"] == 0]
    if start.empty:
        raise NotMeasuredError("the run has no round 0")
    if key is None:
        rows = start.iloc[np.zeros(len(table), dtype=int)].reset_index(drop=True)
    else:
        rows = start.set_index(key).reindex(table[key]).reset_index()
    return rows.assign(round=table["round"].to_numpy())


def untrained_claims(
    evidence: Evidence, parts: Mapping[str, Part]
) -> tuple[list[Claim], dict[str, Numbers], dict[str, str]]:
    """Put the untrained model in DUQFL-Prox's place.

    Returns every part that can be judged as a claim of its own, its numbers by label, and for the other labels the
    reason why there are none.
    """
    untrained = replace(
        evidence,
        runs={
            track: {**methods, REPLACED: _without_training(methods)}
            for track, methods in evidence.runs.items()
            if track in RUN_TRACKS and REPLACED in methods
        },
    )
    claims, numbers, reasons = [], {}, {}
    for label, part in parts.items():
        found = _numbers(untrained, part)
        if isinstance(found, str):
            reasons[label] = found
        else:
            numbers[label] = found
            claims.append(Claim(label, part.text, "", (replace(part, same_as=""),)))
    return claims, numbers, reasons


def _without_training(methods: Mapping[str, Mapping[int, Any]]) -> dict[int, UntrainedRun]:
    idle = methods.get(UNTRAINED, {})
    return {seed: UntrainedRun(run, idle.get(seed)) for seed, run in methods[REPLACED].items()}


def _numbers(untrained: Evidence, part: Part) -> Numbers | str:
    """Return the part's numbers, or why there are none."""
    if REPLACED not in part.methods:
        return f"{REPLACED} is not in this part"
    if part.track not in untrained.runs:
        return f"there is no round 0 of {REPLACED} on {part.track}"
    try:
        found = untrained.numbers(part)
    except NotMeasuredError as reason:
        return str(reason)
    if len(found.values) >= 2:
        return found
    return f"round 0 has no {part.column}" if part.column else found.note.removeprefix("missing: ")
