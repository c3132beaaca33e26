"""What the committed notebooks show: the outputs of ``make reproduce`` with the profile ``paper``, cell by cell.

    python -m tools.stored_notebooks build/paper/01_preprocessing.ipynb ...

The sources of ``notebooks/*.ipynb`` say ``profile = "smoke"``, so that a reader's own run takes seconds; a line at the
top of each says which profile the stored outputs have. The cell that papermill adds with the profile's parameters is
left out, and so is everything that differs between two runs: times, versions, ids.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import nbformat
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat import NotebookNode
from PIL import Image

from qfl_core.base.errors import ConfigError
from qfl_core.base.files import write_text
from qfl_core.figures.pictures import with_few_colours

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
#: Colours of a stored picture: enough for lines, bands and heat maps, in a third of the bytes.
COLOURS = 128
#: The tag of the cell that papermill adds.
INJECTED = "injected-parameters"


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Number the cells by their place, so that storing without a change changes nothing; drop what a run adds."""
    count = 0
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = joined(cell)
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
    kept = ("jupytext", "kernelspec")
    notebook.metadata = {name: notebook.metadata[name] for name in kept if name in notebook.metadata}
    return notebook


def joined(cell: NotebookNode) -> list[NotebookNode]:
    """Join what a cell printed in a row: how a kernel cuts it into pieces depends on the time between two lines."""
    copy, _ = CoalesceStreamsPreprocessor().preprocess_cell(deepcopy(cell), {}, 0)
    return copy.outputs


def with_outputs(committed: NotebookNode, executed: NotebookNode, name: str) -> NotebookNode:
    """Return the committed notebook with the outputs of the executed one, whose sources must be the same."""
    ran = [cell for cell in executed.cells if INJECTED not in cell.metadata.get("tags", [])]
    if [(cell.cell_type, cell.source) for cell in ran] != [(c.cell_type, c.source) for c in committed.cells]:
        raise ConfigError(f"{name}: the executed notebook has other cells; run `make reproduce` again")
    for cell, done in zip(committed.cells, ran, strict=True):
        if cell.cell_type == "code":
            cell.outputs = done.outputs
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = small_picture(output.data["image/png"])
    return cleaned(committed)


def small_picture(png: str) -> str:
    """Return a picture (base64 of a PNG) with :data:`COLOURS` colours; the files in figures/ keep all of theirs."""
    packed = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    with_few_colours(picture, COLOURS).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode("ascii")


def without_pictures(notebook: NotebookNode) -> NotebookNode:
    """Drop the pictures of all outputs: what compares outputs does not look at them."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    return notebook


def write_notebook(path: Path, notebook: NotebookNode) -> None:
    """Write a notebook as one file that ends in a newline, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, nbformat.writes(notebook) + "\n")


def store(executed: Path, folder: Path = NOTEBOOKS) -> None:
    """Put the outputs of an executed notebook into the committed one of the same name.

    The executed notebook then counts as newer, so that ``make reproduce`` does not run it again.
    """
    target = folder / executed.name
    if not executed.is_file() or not target.is_file():
        raise ConfigError(f"{executed if target.is_file() else target} does not exist; run `make reproduce` first")
    committed = nbformat.read(target, as_version=4)
    write_notebook(target, with_outputs(committed, nbformat.read(executed, as_version=4), executed.name))
    os.utime(executed)


def main(names: Sequence[str]) -> int:
    """Store the outputs of all these notebooks; for the first that does not fit, say why in one line."""
    try:
        for name in names:
            store(Path(name))
            print(f"stored the outputs of {name}", flush=True)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
