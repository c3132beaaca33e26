"""The map from the paper to the code: every name in it exists, and every notebook."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAP = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split("|") for line in MAP.splitlines() if line.startswith("| ")][1:]
COLUMNS = ("displacement", "drift_from_broadcast", "selected_unfold", "is_selected")
NAMES = sorted({name for _, _, code in ROWS for name in re.findall(r"`([\w.]+)`", code)} - set(COLUMNS))


def resolve(dotted: str):
    """Import the longest module of a dotted name below qfl_core, then follow its attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(["qfl_core", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_the_map_covers_the_paper():
    text = "".join(row[0] for row in ROWS)
    for wanted in ("Algorithm 1", "Algorithm 2", "Algorithm 3", "meta_loss", "fl_Archi", "qualitative_genome_baf"):
        assert wanted in text
    assert len(ROWS) > 20


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_map_exists(name):
    assert resolve(name) is not None


def test_every_column_of_the_map_is_recorded():
    from qfl_core.runs.schema import SCHEMA

    recorded = {column for columns in SCHEMA.values() for column in columns}
    assert set(COLUMNS) <= recorded


def test_every_notebook_of_the_map_exists():
    numbers = {number for row in ROWS for number in re.findall(r"\d\d", row[1])}
    assert numbers
    assert all(list((ROOT / "notebooks").glob(f"{number}_*.ipynb")) for number in numbers)


# The page of the architecture: its names exist, and its rooms are those of the plan.

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STATIONS = [line for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
NAMED = sorted(set(re.findall(r"`((?:\w+\.)+\w+)`", PAGE)) - {"qfl_core.__main__", "qfl_core.__init__"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower's own imports
@pytest.mark.parametrize("name", [name for name in NAMED if not name.endswith((".py", ".md"))])
def test_every_name_of_the_architecture_page_exists(name):
    assert resolve(name) is not None


def test_the_way_of_a_row_has_at_most_fifteen_stations():
    assert 10 <= len(STATIONS) <= 15
    assert [int(re.match(r"\| (\d+)", line)[1]) for line in STATIONS] == list(range(1, len(STATIONS) + 1))


def test_the_page_and_its_picture_show_the_rooms_of_the_plan():
    from test_architecture import FLOORS

    from tools import architecture

    planned = [set(floor) for floor in FLOORS[:-1]]
    assert [set(floor) for floor in architecture.FLOORS] == planned
    assert set(re.findall(r"^\| `(\w+)` \| .* \| `\w+\.", PAGE, flags=re.M)) == set.union(*planned)
