"""Run one notebook with a profile's parameters, and leave either the whole executed notebook or none.

    python -m tools.run_notebook notebooks/01_preprocessing.ipynb build/paper/01_preprocessing.ipynb --profile paper

Names and values of the parameters are checked before a kernel starts. A failure prints the cell and its error, keeps
the partial notebook as ``<output>.failed.ipynb`` for reading, and returns 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbformat import NotebookNode
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines

from qfl_core.base.checks import integer
from qfl_core.base.errors import ConfigError, did_you_mean, one_line
from qfl_core.base.files import unique_name
from qfl_core.base.options import Parser, read_value
from qfl_core.base.paths import results_dir
from qfl_core.config import MAX_SEED, PROFILE_KEYS, load_profile, read_profile, seed_range
from tools.kernel_ports import hold_ports
from tools.planned import Remaining, planned_configs, runs_left
from tools.whole_bar import WholeBar, whole_bar

#: The kernel talks to its parent over loopback and would warn about it.
QUIET = ["--IPKernelApp.log_level=ERROR"]
#: A package that we use would warn in every notebook that its bars need widgets; ours are drawn on the terminal.
NO_WIDGETS = "ignore:IProgress not found"


def parameters(notebook: Path, profile: str, seeds: str, datasets: str) -> dict[str, object]:
    """Return the profile's parameters with the overrides, after checking every value, and that the notebook knows it.

    ``seeds`` and ``datasets`` are lists in one text, separated by spaces or commas; an empty one changes nothing.
    """
    settings, values = load_profile(profile), read_profile(profile)
    if seeds:
        values["seeds"] = [seed for word in _words("seeds", seeds) for seed in _seeds(word)]
    if datasets:
        values["datasets"] = _words("datasets", datasets)
        for dataset in values["datasets"]:
            settings.config(dataset)
    for name in ("seeds", "datasets"):
        if len(set(values[name])) != len(values[name]):
            raise ConfigError(f"{name}: {values[name]} names one of them twice")
    if not notebook.is_file():
        raise ConfigError(f"{notebook} does not exist")
    known = papermill.inspect_notebook(str(notebook))
    values = {name: value for name, value in values.items() if name in known or name in PROFILE_KEYS}
    for name in values:
        if name not in known:
            raise ConfigError(f"{notebook.name} has no parameter {name!r}{did_you_mean(name, known)}")
    return values


def _words(name: str, text: str) -> list[str]:
    words = text.replace(",", " ").split()
    if not words:
        raise ConfigError(f"{name}={text!r} names none: leave it out for the profile's")
    return words


def _seeds(word: str) -> list[int]:
    """Return the seeds of a word: one number, or a range such as ``0-29``."""
    if "-" in word[1:]:
        return seed_range(word)
    try:
        number = read_value(int, word)
    except ConfigError as error:
        raise ConfigError(f"seeds: {error}") from None
    return [integer(0, MAX_SEED)("seeds", number)]


class Watched(NBClientEngine):
    """Papermill's engine, which also tells a bar how many cells are done."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **options: Any) -> Any:
        """Execute the notebook; ``shown`` of the options is the bar."""
        shown: WholeBar = options.pop("shown")
        complete = nb_man.cell_complete

        def counted(cell: NotebookNode, cell_index: int | None = None, **more: Any) -> None:
            complete(cell, cell_index, **more)
            shown.cell_done(1 + (cell_index or 0), len(nb_man.nb.cells))

        nb_man.cell_complete = counted
        return super().execute_managed_notebook(nb_man, kernel_name, **options)


papermill_engines.register("watched", Watched)


def run(notebook: Path, output: Path, values: dict[str, object], whole: bool = False) -> int:
    """Execute the notebook. Return 0 after writing the output, or 1 after keeping the partial notebook beside it.

    ``whole`` says that all notebooks of the folder are run, so that the bar tells how long all of them will take.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONWARNINGS", NO_WIDGETS)
    hold_ports()  # because make runs two notebooks at a time
    profile = str(values["profile"])
    settings, results = load_profile(profile), results_dir(profile)
    runs = len(runs_left(planned_configs(notebook.name, settings, values), results))
    names = sorted(path.name for path in notebook.parent.glob("*.ipynb")) if whole else []
    everything = dict.fromkeys(config for name in names for config in planned_configs(name, settings, values))
    others = Remaining(everything, results).told
    # Papermill writes it after every cell, and wants this ending. It is renamed when it is whole.
    partial = unique_name(output, ".part.ipynb")
    failed = output.with_suffix(".failed.ipynb")
    failed.unlink(missing_ok=True)
    try:
        with whole_bar(notebook.stem, runs, len(nbformat.read(notebook, as_version=4).cells), others) as shown:
            papermill.execute_notebook(
                str(notebook),
                str(partial),
                values,
                engine_name="watched",
                kernel_name="python3",
                cwd=str(notebook.parent),
                progress_bar=False,
                extra_arguments=QUIET,
                shown=shown,
            )
    except papermill.PapermillExecutionError as error:
        partial.replace(failed)
        print(f"\n{notebook.name} failed in cell {error.exec_count}:\n\n{error.source}\n", file=sys.stderr)
        print(f"{error.ename}: {error.evalue}\n\nThe partial notebook is {failed}", file=sys.stderr)
        return 1
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(output)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; a wrong name or value is one line on stderr and status 2."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--seeds", default="", help="instead of the profile's, e.g. '0 1 2' or '0-29'")
    parser.add_argument("--datasets", default="", help="instead of the profile's, e.g. 'baf'")
    parser.add_argument("--whole", action="store_true", help="all notebooks are run: tell how long all will take")
    asked = parser.parse_args(arguments)
    try:
        values = parameters(asked.notebook, asked.profile, asked.seeds, asked.datasets)
    except ConfigError as error:
        print(one_line(f"{asked.notebook.name}: {error}"), file=sys.stderr)
        return 2
    return run(asked.notebook, asked.output, values, asked.whole)


if __name__ == "__main__":
    sys.exit(main())
