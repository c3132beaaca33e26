"""Which way to the rates of SPSA is the best, where every circuit costs? A comparison with everything counted.

:mod:`plan` says what runs, :mod:`collect` trains it, :mod:`score` makes numbers of curves, :mod:`goals` judges them,
:mod:`features` asks what the controller's features do, :mod:`tables` puts all of it into files, and :mod:`page` and
:mod:`command` write what readers see.
"""

from qfl_core.studies.controllers.plan import METHODS, Plan
from qfl_core.studies.controllers.tables import Tables, compare, complete_comparison

__all__ = ["METHODS", "Plan", "Tables", "compare", "complete_comparison"]
