"""Progress bars: on the terminal, and never in what a notebook stores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

#: ``off``, ``on`` (this process's standard error), or the path of a terminal to draw on.
VARIABLE = "QFL_PROGRESS"


@contextmanager
def bar(total: int, unit: str, *, show: bool = True, **options: Any) -> Iterator[tqdm]:
    """Show a bar over ``total`` steps for the duration.

    A kernel's standard error becomes part of its notebook, so a kernel draws only where ``QFL_PROGRESS`` allows it: the
    notebook runner names its own terminal there.
    """
    where = os.environ.get(VARIABLE, "off" if _in_kernel() else "on") if show else "off"
    with ExitStack() as stack:
        file = sys.stderr
        if where not in ("on", "off"):
            try:
                file = stack.enter_context(Path(where).open("w", encoding="utf-8"))
            except OSError:
                where = "off"
        shown = tqdm(total=total, unit=unit, disable=where == "off", file=file, dynamic_ncols=True, **options)
        yield stack.enter_context(shown)


def _in_kernel() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
