"""Which reading of what the paper leaves open comes closest to it? A seeded search, in three stages.

Screening runs a regular fraction of all combinations of the open points (every main effect free of two-factor
interactions) with few seeds. An additive model of each number and each statement, fitted to the screened candidates,
predicts every combination; the closest go to the final with more seeds, none of them used before. What concerns one
method alone is then refined on the winner, with fresh seeds again.
"""

from qfl_core.studies.protocol.distance import ALL, GRADE, TOTAL, Stage, distance, paper_numbers
from qfl_core.studies.protocol.plan import DEFAULTS, Plan
from qfl_core.studies.protocol.search import Search, finalists, predicted, profile_candidate, protocol_search
from qfl_core.studies.protocol.tables import SearchTables, complete_search

__all__ = [
    "ALL",
    "DEFAULTS",
    "GRADE",
    "TOTAL",
    "Plan",
    "Search",
    "SearchTables",
    "Stage",
    "complete_search",
    "distance",
    "finalists",
    "paper_numbers",
    "predicted",
    "profile_candidate",
    "protocol_search",
]
