"""The paper's two schematics, drawn by code: the federation, and one round of DUQFL-Prox."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path

from qfl_core.engines.qnn import QNN
from qfl_core.figures.sheet import Sheet
from qfl_core.figures.style import METHOD_COLOURS, Look

_BLUE, _ORANGE, _GREEN, _GREY = (
    METHOD_COLOURS[name] for name in ("duqfl-prox", "adam-qfl", "fedprox-qfl", "default-qfl")
)


_DASHED: Look = {"facecolor": "none", "edgecolor": "0.6", "linestyle": "--"}


@dataclass(frozen=True)
class Box:
    """A rounded box around its centre (x, y), with a bold title and a text below it."""

    x: float
    y: float
    width: float
    height: float
    title: str
    text: str = ""
    colour: str = _GREY

    def draw(self, axis: Axes) -> None:
        """Draw the box and its words."""
        corner = (self.x - self.width / 2, self.y - self.height / 2)
        shape = "round,pad=0.0,rounding_size=0.12"
        fills: tuple[Look, ...] = (
            {"facecolor": "white", "edgecolor": "none"},
            {"facecolor": self.colour + "26", "edgecolor": self.colour},
        )
        for fill in fills:
            axis.add_patch(FancyBboxPatch(corner, self.width, self.height, boxstyle=shape, linewidth=1.3, **fill))
        rise = 0.30 * self.height if self.text else 0.0
        axis.text(self.x, self.y + rise, self.title, ha="center", va="center", fontsize=9, fontweight="bold")
        if self.text:
            axis.text(self.x, self.y - 0.12 * self.height, self.text, ha="center", va="center", fontsize=8)


def _arrow(axis: Axes, colour: str, *corners: tuple[float, float]) -> None:
    """Draw a line through all corners, with an arrow's head at the last one."""
    style: Look = {"arrowstyle": "-|>", "mutation_scale": 12, "linewidth": 1.3, "color": colour}
    axis.add_patch(FancyArrowPatch(path=Path(corners), **style))


def _label(axis: Axes, x: float, y: float, text: str, colour: str = "0.15", **options: Any) -> None:
    axis.text(x, y, text, fontsize=8, color=colour, ha=options.pop("ha", "center"), va="center", **options)


def _canvas(axis: Axes, width: float, height: float) -> None:
    axis.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axis.set_axis_off()


def architecture() -> Sheet:
    """Return the federation: private data, local QNNs, selected models up, weights and controller down."""
    return Sheet("fl_Archi", {"fl_Archi": _architecture}, ("schematic",), size=(6.6, 4.6))


def _architecture(axis: Axes) -> None:
    _canvas(axis, 10.6, 7)
    aggregates = r"aggregates  $\theta^{(t+1)}=\sum_i w_i^{(t)}\,\theta_{i,\star}^{(t)}$"
    refines = r"refines the controller $\phi$ on the loss after aggregation"
    Box(5.3, 5.95, 9.9, 1.7, "Server", f"{aggregates}\n{refines}", _BLUE).draw(axis)
    for x, name, mix in ((1.8, "Client 1", 0.8), (5.0, "Client 2", 0.2), (8.8, "Client N", 0.8)):
        Box(x, 2.5, 2.9, 1.7, name, "QNN: feature map + ansatz\n$K$ unfolds of adaptive SPSA", _ORANGE).draw(axis)
        _arrow(axis, _BLUE, (x - 0.35, 5.07), (x - 0.35, 3.38))
        _arrow(axis, _ORANGE, (x + 0.35, 3.38), (x + 0.35, 5.07))
        _data(axis, x, 0.95, mix)
    _label(axis, 1.33, 4.22, r"$\theta^{(t)},\ \phi^{(t)}$", _BLUE, ha="right")
    _label(axis, 2.27, 4.22, r"$\theta_{i,\star}^{(t)},\ n_i$", _ORANGE, ha="left")
    _label(axis, 6.9, 2.5, "· · ·", fontweight="bold")
    _label(axis, 1.0, 0.3, "private data stays with the client; the bars are its label mix:", "0.35", ha="left")
    for x, colour, label in ((6.65, _GREEN, "label 1"), (8.2, _GREY, "label 0")):
        axis.add_patch(Rectangle((x, 0.17), 0.3, 0.26, facecolor=colour, edgecolor="white"))
        _label(axis, x + 0.45, 0.3, label, "0.35", ha="left")


def _data(axis: Axes, x: float, y: float, share: float) -> None:
    """Draw a client's label mix as a bar under its box, with the line that joins them."""
    axis.plot([x, x], [y + 0.28, 1.63], color="0.6", linewidth=1, linestyle=":")
    for start, part, colour in ((0.0, share, _GREEN), (share, 1 - share, _GREY)):
        corner = (x - 1.0 + 2.0 * start, y - 0.2)
        axis.add_patch(Rectangle(corner, 2.0 * part, 0.42, facecolor=colour, edgecolor="white"))


def overview() -> Sheet:
    """Return one round of DUQFL-Prox: Algorithm 1 in the middle, Algorithms 2 and 3 below it, the server above."""
    return Sheet("duqfl_prox_overview", {"duqfl_prox_overview": _overview}, ("schematic",), size=(9.6, 5.6))


_RATES = r"$\log\eta=\phi_\eta^\top z,\ \ \log\delta=\phi_\delta^\top z$, clipped;  one pair of rates per unfold"
_STATE = "state $z$: progress, loss change, displacement, client context"
_BLOCK = "proximal SPSA\nblock gives "
_STEPS = (
    Box(8.15, 8.65, 15.9, 1.1, "Server, round t", r"broadcasts $\theta^{(t)},\phi^{(t)}$ to clients $S^{(t)}$", _BLUE),
    Box(7.1, 6.0, 8.5, 1.4, "Controller", f"{_RATES}\n{_STATE}", _BLUE),
    Box(4.0, 3.75, 2.3, 1.5, "Unfold 1", _BLOCK + r"$\theta_{i,1}^{(t)}$", _ORANGE),
    Box(6.9, 3.75, 2.3, 1.5, "Unfold 2", _BLOCK + r"$\theta_{i,2}^{(t)}$", _ORANGE),
    Box(10.2, 3.75, 2.3, 1.5, "Unfold K", _BLOCK + r"$\theta_{i,K}^{(t)}$", _ORANGE),
    Box(13.25, 3.75, 2.5, 1.5, "Best unfold", r"$k^\star=\arg\min_k$" "\nvalidation loss", _GREEN),
    Box(
        *(3.85, 0.9, 6.0, 1.3),
        *(
            "Meta-update, every m rounds (Algorithm 3)",
            r"outer SPSA on $L_{meta}$ of rounds with $\phi^{(t)}\pm c\Delta$",
        ),
        _BLUE,
    ),
    Box(
        *(12.3, 0.9, 6.0, 1.3),
        *("Aggregation (Algorithm 2)", r"$\theta^{(t+1)}=\sum_i (n_i/\sum_j n_j)\,\theta_{i,\star}^{(t)}$"),
        _BLUE,
    ),
)
#: Where each unfold's rates come down, with their index; all but the last report back to the controller.
_UNFOLDS = ((4.0, "0", "1"), (6.9, "1", "2"), (10.2, "K-1", ""))


def _overview(axis: Axes) -> None:
    _canvas(axis, 16.3, 9.3)
    frame = FancyBboxPatch((1.35, 2.15), 13.45, 4.85, boxstyle="round,pad=0,rounding_size=0.15", **_DASHED)
    axis.add_patch(frame)
    for step in _STEPS:
        step.draw(axis)
    _label(axis, 14.6, 6.72, "client i (Algorithm 1)", "0.35", ha="right")
    _broadcast(axis)
    for x, rates, report in _UNFOLDS:
        _arrow(axis, _BLUE, (x - 0.15, 5.27), (x - 0.15, 4.55))
        _label(axis, x - 0.25, 4.92, rf"$\eta_{{i,{rates}}},\delta_{{i,{rates}}}$", _BLUE, ha="right")
        if report:
            _arrow(axis, _ORANGE, (x + 0.15, 4.53), (x + 0.15, 5.25))
            _label(axis, x + 0.25, 4.92, rf"$s_{{i,{report}}}$", _ORANGE, ha="left")
    for start, end in ((5.18, 5.7), (8.08, 9.0), (11.38, 11.95)):
        _arrow(axis, "0.3", (start, 3.75), (end, 3.75))
    _label(axis, 8.5, 4.05, "· · ·", fontweight="bold")
    _label(axis, 8.1, 2.55, r"each block minimises  $L_i(\theta)+\frac{\mu}{2}\Vert\theta-\theta^{(t)}\Vert^2$")
    _arrow(axis, _GREEN, (13.25, 2.97), (13.25, 1.6))
    _label(axis, 13.4, 1.87, r"upload $\theta_{i,\star}^{(t)},\ n_i$", _GREEN, ha="left")
    _arrow(axis, _BLUE, (9.27, 0.9), (6.9, 0.9))
    _label(axis, 8.08, 1.2, r"$L_{meta}$", _BLUE)


def _broadcast(axis: Axes) -> None:
    """Draw what the server sends to the client, and what the next round's broadcast comes from."""
    _arrow(axis, _BLUE, (2.1, 8.08), (2.1, 3.75), (2.8, 3.75))
    _label(axis, 2.25, 7.5, r"$\theta^{(t)}$", _BLUE, ha="left")
    _arrow(axis, _BLUE, (7.1, 8.08), (7.1, 6.75))
    _label(axis, 7.25, 7.5, r"$\phi^{(t)}$", _BLUE, ha="left")
    _arrow(axis, _BLUE, (0.83, 0.9), (0.5, 0.9), (0.5, 8.05))
    _label(axis, 0.65, 7.5, r"$\phi^{(t+1)}$", _BLUE, ha="left")
    _arrow(axis, _BLUE, (15.32, 0.9), (15.8, 0.9), (15.8, 8.05))
    _label(axis, 15.65, 7.5, r"$\theta^{(t+1)}$", _BLUE, ha="right")


def circuit(features: int, ansatz_reps: int = 3) -> Sheet:
    """Return the QNN's circuit: the feature map's gates on two features, and the whole ansatz.

    The feature map is shown for one pair of features and one repetition, because all pairs have the same three gates.
    """
    panels = {
        "feature_map": partial(_feature_map, title=f"Feature map: one pair of the {features} features, one repetition"),
        "ansatz": partial(_ansatz, features=features, reps=ansatz_reps),
    }
    return Sheet("circuit", panels, ("drawn by Qiskit",), size=(8.4, 2.5), columns=1)


def _feature_map(axis: Axes, title: str) -> None:
    QNN(2, feature_map_reps=1).feature_map.draw("mpl", ax=axis, fold=-1)
    axis.set_title(title)


def _ansatz(axis: Axes, features: int, reps: int) -> None:
    qnn = QNN(features, ansatz_reps=reps)
    qnn.ansatz.draw("mpl", ax=axis, fold=-1)
    axis.set_title(f"Ansatz: {qnn.num_weights} weights; then the parity of the measured bits")
