"""An extension's identity covers everything that decides its result: after a change, the old run is not returned."""

import copy
import dataclasses
import enum
import functools
import importlib.machinery
import json
import os
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planted import small
from qiskit import QuantumCircuit

from qfl_core import data
from qfl_core.algorithm.hooks import Aggregation
from qfl_core.algorithm.methods import METHODS
from qfl_core.base.errors import ConfigError
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig
from qfl_core.runs import prepare
from qfl_core.runs.identity import run_identity
from qfl_core.runs.plugin_identity import identity
from qfl_core.runs.plugins import (
    register_ansatz,
    register_dataset,
    register_feature_map,
    register_loss,
    register_method,
)
from qfl_core.runs.run import run_experiment

ROOT = Path(__file__).resolve().parent.parent
CONFIG = {"dataset": "breast-cancer", "train_size": 200, "val_size": 60, "test_size": 60, "rounds": 1}

#: A file of a user. Its rule weights a client by a power of its size. The power comes from a text file, so that
#: the code stays the same when the value changes.
START = """
import collections, dataclasses, enum, functools, pathlib
import numpy as np

VALUE = int(pathlib.Path(__file__).with_name("value.txt").read_text())
"""
END = """
def weights(attendance, power):
    sizes = attendance.sizes ** (float(power) / 2)
    return sizes / sizes.sum()
"""
#: Where a value can be kept: the text between START and END. It defines ``rule``, and VALUE is 1 or 2.
PLACES = {
    "a global": """
POWER = VALUE

def rule(attendance, learned):
    return weights(attendance, POWER)
""",
    "a default": """
def rule(attendance, learned, power=VALUE):
    return weights(attendance, power)
""",
    "a keyword default": """
def rule(attendance, learned, *, power=VALUE):
    return weights(attendance, power)
""",
    "a global, named by a text": """
POWER = VALUE

def rule(attendance, learned):
    return weights(attendance, globals()["POWER"])
""",
    "a function that is called": """
POWER = VALUE

def power():
    return POWER

def rule(attendance, learned):
    return weights(attendance, power())
""",
    "a lambda": """
POWER = VALUE
rule = lambda attendance, learned: weights(attendance, POWER)
""",
    "a nested function": """
POWER = VALUE

def rule(attendance, learned):
    def power():
        return [POWER for _ in range(1)][0]
    return weights(attendance, power())
""",
    "a closure": """
def make(power):
    def rule(attendance, learned):
        return weights(attendance, power)
    return rule

rule = make(VALUE)
""",
    "a decorator": """
def powered(power):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(attendance, learned):
            return function(attendance, power)
        return wrapper
    return decorate

@powered(VALUE)
def rule(attendance, power):
    return weights(attendance, power)
""",
    "a cached function": """
POWER = VALUE

@functools.lru_cache
def power():
    return POWER

def rule(attendance, learned):
    return weights(attendance, power())
""",
    "a partial": """
def powered(attendance, learned, power):
    return weights(attendance, power)

rule = functools.partial(powered, power=VALUE)
""",
    "a partial that looks like its function": """
def powered(attendance, learned, power):
    return weights(attendance, power)

rule = functools.update_wrapper(functools.partial(powered, power=VALUE), powered)
""",
    "an attribute of a cached function": """
@functools.cache
def power():
    return power.value

power.value = VALUE

def rule(attendance, learned):
    return weights(attendance, power())
""",
    "a cached property that was set": """
class Rule:
    @functools.cached_property
    def power(self):
        return 1
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule()
if VALUE != 1:
    rule.power = VALUE
""",
    "a cached property that was set to a function": """
class Rule:
    @functools.cached_property
    def power(self):
        return lambda: 1
    @functools.cached_property
    def itself(self):
        return self
    def __call__(self, attendance, learned):
        return weights(attendance, self.power())

rule = Rule()
assert rule.itself is rule
if VALUE != 1:
    rule.power = lambda: VALUE
""",
    "a global with underscores": """
__power__ = VALUE

def rule(attendance, learned):
    return weights(attendance, __power__)
""",
    "a file with the name of one of Python's": """
import my_helper, sys
sys.modules["this"] = my_helper
my_helper.__name__ = "this"

def rule(attendance, learned):
    import this
    return weights(attendance, this.POWER)
""",
    "an attribute of a function": """
def rule(attendance, learned):
    return weights(attendance, rule.power)

rule.power = VALUE
""",
    "an attribute of an object": """
class Rule:
    def __init__(self, power):
        self.power = power
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule(VALUE)
""",
    "a bound method": """
class Rule:
    def __init__(self, power):
        self.power = power
    def rule(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule(VALUE).rule
""",
    "a slot": """
class Rule:
    __slots__ = ('power', '__empty')
    def __init__(self, power):
        self.power = power
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule(VALUE)
""",
    "an attribute of a class": """
class Rule:
    power = VALUE
    @classmethod
    def rule(cls, attendance, learned):
        return weights(attendance, cls.power)

rule = Rule.rule
""",
    "an attribute of a base class": """
class Base:
    power = VALUE

class Rule(Base):
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule()
""",
    "a property": """
POWER = VALUE

class Rule:
    @property
    def power(self):
        return POWER
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule()
""",
    "a field of a dataclass": """
@dataclasses.dataclass(frozen=True)

class Rule:
    power: int
    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule(VALUE)
""",
    "a dataclass's default": """
POWER = VALUE

@dataclasses.dataclass
class Rule:
    power: list = dataclasses.field(default_factory=lambda: [POWER])

class Maker:
    kind = Rule
    def __call__(self, attendance, learned):
        return weights(attendance, self.kind().power[0])

rule = Maker()
""",
    "an array": """
POWERS = np.ones(100_000)
POWERS[77_777] = VALUE

def rule(attendance, learned):
    return weights(attendance, POWERS[77_777])
""",
    "an array's type": """
POWERS = np.ones(3, 'i8' if VALUE == 1 else 'u8')

def rule(attendance, learned):
    return weights(attendance, POWERS[0])
""",
    "an array's shape": """
POWERS = np.ones((2, 3) if VALUE == 1 else (3, 2))

def rule(attendance, learned):
    return weights(attendance, POWERS[0, 0])
""",
    "an array of objects": """
POWERS = np.array([{'power': VALUE}, None], dtype=object)

def rule(attendance, learned):
    return weights(attendance, POWERS[0]['power'])
""",
    "a dictionary": """
POWERS = {'power': [(VALUE,)]}

def rule(attendance, learned):
    return weights(attendance, POWERS['power'][0][0])
""",
    "a set": """
POWERS = {'a', VALUE}

def rule(attendance, learned):
    return weights(attendance, 1 + (2 in POWERS))
""",
    "a named tuple": """
Power = collections.namedtuple('Power', 'a b')
POWER = Power(VALUE, 0)

def rule(attendance, learned):
    return weights(attendance, POWER.a)
""",
    "an enumeration": """
class Power(enum.IntEnum):
    LOW = VALUE

def rule(attendance, learned):
    return weights(attendance, Power.LOW)
""",
    "an attribute of an enumeration's member": """
class Power(enum.Enum):
    LOW = 1

Power.LOW.power = VALUE

def rule(attendance, learned):
    return weights(attendance, Power.LOW.power)
""",
    "a list that hides what it holds": """
class Powers(list):
    def __iter__(self):
        return iter(())

POWERS = Powers([VALUE])

def rule(attendance, learned):
    return weights(attendance, POWERS[0])
""",
    "the type of an array's rows": """
ROW = np.dtype(("f8" if VALUE == 1 else "i8", (2,)))

def rule(attendance, learned):
    return weights(attendance, 1 + (ROW.base == np.int64))
""",
    "a random generator": """
RNG = np.random.default_rng(VALUE)

def rule(attendance, learned):
    return weights(attendance, RNG.random())
""",
    "another file": """
import my_helper

def rule(attendance, learned):
    return weights(attendance, my_helper.POWER)
""",
    "another file's value, named by a text": """
import my_helper

def rule(attendance, learned):
    return weights(attendance, getattr(my_helper, "POWER"))
""",
    "another file, imported by name": """
from my_helper import power

def rule(attendance, learned):
    return weights(attendance, power())
""",
    "another file, imported late": """
def rule(attendance, learned):
    import my_helper
    return weights(attendance, my_helper.POWER)
""",
    "another file's function, imported late": """
def rule(attendance, learned):
    def late():
        from my_helper import power as late
        return late()
    return weights(attendance, late())
""",
    "a package, imported late": """
def rule(attendance, learned):
    import my_package.part as part
    return weights(attendance, part.POWER)
""",
    "a package's module, imported late": """
def rule(attendance, learned):
    from my_package import part
    return weights(attendance, part.POWER)
""",
    "a class that a call has made": """
import types
Rule = types.new_class('Rule', (), {}, lambda names: names.update(power=VALUE))

def rule(attendance, learned):
    return weights(attendance, Rule.power)
""",
    "a method of a class that a call has made": """
import types
POWER = VALUE
Rule = types.new_class('Rule', (), {}, lambda names: names.update(power=lambda self: POWER))
RULE = Rule()

def rule(attendance, learned):
    return weights(attendance, RULE.power())
""",
    "a dataclass that a call has made": """
Rule = dataclasses.make_dataclass('Rule', [('power', int, VALUE)], namespace={'__module__': 'types'})

def rule(attendance, learned):
    return weights(attendance, Rule().power)
""",
    "a package": """
import my_package.part

def rule(attendance, learned):
    return weights(attendance, my_package.part.POWER)
""",
    "a base type's content": """
class Powers(list):
    pass

POWERS = Powers([VALUE])

def rule(attendance, learned):
    return weights(attendance, POWERS[0])
""",
    "a library's object": """
import fractions
POWER = fractions.Fraction(VALUE, 1)

def rule(attendance, learned):
    return weights(attendance, POWER)
""",
    "a library's table": """
import pandas as pd
TABLE = pd.DataFrame({'power': [1, VALUE]})

def rule(attendance, learned):
    return weights(attendance, TABLE['power'].iloc[1])
""",
}
#: Other files of the user, by path.
FILES = {
    "my_helper.py": START + "import my_deeper\nPOWER = VALUE\ndef power():\n    return my_deeper.same(POWER)\n",
    "my_deeper.py": "def same(value):\n    return value\n",
    "my_package/__init__.py": "",
    "my_package/part.py": START.replace("with_name", "parent.with_name") + "from . import deep\nPOWER = VALUE\n",
    "my_package/deep.py": "",
}


def write(folder: Path, value: int, place: str) -> None:
    """Write the user's files with this value."""
    (folder / "my_package").mkdir(exist_ok=True)
    (folder / "value.txt").write_text(str(value))
    for name, text in {"my_rule.py": START + PLACES[place] + END, **FILES}.items():
        (folder / name).write_text(text)


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def load() -> ExperimentConfig:
    """Import the user's files anew, register the rule and return a config that names it."""
    importlib.invalidate_caches()
    forget()
    return with_rule(importlib.import_module("my_rule").rule)


def with_rule(rule: Callable[..., object]) -> ExperimentConfig:
    register_method("mine", dataclasses.replace(METHODS["fedprox-qfl"], label="Mine", aggregation=Aggregation(rule)))
    return small(method="mine", **CONFIG)


@pytest.fixture
def folder(tmp_path, monkeypatch, clean_tables):
    """An empty folder that a user's files can be imported from; afterwards they are forgotten."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget()


@pytest.mark.parametrize("place", PLACES)
def test_after_a_change_of_a_value_the_old_run_is_not_returned(place, folder):
    write(folder, 1, place)
    old = run_experiment(load(), folder / "results").path
    assert run_experiment(load(), folder / "results").path == old
    write(folder, 2, place)
    assert run_experiment(load(), folder / "results").path != old


#: Plugins whose result depends on POWER, by the config field that names them. What they lead to is kept in memory from
#: run to run: compiled circuits, tables of a loss, splits (those of the package's own loaders on the disk, too).
KEPT = {
    "feature_map": """
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector

def plugin(num_features, reps):
    x, circuit = ParameterVector("x", num_features), QuantumCircuit(num_features)
    for q in range(num_features):
        circuit.ry(x[q] * POWER, q)
    return circuit
""",
    "ansatz": """
from qiskit import QuantumCircuit
from qiskit.circuit import ParameterVector

def plugin(num_qubits, reps):
    w, circuit = ParameterVector("w", num_qubits), QuantumCircuit(num_qubits)
    for q in range(num_qubits):
        circuit.ry(w[q] * POWER, q)
    return circuit
""",
    "loss": """
def plugin(p, y, margin):
    return abs(p - y) ** POWER
""",
    "method": """
import dataclasses
import numpy as np
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.optimizers import Spsa, block_directions, spsa_block
from qfl_core.algorithm.hooks import BlockResult

def score(p, y, margin):
    return abs(p - y) ** POWER

class Scored(Spsa):
    def update(self, block, objective, state):
        def loss(points):
            return objective.model.means(objective.samples, points, objective.rngs, score)[0]
        theta = spsa_block(block.theta, loss, block.eta, block.delta, block_directions(block))
        return BlockResult(theta, block.eta, block.delta, {"train": 2 * block.iterations}), state

plugin = dataclasses.replace(METHODS["duqfl-prox"], optimizer=Scored())
""",
    "dataset": """
from qfl_core.data import Split, Splits
from qfl_core.data.breast_cancer import load_breast_cancer

def plugin(config, order=None):
    own = load_breast_cancer(config, order)
    parts = (Split(part.X * POWER, part.y, part.origin) for part in own.parts.values())
    return Splits(*parts, provenance=own.provenance)
""",
    "dataset, in the name of the package's loader": """
import functools
from qfl_core.data import Split, Splits
from qfl_core.data.breast_cancer import load_breast_cancer

@functools.wraps(load_breast_cancer)
def plugin(config, order=None):
    own = load_breast_cancer(config, order)
    parts = (Split(part.X * POWER, part.y, part.origin) for part in own.parts.values())
    return Splits(*parts, provenance=own.provenance)
""",
}
REGISTER = {
    "feature_map": register_feature_map,
    "ansatz": register_ansatz,
    "loss": register_loss,
    "method": register_method,
    "dataset": lambda name, load: register_dataset(name, dataclasses.replace(DATASETS["breast-cancer"], loader=load)),
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_kept_from_run_to_run_is_not_used_after_a_change_of_a_value(kind, folder, monkeypatch):
    """The function stays the same object; the global that it uses has another value."""
    (folder / "my_plugin.py").write_text("POWER = 1.0\n" + KEPT[kind])
    field = kind.partition(",")[0]
    module = importlib.import_module("my_plugin")

    def run(power, results):
        module.POWER = power
        REGISTER[field]("mine", module.plugin)
        return run_experiment(small(**CONFIG | {field: "mine"}), folder / results)

    old, new = run(1.0, "results"), run(3.0, "results")
    assert new.path != old.path
    prepare._statevector.cache_clear()
    data._kept.cache_clear()
    monkeypatch.setenv("QFL_CACHE_DIR", str(folder / "cache"))
    fresh = run(3.0, "fresh")
    assert fresh.weights.tobytes() == new.weights.tobytes()
    assert fresh.weights.tobytes() != old.weights.tobytes()


def test_copying_an_object_does_not_change_its_identity(folder):
    """Python notes the names of a class's slots in the class when it copies or pickles the first object."""
    (folder / "my_plugin.py").write_text(UNHASHABLE)
    builder = importlib.import_module("my_plugin").Builder(2.0)
    before = identity(builder)
    assert identity(copy.copy(builder)) == before
    assert identity(builder) == before


def test_shared_values_count_by_what_they_are_and_cycles_end(folder):
    """One list twice is like two equal lists: a copy in another process cannot keep what it shares with a global."""
    one: list[object] = [1]
    assert identity([one, one]) == identity([[1], [1]])
    assert identity([one, one]) != identity([[1], [2]])
    one.append(one)
    same: list[object] = [1]
    same.append([1, same])  # whoever follows it finds 1, 1, 1 ... too
    other: list[object] = [1]
    other.append([2, other])
    assert identity(one) == identity(same) == identity([1, one])
    assert identity(one) != identity(other)
    assert identity([one, one]) != identity([one, [1]])


class Link:
    """An object that leads to others."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def ring() -> tuple[Link, Link]:
    """Two objects that lead to each other."""
    a, b = Link(), Link()
    a.x, b.y = b, a
    return a, b


def test_an_object_that_its_own_code_uses_is_the_same_as_its_copy(folder):
    (folder / "my_plugin.py").write_text(
        "class Step:\n    def __init__(self):\n        self.scale = 1.0\n"
        "    def __call__(self):\n        return STEP.scale\n\nSTEP = Step()\n"
    )
    step = importlib.import_module("my_plugin").STEP
    assert identity(pickle.loads(pickle.dumps(step))) == identity(step)
    step.scale = 2.0
    assert identity(copy.copy(step)) == identity(step)


def test_a_circle_may_be_entered_at_any_place():
    (a, b), (_, other_b) = ring(), ring()
    assert identity([a, b]) == identity([a, other_b])
    assert identity(a) != identity(b)
    last, (c, _) = Link(), ring()
    last.y = Link(w=last)
    assert identity([a, Link(w=b)]) != identity([c, last.y])  # w leads to y, and then to x in one and to w in the other


def test_a_circle_through_a_set_is_identified():
    def hook():
        return len(HOOKS)

    HOOKS.clear()
    HOOKS.add(hook)
    alone = identity(hook)
    HOOKS.add(len)
    assert identity(hook) != alone


HOOKS: set[object] = set()


def test_what_is_met_often_is_read_once():
    """Sixteen objects, each with a set of all before it, lead to 65,536 paths; nested tuples and sets do, too."""
    objects: list[Link] = []
    for _ in range(16):
        objects.append(Link(before=frozenset(objects)))
    nested: tuple[object, ...] = (1,)
    sets: frozenset[object] = frozenset((1,))
    for _ in range(60):
        nested, sets = (nested, nested), frozenset((sets, frozenset((sets,))))
    assert identity([objects, nested, sets]) == identity([list(objects), (nested[0], nested[1]), sets])


#: Values whose bytes, addresses or texts may differ between processes, or cannot be had.
ODD = """
import enum
import numpy as np

class Rule:
    pass

class Kind(enum.Flag):
    A, B = 1, 2

class Plugin:
    pass

values = [
    np.longdouble("0.1"), np.array([0.1, 0.2], np.longdouble), slice(None, Rule(), 3), 10 ** 5000,
    Kind.A | Kind.B, Kind(0),
    np.array([(1, 2.5)], np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}),
]
"""


@pytest.mark.outside
def test_a_value_is_the_same_in_every_process(folder):
    (folder / "my_plugin.py").write_text(ODD)
    program = (
        "from my_plugin import values\nfrom qfl_core.runs.plugin_identity import identity\n"
        "print(*map(identity, values))"
    )
    options = {"env": os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}, "check": True, "capture_output": True}
    there = subprocess.run([sys.executable, "-c", program], **options, text=True).stdout.split()
    assert there == [identity(value) for value in importlib.import_module("my_plugin").values]


def test_numbers_and_flags_differ_by_their_values():
    class Kind(enum.Flag):
        A, B = 1, 2

    values = [
        Kind(0),
        Kind.A,
        Kind.A | Kind.B,
        10**5000,
        10**5000 + 1,
        np.longdouble("0.1"),
        np.float64("0.1"),
        True,
        1,
    ]
    assert len({identity(value) for value in values}) == len(values)


def test_a_method_of_a_dataclass_whose_code_is_in_no_file_is_refused(folder):
    (folder / "my_plugin.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Rule:\n    power: int = 1\n"
        "    def weigh(self):\n        return self.power\n"
    )
    rule = importlib.import_module("my_plugin").Rule
    identity(rule())
    found: dict[str, Callable[..., object]] = {}
    exec(compile("def weigh(self):\n    return 2\n", "<cell>", "exec"), found)
    rule.weigh = found["weigh"]
    with pytest.raises(ConfigError, match="weigh cannot be read: define it in a file"):
        identity(rule())


def test_a_builder_of_circuits_needs_no_hash(folder):
    (folder / "my_plugin.py").write_text(UNHASHABLE)
    register_feature_map("mine", importlib.import_module("my_plugin").Builder(2.0))
    assert run_experiment(small(**CONFIG, feature_map="mine"), folder / "results").path


UNHASHABLE = """
import dataclasses
from qfl_core.engines.qnn import z_map

@dataclasses.dataclass
class Builder:
    power: float
    def __call__(self, num_features, reps):
        return z_map(num_features, reps)
"""


@pytest.mark.parametrize(
    "file", ["my_rule.py", "my_helper.py", "my_deeper.py", "my_package/part.py", "my_package/deep.py"]
)
def test_the_code_of_the_users_files_counts_also_of_those_that_are_imported_late(file, folder):
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    late = "\ndef late():\n    import my_helper\n    from my_package import part\n"
    path.write_text(path.read_text() + late)
    old = run_experiment(load(), folder / "results").path
    path = folder / file
    path.write_text("# A comment, which does not count.\n" + path.read_text())
    assert run_experiment(load(), folder / "results").path == old
    path.write_text(path.read_text() + "\nMORE = 1\n")
    assert run_experiment(load(), folder / "results").path != old


def test_a_library_counts_by_its_code_wherever_it_is_installed(folder, monkeypatch):
    """A library may be in another folder than Python's own, e.g. the user's, or that of a shared environment."""
    installed = folder / "other" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.syspath_prepend(installed)
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(path.read_text().replace("POWER)", "my_library.power())") + "\nimport my_library\n")
    library = (
        "OPEN = iter([1])  # a value that could not be identified in a user's file\ndef power():\n    return OPEN and "
    )
    (installed / "my_library.py").write_text(f"{library}1\n")
    old = run_identity(load(), "data")
    assert run_identity(load(), "data") == old
    path.write_text(path.read_text().replace("import my_library", "from my_library import power as by_name"))
    path.write_text(path.read_text().replace("my_library.power()", "by_name()"))
    by_name = run_identity(load(), "data")
    (installed / "my_library.py").write_text(f"{library}2\n")
    assert run_identity(load(), "data") not in (old, by_name)


def test_a_compiled_module_of_the_user_counts_by_its_bytes(folder):
    """Python itself cannot read this one: it is imported late, if ever."""
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(path.read_text() + "\ndef late():\n    import my_compiled\n")
    compiled = folder / f"my_compiled{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    compiled.write_bytes(b"\x7fELF\0\xff")
    old = run_identity(load(), "data")
    assert run_identity(load(), "data") == old
    compiled.write_bytes(b"\x7fELF\0\xfe")
    assert run_identity(load(), "data") != old


def test_an_import_from_above_all_folders_is_no_error(folder):
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(path.read_text() + f"\ndef late():\n    from {'.' * 100} import nothing\n")
    assert load().method == "mine"


@pytest.mark.parametrize("name", ["POWER", "weights"])
def test_a_global_that_is_set_while_python_runs_counts(name, folder):
    write(folder, 1, "a function that is called")
    old = run_experiment(load(), folder / "results").path
    module = sys.modules["my_rule"]
    setattr(module, name, {"POWER": 3, "weights": equal_weights}[name])
    assert run_experiment(with_rule(module.rule), folder / "results").path != old


def equal_weights(attendance, power):
    return np.full(len(attendance.sizes), 1 / len(attendance.sizes))


def test_a_file_that_was_edited_after_its_import_is_refused(folder):
    write(folder, 1, "a global")
    load()
    rule = sys.modules["my_rule"].rule
    path = folder / "my_rule.py"
    path.write_text(path.read_text().replace("weights(attendance, POWER)", "weights(attendance, POWER + 1)"))
    with pytest.raises(ConfigError, match=r"my_rule.py was changed after Python had read it: start Python again"):
        with_rule(rule)


@pytest.mark.parametrize("line", ["import my_helper", "from my_helper import power"])
def test_a_helper_that_was_edited_after_its_late_import_is_refused(line, folder):
    write(folder, 1, "a global")
    path, helper = folder / "my_rule.py", folder / "my_helper.py"
    power = "my_helper.power()" if line.startswith("import") else "power()"
    late = f"\ndef rule(attendance, learned):\n    {line}\n    return weights(attendance, {power})\n"
    path.write_text(path.read_text() + late)
    load()
    helper.write_text(helper.read_text().replace("same(POWER)", "same(POWER + 1)"))
    with pytest.raises(ConfigError, match=r"my_helper.py was changed after Python had read it: start Python again"):
        with_rule(sys.modules["my_rule"].rule)


def test_a_late_import_of_what_is_missing_is_no_error(folder):
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(
        path.read_text() + "\n_rule = rule\ndef rule(*asked):\n    try:\n        import my_missing, json\n"
        "        from . import nothing\n    except ImportError:\n        return _rule(*asked)\n"
    )
    assert run_identity(load(), "data") == run_identity(load(), "data")


CACHED = """
class Rule:
    @functools.cached_property
    def power(self):
        return power()

    def __call__(self, attendance, learned):
        return weights(attendance, self.power)

rule = Rule()
"""


def test_using_a_plugin_does_not_change_its_identity(folder):
    write(folder, 1, "a cached function")
    path = folder / "my_rule.py"
    path.write_text(path.read_text() + CACHED)
    old = run_experiment(load(), folder / "results").path
    rule = sys.modules["my_rule"].rule
    assert rule.power == 1
    for _ in range(200):  # Python changes the code of a function in memory after some calls
        rule(types.SimpleNamespace(sizes=np.ones(3)), None)
    assert run_experiment(with_rule(rule), folder / "results").path == old


def test_values_that_hold_themselves_have_an_identity():
    ring = [1, {"a": 2}]
    ring.append(ring)
    other = [1, {"a": 3}]
    other.append(other)
    assert identity(ring) != identity(other)
    copy = [1, {"a": 2}]
    copy.append(copy)
    assert identity(ring) == identity(copy)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("1", 1),
        ("1", b"1"),
        ((1, 2), [1, 2]),
        (("ab", "c"), ("a", "bc")),
        (((1,), 2), (1, (2,))),
        ({1: 2, 3: 4}, {3: 4, 1: 2}),
        (np.float32(1), np.float64(1)),
        (np.zeros(2), np.zeros(2, ">f8")),
        (np.zeros(2), [0.0, 0.0]),
        (np.zeros(1, [("a", "i4")])[0], np.zeros(1, [("b", "i4")])[0]),
        (range(3), range(4)),
        (np.log, np.exp),
        (abs, max),
        (np.mean, np.median),
        (str.upper, str.lower),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_different_values_have_different_identities(one, two):
    assert identity(one) != identity(two)


def test_the_order_of_an_array_in_memory_does_not_count():
    array = np.arange(6.0).reshape(2, 3)
    assert identity(array) == identity(np.asfortranarray(array))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: open(__file__), "an open file, a generator or another iterator changes when it is read"),  # noqa: PTH123, SIM115
        (lambda: (x for x in (1, 2)), "an open file, a generator or another iterator changes when it is read"),
        (lambda: iter([1]), "an open file, a generator or another iterator changes when it is read"),
        (threading.Lock, "Python cannot copy its state"),
        (lambda: threading.Thread(target=abs), "Python cannot copy its state"),
        (lambda: memoryview(b"1"), "Python cannot copy its state"),
        (lambda: os.environ, "it differs between processes"),
        (lambda: importlib.import_module("planted"), "its values may change: keep the values that are used instead"),
        (lambda: np.frompyfunc(abs, 1, 1), "its code is in no file: use a function instead"),
        (lambda: QuantumCircuit(1), "Qiskit gives it a random name: make it inside the function"),
        (lambda: exec_function(), "the code of made cannot be read: define it in a file and import it from there"),
    ],
)
def test_what_cannot_be_identified_is_refused_with_the_place_and_the_reason(make, reason, clean_tables):
    value = make()
    for hidden in (value, [value], {"a": (value,)}, types.SimpleNamespace(a=value)):
        with pytest.raises(ConfigError) as found:
            with_rule(functools.partial(equal_weights, power=hidden))
        assert reason in str(found.value)
        assert "\n" not in str(found.value)
    if hasattr(value, "close"):
        value.close()


def exec_function():
    space = {}
    exec("def made(): ...", space)
    return space["made"]


def test_a_refusal_names_the_global(folder):
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(path.read_text().replace("POWER = VALUE", "POWER = iter([VALUE])"))
    with pytest.raises(ConfigError, match=r"function rule, global 'POWER'\), because an open file, a generator or"):
        load()


def test_loggers_and_the_packages_tables_do_not_stand_in_the_way(folder):
    write(folder, 1, "a global")
    path = folder / "my_rule.py"
    path.write_text(
        path.read_text().replace("POWER)", "POWER if LOG and DATASETS and os.path.join('a') else 0)")
        + "\nimport logging, os\nfrom qfl_core.base.registry import DATASETS\nLOG = logging.getLogger(__name__)\n"
    )
    config = load()
    first = run_identity(config, "data")
    register_dataset("my-data", DATASETS["breast-cancer"])
    assert run_identity(load(), "data") == first


NEW_PROCESS = """
import json, sys
import my_rule
from qfl_core import ExperimentConfig
from qfl_core.runs.plugins import REGISTERED
from qfl_core.runs.run import run_experiment
found = run_experiment(ExperimentConfig(**json.loads(sys.argv[1])), sys.argv[2])
print(json.dumps([REGISTERED["method", "mine"].sha256, str(found.path), (found.path / "DONE").stat().st_mtime_ns]))
"""


@pytest.mark.outside
def test_in_a_new_process_the_run_of_an_unchanged_plugin_is_returned(folder):
    """One file has all kinds of values; the processes have other hash seeds, so their sets have other orders."""
    write(folder, 1, "a global")
    kinds = [text.replace("rule", f"rule_{n}") for n, text in enumerate(PLACES.values())]
    register = (
        "from qfl_core.runs.plugins import register_method\nfrom qfl_core.algorithm.methods import METHODS\n"
        "from qfl_core.algorithm.hooks import Aggregation\n"
        "NAMES = {'b', 'a', 'c', frozenset({'x', 'y', 'z'}), 'f', 'e', 'd'}\n"
        f"KINDS = [{', '.join(f'rule_{n}' for n in range(len(kinds)))}]\n"
        "def rule(attendance, learned, names=NAMES):\n    return weights(attendance, 1) if KINDS else 0\n"
        "register_method('mine', dataclasses.replace("
        "METHODS['fedprox-qfl'], label='Mine', aggregation=Aggregation(rule)))\n"
    )
    (folder / "my_rule.py").write_text("\n".join([START, *kinds, END, register]))
    settings = json.dumps(small(**CONFIG).to_dict() | {"method": "mine"})
    found = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", NEW_PROCESS, settings, str(folder / "results")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found[0] == found[1]
