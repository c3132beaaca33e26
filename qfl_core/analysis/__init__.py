"""Many runs as tables: means with 95 % intervals, final metrics, cost, paired comparisons, verdicts on claims."""

from qfl_core.analysis.claim_tables import claims_markdown, claims_table, parts_table, write_claims
from qfl_core.analysis.claims import Claim, Part
from qfl_core.analysis.compare import Comparison, compare
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.measures import Theory
from qfl_core.analysis.paper_claims import CLAIMS
from qfl_core.analysis.summary import FINAL_METRICS, cost_table, costs_table, final_table, last_rounds
from qfl_core.analysis.verdicts import PartResult, Verdict, judge
from qfl_core.runs import tidy

__all__ = [
    "CLAIMS",
    "FINAL_METRICS",
    "Claim",
    "Comparison",
    "Part",
    "PartResult",
    "Theory",
    "Verdict",
    "claims_markdown",
    "claims_table",
    "compare",
    "cost_table",
    "costs_table",
    "final_table",
    "intervals",
    "judge",
    "last_rounds",
    "parts_table",
    "tidy",
    "write_claims",
]
