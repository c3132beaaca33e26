"""A participant's own folder: what one client, or the server, holds, and nothing of the others.

``rows.csv`` has the columns part (train, val, test), round, label, x1, x2, ... in angles. A row with a round serves in
that round, one without in all of them; ``site.json`` holds what the federation agreed on: for every round the samples
of all participants together and how many have label 1 (the controller's features need both), and for the server every
client's n_i, which uploads are checked against.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from qfl_core.algorithm.federation import Federation, make_qnn
from qfl_core.algorithm.methods import method_named
from qfl_core.base.errors import DataError
from qfl_core.base.files import write_text
from qfl_core.config import ExperimentConfig
from qfl_core.data.partition import Partition
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.engines import make_engine

ROWS, AGREED = "rows.csv", "site.json"


@dataclass(frozen=True, eq=False)
class SiteFederation(Federation):
    """A federation seen from one participant: ``totals`` (T, 2) are what the others contribute to its numbers."""

    totals: tuple[tuple[int, int], ...] = ()

    def census(self, t: int) -> tuple[int, int]:
        """Return the agreed numbers of round t; the others' rows are not here."""
        return self.totals[t]


def export_client(federation: Federation, client: int, folder: Path) -> None:
    """Write the folder of one client of a federation that is held in one place."""
    parts = []
    for t in range(federation.config.rounds):
        held = federation.partition.round(t)[client]
        parts += [_rows(federation, "train", held.train, "train", t), _rows(federation, "train", held.val, "val", t)]
    parts.append(_rows(federation, "test", federation.partition.test[client], "test", None))
    _write(folder, pd.concat(parts, ignore_index=True), federation, {"role": "client"})


def export_server(federation: Federation, folder: Path) -> None:
    """Write the server's folder: the validation and test part, and every client's n_i."""
    parts = [
        _rows(federation, name, np.arange(len(federation.splits.parts[name])), name, None) for name in ("val", "test")
    ]
    sizes = [[len(rows) for rows in clients] for clients in federation.partition.train]
    _write(folder, pd.concat(parts, ignore_index=True), federation, {"role": "server", "sizes": sizes})


def _rows(federation: Federation, source: str, rows: np.ndarray, part: str, t: int | None) -> pd.DataFrame:
    split = federation.splits.parts[source]
    table = pd.DataFrame({"part": part, "round": pd.array([t] * len(rows), dtype="Int64"), "label": split.y[rows]})
    return table.assign(**{f"x{j + 1}": split.X[rows, j] for j in range(split.X.shape[1])})


def _write(folder: Path, rows: pd.DataFrame, federation: Federation, more: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    provenance = federation.splits.provenance
    agreed = {
        "dataset": provenance.dataset,
        "source": provenance.kind,
        "name": provenance.name,
        "totals": [federation.census(t) for t in range(federation.config.rounds)],
        **more,
    }
    write_text(folder / ROWS, rows.to_csv(index=False, lineterminator="\n"))
    write_text(folder / AGREED, json.dumps(agreed, indent=1) + "\n")


def open_site(config: ExperimentConfig, folder: str | Path, client: int | None = None) -> SiteFederation:
    """Return the federation as the folder's owner sees it: a client, or the server where ``client`` is None."""
    folder = Path(folder)
    rows, agreed = _read(folder, config)
    totals = tuple((int(n), int(positives)) for n, positives in agreed["totals"])
    if len(totals) < config.rounds:
        raise DataError(f"{folder.name}/{AGREED} has totals for {len(totals)} rounds, the run has {config.rounds}")
    training = rows[rows["part"].isin(["train", "val"])] if client is not None else rows[:0]
    schedule = {part: _schedule(training, part, client, config) for part in ("train", "val")}
    if client is None:
        sizes = agreed["sizes"]
        schedule["train"] = [[np.arange(n) for n in clients] for clients in sizes]  # only their number is known here
    parts = {
        "train": _split(training, config),
        "val": _split(rows[rows["part"] == "val"] if client is None else rows[:0], config),
        "test": _split(rows[rows["part"] == "test"], config),
    }
    digest = hashlib.sha256((folder / ROWS).read_bytes()).hexdigest()
    source = DataSource(agreed["dataset"], agreed["source"], agreed["name"], digest, "the participant's own folder")
    splits = Splits(parts["train"], parts["val"], parts["test"], source)
    test = [np.arange(len(parts["test"])) if i == client else np.arange(0) for i in range(config.clients)]
    engine = make_engine(config.engine, make_qnn(config), shots=config.shots)
    return SiteFederation(
        config=config,
        method=method_named(config.method),
        splits=splits,
        partition=Partition(schedule["train"], schedule["val"], test),
        engine=engine,
        encoded={name: engine.encode(part.X) for name, part in splits.parts.items() if len(part)},
        totals=totals,
    )


def _read(folder: Path, config: ExperimentConfig) -> tuple[pd.DataFrame, dict]:
    for name in (ROWS, AGREED):
        if not (folder / name).is_file():
            raise DataError(f"the folder {folder.name!r} has no {name}")
    rows = pd.read_csv(folder / ROWS, dtype=str)
    expected = ["part", "round", "label", *(f"x{j + 1}" for j in range(config.features))]
    if list(rows.columns) != expected:
        found, needed = ", ".join(rows.columns), ", ".join(expected)
        raise DataError(f"{ROWS} has the columns {found}; features={config.features} needs {needed}")
    unknown = set(rows["part"]) - {"train", "val", "test"}
    if unknown:
        raise DataError(f"{ROWS}: part must be train, val or test, got {sorted(map(str, unknown))}")
    # Through Python's float, which gives back every bit; the reader's own conversion need not.
    features = {name: [float(text) for text in rows[name]] for name in expected[3:]}
    rows = rows.astype({"round": "Int64", "label": int}).assign(**features)
    return rows, json.loads((folder / AGREED).read_text(encoding="utf-8"))


def _split(rows: pd.DataFrame, config: ExperimentConfig) -> Split:
    angles = rows[[f"x{j + 1}" for j in range(config.features)]].to_numpy(dtype=float)
    return Split(angles, rows["label"].to_numpy(dtype=int), np.arange(len(rows)))


def _schedule(rows: pd.DataFrame, part: str, client: int | None, config: ExperimentConfig) -> list[list[np.ndarray]]:
    """Return the client's row numbers of every round; the other clients' places stay empty."""
    wanted, when = (rows["part"] == part).to_numpy(), rows["round"]
    nothing = np.arange(0)
    schedule = []
    for t in range(config.rounds):
        here = np.flatnonzero(wanted & (when.isna() | (when == t).fillna(False)).to_numpy())
        if client is not None and not len(here):
            raise DataError(f"{ROWS} has no {part} row for round {t}")
        schedule.append([here if i == client else nothing for i in range(config.clients)])
    return schedule
