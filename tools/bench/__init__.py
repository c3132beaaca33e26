"""Speed of the engines beside their peers and their limits: ``python -m tools.bench --out DIR``."""

from __future__ import annotations

from tools.bench.figure import draw
from tools.bench.measure import run_bench
from tools.bench.record import TARGETS
from tools.bench.report import table

__all__ = ["TARGETS", "draw", "run_bench", "table"]
