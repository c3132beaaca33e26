"""The identity of a plugin: a SHA-256 of all that decides what the plugin computes.

The digest covers the values of the plugin's row and the code behind them. It follows a function to its closure, its
defaults, its attributes and the globals that it uses; it follows an object to its class and to its attributes. Of a
user's own files the whole code counts, and so does the code of the user's files that they import. An installed library
counts by its name, its version and the file of the function or class that is used.

What a function reads while it runs (files, the environment, the clock) is not seen. Dataset files have a digest of
their own, see :class:`qfl_core.base.registry.DatasetSpec`.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.util
import logging
import os
import sys
import sysconfig
import types
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Protocol, TypeGuard

import numpy as np

from qfl_core.base import registry
from qfl_core.base.errors import ConfigError
from qfl_core.base.source_code import tree_digest

_PACKAGE = Path(__file__).resolve().parents[1]
_PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib"))
_PLAIN = (str, bytes, int, float, complex)
_SINGLE = (None, Ellipsis, NotImplemented)
#: Attributes of a class that do not decide what it computes, or that the code of its file decides.
_SILENT = {
    "__abstractmethods__", "__annotations__", "__annotate__", "__annotate_func__", "__dataclass_params__", "__dict__",
    "__doc__", "__firstlineno__", "__match_args__", "__module__", "__orig_bases__", "__parameters__", "__qualname__",
    "__static_attributes__", "__weakref__", "_abc_impl", "_is_protocol", "_is_runtime_protocol",
}  # fmt: skip
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
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)


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
        return _Reader().digest(row)
    except RecursionError:
        raise ConfigError("the plugin cannot be identified because its values are nested too deeply") from None


class _Reader:
    """Reads values into one digest. An object that was met before is written as its number, so cycles end."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._met: dict[object, int] = {}
        self._kept: list[object] = []  # because the number of an object in ``_met`` is its address
        self._trail: list[str] = []

    def digest(self, value: object) -> str:
        """Read a value and return the digest of all that was read."""
        self._read(value)
        return self._sha.hexdigest()

    def _write(self, what: str, content: str | bytes = b"") -> None:
        """Add a piece to the digest. Its length is in front, so two pieces never read like one."""
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self._sha.update(f"{what} {len(content)}:".encode())
        self._sha.update(content)

    def _refuse(self, what: str, why: str) -> ConfigError:
        place = f" ({', '.join(self._trail)})" if self._trail else ""
        return ConfigError(f"a plugin cannot be identified: {what}{place}, because {why}")

    @contextmanager
    def _inside(self, place: str) -> Iterator[None]:
        self._trail.append(place)
        yield
        self._trail.pop()

    def _is_known(self, key: object, value: object) -> bool:
        """Return whether this object was read before, and write its number in that case."""
        if key in self._met:
            self._write("again", str(self._met[key]))
            return True
        self._met[key] = len(self._met)
        self._kept.append(value)
        return False

    # Values

    def _read(self, value: object) -> None:
        kind = type(value)
        if any(value is one for one in _SINGLE) or kind in (*_PLAIN, bool, range, slice):
            self._write(kind.__name__, ascii(value))
        elif isinstance(value, np.generic) and not value.dtype.hasobject:
            self._read(value.dtype)
            self._write("number", value.tobytes())
        elif isinstance(value, np.dtype):
            self._write("dtype", ascii(value.descr if value.names else value.str))
        elif kind in (tuple, frozenset) or _is_plain_array(value):
            self._read_content(value)  # each time anew, because Python may share equal constants
        elif _is_typing(value):
            self._write("type hint", repr(value))
        elif isinstance(value, types.ModuleType):
            self._read_module(value, None)
        elif not self._is_known(id(value), value):
            self._read_object(value)

    def _read_object(self, value: object) -> None:
        """Read a value that has an identity of its own; it was not met before."""
        kind = type(value)
        if isinstance(value, types.FunctionType):
            self._read_function(value)
        elif isinstance(value, type):
            self._read_class(value)
        elif id(value) in _TABLES:
            self._write("table", _TABLES[id(value)])
        elif kind in (list, dict, set, bytearray, np.ndarray, types.MappingProxyType):
            self._read_content(value)
        elif kind in _HOLDERS:
            self._write(kind.__name__)
            for name in _HOLDERS[kind]:
                self._read(getattr(value, name))
        elif isinstance(value, types.BuiltinFunctionType):
            self._read_named(value.__module__, value.__qualname__)
            if not isinstance(value.__self__, types.ModuleType | None):
                self._read(value.__self__)
        elif isinstance(value, (*_IN_C, *_SLOTS)):
            self._write("descriptor", f"{value.__objclass__.__module__} {value.__qualname__}")
        elif isinstance(value, np.ufunc):
            self._read_ufunc(value)
        elif isinstance(value, enum.Enum):
            self._read(kind)
            self._write("member", value.name)
        elif _is_named(value) and _is_library(value.__module__):  # a function in C
            self._read_named(value.__module__, value.__qualname__)
        elif isinstance(value, logging.Logger):
            self._write("logger", value.name)
        else:
            self._read_instance(value)

    def _read_content(self, value: object) -> None:
        """Read what a container, an array or a plain value holds."""
        if isinstance(value, (tuple, list)):
            self._write("tuple" if isinstance(value, tuple) else "list", str(len(value)))
            for item in value:
                self._read(item)
        elif isinstance(value, (dict, types.MappingProxyType)):
            self._write("entries", str(len(value)))
            for key, item in value.items():
                self._read(key)
                with self._inside(f"entry {key!r}" if isinstance(key, (str, int)) else "an entry"):
                    self._read(item)
        elif isinstance(value, (set, frozenset)):
            self._write("set", str(len(value)))
            # The order of a set differs between processes; the order of its members' own digests does not.
            for _, item in sorted(((_Reader().digest(item), item) for item in value), key=lambda pair: pair[0]):
                self._read(item)
        elif isinstance(value, np.ndarray):
            self._read(value.dtype)
            self._write("shape", ascii(value.shape))
            if value.dtype.hasobject:
                self._read(value.ravel().tolist())
            else:
                self._write("bytes", np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (bytes, bytearray)):
            self._write("bytes", bytes(value))
        elif isinstance(value, str):
            self._write("str", str.__str__(value))
        elif isinstance(value, (int, float, complex)):
            plain = next(kind for kind in (int, float, complex) if isinstance(value, kind))
            self._write(plain.__name__, plain.__repr__(value))

    # Objects

    def _read_instance(self, value: object) -> None:
        kind = type(value)
        if kind.__module__.partition(".")[0] == "qiskit":
            raise self._refuse(
                f"an object of {kind.__qualname__}", "Qiskit gives it a random name: make it inside the function"
            )
        if isinstance(value, type(os.environ)):
            raise self._refuse("the environment of the process", "it differs between processes")
        self._read(kind)
        if _is_own_class(kind):
            self._read_attributes(value)
            if isinstance(value, (*_PLAIN, tuple, list, dict, set, frozenset, bytearray, np.ndarray)):
                self._read_content(value)
            elif not all(_is_own_class(base) or _is_stateless(base) for base in kind.__mro__):
                self._read_reduced(value)
        elif isinstance(wrapped := getattr(value, "__wrapped__", None), types.FunctionType):
            self._read(wrapped)  # lru_cache and its like hold a function and what they remember of its results
        else:
            self._read_reduced(value)

    def _read_attributes(self, value: object) -> None:
        """Read the attributes of an object, and what its ``__slots__`` hold; a cached property is no state."""
        found = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            for name, member in vars(kind).items():
                if isinstance(member, types.MemberDescriptorType):
                    with suppress(AttributeError):  # the slot is empty
                        found[f"{kind.__qualname__}.{name}"] = member.__get__(value, kind)
                elif isinstance(member, functools.cached_property):
                    found.pop(name, None)
        self._read_named_values("attribute", found)

    def _read_named_values(self, what: str, values: dict[str, object]) -> None:
        self._write(what, str(len(values)))
        for name, value in sorted(values.items()):
            self._write("name", name)
            with self._inside(f"{what} {name!r}"):
                self._read(value)

    def _read_reduced(self, value: object) -> None:
        """Read an object of a library as Python would copy it; what Python cannot copy is refused."""
        kind = type(value)
        what = f"an object of {kind.__module__}.{kind.__qualname__}"
        if isinstance(value, Iterator):
            raise self._refuse(what, "an open file, a generator or another iterator changes when it is read")
        try:
            found = value.__reduce_ex__(4)
            if isinstance(found, str):
                self._write("global", f"{kind.__module__} {found}")
                return
            parts = [list(part) if isinstance(part, Iterator) else part for part in found]
        except Exception as error:
            raise self._refuse(what, f"Python cannot copy its state ({error})") from None
        with self._inside(what):
            for part in parts:
                self._read(part)

    # Code

    def _read_function(self, value: types.FunctionType) -> None:
        file = _file(value.__code__.co_filename)
        if _is_named(value) and _is_library(value.__module__):
            self._read_named(value.__module__, value.__qualname__)
            return
        if file is None:
            raise self._refuse_code(value)
        with self._inside(f"function {value.__qualname__}"):
            self._write("function", value.__qualname__)
            self._read(value.__defaults__)
            self._read_named_values("default", value.__kwdefaults__ or {})
            self._read_named_values("attribute", value.__dict__)
            self._read_named_values("closure", _closure(value))
            if _is_own(file):
                self._read_file(file)
                self._check_loaded(value, file)
                self._read_globals(value)
            else:
                self._read_named(value.__module__, value.__qualname__)

    def _read_globals(self, value: types.FunctionType) -> None:
        """Read the globals that a function uses; of a module, the values whose names stand in the function."""
        used = _names(value.__code__)
        for name in sorted(_global_names(value.__code__) & value.__globals__.keys()):
            self._write("global", name)
            with self._inside(f"global {name!r}"):
                self._read_used(value.__globals__[name], used)

    def _read_used(self, value: object, used: Collection[str]) -> None:
        if isinstance(value, types.ModuleType):
            self._read_module(value, used)
        else:
            self._read(value)

    def _read_class(self, value: type) -> None:
        if _is_library(value.__module__):
            self._read_named(value.__module__, value.__qualname__)
            return
        module = sys.modules.get(value.__module__)
        file = _file(getattr(module, "__file__", None))
        if file is None:
            raise self._refuse_code(value)
        with self._inside(f"class {value.__qualname__}"):
            self._write("class", value.__qualname__)
            self._read_file(file)
            self._read((type(value), *value.__bases__))
            found = {name: item for name, item in vars(value).items() if name not in _SILENT}
            if fields := found.pop("__dataclass_fields__", None):
                found |= {f"field {one.name}": (one.default, one.default_factory) for one in fields.values()}
            if dataclasses.is_dataclass(value) or hasattr(value, "_field_defaults"):  # Python wrote methods for it
                found = {name: item for name, item in found.items() if not _is_generated(item)}
            self._read_named_values("attribute", found)

    def _read_named(self, module: str | None, name: str) -> None:
        """Read code of the package or a library: its name, and of an installed library its version and file.

        The package's training code is part of every run's identity.
        """
        top = str(module).partition(".")[0]
        self._write("named", f"{module} {name}")
        if _is_package(module) or top in sys.stdlib_module_names:
            return
        self._write("version", str(getattr(sys.modules.get(top), "__version__", "")))
        file = _file(getattr(sys.modules.get(str(module)), "__file__", None))
        if file is not None and file.suffix == ".py":
            self._read_file(file)

    def _read_module(self, module: types.ModuleType, used: Collection[str] | None) -> None:
        """Read a module: of a user's own its code, and the values that the code which holds it may use by name."""
        name = module.__name__
        if _is_library(name):
            self._write("module", f"{name} {getattr(module, '__version__', '')}")
            return
        if used is None:
            raise self._refuse(f"the module {name}", "its values may change: keep the values that are used instead")
        if self._is_known((id(module), tuple(sorted(used))), module):
            return
        self._write("module", name)
        if (file := _module_file(name)) is not None:  # a package without __init__.py has none
            self._read_file(file)
        for attribute in sorted(vars(module).keys() & set(used)):
            self._write("name", attribute)
            with self._inside(f"{name}.{attribute}"):
                self._read_used(vars(module)[attribute], used)

    def _read_ufunc(self, value: np.ufunc) -> None:
        for module in ("numpy", "scipy.special"):
            if getattr(sys.modules.get(module), value.__name__, None) is value:
                self._read_named(module, value.__name__)
                return
        raise self._refuse(f"the ufunc {value.__name__}", "its code is in no file: use a function instead")

    def _read_file(self, file: Path) -> None:
        try:
            self._write("code", _code_of(file))
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise self._refuse(f"the code of {file.name}", f"it cannot be read ({error})") from None

    def _check_loaded(self, function: types.FunctionType, file: Path) -> None:
        """Refuse a function whose file was edited after Python had read it: the file is not what runs."""
        if not isinstance(function.__globals__.get("__loader__"), SourceFileLoader):
            return  # another loader may rewrite code, as pytest does
        if function.__code__ not in _compiled(file.read_bytes()):
            what = f"the code of {function.__qualname__}"
            raise self._refuse(what, f"{file.name} was changed after Python had read it: start Python again")

    def _refuse_code(self, value: types.FunctionType | type) -> ConfigError:
        return ConfigError(
            f"the code of {value.__qualname__} cannot be read: define it in a file and import it from there"
        )


def _is_plain_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and type(value) is np.ndarray and not value.dtype.hasobject


def _is_typing(value: object) -> bool:
    return type(value).__module__ == "typing" or isinstance(value, (types.GenericAlias, types.UnionType))


def _is_package(module: str | None) -> bool:
    return str(module).partition(".")[0] == "qfl_core"


def _file(name: str | None) -> Path | None:
    """Return the file of this name, or None where there is none."""
    path = Path(name or "")
    return path.resolve() if path.is_file() else None


def _is_own(file: Path) -> bool:
    """Return whether a file is a user's own: not Python's, not an installed library's and not the package's."""
    return not any(file.is_relative_to(root) for root in (*_PYTHON, *_INSTALLED, _PACKAGE))


def _is_library(module: str | None) -> bool:
    """Return whether a module is the package's, Python's or an installed library's."""
    if _is_package(module) or str(module).partition(".")[0] in sys.stdlib_module_names:
        return True
    name = str(module)
    while name:  # parts of a library in C have no file, but the library has
        if (file := _file(getattr(sys.modules.get(name), "__file__", None))) is not None:
            return not _is_own(file)
        name = name.rpartition(".")[0]
    return False


def _is_own_class(kind: type) -> bool:
    """Return whether a class is a user's own or the package's; the attributes of its objects are all their state."""
    return _is_package(kind.__module__) or not _is_library(kind.__module__)


def _is_stateless(kind: type) -> bool:
    """Return whether objects have no state of their own because of this base class."""
    return kind is object or kind.__module__ in ("abc", "typing", "collections.abc")


def _closure(value: types.FunctionType) -> dict[str, object]:
    """Return what a function keeps of the function that made it; cells without a value yet are left out."""
    found: dict[str, object] = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


class _Named(Protocol):
    __module__: str
    __qualname__: str


def _is_named(value: object) -> TypeGuard[_Named]:
    """Return whether a value is what its module has under its name: no closure and no decorator's wrapper is."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return False
    found: object = sys.modules.get(str(getattr(value, "__module__", None)))
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _is_generated(item: object) -> bool:
    """Return whether Python wrote a method from a class's fields, as it does for dataclasses and named tuples."""
    item = getattr(item, "__func__", item)
    item = getattr(item, "__wrapped__", item)
    return isinstance(item, types.FunctionType) and item.__code__.co_filename.startswith("<")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    return {name for one in _codes(code) for name in one.co_names}


def _global_names(code: types.CodeType) -> set[str]:
    """Return the globals that a function reads. Names such as ``__file__`` are left out: they hold paths."""
    found = {
        str(step.argval)
        for one in _codes(code)
        for step in dis.get_instructions(one)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return {name for name in found if not (name.startswith("__") and name.endswith("__"))}


@lru_cache(maxsize=256)
def _compiled(source: bytes) -> frozenset[types.CodeType]:
    """Return the code of all functions in a source text."""
    return frozenset(_codes(compile(source, "<source>", "exec", dont_inherit=True)))


def _code_of(file: Path) -> str:
    """Return the digest of a file's code and of the code of the user's files that it imports.

    Docstrings, comments and layout do not count.
    """
    files = {file: ""}
    waiting = [file]
    for current in waiting:
        for name, found in _imported(current):
            if found not in files:
                files[found] = name
                waiting.append(found)
    return " ".join(f"{name}={_tree(_source(path))}" for path, name in files.items())


def _source(file: Path) -> str:
    return importlib.util.decode_source(file.read_bytes())


_tree = lru_cache(maxsize=256)(tree_digest)


def _imported(file: Path) -> Iterator[tuple[str, Path]]:
    """Yield the user's own files that a user's file imports, also inside functions, with the names it has for them.

    What is imported from a library is not followed.
    """
    if not _is_own(file):
        return
    for name in _import_names(_source(file)):
        found = _relative_file(name, file) if name.startswith(".") else _module_file(name)
        if found is not None and _is_own(found):
            yield name, found


@lru_cache(maxsize=256)
def _import_names(source: str) -> tuple[str, ...]:
    """Return the modules that a source text may import, sorted; dots in front are relative to its file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            joint = "" if base.endswith(".") else "."
            names |= {base, *(f"{base}{joint}{alias.name}" for alias in node.names)}
    parents = {name[:at] for name in names for at, sign in enumerate(name) if sign == "." and name[:at].strip(".")}
    return tuple(sorted(names | parents))


def _relative_file(name: str, file: Path) -> Path | None:
    """Return the file of a module that another file names relative to itself."""
    rest = name.lstrip(".")
    return _python_file(file.parents[len(name) - len(rest) - 1], rest)


def _module_file(name: str) -> Path | None:
    """Return the file of a module, whether it is loaded or not; None where it has none. Nothing is imported."""
    if name in sys.modules:
        return _file(getattr(sys.modules[name], "__file__", None))
    top, _, rest = name.partition(".")
    if top in sys.stdlib_module_names or _is_package(top):
        return None
    with suppress(ImportError, ValueError):  # what cannot be found is not the user's file
        spec = importlib.util.find_spec(top)
        if spec is not None and not rest:
            return _file(spec.origin)
        places = (spec and spec.submodule_search_locations) or ()
        return next(filter(None, (_python_file(Path(place), rest) for place in places)), None)
    return None


def _python_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module in a folder, by its dotted name."""
    target = folder.joinpath(*name.split("."))
    return _file(f"{target}.py") or _file(str(target / "__init__.py"))
