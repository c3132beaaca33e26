"""Fidelity to the paper, line by line: its words, our choice, why, and what the other choice changes in numbers.

:mod:`choices` holds the lines, :mod:`differences` trains the alternatives, :mod:`markdown` writes ``docs/fidelity.md``.
"""

from qfl_core.studies.fidelity.choices import CHOICES, PARTS, Choice
from qfl_core.studies.fidelity.differences import SEEDS, measure
from qfl_core.studies.fidelity.markdown import page

__all__ = ["CHOICES", "PARTS", "SEEDS", "Choice", "measure", "page"]
