"""Read code into a digest: functions with their closures and globals, classes, modules, and parts of libraries."""

from __future__ import annotations

import dataclasses
import dis
import types
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from sys import modules

import numpy as np

from qfl_core.base.errors import ConfigError
from qfl_core.runs.plugin_identity.ownership import (
    existing,
    is_library,
    is_named,
    is_own,
    is_package,
    is_standard,
    loaded_file,
    version,
)
from qfl_core.runs.plugin_identity.source_files import code_of, module_file
from qfl_core.runs.plugin_identity.values import Values

#: Attributes of a class that do not decide what it computes, or that the code of its file decides. Python adds
#: ``__slotnames__`` when it copies or pickles the first object of the class.
_SILENT = {
    "__abstractmethods__", "__annotations__", "__annotate__", "__annotate_func__", "__dataclass_params__", "__dict__",
    "__doc__", "__firstlineno__", "__match_args__", "__module__", "__orig_bases__", "__parameters__", "__qualname__",
    "__slotnames__", "__static_attributes__", "__weakref__", "_abc_impl", "_is_protocol", "_is_runtime_protocol",
}  # fmt: skip
#: Methods that Python writes for dataclasses and named tuples.
_WRITTEN = {
    "__init__", "__new__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__replace__",
    "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__getnewargs__", "_make", "_replace", "_asdict",
}  # fmt: skip
#: Globals of every module that Python sets; some hold paths.
_OF_MODULES = {
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__path__",
    "__builtins__", "__annotations__", "__annotate__",
}  # fmt: skip
#: What a function calls to find a global by a text.
_BY_TEXT = {"globals", "vars", "locals", "getattr", "eval", "exec"}
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
#: Set in ``__flags__`` of a class that was made while Python ran (Py_TPFLAGS_HEAPTYPE).
_MADE_BY_CODE = 1 << 9


class Reader(Values):
    """Reads values and the code that they lead to."""

    def read_code(self, value: object) -> bool:
        """Read a function, a class or another piece of code; return False where the value is none."""
        if isinstance(value, types.FunctionType):
            self._read_function(value)
        elif isinstance(value, type):
            self._read_class(value)
        elif isinstance(value, types.BuiltinFunctionType):
            self._read_library(value.__module__, value.__qualname__)
            if not isinstance(value.__self__, types.ModuleType | None):
                self.read(value.__self__)
        elif isinstance(value, _DESCRIPTORS):
            self.write("descriptor", f"{value.__objclass__.__module__} {value.__qualname__}")
        elif isinstance(value, np.ufunc):
            self._read_ufunc(value)
        elif is_named(value) and is_library(value.__module__):  # a function in C
            self._read_library(value.__module__, value.__qualname__)
        else:
            return False
        return True

    def read_module(self, module: types.ModuleType) -> None:
        """Read a module that is kept as a value: a library's, because of a user's own any value may be used."""
        self._read_module(module, None)

    def _read_function(self, value: types.FunctionType) -> None:
        if is_named(value) and is_library(value.__module__):
            self._read_library(value.__module__, value.__qualname__)
            return
        file = existing(value.__code__.co_filename)
        if file is None:
            raise _no_file(value)
        with self.inside(f"function {value.__qualname__}"):
            self.write("function", value.__qualname__)
            self.read(value.__defaults__)
            self.read_named("default", value.__kwdefaults__ or {})
            self.read_named("attribute", value.__dict__)
            self.read_named("closure", _closure(value))
            if is_own(file):
                self._read_file(file)
                self._check_loaded(value, file)
                self._read_globals(value)
                self._read_imports(value)
            else:
                self._read_library(value.__module__, value.__qualname__)

    def _check_loaded(self, function: types.FunctionType, file: Path) -> None:
        """Refuse a function whose file was edited after Python had read it: the file is not what runs."""
        if not isinstance(function.__globals__.get("__loader__"), SourceFileLoader):
            return  # another loader may rewrite code, as pytest does
        if function.__code__ not in _compiled(file.read_bytes()):
            what = f"the code of {function.__qualname__}"
            raise self.refusal(what, f"{file.name} was changed after Python had read it: start Python again")

    def _read_globals(self, value: types.FunctionType) -> None:
        """Read the globals that a function uses; of a module, the values whose names stand in the function."""
        used = _names(value.__code__)
        for name in sorted(_global_names(value.__code__) & value.__globals__.keys()):
            self.write("global", name)
            with self.inside(f"global {name!r}"):
                self._read_used(value.__globals__[name], used)

    def _read_imports(self, value: types.FunctionType) -> None:
        """Read what a function imports while it runs, as if it were imported at the top of its file."""
        used = _names(value.__code__)
        for name, names, level in _imports(value.__code__):
            self.write("import", f"{'.' * level}{name}")
            if not level and (is_package(name) or is_standard(name)):
                continue  # because their code counts by name
            try:
                module = __import__(name, value.__globals__, None, names, level)
            except Exception:  # what cannot be imported is missing when the function runs, too
                continue
            with self.inside(f"import {name}"):
                self._read_used(module, used)

    def _read_used(self, value: object, used: Collection[str]) -> None:
        if isinstance(value, types.ModuleType):
            self._read_module(value, used)
        else:
            self.read(value)

    def _read_class(self, value: type) -> None:
        library = is_library(value.__module__)
        if library and not _is_foreign(value):
            self._read_library(value.__module__, value.__qualname__)
            return
        file = loaded_file(value.__module__)
        if file is None and not library:
            raise _no_file(value)
        with self.inside(f"class {value.__qualname__}"):
            self.write("class", value.__qualname__)
            if file is not None:
                self._read_file(file)
            self.read((type(value), *value.__bases__))
            found = {name: item for name, item in vars(value).items() if name not in _SILENT}
            if fields := found.pop("__dataclass_fields__", None):
                found |= {f"field {one.name}": (one.default, one.default_factory) for one in fields.values()}
            if dataclasses.is_dataclass(value) or hasattr(value, "_field_defaults"):  # Python wrote methods for it
                found = {name: item for name, item in found.items() if not _is_generated(name, item)}
            self.read_named("attribute", found)

    def _read_module(self, module: types.ModuleType, used: Collection[str] | None) -> None:
        """Read a module: of a user's own its code, and the values that the code which holds it may use by name."""
        name = module.__name__
        if is_library(name):
            self.write("module", f"{name} {getattr(module, '__version__', '')}")
            return
        if used is None:
            raise self.refusal(f"the module {name}", "its values may change: keep the values that are used instead")
        key = (id(module), tuple(sorted(used)))
        self.write_object(key, module, lambda: self._read_own_module(module, used))

    def _read_own_module(self, module: types.ModuleType, used: Collection[str]) -> None:
        name = module.__name__
        self.write("module", name)
        if (file := module_file(name)) is not None:  # a package without __init__.py has none
            self._read_file(file)
        for attribute in sorted(vars(module).keys() & set(used)):
            self.write("name", attribute)
            with self.inside(f"{name}.{attribute}"):
                self._read_used(vars(module)[attribute], used)

    def _read_ufunc(self, value: np.ufunc) -> None:
        for module in ("numpy", "scipy.special"):
            if getattr(modules.get(module), value.__name__, None) is value:
                self._read_library(module, value.__name__)
                return
        raise self.refusal(f"the ufunc {value.__name__}", "its code is in no file: use a function instead")

    def _read_library(self, module: str | None, name: str) -> None:
        """Read code of the package or a library: its name, and of an installed library its version and file.

        The package's training code is part of every run's identity.
        """
        self.write("named", f"{module} {name}")
        if is_package(module) or is_standard(module):
            return
        self.write("version", version(module))
        file = loaded_file(module)
        if file is not None and file.suffix == ".py":
            self._read_file(file)

    def _read_file(self, file: Path) -> None:
        try:
            self.write("code", code_of(file))
        except (OSError, SyntaxError, ValueError) as error:
            raise self.refusal(f"the code of {file.name}", f"it cannot be read ({error})") from None


def _no_file(value: types.FunctionType | type) -> ConfigError:
    return ConfigError(f"the code of {value.__qualname__} cannot be read: define it in a file and import it from there")


def _is_foreign(value: type) -> bool:
    """Return whether a class was made by a call, such as ``types.new_class``, which gives it the caller's module.

    Such a class is not what the module has under its name, and it is neither built into Python nor local to a function.
    """
    return bool(value.__flags__ & _MADE_BY_CODE) and not is_named(value) and "<locals>" not in value.__qualname__


def _closure(value: types.FunctionType) -> dict[str, object]:
    """Return what a function keeps of the function that made it; cells without a value yet are left out."""
    found: dict[str, object] = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _is_generated(name: str, item: object) -> bool:
    """Return whether Python wrote a method from a class's fields, as it does for dataclasses and named tuples."""
    item = getattr(item, "__func__", item)
    item = getattr(item, "__wrapped__", item)
    return name in _WRITTEN and isinstance(item, types.FunctionType) and item.__code__.co_filename.startswith("<")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    """Return every name in a function."""
    return {name for one in _codes(code) for name in one.co_names} | _quoted_names(code)


def _global_names(code: types.CodeType) -> set[str]:
    """Return the globals that a function may read, but for those that Python sets in every module."""
    found = {
        str(step.argval)
        for one in _codes(code)
        for step in dis.get_instructions(one)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return (found | (_quoted_names(code) if found & _BY_TEXT else set())) - _OF_MODULES


def _imports(code: types.CodeType) -> Iterator[tuple[str, Sequence[str], int]]:
    """Yield what a function imports: the module, the names that are taken from it, and the dots in front of it."""
    for one in _codes(code):
        steps = [step for step in dis.get_instructions(one) if step.opname != "EXTENDED_ARG"]
        for at, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, names = steps[at - 2].argval, steps[at - 1].argval
                yield str(step.argval), names or (), level


def _quoted_names(code: types.CodeType) -> set[str]:
    """Return the texts in a function that may be names, as in ``globals()["POWER"]``."""
    return {word for one in _codes(code) for word in one.co_consts if isinstance(word, str) and word.isidentifier()}


@lru_cache(maxsize=256)
def _compiled(source: bytes) -> frozenset[types.CodeType]:
    """Return the code of all functions in a source text."""
    return frozenset(_codes(compile(source, "<source>", "exec", dont_inherit=True)))
