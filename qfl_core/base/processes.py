"""Calls of one function, spread over processes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from qfl_core.base.errors import RunError

Result = TypeVar("Result")

#: How joblib's warning begins when it replaces a worker that was idle for long or used much memory.
REPLACED = "A worker stopped while some jobs were given to the executor."


def in_processes(
    function: Callable[..., Result],
    arguments: Iterable[tuple[Any, ...]],
    jobs: int = -1,
    *,
    ordered: bool = True,
    versions: tuple[str, ...] = (),
) -> Iterator[Result]:
    """Yield ``function(*one)`` for each tuple of arguments.

    Parameters
    ----------
    jobs : number of processes; -1 is one per core, 1 is this process alone.
    ordered : False yields a result as soon as it is there, whatever its place.
    versions : of code that the function uses. Processes that were started with other versions are not used again,
        because they may have imported older code.

    Raises
    ------
    RunError
        When a process cannot load the function or its arguments.
    """
    import joblib  # here, because a single run needs no processes
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with warnings.catch_warnings():
        # joblib starts another worker then, and no call is lost, so nobody has to act. The warning comes from a
        # thread of joblib's: where warnings are errors, it would end that thread, and the results would never come.
        warnings.filterwarnings("ignore", REPLACED, UserWarning)
        order = "generator" if ordered else "generator_unordered"
        # joblib keeps its workers. Where modules can be found elsewhere since they started, it takes new ones, because
        # a worker that cannot import what it is sent breaks all of them.
        script = getattr(sys.modules["__main__"], "__file__", None)
        started = {"initializer": _look_in, "initargs": (tuple(sys.path), script, versions)}
        parallel = joblib.Parallel(n_jobs=jobs, return_as=order, batch_size=1, **started)
        try:
            yield from parallel(joblib.delayed(function)(*one) for one in arguments)
        except BrokenProcessPool as error:
            if error.__cause__ is None:  # a worker was killed
                raise
            *_, reason = str(error.__cause__).strip('\n"').splitlines()
            advice = "move what your script defines into a module of its own and import it there, or use jobs=1"
            raise RunError(f"a process cannot load what it was sent ({reason}): {advice}") from error


def _look_in(path: tuple[str, ...], script: str | None, versions: tuple[str, ...]) -> None:
    """Let a worker find modules where the process that started it does, and the code of the script that it started.

    A class that is defined in this script comes to the worker as a part of ``__main__``, which is joblib's file there.
    """
    sys.path[:] = path
    if script is not None:
        sys.modules["__main__"].__file__ = script
