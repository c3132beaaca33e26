"""The paper's tables with our numbers, and tables of our own; written as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pandas as pd

from qfl_core.algorithm.methods import METHODS, method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.paper import PAPER, QUALITATIVE, QUALITIES
from qfl_core.analysis.summary import FINAL_METRICS, last_rounds
from qfl_core.base.files import write_text
from qfl_core.base.numbers import number, rounded, span
from qfl_core.config import ExperimentConfig, Profile, track_dataset

#: A method within this share of the distance from best to worst is competitive.
COMPETITIVE = 0.5
MARKS = {2: "✓✓", 1: "✓", 0: "−"}
_TITLES = {
    "final_accuracy": "Final global accuracy",
    "peak_accuracy": "Peak global accuracy",
    "client_test_accuracy": "Mean client test accuracy",
    "train_test_gap": "Low train-test gap",
    "drift_from_broadcast": "Low client drift",
    "fairness_gap": "Client fairness",
}
_LOWER_IS_BETTER = ("train_test_gap", "drift_from_broadcast", "fairness_gap")
_DOMAINS = {"baf": ("Finance", "Bank fraud detection"), "genome": ("Genomics", "Human or worm sequence")}


#: Columns of the range in which 95 % of the runs lie.
_OF_RUNS = ("2.5 % of runs", "97.5 % of runs")
#: Whether the paper's number lies between these two columns.
_INSIDE = {"paper in interval of mean": ("low", "high"), "paper in range of runs": _OF_RUNS}


def configuration_table(settings: Profile) -> pd.DataFrame:
    """Return the paper's table of settings: what it prints, and what this profile runs with on each dataset."""
    configs = [settings.config(name) for name in settings.datasets]
    versions = {name: metadata.version(name) for name in ("qiskit", "qiskit-machine-learning", "qiskit-aer")}
    rows = [
        # Not the version that runs now: the table is the same on every machine, and each run names its own.
        ("Programming language", "Python 3.11.14", "Python 3.11 or newer"),
        ("Quantum framework", "Qiskit, Qiskit Machine Learning", ", ".join(f"{k} {v}" for k, v in versions.items())),
        ("Simulator", "Qiskit Aer simulator", _values(configs, "engine") + ", checked against Aer"),
        (
            "Feature map",
            "ZZFeatureMap",
            _values(configs, "feature_map") + ", reps " + _values(configs, "feature_map_reps"),
        ),
        ("Ansatz", "RealAmplitudes", "RealAmplitudes"),
        ("Repetitions of the ansatz", "not stated", _values(configs, "ansatz_reps")),
        ("Optimizer", "SPSA / DUQFL-Prox SPSA", "by method, see the table of roles"),
        ("Number of clients", "5 or 10", _values(configs, "clients")),
        ("Communication rounds", "10-50 depending on dataset capacity", _values(configs, "rounds")),
        ("Unfold steps K", "5", _values(configs, "unfolds")),
        ("SPSA iterations per unfold", "5-10", _values(configs, "spsa_iterations")),
        ("Initial learning rate", "0.13", _values(configs, "learning_rate")),
        ("Initial perturbation", "0.13", _values(configs, "perturbation")),
        ("Proximal coefficient mu", "0.01", _values(configs, "mu")),
        ("Shots", "1024", _values(configs, "shots")),
        ("Loss", "not stated", _values(configs, "loss")),
        ("Samples of a client in a round", "not stated", _values(configs, "chunk")),
        ("Client validation mix", "not stated", _values(configs, "client_val")),
        ("Client test set", "not stated", _values(configs, "client_test")),
    ]
    return pd.DataFrame(rows, columns=["Setting", "Paper", "Here"])


def _values(configs: list[ExperimentConfig], field: str) -> str:
    return " / ".join(dict.fromkeys(str(getattr(config, field)) for config in configs))


def datasets_table(settings: Profile, sources: Mapping[str, str]) -> pd.DataFrame:
    """Return the paper's table of datasets, one row per track; ``sources`` maps each track to the data it used."""
    rows = []
    for track, source in sources.items():
        config = settings.config(track)
        domain, task = _DOMAINS.get(track_dataset(track), ("", ""))
        rows.append(
            {
                "Track": track,
                "Domain": domain,
                "Task": task,
                "Data": source,
                "Encoding": config.encoding,
                "QNN features": config.features,
                "Angle range": span(*config.angle_range),
                "Train / validation / test": f"{config.train_size} / {config.val_size} / {config.test_size}",
            }
        )
    return pd.DataFrame(rows)


def qualitative_table(rounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the paper's qualitative table with marks computed from our numbers, and the paper's marks in brackets.

    The rule, for each column of a track: the method with the best mean over seeds gets two marks; one whose mean lies
    in the better half of the distance from best to worst (:data:`COMPETITIVE`) gets one; the others a dash.
    """
    rows = []
    for track, table in rounds.items():
        methods = list(QUALITATIVE[track])
        means = pd.DataFrame({name: _quality(table, name).map(rounded) for name in QUALITIES}).loc[methods]
        for method in methods:
            row = {"Dataset": track, "Method": METHODS[method].label}
            for name, theirs in zip(QUALITIES, QUALITATIVE[track][method], strict=True):
                ours = _mark(means[name], method, lower=name in _LOWER_IS_BETTER)
                row[_TITLES[name]] = f"{MARKS[ours]} ({MARKS[theirs]})"
            rows.append(row)
    return pd.DataFrame(rows)


def _quality(rounds: pd.DataFrame, name: str) -> pd.Series:
    """Return each method's mean over seeds; of drift the mean over rounds, of the train-test gap the absolute value."""
    if name == "peak_accuracy":
        return rounds.groupby(["method", "seed"])["global_accuracy"].max().groupby("method").mean()
    if name == "drift_from_broadcast":
        return rounds.groupby("method")[name].mean()
    column = "global_accuracy" if name == "final_accuracy" else name
    means = last_rounds(rounds).groupby("method")[column].mean()
    return means.abs() if name == "train_test_gap" else means


def _mark(means: pd.Series, method: str, lower: bool) -> int:
    score = -means if lower else means
    best, worst = score.max(), score.min()
    if score[method] == best:
        return 2
    return int(score[method] >= best - COMPETITIVE * (best - worst))


def beside_paper(rounds: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the last round's metrics with 95 % intervals over seeds, and the paper's number beside each.

    One row per track, metric and method. From ``low`` to ``high`` is the 95 % interval of the mean. From ``2.5 % of
    runs`` to ``97.5 % of runs`` lie 95 % of the single runs; the paper's number is one of a single run.
    """
    parts = []
    for track, table in rounds.items():
        last = last_rounds(table)
        for metric, title in FINAL_METRICS.items():
            found = intervals(last, metric, ["method"]).assign(track=track, metric=title)
            for share, name in zip((0.025, 0.975), _OF_RUNS, strict=True):
                found[name] = found["method"].map(last.groupby("method")[metric].quantile(share))
            found["paper"] = found["method"].map(PAPER.get((track, metric), {}))
            parts.append(found)
    table = pd.concat(parts, ignore_index=True)
    table["method"] = [method_named(name).label for name in table["method"]]
    for name, (low, high) in _INSIDE.items():
        table[name] = table["paper"].between(table[low], table[high]).where(table["paper"].notna())
    return table[["track", "metric", "method", "mean", "low", "high", *_OF_RUNS, "seeds", "paper", *_INSIDE]]


def compared_with_published(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of :mod:`qfl_core.data.standin.fidelity` for readers: what was not compared is never "ok".

    The column ``ok`` becomes ``within tolerance``: yes, no, or that there is no published number.
    """
    told = table["ok"].map({True: "yes", False: "no"}).where(table["published"].notna(), "no published number")
    numbers = table.drop(columns=["quantity", "ok"]).map(lambda value: number(value, missing=""))
    return numbers.assign(**{"within tolerance": told}).set_axis(table["quantity"])


def roles_table() -> pd.DataFrame:
    """Return the paper's table of roles, one row per method, made from the methods' switches."""
    mark = {True: "✓", False: "×"}
    rows = [
        {
            "Method": method.label,
            "Deep unfold": mark[method.unfolded],
            "Controller": mark[method.controller],
            "Best unfold": mark[method.best_unfold],
            "Drift control": mark[method.proximal or method.projection],
            "Role": method.role,
        }
        for method in METHODS.values()
    ]
    return pd.DataFrame(rows)


def notation_table() -> pd.DataFrame:
    """Return the paper's notation with the name that the code uses for each symbol."""
    rows = [
        ("N", "number of clients", "clients"),
        ("t, T", "communication round and their number", "t, rounds"),
        (r"S^{(t)}", "clients that take part in round t", "participation"),
        (r"D_i, n_i", "a client's training samples and their number", "Batch.train, Batch.train.sizes"),
        (r"V_i", "a client's validation samples", "Batch.val"),
        (r"D_{val}", "validation samples of the server, for the meta-loss", "Splits.val"),
        (r"\theta^{(t)}", "global weights", "theta"),
        (r"\theta_{i,k}^{(t)}", "client i's weights after unfold k", "theta (clients, P) in client.py"),
        (r"\theta_{i,\star}^{(t)}", "the weights that client i uploads", "LocalResult.theta"),
        ("P", "number of trainable weights", "QNN.num_weights"),
        ("k, K", "unfold and their number", "k, unfolds"),
        (r"f(x; \theta)", "the QNN's prediction", "Engine.probabilities"),
        (r"L_i", "a client's loss", "losses.py"),
        (r"L_i^{prox}", "the loss with the proximal penalty", "Objective in client.py"),
        (r"\eta_{i,k}^{(t)}", "SPSA learning rate of a client's unfold", "eta"),
        (r"\delta_{i,k}^{(t)}", "SPSA perturbation of a client's unfold", "delta"),
        (r"z_{i,k}^{(t)}", "state that the controller sees", "controller.FEATURES"),
        (r"\phi^{(t)}", "controller weights, a row for eta and one for delta", "phi (2, features)"),
        (r"\mu", "proximal coefficient", "mu"),
        (r"w_i^{(t)}", "aggregation weight of a client", "aggregation_weight"),
        (r"L_{meta}^{(t)}", "loss after aggregation that the controller is refined on", "meta_loss"),
        (r"\alpha_{out}, c_{out}", "outer learning rate and perturbation", "outer_learning_rate, outer_perturbation"),
        (r"\Delta_\phi", "random signs of the outer step", "stream(seed, 'outer-direction', t)"),
    ]
    return pd.DataFrame(rows, columns=["Symbol", "Meaning", "In the code"])


def write_table(table: pd.DataFrame, name: str, folder: Path, note: str = "") -> None:
    """Write ``<name>.csv``, ``.md`` and ``.tex``; numbers have six digits in CSV, and three decimals elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{name}.csv", csv_text(table))
    write_text(folder / f"{name}.md", markdown(table) + (f"\n{note}\n" if note else ""))
    write_text(folder / f"{name}.tex", (f"% {note}\n" if note else "") + latex(table))


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV; numbers have six significant digits (:func:`qfl_core.base.numbers.rounded`)."""
    return as_written(table).to_csv(index=False, lineterminator="\n")


def as_written(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its numbers as CSV has them, so that it equals the table that is read back."""
    return table.map(lambda value: rounded(value) if isinstance(value, float) else value)


def markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown."""
    lines = [table.columns, ["---"] * len(table.columns), *table.map(_shown).to_numpy()]
    return "".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def latex(table: pd.DataFrame) -> str:
    """Return a table as a LaTeX tabular with booktabs rules; symbols of the notation stay mathematics."""
    signs = {"✓": r"$\checkmark$", "−": "$-$", "×": r"$\times$", "±": r"$\pm$"}
    shown = table.map(_shown)
    for column in shown:
        values = [f"${v}$" if column == "Symbol" else _escaped(v) for v in shown[column]]
        for sign, command in signs.items():
            values = [value.replace(sign, command) for value in values]
        shown[column] = values
    return shown.rename(columns=_escaped).to_latex(index=False, escape=False, column_format="l" * len(shown.columns))


def _escaped(text: str) -> str:
    for sign in "&%#_":
        text = text.replace(sign, f"\\{sign}")
    return text


def _shown(value: object) -> str:
    if isinstance(value, float):
        return number(value, missing="")
    return "" if value is None or value is pd.NA else str(value)
