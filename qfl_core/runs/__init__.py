"""A config becomes a run: records, journal, sealing, sweeps, studies, plugins."""

from qfl_core.runs.prepare import make_federation
from qfl_core.runs.results import RunResult, find_runs, load_runs, tidy
from qfl_core.runs.run import finished_run, run_experiment

__all__ = ["RunResult", "find_runs", "finished_run", "load_runs", "make_federation", "run_experiment", "tidy"]
