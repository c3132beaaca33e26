"""The identity of a plugin: a SHA-256 of all that decides what the plugin computes.

The digest covers the values of the plugin's row and the code behind them. It follows a function to its closure, its
defaults, its attributes, the globals that it uses and what it imports; it follows an object to its class and to its
attributes. Of a user's own files the whole code counts, and so does the code of the user's files that they import. An
installed library counts by its name, its version and the file of the function or class that is used.

What a function reads while it runs (files, the environment, the clock) is not seen, nor is a module that it imports by
a text (``importlib.import_module("my_helper")``): use an import statement. Dataset files have a digest of their own,
see :class:`qfl_core.base.registry.DatasetSpec`. A value that changes after the identity was taken is not seen either:
register the plugin again.

:mod:`.digest` collects what is read and refuses what cannot be read; :mod:`.values` walks through values, :mod:`.code`
through functions, classes and modules; :mod:`.ownership` tells a user's code from that of a library; and
:mod:`.source_files` reads the user's files.
"""

from __future__ import annotations

from qfl_core.base.errors import ConfigError
from qfl_core.runs.plugin_identity.code import Reader

__all__ = ["identity"]


def identity(row: object) -> str:
    """Return the SHA-256 (hex) of a plugin's row: its values, and the code and state that they lead to.

    The digest is the same in every process, whatever Python's hash seed.

    Raises
    ------
    ConfigError
        Where a value cannot be identified: an open file, a lock, a running generator, code that is in no file. The
        message says where the value was found.
    """
    try:
        return Reader().digest(row)
    except RecursionError:
        raise ConfigError("the plugin cannot be identified because its values are nested too deeply") from None
