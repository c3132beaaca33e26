"""Which code runs the inner loop of an engine with shots: compiled code, or NumPy where that is not available.

Both give the same bits. ``QFL_COMPILED=off`` chooses NumPy; a run's environment.json tells which one made it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType

import numpy as np

from qfl_core.base.streams import stream

VARIABLE = "QFL_COMPILED"
# What the trial draws: both ends, the two methods of NumPy's binomial (up to 30 expected counts, and more), both sides.
_TRIED = np.array([0.0, 1.0, 1e-12, 0.001, 0.02, 0.029, 0.03, 0.2, 0.5, 0.51, 0.8, 0.97, 0.9999] * 20)
_TRIED_SHOTS = 1024
#: What stands for the table of :mod:`qfl_core.engines.majority` where counts are drawn.
NO_SIDES = (np.empty((0, 4)), 0.0, 0.0)


def compiled_code() -> ModuleType | None:
    """Return :mod:`qfl_core.engines.compiled`, or None where the inner loop runs in NumPy."""
    return None if os.environ.get(VARIABLE, "").lower() in ("off", "0", "no") else _load()


def path_name() -> str:
    """Return what a run's record says about the inner loop: the compiler with its version, or ``"no"``."""
    if compiled_code() is None:
        return "no"
    from importlib.metadata import version

    return f"numba {version('numba')}"


@lru_cache(maxsize=1)
def _load() -> ModuleType | None:
    """Import the compiled code; None where that fails, or where its draws are not those of this NumPy."""
    try:
        with _linear_algebra_on_demand():
            from qfl_core.engines import compiled
    except Exception:  # numba is missing, or it does not go together with this Python, NumPy or processor
        return None
    return compiled if _draws_like_numpy(compiled) else None


@contextmanager
def _linear_algebra_on_demand() -> Iterator[None]:
    """Let numba assume that SciPy's linear algebra is there, because importing it to ask takes 0.3 s of every process.

    The compiled code here does not use it. Other code that does imports it when numba compiles that code.
    """
    from numba.np import linalg

    asked = getattr(linalg, "ensure_blas", None)
    if asked is not None:
        linalg.ensure_blas = lambda: None
    try:
        yield
    finally:
        if asked is not None:
            linalg.ensure_blas = asked


def _draws_like_numpy(compiled: ModuleType) -> bool:
    """Return whether the compiled binomial draws are NumPy's: a new NumPy may change its method."""
    rng, drawn = stream(0, "compiled-trial"), np.empty((1, len(_TRIED)))
    samples = (_TRIED[:, None].copy(), np.empty((0, 0)), np.arange(len(_TRIED)), np.array([0, len(_TRIED)]))
    compiled.evaluate(
        samples,
        np.empty((1, 1, 0)),
        no_circuit(),
        np.ones((1, 1, 1)),
        _TRIED_SHOTS,
        compiled.addresses([rng]),
        np.zeros(len(_TRIED), dtype=int),
        np.empty((0, 0, 0)),
        NO_SIDES,
        np.empty((0, 1, 1)),
        drawn,
    )
    return np.array_equal(drawn[0], stream(0, "compiled-trial").binomial(_TRIED_SHOTS, _TRIED) / _TRIED_SHOTS)


def no_circuit() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return what stands for the circuit where the observables are computed by NumPy."""
    none = np.empty(0, dtype=int)
    return none, np.empty((0, 0, 2), dtype=int), none, none
