"""What is tested about the parts of claims: three lists of statements, and the p values of each.

1. claims that hold: a claim is one statement with the tests of all its parts;
2. parts that hold by themselves;
3. parts that fail, or in which an effect of the margin or more is excluded.

Each list is corrected by :mod:`qfl_core.analysis.statements`, and the three share the level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.inference import FLIPS
from qfl_core.analysis.statements import p_values
from qfl_core.base.streams import stream

#: Lists of statements that share the level.
LISTS = 3
HOLDS, FAILS, ABSENT = "holds", "fails", "absent"
#: Theory points are a family of their own, because their federations are not the seeds of the runs.
FAMILIES = (("baf", "genome", "hardware"), ("theory",))
#: p value of one statement alone, and p value corrected for its list and for the three lists.
Pair = tuple[float, float]


@dataclass(frozen=True)
class Shown:
    """The p values of all statements: of "all parts hold" by claim, and of a verdict by (label of the part, verdict).

    ``own`` maps each label to the part whose number and question it repeats, or to itself.
    """

    own: Mapping[str, str]
    claims: dict[str, float] = field(default_factory=dict)
    parts: dict[tuple[str, str], Pair] = field(default_factory=dict)

    def of(self, label: str) -> dict[str, Pair]:
        """Return the p values by verdict, "holds" first; nothing where the part was not tested."""
        keys = ((self.own[label], verdict) for verdict in (HOLDS, FAILS, ABSENT))
        return {key[1]: self.parts[key] for key in keys if key in self.parts}


def supporting(part: Part, values: np.ndarray) -> list[np.ndarray]:
    """Return the tests of "holds", one or two: numbers whose means are above 0 if the part is true."""
    if part.claimed == "within":
        return [part.bound + values, part.bound - values]
    return [values - part.bound if part.claimed == "above" else part.bound - values]


def contradicting(part: Part, values: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return verdicts against the part, each with the one test that shows it."""
    fails = [(FAILS, -column) for column in supporting(part, values)]
    if part.claimed == "within":
        return fails
    return [*fails, (ABSENT, part.margin - supporting(part, values)[0])]


def shown_parts(claims: Sequence[Claim], values: Mapping[str, pd.Series], seed: int, flips: int = FLIPS) -> Shown:
    """Test all statements about the parts whose ``values`` are given by label, one number per seed.

    ``seed`` names the random stream of the flips, which are drawn where there are more than ``flips`` of them.
    """
    parts = {label: part for claim in claims for label, part in zip(claim.labels, claim.parts, strict=True)}
    shown = Shown({label: part.same_as if part.same_as in parts else label for label, part in parts.items()})
    for number, tracks in enumerate(FAMILIES):
        tested = {
            label: part
            for label, part in parts.items()
            if part.track in tracks and part.claimed != "always" and len(values[label]) >= 2
        }
        if tested:
            _test_family(claims, tested, values, shown, stream(seed, "claims-flips", number), flips)
    return shown


def _test_family(
    claims: Sequence[Claim],
    tested: Mapping[str, Part],
    values: Mapping[str, pd.Series],
    shown: Shown,
    rng: np.random.Generator,
    flips: int,
) -> None:
    """Add the p values of one family's statements to ``shown``."""
    # One row per seed that any part has; NaN where a part lacks it.
    paired = pd.DataFrame({label: values[label] for label in tested})
    columns: list[np.ndarray] = []

    def places(tests: Sequence[np.ndarray]) -> list[int]:
        columns.extend(tests)
        return list(range(len(columns) - len(tests), len(columns)))

    once = {label: paired[label].to_numpy() for label in tested if shown.own[label] == label}
    holds = {label: places(supporting(tested[label], x)) for label, x in once.items()}
    against = [
        ((label, verdict), places([test]))
        for label, x in once.items()
        for verdict, test in contradicting(tested[label], x)
    ]
    whole = {}
    for claim in claims:
        labels = [label for label, part in zip(claim.labels, claim.parts, strict=True) if part.claimed != "always"]
        if labels and all(label in tested for label in labels):
            whole[claim.id] = [place for label in labels for place in holds[shown.own[label]]]
    lists = (list(whole.values()), list(holds.values()), [tests for _, tests in against])
    of_claims, of_holds, of_against = (
        list(zip(alone.tolist(), np.minimum(LISTS * corrected, 1.0).tolist(), strict=True))
        for alone, corrected in p_values(np.stack(columns, axis=1), lists, rng, flips)
    )
    shown.claims.update({claim: corrected for claim, (_, corrected) in zip(whole, of_claims, strict=True)})
    shown.parts.update({(label, HOLDS): found for label, found in zip(holds, of_holds, strict=True)})
    for (key, _), found in zip(against, of_against, strict=True):
        # "Within" fails at either end.
        shown.parts[key] = min(shown.parts.get(key, found), found, key=lambda pair: pair[1])
