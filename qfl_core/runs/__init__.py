"""A config becomes a run: records, journal, sealing, sweeps, studies, plugins.

Names are imported on first use, because the training code behind some of them takes long to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qfl_core.base.registry import resolve

if TYPE_CHECKING:
    from qfl_core.runs.prepare import make_federation
    from qfl_core.runs.results import RunResult, find_runs, load_runs, tidy
    from qfl_core.runs.run import finished_run, run_experiment

__all__ = ["RunResult", "find_runs", "finished_run", "load_runs", "make_federation", "run_experiment", "tidy"]

_MODULES = {
    "make_federation": "prepare",
    "RunResult": "results",
    "find_runs": "results",
    "load_runs": "results",
    "tidy": "results",
    "finished_run": "run",
    "run_experiment": "run",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return resolve(f"qfl_core.runs.{_MODULES[name]}:{name}")
    raise AttributeError(f"module 'qfl_core.runs' has no attribute {name!r}")
