"""Run one notebook with a profile's parameters, and leave either the whole executed notebook or none.

    python tools/run_notebook.py notebooks/01_preprocessing.ipynb build/paper/01_preprocessing.ipynb --profile paper

Names and values of the parameters are checked before a kernel starts. A failure prints the cell and its error, keeps
the partial notebook as ``<output>.failed.ipynb`` for reading, and returns 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import papermill

from qfl_core.base.checks import integer
from qfl_core.base.errors import ConfigError, did_you_mean, one_line
from qfl_core.base.options import Parser, read_value
from qfl_core.config import MAX_SEED, SECTION_KEYS, load_profile, read_profile

#: The kernel talks to its parent over loopback and would warn about it.
QUIET = ["--IPKernelApp.log_level=ERROR"]


def parameters(notebook: Path, profile: str, seeds: str, datasets: str) -> dict[str, object]:
    """Return the profile's parameters with the overrides, after checking every value, and that the notebook knows it.

    ``seeds`` and ``datasets`` are lists in one text, separated by spaces or commas; an empty one changes nothing.
    """
    settings, values = load_profile(profile), read_profile(profile)
    if seeds:
        values["seeds"] = [_seed(word) for word in _words("seeds", seeds)]
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
    values = {name: value for name, value in values.items() if name in known or name not in SECTION_KEYS}
    for name in values:
        if name not in known:
            raise ConfigError(f"{notebook.name} has no parameter {name!r}{did_you_mean(name, known)}")
    return values


def _words(name: str, text: str) -> list[str]:
    words = text.replace(",", " ").split()
    if not words:
        raise ConfigError(f"{name}={text!r} names none: leave it out for the profile's")
    return words


def _seed(word: str) -> int:
    try:
        number = read_value(int, word)
    except ConfigError as error:
        raise ConfigError(f"seeds: {error}") from None
    seed: int = integer(0, MAX_SEED)("seeds", number)
    return seed


def run(notebook: Path, output: Path, values: dict[str, object]) -> int:
    """Execute the notebook. Return 0 after writing the output, or 1 after keeping the partial notebook beside it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if sys.stderr.isatty():
        os.environ.setdefault("QFL_PROGRESS", os.ttyname(sys.stderr.fileno()))  # the kernel's bars are drawn here
    partial = output.with_suffix(".part.ipynb")  # papermill writes it after every cell; it is renamed when it is whole
    failed = output.with_suffix(".failed.ipynb")
    failed.unlink(missing_ok=True)
    try:
        papermill.execute_notebook(
            str(notebook),
            str(partial),
            values,
            kernel_name="python3",
            cwd=str(notebook.parent),
            progress_bar={"desc": notebook.stem},
            extra_arguments=QUIET,
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
    parser.add_argument("--seeds", default="", help="instead of the profile's, e.g. '0 1 2'")
    parser.add_argument("--datasets", default="", help="instead of the profile's, e.g. 'baf'")
    asked = parser.parse_args(arguments)
    try:
        values = parameters(asked.notebook, asked.profile, asked.seeds, asked.datasets)
    except ConfigError as error:
        print(one_line(f"{asked.notebook.name}: {error}"), file=sys.stderr)
        return 2
    return run(asked.notebook, asked.output, values)


if __name__ == "__main__":
    sys.exit(main())
