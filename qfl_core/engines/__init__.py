"""Engines: each one evaluates a QNN in its own way, and all of them have the same interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from qfl_core.base.registry import ENGINES, resolve
from qfl_core.engines.base import Engine
from qfl_core.engines.qnn import QNN

if TYPE_CHECKING:
    from qfl_core.engines.density import DensityEngine
    from qfl_core.engines.primitives import PrimitivesEngine
    from qfl_core.engines.statevector import StatevectorEngine


@overload
def make_engine(
    name: Literal["statevector"], qnn: QNN, shots: int | None = None, **options: Any
) -> StatevectorEngine: ...
@overload
def make_engine(name: Literal["density"], qnn: QNN, shots: int | None = None, **options: Any) -> DensityEngine: ...
@overload
def make_engine(
    name: Literal["primitives"], qnn: QNN, shots: int | None = None, **options: Any
) -> PrimitivesEngine: ...
@overload
def make_engine(name: str, qnn: QNN, shots: int | None = None, **options: Any) -> Engine: ...
def make_engine(name: str, qnn: QNN, shots: int | None = None, **options: Any) -> Engine:
    """Return the engine ``name`` for ``qnn``.

    Parameters
    ----------
    name : a key of :data:`qfl_core.base.registry.ENGINES`.
    qnn : the model.
    shots : the number of measurements per probability; None asks for exact probabilities.
    options : keyword arguments of the engine's class, which describes them.
    """
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; expected one of {sorted(ENGINES)}")
    return resolve(ENGINES[name])(qnn, shots, **options)


__all__ = ["Engine", "make_engine"]
