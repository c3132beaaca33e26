"""Imports go one way through the house, and the repository speaks of the product alone."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "qfl_core"

# A room may import from rooms on its own or an earlier line, never from a later one.
FLOORS = [
    {"errors", "streams"},
    {"registry", "paths", "checks", "progress", "display"},
    {"config"},
    {"data", "qnn", "aggregation", "scaffold", "losses", "metrics", "controller", "optimizers"},
    {"engines", "methods"},
    {"extensions"},
    {"federation"},
    {"client"},
    {"server"},
    {"meta"},
    {"experiment", "records"},
    {"runs"},
    {"sweep", "analysis", "federate", "pooled"},
    {"study", "flower_app"},
    {"protocol", "clean", "sensitivity", "extras"},
    {"figures", "hardware", "bench"},
    {"report", "__main__"},
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module == "qfl_core":
            names = [f"qfl_core.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("qfl_core.")}
    return rooms


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    here = "__main__" if path.name in ("__main__.py", "command.py") else room(path)  # every command stands on top
    if here == "__init__":
        return
    assert here in FLOOR, f"give {here} a floor"
    for other in imported_rooms(path):
        assert FLOOR[other] <= FLOOR[here], f"{here} must not import {other}"


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
