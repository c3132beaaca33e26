"""Values from the command line: text becomes a value of the type that a setting declares, and nothing is guessed.

YAML is not used here, because it reads ``1:30`` as 90, ``08`` as text, an empty value as None and ``no`` as False.
"""

from __future__ import annotations

import argparse
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Union

from qfl_core.base.errors import ConfigError, did_you_mean, one_line
from qfl_core.base.settings import Settings

_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NONE = ("none", "null")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with status 2, and which takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"allow_abbrev": False} | options))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the words; a value ``--`` is refused, because argparse would make an empty list of ``--option=--``."""
        for word in args or ():
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"argument {word.removesuffix('=--')}: '--' is not valid")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the reason and end."""
        print(one_line(f"{self.prog}: {message}"), file=sys.stderr)
        sys.exit(2)


def read_value(kind: Any, text: str) -> Any:
    """Read text as a value of a type.

    Parameters
    ----------
    kind : ``str``, ``int``, ``float``, ``None``, a tuple type such as ``tuple[int, ...]``, or a union of these.
    text : digits for whole numbers; also a point and an exponent for other numbers; ``[a, b]`` for lists; ``none`` or
        ``null`` for None; names as they are.

    Raises
    ------
    ConfigError
        Where the text is empty or is anything else.
    """
    try:
        return _read(kind, text)
    except ValueError:
        raise ConfigError(f"{text!r} is not valid: expected {_described(kind)}") from None


def option(kind: Any) -> Callable[[str], Any]:
    """Return :func:`read_value` for one type, in the form that ``add_argument(type=...)`` needs."""

    def read(text: str) -> Any:
        try:
            return read_value(kind, text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def path_option(text: str) -> Path:
    """Read a path; ``~`` is the home folder. An empty one is refused, because it would mean the current folder."""
    try:
        return Path(option(str)(text)).expanduser()
    except RuntimeError as error:  # nobody has this name
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: {error}") from None


def setting_types(settings: type[Settings]) -> dict[str, Any]:
    """Return the declared type of every setting."""
    hints = typing.get_type_hints(settings)
    return {name: hints[name] for name in settings.describe()}


def read_pair(settings: type[Settings], text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``, where the name is one of the settings."""
    name, equals, value = text.partition("=")
    name, kinds = name.replace("-", "_"), setting_types(settings)
    if not equals:
        raise ConfigError(f"{text!r} cannot be read: expected NAME=VALUE")
    if name not in kinds:
        hint = did_you_mean(name, kinds)
        raise ConfigError(f"unknown {settings.noun} {name!r}{hint}; known {settings.noun}s: {', '.join(kinds)}")
    try:
        return name, read_value(kinds[name], value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _read(kind: Any, text: str) -> Any:
    """Return the value, or raise a ValueError without a message."""
    if _is_union(kind):
        for member in sorted(typing.get_args(kind), key=lambda k: k is str):  # every text is a name: asked last
            try:
                return _read(member, text)
            except ValueError:
                continue
        raise ValueError
    if typing.get_origin(kind) is tuple:
        return _read_list(typing.get_args(kind), text)
    if kind is types.NoneType:
        return _accept(text.lower() in _NONE, lambda _: None, text)
    if kind is int:
        return _accept(_WHOLE.fullmatch(text) is not None, int, text)
    if kind is float:
        return _accept(_NUMBER.fullmatch(text) is not None, float, text)
    return _accept(bool(text.strip()), str, text)


def _read_list(kinds: tuple[Any, ...], text: str) -> list[Any]:
    """Read ``[a, b]``; a config's check counts the members."""
    if not (text.startswith("[") and text.endswith("]")):
        raise ValueError
    inside = text[1:-1].strip()
    return [_read(kinds[0], word.strip()) for word in inside.split(",")] if inside else []


def _accept(valid: bool, convert: Callable[[str], Any], text: str) -> Any:
    if not valid:
        raise ValueError
    return convert(text)  # int() refuses thousands of digits with a ValueError, too


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (Union, types.UnionType)


def _described(kind: Any) -> str:
    if _is_union(kind):
        return " or ".join(_described(member) for member in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        examples = {int: "whole numbers, such as [1, 2]", float: "numbers, such as [0.1, 2]"}
        return f"a list of {examples.get(typing.get_args(kind)[0], 'names, such as [a, b]')}"
    plain = {types.NoneType: "none", int: "a whole number, such as 10", float: "a number, such as 0.01 or 1e-2"}
    return plain.get(kind, "some text")
