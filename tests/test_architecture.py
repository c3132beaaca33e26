"""Imports go one way through the house, and the repository speaks of the product alone."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qfl_core.algorithm.client import train_locally
from qfl_core.algorithm.meta import refine_controller
from qfl_core.algorithm.server import federated_round

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "qfl_core"

# From the ground: a room imports from its own floor or a lower one, never from a higher one.
FLOORS = [
    {"base"},
    {"config"},
    {"engines", "data"},
    {"algorithm"},
    {"extras"},
    {"runs"},
    {"analysis", "network", "hardware"},
    {"studies"},
    {"figures"},
    {"__init__", "__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """Return the room of a module; the commands of all rooms stand on top, because they call every room."""
    return "__main__" if path.name == "command.py" else path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the modules that a module imports, also inside functions, as dotted names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_every_module_is_in_a_room_of_the_plan():
    assert {room(path) for path in MODULES} == set(FLOOR)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    for name in imports(path):
        first, _, rest = name.partition(".")
        assert first != "tools", "tools are for readers and maintainers: nothing imports them"
        other = rest.split(".")[0]
        if first == "qfl_core" and other in FLOOR:
            assert FLOOR[other] <= FLOOR[room(path)], f"{room(path)} must not import {other}"


# The paper's room: what a reader with the PDF opens first.

ALGORITHM = sorted((PACKAGE / "algorithm").glob("*.py"))
ALLOWED = ("numpy", "qfl_core.algorithm", "qfl_core.base", "qfl_core.config", "qfl_core.engines.base")
#: The baselines are the library's optimisers; its ADAM is imported when it is used.
LIBRARY = "qiskit_machine_learning.optimizers.ADAM"


@pytest.mark.parametrize("path", ALGORITHM, ids=lambda p: p.name)
def test_the_algorithm_needs_numpy_the_ground_floor_and_the_engines_interface_alone(path):
    for name in imports(path):
        own = name == LIBRARY and path.name == "optimizers.py"
        standard = name.split(".")[0] in {*sys.stdlib_module_names, "__future__"}
        assert own or standard or name.startswith(ALLOWED), name


def test_the_algorithm_stays_thin():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in ALGORITHM)
    assert lines <= 1600, f"{lines} lines: the paper's room is to be read in an hour"


@pytest.mark.parametrize(
    ("function", "lines"),
    [(train_locally, range(1, 20)), (federated_round, range(1, 9)), (refine_controller, range(1, 7))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_algorithm_cites_every_line_of_the_papers_in_order(function, lines):
    """The numbers are the paper's; "lines 2 to 4" covers three, and END statements stand for the loop above them."""
    cited = []
    for comment in re.findall(r"#.*?\blines? (.*)", inspect.getsource(function)):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", comment.split(";")[0].split(", for")[0]):
            cited.append(range(int(first), int(last or first) + 1))
    covered = {number for part in cited for number in part}
    ends = {17} if function is train_locally else set()
    assert covered | ends >= set(lines), set(lines) - covered
    starts = [part[0] for part in cited]
    moved = {3, 7, 8, 12, 13} if function is train_locally else set()  # said where they stand: see the docstring
    kept = [number for number in starts if number not in moved]
    assert kept == sorted(kept)


@pytest.mark.outside
def test_importing_the_package_loads_nothing_heavy():
    heavy = ("qiskit", "sklearn", "pandas", "matplotlib", "scipy")
    code = f"import sys, qfl_core; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_can_be_imported():
    import qfl_core

    for name in qfl_core.__all__:
        assert getattr(qfl_core, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = qfl_core.nothing


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_tracked_file_names_a_machine_or_an_index():
    pattern = re.compile(rb"(/(?:work|root|home/[a-z]+|Users/[a-z]+)/|pypi\.org|--index-url|index-url\s*=)")
    for path in tracked_files():
        if path == Path(__file__).resolve() or path.suffix in (".png", ".pdf"):
            continue
        found = pattern.search(path.read_bytes())
        assert not found, f"{path.relative_to(ROOT)}: {found}"


def test_no_tracked_file_is_large():
    assert not [p.name for p in tracked_files() if p.stat().st_size > 1 << 20]


#: The files that may write in place, and why a reader never meets half of one there.
IN_PLACE = {
    "base/files.py",  # the one helper
    "base/progress.py",  # a terminal
    "hardware/ledger.py",  # lines are added, each with its digest
    "runs/journal.py",  # lines are added, each with its digest
    "network/credentials.py",  # new files in a new folder
    "network/deployment.py",  # logs of processes
}


def test_files_are_written_by_one_helper():
    """Whole or not at all: whatever renames, or opens a file for writing, is in ``base/files.py``."""
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _writes(node, node.func.attr):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == IN_PLACE


def _writes(call: ast.Call, name: str) -> bool:
    """Return whether a call writes a file in place, or gives it another name."""
    modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "open":
        return any(set(mode) & set("wax") and set(mode) <= set("rwaxbt+") for mode in modes)
    if name == "replace" and len(call.args) == 1:  # of a path: a text has two arguments, a config has names
        return not call.keywords and isinstance(call.args[0], ast.Name) and call.args[0].id.islower()
    of_a_module = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("os", "shutil")
    return name in ("write_text", "write_bytes") or (of_a_module and name in ("replace", "rename", "fdopen", "move"))
