"""Progress bars: on the terminal, and in a notebook only where the reader asks for one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from tqdm import tqdm

#: ``off``, ``on`` (this process's standard error), or the path of a terminal to draw on.
VARIABLE = "QFL_PROGRESS"


class _Bar(tqdm):
    """A bar whose lock belongs to one process.

    tqdm's own lock is shared with forked processes. Because nobody releases it for a process that is killed while it
    draws, all the others would wait for ever.
    """


_Bar.set_lock(RLock())


@contextmanager
def bar(total: int, unit: str, *, show: bool | None = None, **options: Any) -> Iterator[tqdm]:
    """Show a progress bar over ``total`` steps.

    Parameters
    ----------
    total : number of steps.
    unit : what one step is called.
    show : True draws the bar, and False never does. None draws it everywhere except in a notebook, because a kernel's
        standard error is stored in its notebook. ``QFL_PROGRESS`` wins over True and None: the notebook runner sets it
        to its own terminal, and ``make lab`` sets it to on.
    options : more arguments for tqdm.
    """
    unasked = "off" if show is None and _in_kernel() else "on"
    where = "off" if show is False else os.environ.get(VARIABLE, unasked)
    with ExitStack() as stack:
        file = sys.stderr
        if where not in ("on", "off"):
            try:
                file = stack.enter_context(Path(where).open("w", encoding="utf-8"))
            except OSError:
                where = "off"
        shown = _Bar(total=total, unit=unit, disable=where == "off", file=file, dynamic_ncols=True, **options)
        yield stack.enter_context(shown)


def _in_kernel() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
