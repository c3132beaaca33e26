"""The paper's claims as declarative records: what is measured, on which runs, and what must come out.

A claim is a list of parts and holds if all of them do. A part is one number per seed: a measure of the named methods'
runs, whose mean over seeds must lie above a bound, below it, or within plus or minus it. Where the paper prints the
numbers, theirs stands beside ours. :mod:`qfl_core.analysis.paper_claims` lists the paper's claims and
:mod:`qfl_core.analysis.verdicts` tests them.
"""

from __future__ import annotations

from dataclasses import dataclass

from qfl_core.algorithm.methods import METHODS
from qfl_core.analysis.measures import Measure, TheoryMeasure
from qfl_core.base.errors import AnalysisError, did_you_mean

TRACKS = ("baf", "genome", "hardware", "theory")
#: ``always`` is a bound for every single value, not for a mean: it is checked, not tested.
CLAIMED = ("above", "below", "within", "always")


@dataclass(frozen=True)
class Part:
    """One testable number: ``measure`` of one run per method of ``methods``, and what is claimed of its mean.

    ``paper`` is the paper's value of the same number, ``unit`` what it is counted in.
    """

    text: str
    track: str
    methods: tuple[str, ...]
    measure: Measure | TheoryMeasure
    claimed: str = "above"
    bound: float = 0.0
    paper: float | None = None
    unit: str = "accuracy"

    def __post_init__(self) -> None:
        for value, known in (
            (self.track, TRACKS),
            (self.claimed, CLAIMED),
            *((method, tuple(METHODS)) for method in self.methods),
        ):
            if value not in known:
                choices = ", ".join(known)
                raise AnalysisError(f"{self.text!r} names {value!r}{did_you_mean(value, known)}; choices: {choices}")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper in our words, the rule that decides it, and its parts."""

    id: str
    text: str
    rule: str
    parts: tuple[Part, ...]

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks whose runs the claim needs, in order."""
        return tuple(dict.fromkeys(part.track for part in self.parts))
