"""Quantum federated learning with deep-unfolded, proximal local training (DUQFL-Prox).

Names are imported on first use, so that ``import qfl_core`` stays quick.
"""

from __future__ import annotations

from typing import Any

from qfl_core.base.registry import resolve

__version__ = "0.2.0"

_PUBLIC = {
    "compare": "qfl_core.analysis.compare:compare",
    "ExperimentConfig": "qfl_core.config:ExperimentConfig",
    "load_profile": "qfl_core.config:load_profile",
    "load_splits": "qfl_core.data:load_splits",
    "METHODS": "qfl_core.algorithm.methods:METHODS",
    "QNN": "qfl_core.engines.qnn:QNN",
    "load_runs": "qfl_core.runs.results:load_runs",
    "make_engine": "qfl_core.engines:make_engine",
    "run_experiment": "qfl_core.runs.run:run_experiment",
    "make_partition": "qfl_core.data.partition:make_partition",
    "register_ansatz": "qfl_core.runs.plugins:register_ansatz",
    "register_dataset": "qfl_core.runs.plugins:register_dataset",
    "register_feature_map": "qfl_core.runs.plugins:register_feature_map",
    "register_loss": "qfl_core.runs.plugins:register_loss",
    "register_method": "qfl_core.runs.plugins:register_method",
    "register_outer_optimizer": "qfl_core.runs.plugins:register_outer_optimizer",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return resolve(_PUBLIC[name])
    raise AttributeError(f"module 'qfl_core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
