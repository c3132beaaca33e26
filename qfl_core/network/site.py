"""A participant's own folder: what one client, or the server, holds, and nothing of the others.

``rows.csv`` has the columns part (train, val, test), round, label, x1, x2, ... in angles. A row with a round serves in
that round, one without in all of them; ``site.json`` holds what the federation agreed on: for every round the samples
of all participants together and how many have label 1 (the controller's features need both), and for the server every
client's n_i, which uploads are checked against.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qfl_core.algorithm.federation import Federation
from qfl_core.algorithm.methods import method_named
from qfl_core.base.errors import DataError
from qfl_core.base.files import write_text
from qfl_core.config import ExperimentConfig
from qfl_core.data import DataSource, Split, Splits, load_splits
from qfl_core.data.partition import Partition
from qfl_core.runs.prepare import Prepared, encode, make_federation, make_model

ROWS, AGREED = "rows.csv", "site.json"


def export_sites(config: ExperimentConfig, folder: Path) -> None:
    """Write the folder of every participant, ``server`` and ``client-<id>``, from data that is in one place."""
    splits = load_splits(config)
    federation = make_federation(config, splits)
    export_server(splits, federation, folder / "server")
    for client_id in range(config.clients):
        export_client(splits, federation, client_id, folder / f"client-{client_id}")


def export_client(splits: Splits, federation: Federation, client_id: int, folder: Path) -> None:
    """Write the folder of one client of a federation that is held in one place."""
    schedule, parts = federation.schedule, []
    for t in range(federation.config.rounds):
        for part, rows in (("train", schedule.train[t][client_id]), ("val", schedule.val[t][client_id])):
            parts.append(_rows(splits.train, rows, part, t))
    parts.append(_rows(splits.test, schedule.test[client_id], "test", None))
    _write(folder, pd.concat(parts, ignore_index=True), splits.provenance, federation, {"role": "client"})


def export_server(splits: Splits, federation: Federation, folder: Path) -> None:
    """Write the server's folder: the validation and the test split, and every client's n_i."""
    held = {"val": splits.val, "test": splits.test}
    parts = [_rows(split, np.arange(len(split)), name, None) for name, split in held.items()]
    sizes = [[len(rows) for rows in clients] for clients in federation.schedule.train]
    more = {"role": "server", "sizes": sizes}
    _write(folder, pd.concat(parts, ignore_index=True), splits.provenance, federation, more)


def _rows(split: Split, rows: np.ndarray, part: str, t: int | None) -> pd.DataFrame:
    table = pd.DataFrame({"part": part, "round": pd.array([t] * len(rows), dtype="Int64"), "label": split.y[rows]})
    return table.assign(**{f"x{j + 1}": split.X[rows, j] for j in range(split.X.shape[1])})


def _write(
    folder: Path, rows: pd.DataFrame, source: DataSource, federation: Federation, more: Mapping[str, object]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    agreed = {
        "dataset": source.dataset,
        "source": source.kind,
        "name": source.name,
        "totals": [federation.census(t) for t in range(federation.config.rounds)],
        **more,
    }
    write_text(folder / ROWS, rows.to_csv(index=False, lineterminator="\n"))
    write_text(folder / AGREED, json.dumps(agreed, indent=1) + "\n")


def open_site(config: ExperimentConfig, folder: str | Path, client_id: int | None = None) -> Prepared:
    """Return the federation as the folder's owner sees it: a client, or the server where ``client_id`` is None.

    Its splits are those that the owner holds: train and test for a client, val and test for the server.
    """
    folder = Path(folder)
    rows, agreed = _read(folder, config)
    totals = tuple((int(n), int(positives)) for n, positives in agreed["totals"])
    if len(totals) < config.rounds:
        raise DataError(f"{folder.name}/{AGREED} has totals for {len(totals)} rounds, the run has {config.rounds}")
    named = {part: rows[rows["part"] == part] for part in ("train", "val", "test")}
    if client_id is None:
        held = {"val": named["val"], "test": named["test"]}
        # Only the number of each client's rows is known here.
        train = [[np.arange(n) for n in clients] for clients in agreed["sizes"]]
        schedule = Partition(train, [], [])
    else:
        training = rows[rows["part"].isin(["train", "val"])]  # a client validates on rows of the train split
        held = {"train": training, "test": named["test"]}
        schedule = Partition(
            _schedule(training, "train", client_id, config),
            _schedule(training, "val", client_id, config),
            [np.arange(len(named["test"]) if i == client_id else 0) for i in range(config.clients)],
        )
    for part, found in held.items():
        if found.empty:
            raise DataError(f"{ROWS} has no {part} row")
    model = make_model(config)
    federation = Federation(
        config=config,
        method=method_named(config.method),
        model=model,
        splits=encode(model.engine, {part: _split(found, config) for part, found in held.items()}),
        schedule=schedule,
        totals=totals,
    )
    digest = hashlib.sha256((folder / ROWS).read_bytes()).hexdigest()
    source = DataSource(agreed["dataset"], agreed["source"], agreed["name"], digest, "the participant's own folder")
    return Prepared(federation, source, notes={})


def _read(folder: Path, config: ExperimentConfig) -> tuple[pd.DataFrame, dict[str, Any]]:
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


def _schedule(rows: pd.DataFrame, part: str, client_id: int, config: ExperimentConfig) -> list[list[np.ndarray]]:
    """Return the client's row numbers of every round; the other clients' places stay empty."""
    wanted, when = (rows["part"] == part).to_numpy(), rows["round"]
    nothing = np.arange(0)
    schedule = []
    for t in range(config.rounds):
        here = np.flatnonzero(wanted & (when.isna() | (when == t).fillna(False)).to_numpy())
        if not len(here):
            raise DataError(f"{ROWS} has no {part} row for round {t}")
        schedule.append([here if i == client_id else nothing for i in range(config.clients)])
    return schedule
