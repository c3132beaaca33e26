"""Progress bars: on the terminal, and never in what a notebook stores."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

#: ``off``, ``on`` (this process's standard error), or the path of a terminal to draw on.
VARIABLE = "QFL_PROGRESS"


def bar(total: int, unit: str, *, show: bool = True, **options: Any) -> tqdm:
    """Return a bar over ``total`` steps.

    A kernel's standard error becomes part of its notebook, so a kernel draws only where ``QFL_PROGRESS`` allows it: the
    notebook runner names its own terminal there.
    """
    where = os.environ.get(VARIABLE, "off" if _in_kernel() else "on")
    file = sys.stderr
    if show and where not in ("on", "off"):
        try:
            file = Path(where).open("w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the bar
        except OSError:
            where = "off"
    return tqdm(total=total, unit=unit, disable=not show or where == "off", file=file, dynamic_ncols=True, **options)


def _in_kernel() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
