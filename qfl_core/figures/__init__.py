"""Figures: they read results and draw, and never train."""

from qfl_core.figures.style import METHOD_COLOURS, apply_style, save

__all__ = ["METHOD_COLOURS", "apply_style", "save"]
