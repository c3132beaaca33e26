"""Which reading of what the paper leaves open comes closest to its numbers? A seeded search, in two stages.

Screening runs a regular fraction of all combinations of the open points (every main effect free of two-factor
interactions) with few seeds. An additive model of each number, fitted to the screened candidates, then predicts every
combination; the closest, overall and by track, go to the final with more seeds, none of them used before.
"""

from qfl_core.studies.protocol.distance import ALL, Stage, distance, paper_numbers
from qfl_core.studies.protocol.plan import DEFAULTS, Plan
from qfl_core.studies.protocol.search import (
    Search,
    finalists,
    predicted,
    profile_candidate,
    protocol_search,
    write_search,
)

__all__ = [
    "ALL",
    "DEFAULTS",
    "Plan",
    "Search",
    "Stage",
    "distance",
    "finalists",
    "paper_numbers",
    "predicted",
    "profile_candidate",
    "protocol_search",
    "write_search",
]
