"""A user's own Python file, loaded by its path: what it registers can be named in a config afterwards."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from qfl_core.base.errors import ConfigError, DataError, RunError
from qfl_core.runs.plugin_identity.ownership import existing, is_own


def load_plugin_file(path: str | Path) -> None:
    """Run a Python file, which registers methods, datasets, losses or circuits.

    The file becomes the module of its own name, and its folder is added to the end of Python's search path, so that the
    processes of a sweep can import it. A file that was already loaded is not run again.

    Raises
    ------
    ConfigError
        Where the file is missing, where it is not Python, where it raises an error, or where another module has its
        name.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise ConfigError(f"the plugin {path} does not exist")
    name = file.stem
    if file.suffix != ".py" or not name.isidentifier():
        raise ConfigError(f"the plugin {path} is not a Python file: expected a name such as my_study.py")
    if _is_loaded(name, file):
        return
    spec = spec_from_file_location(name, file)
    assert spec is not None  # because the name ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(file.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        sys.path.remove(str(file.parent))
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"the plugin {path} cannot be loaded: {reason}") from error


@contextmanager
def own_errors_in_a_line() -> Iterator[None]:
    """Turn an error of a user's own code, such as a KeyError, into a RunError that names the error, file and line.

    Errors that already end in a line stay as they are, and so do errors in which no code of the user's took part.
    """
    try:
        yield
    except (ConfigError, DataError, RunError, OSError):
        raise
    except Exception as error:
        called = traceback.extract_tb(error.__traceback__)
        own = [place for place in called if (file := existing(place.filename)) is not None and is_own(file)]
        if not own:
            raise
        place = f"line {own[-1].lineno} of {own[-1].filename}"
        raise RunError(f"{place} raises {type(error).__name__}: {error}; correct the plugin and start again") from error


def _is_loaded(name: str, file: Path) -> bool:
    """Return whether this very file is loaded; a name that means another module is refused."""
    if name in sys.modules:
        found = getattr(sys.modules[name], "__file__", None)
    else:
        spec = find_spec(name)
        found = str(file) if spec is None else spec.origin
    if found is None or Path(found).resolve() != file:
        raise ConfigError(f"the plugin {file.name} has the name of another Python module, {name!r}: rename the file")
    return name in sys.modules
