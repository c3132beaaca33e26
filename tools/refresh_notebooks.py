"""Bring the notebooks in step with their .py files, and run their twins, which the tests compare with.

    python -m tools.refresh_notebooks notebooks/01_preprocessing.py ...

A twin in ``tests/notebooks`` has the same cells with the outputs of the profile ``smoke``, without pictures. The
committed notebook gets the new sources and keeps the outputs of the cells that did not change; ``make store-notebooks``
fills in the others after ``make reproduce``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from tools.run_notebook import NO_WIDGETS, QUIET
from tools.stored_notebooks import cleaned, without_pictures, write_notebook

TWINS = Path(__file__).resolve().parent.parent / "tests" / "notebooks"


def run_twin(source: Path, folder: Path = TWINS) -> None:
    """Execute one notebook with its own parameters; the twin is replaced only once all of it has run."""
    notebook = jupytext.read(source)
    NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        extra_arguments=QUIET,
        record_timing=False,
        resources={"metadata": {"path": source.parent}},
    ).execute()
    twin = without_pictures(cleaned(notebook))
    del twin.metadata["jupytext"]  # a twin has no .py file of its own
    write_notebook(folder / source.with_suffix(".ipynb").name, twin)


def synchronised(sources: NotebookNode, stored: NotebookNode) -> NotebookNode:
    """Return the notebook of the .py file with the stored outputs of every cell whose source is still there."""
    outputs = {cell.source: cell.outputs for cell in stored.cells if cell.cell_type == "code"}
    for cell in sources.cells:
        if cell.cell_type == "code":
            cell.outputs = outputs.get(cell.source, [])
    return cleaned(sources)


def synchronise(source: Path) -> None:
    """Write the sources of a .py file into the notebook beside it."""
    target = source.with_suffix(".ipynb")
    stored = nbformat.read(target, as_version=4) if target.is_file() else nbformat.v4.new_notebook()
    write_notebook(target, synchronised(jupytext.read(source), stored))


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = NO_WIDGETS
    for name in sys.argv[1:]:
        run_twin(Path(name))
        synchronise(Path(name))
        print(f"refreshed {Path(name).with_suffix('.ipynb')}", flush=True)
