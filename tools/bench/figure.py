"""The bench as a figure: the circuit, and how cost grows."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.engines.qnn import QNN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLD = 19  # columns per line of the drawn circuit
LABELS = {
    "samples": "samples (4 qubits, 20 thetas)",
    "thetas": "thetas (4 qubits, 3,000 samples)",
    "clients": "clients (50 samples, 2 thetas each)",
    "qubits": "qubits (200 samples, 2 thetas)",
}


def draw(results: dict, qnn: QNN | None = None) -> Figure:
    """Return a figure of ``qnn`` (by default the paper's, of four qubits) above the cost of calls and of runs.

    Parameters
    ----------
    results : what :func:`tools.bench.run_bench` returned, or its JSON read back.
    """
    import matplotlib.pyplot as plt

    from qfl_core.figures.style import CLASS_COLOURS, apply_style, finish

    apply_style()
    qnn = QNN(4) if qnn is None else qnn
    figure = plt.figure(figsize=(12, 13))
    top, calls, training = np.asarray(figure.subfigures(3, 1, height_ratios=(1.9, 1, 1)), dtype=object)
    ax = top.subplots()
    ax.axis("off")
    if find_spec("pylatexenc") is None:
        ax.text(0, 0.5, str(qnn.draw("text", fold=120)), family="monospace", fontsize=5, va="center")
    else:
        qnn.draw("mpl", ax=ax, fold=FOLD)
    for ax, (name, points) in zip(calls.subplots(1, 4), results["scaling"].items(), strict=True):
        values = [p["value"] for p in points]
        ax.plot(values, [p["seconds"] for p in points], "o-", color=CLASS_COLOURS[0])
        ax.set_yscale("log")
        if name == "qubits":
            ax.set_xticks(values)
        else:
            ax.set_xscale("log")
        for before, point in zip([{}, *points], points, strict=False):
            strategy = point.get("strategy")
            if strategy and strategy != before.get("strategy"):
                # Curves rise: below and to the right of a point there is room.
                ax.annotate(
                    strategy,
                    (point["value"], point["seconds"]),
                    textcoords="offset points",
                    xytext=(6, -3),
                    va="top",
                    fontsize=9,
                )
        ax.margins(x=0.12, y=0.12)
        ax.set_xlabel(LABELS[name])
    calls.axes[0].set_ylabel("seconds per call, one thread")
    curves = results["training"]["scaling"]
    for ax, (name, points) in zip(training.subplots(1, len(curves)), curves.items(), strict=True):
        values, seconds = ([p[key] for p in points] for key in ("value", "seconds"))
        ax.plot(values, seconds, "o-", color=CLASS_COLOURS[0])
        if name == "many clients":
            ax.set(xscale="log", yscale="log", xlabel="clients (4 samples, one round)")
        else:
            ax.set(xlabel=f"{name} (duqfl-prox)", xlim=(0, None), ylim=(0, None))
    training.axes[0].set_ylabel("seconds per run, one thread")
    machine = results["machine"]
    facts = ("engine: statevector", f"{machine['cores']} cores", f"numpy {machine['packages']['numpy']}")
    finish(figure, facts)
    return figure
