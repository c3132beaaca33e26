"""A planted stage of the protocol search: numbers and grades that are additive in the levels, and best at a truth."""

import numpy as np

from qfl_core.studies.protocol import Plan, Stage, paper_numbers
from qfl_core.studies.protocol.plan import DEFAULTS
from qfl_core.studies.protocol.statements import stated


def planted_stage(
    plan: Plan, candidates: list[str], seeds: int, truth: str | None = None, noise: float = 0.01
) -> Stage:
    """Return a stage whose candidates have the paper's numbers and all statements where all levels are the truth's.

    The truth has the first level of every factor unless it is named. The untrained model scores 0.5, and 0.64 where
    initial weights are small.
    """
    rng = np.random.default_rng(0)
    truth = truth or "0" * len(plan.every)
    paper, statements = paper_numbers(plan.tracks), stated(plan.tracks)
    shown = [truth if c == DEFAULTS else c for c in candidates]
    wrong = np.array([[a != b for a, b in zip(c, truth, strict=True)] for c in shown], float)
    shifts = rng.choice([-1, 1], (len(truth), len(paper))) * rng.uniform(0.02, 0.08, (len(truth), len(paper)))
    numbers = paper.to_numpy() + wrong @ shifts
    grades = 1 - wrong @ rng.uniform(0, 0.9 / len(truth), (len(truth), len(statements)))
    small = list(plan.every).index("initial weights") if "initial weights" in plan.every else None
    untrained = np.array([0.64 if small is not None and c[small] == "1" else 0.5 for c in shown])
    return Stage(
        tuple(candidates),
        numbers[:, None] + rng.normal(0, noise, (len(shown), seeds, len(paper))),
        paper,
        np.repeat(grades[:, None], seeds, axis=1),
        tuple((track, statement.name) for track, statement in statements),
        np.repeat(untrained[:, None, None], seeds, axis=1),
        (0.6,),
    )
