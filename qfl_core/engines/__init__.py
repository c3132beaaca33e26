"""Engines: ways to evaluate a QNN, behind one interface."""

from __future__ import annotations

from importlib import import_module

from qfl_core.engines.base import Engine
from qfl_core.qnn import QNN

# name -> (module, class); a module is imported when its engine is first made, so heavy packages load late.
ENGINES = {
    "statevector": ("qfl_core.engines.statevector", "StatevectorEngine"),
    "density": ("qfl_core.engines.density", "DensityEngine"),
    "primitives": ("qfl_core.engines.primitives", "PrimitivesEngine"),
}


def make_engine(name: str, qnn: QNN, shots: int | None = None, **options) -> Engine:
    """Return the engine ``name`` for ``qnn``.

    Parameters
    ----------
    name : a key of :data:`ENGINES`.
    shots : None for exact probabilities, or the number of measurements behind each of them.
    options : the engine's own, see its class.
    """
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; expected one of {sorted(ENGINES)}")
    module, cls = ENGINES[name]
    return getattr(import_module(module), cls)(qnn, shots, **options)


__all__ = ["ENGINES", "Engine", "make_engine"]
