"""A config becomes a run: records, journal, sealing, sweeps, studies, plugins."""

from qfl_core.runs.run import (
    RunResult,
    code_digest,
    commit,
    environment,
    find_runs,
    finished_run,
    load_runs,
    run_experiment,
    run_identity,
    run_parent,
    tidy,
    transport_of,
)

__all__ = [
    "RunResult",
    "code_digest",
    "commit",
    "environment",
    "find_runs",
    "finished_run",
    "load_runs",
    "run_experiment",
    "run_identity",
    "run_parent",
    "tidy",
    "transport_of",
]
