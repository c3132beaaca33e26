"""Figures: they read results and draw, and never train."""

from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import METHOD_COLOURS, apply_style

__all__ = ["METHOD_COLOURS", "Sheet", "apply_style"]
