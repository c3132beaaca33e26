"""Run the notebooks' .py files with their own parameters and store the .ipynb pairs; unchanged cells keep their ids.

python -m tools.refresh_notebooks notebooks/01_preprocessing.py ...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from qfl_core.base.files import write_text
from tools.run_notebook import NO_WIDGETS, QUIET


def refresh(source: Path) -> None:
    """Execute one notebook in its folder; the pair beside it is replaced only once all of it has run."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"  # by place, so that a refresh without a change changes nothing
    NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        extra_arguments=QUIET,
        record_timing=False,
        resources={"metadata": {"path": source.parent}},
    ).execute()
    del notebook.metadata["language_info"]  # names the interpreter's version
    write_text(source.with_suffix(".ipynb"), nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = NO_WIDGETS
    for name in sys.argv[1:]:
        refresh(Path(name))
        print(f"refreshed {Path(name).with_suffix('.ipynb')}", flush=True)
