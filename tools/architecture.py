"""``make architecture``: draw the rooms of ``qfl_core`` and who imports whom, from the source itself.

Writes ``docs/architecture.png`` and prints files, lines and imports per room.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "qfl_core"
#: Floors from the ground, as in tests/test_architecture.py, with what a newcomer finds in each room.
FLOORS: tuple[dict[str, str], ...] = (
    {"base": "errors, random streams, names, files"},
    {"config": "one experiment, and the profiles"},
    {"engines": "the circuit, evaluated fast", "data": "files or stand-ins become angles"},
    {"algorithm": "THE PAPER: Algorithms 1, 2 and 3"},
    {"extras": "methods beyond the paper"},
    {"runs": "a config becomes a sealed run"},
    {"analysis": "claims and tables", "network": "clients on Flower nodes", "hardware": "checkpoints on devices"},
    {"studies": "questions that train"},
    {"figures": "pictures of all of it"},
)
PAPER = "algorithm"


@dataclass(frozen=True)
class Graph:
    """Files and lines per room, and the number of import statements between two rooms."""

    files: Counter[str]
    lines: Counter[str]
    imports: Counter[tuple[str, str]]


def read_graph() -> Graph:
    """Read every module of the package; commands count for no room, because they stand on top of all."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    imports: Counter[tuple[str, str]] = Counter()
    rooms = {room for floor in FLOORS for room in floor}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        if room not in rooms or path.name == "command.py":
            continue
        text = path.read_text(encoding="utf-8")
        files[room] += 1
        lines[room] += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("qfl_core."):
                other = (node.module or "").split(".")[1]
                if other != room and other in rooms:
                    imports[room, other] += 1
    return Graph(files, lines, imports)


def draw(graph: Graph, path: Path) -> None:
    """Draw one row per room, from the roof to the ground, with a dot for every room that it imports from.

    Imports go down only, so all dots stand to the right of the diagonal.
    """
    rooms = [(height, room, told) for height, floor in enumerate(FLOORS) for room, told in floor.items()][::-1]
    names = [room for _, room, _ in rooms]
    figure, axes = plt.subplots(figsize=(10.4, 5.4))
    for row, (height, room, told) in enumerate(rooms):
        paper = room == PAPER
        face, edge = ("#fbe3c0", "#b3541e") if paper else ("#ffffff", "#555555")
        axes.add_patch(plt.Rectangle((-9.4, row - 0.42), 8.8, 0.84, facecolor=face, edgecolor=edge, linewidth=1))
        axes.text(-9.2, row, room, ha="left", va="center", fontsize=10, fontweight="bold")
        axes.text(-6.75, row, told, ha="left", va="center", fontsize=8)
        axes.text(-9.65, row, str(height), ha="right", va="center", fontsize=9, color="#777777")
        axes.add_patch(plt.Rectangle((row - 0.5, row - 0.5), 1, 1, facecolor="#e8e8e8", edgecolor="none"))
        for column, other in enumerate(names):
            if count := graph.imports[room, other]:
                colour = "#b3541e" if PAPER in (room, other) else "#3b6ea5"
                axes.scatter(column, row, s=14 + 9 * min(count, 16), color=colour, linewidths=0, zorder=3)
    for column, name in enumerate(names):
        axes.text(column, -0.75, name, rotation=60, ha="left", va="bottom", fontsize=9)
    for line in range(len(rooms) + 1):
        axes.plot([-0.5, len(rooms) - 0.5], [line - 0.5] * 2, color="#dddddd", linewidth=0.6, zorder=0)
        axes.plot([line - 0.5] * 2, [-0.5, len(rooms) - 0.5], color="#dddddd", linewidth=0.6, zorder=0)
    axes.text(-9.65, -0.75, "floor", ha="right", va="bottom", fontsize=9, color="#777777")
    axes.text(-0.7, -0.75, "imports from:", ha="right", va="bottom", fontsize=9, color="#777777")
    axes.set_xlim(-10.6, len(rooms) + 0.4)
    axes.set_ylim(len(rooms) - 0.3, -2.4)
    axes.set_axis_off()
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Draw the picture and print the numbers."""
    graph = read_graph()
    draw(graph, ROOT / "docs" / "architecture.png")
    print(f"{'room':<10} {'files':>5} {'lines':>6}  imports from")
    for floor in FLOORS:
        for room in floor:
            below = ", ".join(other for (one, other) in sorted(graph.imports) if one == room)
            print(f"{room:<10} {graph.files[room]:>5} {graph.lines[room]:>6}  {below}")
    print(f"{'all':<10} {graph.files.total():>5} {graph.lines.total():>6}")


if __name__ == "__main__":
    main()
