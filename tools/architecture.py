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
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "qfl_core"
#: Floors from the ground, as in tests/test_architecture.py, with what a newcomer finds in each room.
FLOORS: tuple[dict[str, str], ...] = (
    {"base": "errors, random streams, names, files, checks"},
    {"config": "one experiment, and the profiles"},
    {"engines": "the circuit, evaluated fast", "data": "files or stand-ins become angles"},
    {"algorithm": "THE PAPER: Algorithms 1, 2 and 3"},
    {"extras": "methods beyond the paper"},
    {"runs": "a config becomes a sealed run"},
    {"analysis": "claims and tables", "network": "clients on Flower nodes", "hardware": "checkpoints on devices"},
    {"studies": "questions that train"},
    {"figures": "pictures of all of it"},
)
WIDTH, HEIGHT, GAP = 3.1, 0.62, 1.05


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


def places() -> dict[str, tuple[float, float]]:
    """Return the centre of every room; the rooms of a floor stand side by side."""
    found = {}
    for height, floor in enumerate(FLOORS):
        for i, room in enumerate(floor):
            found[room] = ((i - (len(floor) - 1) / 2) * (WIDTH + 0.5), height * GAP)
    return found


def draw(graph: Graph, path: Path) -> None:
    """Draw the rooms on their floors, and an arrow from each room to every room that it imports from."""
    centre = places()
    figure, axes = plt.subplots(figsize=(9.6, 8.2))
    for (room, other), count in sorted(graph.imports.items()):
        (x, y), (u, v) = centre[room], centre[other]
        common = other in ("base", "config")
        bend = 0.0 if abs(y - v) <= GAP else 0.28 * (1 if (x, room) >= (u, other) else -1)
        arrow = FancyArrowPatch(
            (x, y - HEIGHT / 2),
            (u, v + HEIGHT / 2),
            connectionstyle=f"arc3,rad={bend}",
            arrowstyle="-|>",
            mutation_scale=9,
            linewidth=0.5 + 0.18 * min(count, 12),
            color="#c9c9c9" if common else "#5b7ea8",
            zorder=1 if common else 2,
        )
        axes.add_patch(arrow)
    for floor in FLOORS:
        for room, told in floor.items():
            x, y = centre[room]
            paper = room == "algorithm"
            box = FancyBboxPatch(
                (x - WIDTH / 2, y - HEIGHT / 2),
                WIDTH,
                HEIGHT,
                boxstyle="round,pad=0.02,rounding_size=0.08",
                facecolor="#fbe3c0" if paper else "white",
                edgecolor="#b3541e" if paper else "#444444",
                linewidth=1.6 if paper else 0.9,
                zorder=3,
            )
            axes.add_patch(box)
            axes.text(x, y + 0.11, room, ha="center", va="center", fontsize=11, fontweight="bold", zorder=4)
            axes.text(x, y - 0.16, told, ha="center", va="center", fontsize=8, color="#333333", zorder=4)
    axes.set_xlim(-5.6, 5.6)
    axes.set_ylim(-0.5, (len(FLOORS) - 1) * GAP + 0.5)
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
