"""Engines: ways to evaluate a QNN, behind one interface."""

from __future__ import annotations

from qfl_core.base.registry import ENGINES, resolve
from qfl_core.engines.base import Engine
from qfl_core.engines.qnn import QNN


def make_engine(name: str, qnn: QNN, shots: int | None = None, **options) -> Engine:
    """Return the engine ``name`` for ``qnn``.

    Parameters
    ----------
    name : a key of :data:`qfl_core.base.registry.ENGINES`.
    shots : None for exact probabilities, or the number of measurements behind each of them.
    options : the engine's own, see its class.
    """
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; expected one of {sorted(ENGINES)}")
    return resolve(ENGINES[name])(qnn, shots, **options)


__all__ = ["Engine", "make_engine"]
