"""Read values into a digest: numbers, texts, containers, arrays, and objects with their attributes."""

from __future__ import annotations

import enum
import functools
import logging
import os
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from qfl_core.base import registry
from qfl_core.runs.plugin_identity.digest import Digest
from qfl_core.runs.plugin_identity.ownership import is_own_class

_SINGLE = (None, Ellipsis, NotImplemented)
_NUMBERS = (int, float, complex)
_PLAIN = (str, bytes, *_NUMBERS)
_CONTAINERS = (list, tuple, dict, set, frozenset, bytearray, np.ndarray, types.MappingProxyType)
#: Functions that remember their results, made by ``functools.lru_cache`` and ``functools.cache``.
_REMEMBERING = type(functools.lru_cache(len))
#: Descriptors that hold functions, and the attributes that hold them.
_HOLDERS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    types.MethodType: ("__func__", "__self__"),
}
#: The package's tables, by their address. Plugins add rows to them, so they count by name.
_TABLES = {id(table): name for name, table in vars(registry).items() if isinstance(table, dict)}


class Values(Digest, ABC):
    """A digest that reads values; how code is read is told by :class:`qfl_core.runs.plugin_identity.code.Reader`."""

    def __init__(self, cached: bool = True) -> None:
        super().__init__()
        self._cached = cached  # read cached properties that somebody has set

    def digest(self, value: object) -> str:
        """Read a value and return the digest of all that was read."""
        self.read(value)
        return self.hexdigest()

    @abstractmethod
    def read_code(self, value: object) -> bool:
        """Read a function, a class or another piece of code; return False where the value is none."""

    @abstractmethod
    def read_module(self, module: types.ModuleType) -> None:
        """Read a module that is kept as a value."""

    def read(self, value: object) -> None:
        """Read any value."""
        kind = type(value)
        if any(value is one for one in _SINGLE) or kind in (str, bytes, float, complex, bool, range):
            self.write(kind.__name__, ascii(value))
        elif type(value) is int:
            self.write("int", hex(value))  # Python refuses to write many decimal digits
        elif isinstance(value, slice):
            self.write("slice")
            self.read((value.start, value.stop, value.step))
        elif isinstance(value, np.generic) and not value.dtype.hasobject:
            self.write("number")
            self._read_array(np.asarray(value))
        elif isinstance(value, np.dtype):
            self._read_dtype(value)
        elif _is_type_hint(value):
            self.write("type hint", repr(value))
        elif isinstance(value, types.ModuleType):
            self.read_module(value)
        else:
            self.write_object(id(value), value, lambda: self._read_object(value))

    def read_named(self, what: str, values: Mapping[str, object]) -> None:
        """Read values by name, in the order of their names; ``what`` tells what they are."""
        self.write(what, str(len(values)))
        for name, value in sorted(values.items()):
            self.write("name", name)
            with self.inside(f"{what} {name!r}"):
                self.read(value)

    def _read_object(self, value: object) -> None:
        """Read a value that has an identity of its own."""
        kind = type(value)
        if id(value) in _TABLES:
            self.write("table", _TABLES[id(value)])
        elif kind in _CONTAINERS:
            self._read_content(value)
        elif kind in _HOLDERS:
            self.write(kind.__name__)
            for name in _HOLDERS[kind]:
                self.read(getattr(value, name))
        elif isinstance(value, enum.Enum):
            self.read(kind)
            self.write("member", str(value.name))
            self.read(value.value)
            self.read_named("attribute", {name: item for name, item in vars(value).items() if name[:1] != "_"})
        elif isinstance(value, logging.Logger):
            self.write("logger", value.name)
        elif not self.read_code(value):
            self._read_instance(value)

    def _read_content(self, value: object) -> None:
        """Read what a container, an array or a plain value holds."""
        # The methods are the containers' own, because a user's subclass may give something else than it holds.
        if isinstance(value, tuple):
            self._read_sequence("tuple", tuple.__iter__(value))
        elif isinstance(value, list):
            self._read_sequence("list", list.__iter__(value))
        elif isinstance(value, (dict, types.MappingProxyType)):
            entries = dict.items(value) if isinstance(value, dict) else value.items()
            self.write("entries", str(len(entries)))
            for key, item in entries:
                self.read(key)
                with self.inside(f"entry {key!r}" if isinstance(key, (str, int)) else "an entry"):
                    self.read(item)
        elif isinstance(value, (set, frozenset)):
            members = set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value)
            self.write_set(functools.partial(self.read, item) for item in members)
        elif isinstance(value, np.ndarray):
            self._read_array(value)
        elif isinstance(value, (bytes, bytearray)):
            self.write("bytes", bytes(value))
        elif isinstance(value, str):
            self.write("str", str.__str__(value))
        elif isinstance(value, int):
            self.read(int.__pos__(value))
        elif isinstance(value, float):
            self.read(float.__pos__(value))
        elif isinstance(value, complex):
            self.read(complex.__pos__(value))

    def _read_sequence(self, what: str, items: Iterator[object]) -> None:
        held = list(items)
        self.write(what, str(len(held)))
        for item in held:
            self.read(item)

    def _read_array(self, value: np.ndarray) -> None:
        """Read an array: its type, its shape and its numbers, without the bytes between them that mean nothing."""
        self._read_dtype(value.dtype)
        self.write("shape", ascii(value.shape))
        if value.dtype.names is not None:
            for name in value.dtype.names:
                self._read_array(value[name])
        elif value.dtype.hasobject or value.dtype.char in "gG":  # a long double has such bytes
            self.read([item if value.dtype.hasobject else repr(item) for item in value.ravel()])
        else:
            self.write("bytes", np.ascontiguousarray(value).tobytes())

    def _read_dtype(self, value: np.dtype) -> None:
        self.write("dtype", f"{value.str} {value.itemsize} {value.shape}")
        if value.subdtype is not None:
            self._read_dtype(value.base)
        for name, (kind, offset, *_) in (value.fields or {}).items():
            self.write("field", ascii((name, offset)))
            self._read_dtype(kind)

    def _read_instance(self, value: object) -> None:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "qiskit":
            raise self.refusal(
                f"an object of {kind.__qualname__}", "Qiskit gives it a random name: make it inside the function"
            )
        if isinstance(value, type(os.environ)):
            raise self.refusal("the environment of the process", "it differs between processes")
        self.read(kind)
        if is_own_class(kind):
            self.read_named("attribute", self._attributes(value))
            if isinstance(value, (*_PLAIN, *_CONTAINERS)):
                self._read_content(value)
            elif not all(is_own_class(base) or _is_stateless(base) for base in kind.__mro__):
                self._read_reduced(value)
        elif isinstance(value, _REMEMBERING):
            kept = {"__wrapped__": value.__wrapped__, **vars(value)}
            self.read_named(
                "attribute", {name: kept[name] for name in kept.keys() - set(functools.WRAPPER_ASSIGNMENTS)}
            )
        elif kind.__module__.startswith("numba.") and hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.read((value.py_func, value.targetoptions))  # the rest is what it remembers of compiling
        else:
            self._read_reduced(value)

    def _attributes(self, value: object) -> dict[str, object]:
        """Return the attributes and what ``__slots__`` hold of an object, but not what cached properties computed."""
        found = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            for name, member in list(vars(kind).items()):  # a computed property may add to the class
                if isinstance(member, types.MemberDescriptorType):
                    with suppress(AttributeError):  # the slot is empty
                        found[f"{kind.__qualname__}.{name}"] = member.__get__(value, kind)
                elif name not in found or not isinstance(member, functools.cached_property):
                    continue
                elif not self._cached or self._is_result(found[name], member, value):
                    del found[name]
        return found

    def _is_result(self, kept: object, member: functools.cached_property[object], owner: object) -> bool:
        """Return whether a cached property holds what it computes, and not a value that somebody has set instead."""
        try:
            # The new readers leave cached properties out, because what is read may lead back to the owner.
            return type(self)(cached=False).digest(member.func(owner)) == type(self)(cached=False).digest(kept)
        except Exception:  # what cannot be computed or identified is not compared
            return True

    def _read_reduced(self, value: object) -> None:
        """Read an object of a library as Python would copy it; what Python cannot copy is refused."""
        kind = type(value)
        what = f"an object of {kind.__module__}.{kind.__qualname__}"
        if isinstance(value, Iterator):
            raise self.refusal(what, "an open file, a generator or another iterator changes when it is read")
        try:
            found = value.__reduce_ex__(4)
            if isinstance(found, str):
                self.write("global", f"{kind.__module__} {found}")
                return
            parts = [list(part) if isinstance(part, Iterator) else part for part in found]
        except Exception as error:
            raise self.refusal(what, f"Python cannot copy its state ({error})") from None
        with self.inside(what):
            for part in parts:
                self.read(part)


def _is_type_hint(value: object) -> bool:
    return type(value).__module__ == "typing" or isinstance(value, (types.GenericAlias, types.UnionType))


def _is_stateless(kind: type) -> bool:
    """Return whether objects have no state of their own because of this base class."""
    return kind is object or kind.__module__ in ("abc", "typing", "collections.abc")
