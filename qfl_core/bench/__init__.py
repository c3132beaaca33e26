"""Speed of the engines beside their peers and their limits: ``python -m qfl_core.bench --out DIR``."""

from __future__ import annotations

from qfl_core.bench.figure import draw
from qfl_core.bench.measure import TARGETS, run_bench
from qfl_core.bench.report import table

__all__ = ["TARGETS", "draw", "run_bench", "table"]
