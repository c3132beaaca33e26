"""Many runs as tables: means with 95 % intervals, final metrics, cost."""

from qfl_core.analysis.summary import FINAL_METRICS, cost_table, facts, final_table, intervals, last_rounds
from qfl_core.runs import tidy

__all__ = ["FINAL_METRICS", "cost_table", "facts", "final_table", "intervals", "last_rounds", "tidy"]
