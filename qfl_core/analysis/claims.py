"""The paper's claims as declarative records: what is measured, on which runs, and what must come out.

A claim is a list of parts and holds if all of them do. A part is one number per seed: a measure of the named methods'
runs, whose mean over seeds must lie above a bound, below it, or within plus or minus it. Its margin is the smallest
effect worth claiming, fixed before the runs by the rules of :mod:`qfl_core.analysis.margins`. Where the paper prints
the numbers, theirs stands beside ours. :mod:`qfl_core.analysis.paper_claims` lists the paper's claims and
:mod:`qfl_core.analysis.verdicts` tests them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.margins import LEVEL, UNITS
from qfl_core.analysis.measures import Measure, TheoryMeasure
from qfl_core.analysis.paper import PAPER
from qfl_core.base.errors import AnalysisError, did_you_mean

TRACKS = ("baf", "genome", "hardware", "theory")
#: ``always`` is a bound for every single value, not for a mean: it is checked, not tested.
CLAIMED = ("above", "below", "within", "always")


@dataclass(frozen=True)
class Part:
    """One testable number: ``measure`` of one run per method of ``methods``, and what is claimed of its mean.

    ``paper`` is the paper's value of the same number, ``unit`` what it is counted in, and ``margin`` the smallest
    effect worth claiming: how far beyond the bound the mean would have to lie. ``same_as`` names an earlier part with
    the same number and the same question, of which this one is a repetition. ``column`` names the column of the last
    round that the number is made of, where it is made of one.
    """

    text: str
    track: str
    methods: tuple[str, ...]
    measure: Measure | TheoryMeasure
    claimed: str = "above"
    bound: float = 0.0
    paper: float | None = None
    unit: str = "accuracy"
    margin: float = LEVEL
    same_as: str = ""
    column: str = ""

    def __post_init__(self) -> None:
        for value, known in (
            (self.track, TRACKS),
            (self.claimed, CLAIMED),
            (self.unit, UNITS),
            *((method, tuple(METHODS)) for method in self.methods),
        ):
            if value not in known:
                choices = ", ".join(known)
                raise AnalysisError(f"{self.text!r} names {value!r}{did_you_mean(value, known)}; choices: {choices}")
        if self.claimed != "always" and not self.margin > 0:
            raise AnalysisError(f"{self.text!r} needs a margin above 0, got {self.margin}")

    @property
    def conditional(self) -> bool:
        """Whether the protocol search used a number of this part: it chose the reading of the paper that comes closest.

        What such a part says is conditional on that reading.
        """
        return not PAPER.get((self.track, self.column), {}).keys().isdisjoint(self.methods)

    def support(self, values: np.ndarray) -> np.ndarray:
        """Return how far the values lie on the claimed side of the bound; below 0 they lie on the other side.

        For ``within`` the distance counts from the nearer end of the range.
        """
        if self.claimed == "above":
            return values - self.bound
        return self.bound - (np.abs(values) if self.claimed == "within" else values)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, the rule that decides it, and its parts."""

    id: str
    text: str
    rule: str
    parts: tuple[Part, ...]

    @property
    def conditional(self) -> bool:
        """Whether the protocol search used a number of one of its parts."""
        return any(part.conditional for part in self.parts)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the parts: ``1a``, ``1b``, ...; a single part has the claim's own."""
        if len(self.parts) == 1:
            return (self.id,)
        return tuple(self.id + chr(ord("a") + i) for i in range(len(self.parts)))

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks whose runs the claim needs, in order."""
        return tuple(dict.fromkeys(part.track for part in self.parts))
