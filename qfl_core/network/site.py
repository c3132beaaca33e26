"""A participant's own folder: what one client, or the server, holds, and nothing of the others.

``rows.csv`` has the columns part (train, val, test), round, label, x1, x2, ... in angles. A row with a round serves in
that round, one without in all of them; ``site.json`` holds what the federation agreed on: for every round the samples
of all participants together and how many have label 1 (the controller's features need both), for the server every
client's n_i, which uploads are checked against, and the settings of the config that decide the rows and these counts. A
folder serves a config with these settings alone. The digest of the server's folder is part of a run's identity; that of
a client's is not, because its rows stay with it: whoever changes them has to give the run a results folder of its own.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qfl_core.algorithm.federation import Federation
from qfl_core.base.errors import DataError
from qfl_core.base.files import write_text
from qfl_core.config import ExperimentConfig
from qfl_core.data import DATA_SETTINGS, DataSource, Split, Splits, load_splits
from qfl_core.data.partition import Partition
from qfl_core.runs.prepare import Prepared, configured_method, encode, make_federation, make_model

ROWS, AGREED = "rows.csv", "site.json"
#: The settings that decide which rows a participant holds, and the counts of all that take part in a round. A run may
#: have fewer rounds than its folders.
SETTINGS = (
    *DATA_SETTINGS,
    *("split", "clients", "chunk", "skew_ratio", "size_variation", "dirichlet_alpha", "min_per_class"),
    *("client_val_share", "client_val", "client_test", "participation"),
)
#: The number of a row that serves in every round.
ALWAYS = -1


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a folder, (n,) each: ``part``, ``round`` that a row serves in, ``label``; ``x`` is (n, features).

    They are read without pandas, because a node would spend more time on its import than on the rows.
    """

    part: np.ndarray
    round: np.ndarray
    label: np.ndarray
    x: np.ndarray

    def of(self, *parts: str) -> _Rows:
        """Return the rows of some parts alone."""
        wanted = np.isin(self.part, parts)
        return _Rows(self.part[wanted], self.round[wanted], self.label[wanted], self.x[wanted])

    @property
    def split(self) -> Split:
        """The rows as a split of a dataset."""
        return Split(self.x, self.label, np.arange(len(self.label)))

    def schedule(self, part: str, client_id: int, config: ExperimentConfig) -> list[list[np.ndarray]]:
        """Return the client's row numbers of every round; the other clients' places stay empty."""
        nothing = np.arange(0)
        schedule = []
        for t in range(config.rounds):
            here = np.flatnonzero((self.part == part) & ((self.round == ALWAYS) | (self.round == t)))
            if not len(here):
                raise DataError(f"{ROWS} has no {part} row for round {t}")
            schedule.append([here if i == client_id else nothing for i in range(config.clients)])
        return schedule


def export_sites(config: ExperimentConfig, folder: Path) -> None:
    """Write the folder of every participant, ``server`` and ``client-<id>``, from data that is in one place."""
    splits = load_splits(config)
    federation = make_federation(config, splits)
    export_server(splits, federation, folder / "server")
    for client_id in range(config.clients):
        export_client(splits, federation, client_id, folder / f"client-{client_id}")


def export_client(splits: Splits, federation: Federation, client_id: int, folder: Path) -> None:
    """Write the folder of one client of a federation that is held in one place."""
    schedule = federation.schedule

    def rows() -> Iterator[list[object]]:
        for t in range(federation.config.rounds):
            yield from _cells(splits.train, schedule.train[t][client_id], "train", t)
            yield from _cells(splits.train, schedule.val[t][client_id], "val", t)
        yield from _cells(splits.test, schedule.test[client_id], "test", None)

    _write(folder, rows(), splits.provenance, federation, {"role": "client"})


def export_server(splits: Splits, federation: Federation, folder: Path) -> None:
    """Write the server's folder: the validation and the test split, and every client's n_i."""
    held = {"val": splits.val, "test": splits.test}
    rows = (row for name, split in held.items() for row in _cells(split, np.arange(len(split)), name, None))
    sizes = [[len(rows) for rows in clients] for clients in federation.schedule.train]
    _write(folder, rows, splits.provenance, federation, {"role": "server", "sizes": sizes})


def _columns(features: int) -> list[str]:
    return ["part", "round", "label", *(f"x{j + 1}" for j in range(features))]


def _cells(split: Split, rows: np.ndarray, part: str, t: int | None) -> Iterator[list[object]]:
    """Yield lines of the table; Python writes every float so that all its bits come back."""
    for label, x in zip(split.y[rows].tolist(), split.X[rows].tolist(), strict=True):
        yield [part, "" if t is None else t, label, *x]


def _write(
    folder: Path,
    rows: Iterable[Sequence[object]],
    source: DataSource,
    federation: Federation,
    more: Mapping[str, object],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    agreed = {
        "dataset": source.dataset,
        "source": source.kind,
        "name": source.name,
        "config": _settings(federation.config),
        "totals": [federation.census(t) for t in range(federation.config.rounds)],
        **more,
    }
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(_columns(federation.config.features))
    table.writerows(rows)
    write_text(folder / ROWS, written.getvalue())
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
    if client_id is None:
        held = {"val": rows.of("val"), "test": rows.of("test")}
        # Only the number of each client's rows is known here.
        train = [[np.arange(n) for n in clients] for clients in agreed["sizes"]]
        schedule = Partition(train, [], [])
    else:
        # A client validates on rows of the train split.
        held = {"train": rows.of("train", "val"), "test": rows.of("test")}
        schedule = Partition(
            held["train"].schedule("train", client_id, config),
            held["train"].schedule("val", client_id, config),
            [np.arange(len(held["test"].label) if i == client_id else 0) for i in range(config.clients)],
        )
    for part, found in held.items():
        if not len(found.label):
            raise DataError(f"{ROWS} has no {part} row")
    model = make_model(config)
    federation = Federation(
        config=config,
        method=configured_method(config),
        model=model,
        splits=encode(model.engine, {part: found.split for part, found in held.items()}),
        schedule=schedule,
        totals=totals,
    )
    digest = hashlib.sha256((folder / ROWS).read_bytes() + (folder / AGREED).read_bytes()).hexdigest()
    source = DataSource(agreed["dataset"], agreed["source"], agreed["name"], digest, "the participant's own folder")
    return Prepared(federation, source, notes={})


def _read(folder: Path, config: ExperimentConfig) -> tuple[_Rows, dict[str, Any]]:
    for name in (ROWS, AGREED):
        if not (folder / name).is_file():
            raise DataError(f"the folder {folder.name!r} has no {name}")
    with (folder / ROWS).open(encoding="utf-8", newline="") as file:
        header, *lines = [line for line in csv.reader(file) if line] or [[]]
    expected = _columns(config.features)
    if header != expected:
        found, needed = ", ".join(header), ", ".join(expected)
        raise DataError(f"{ROWS} has the columns {found}; features={config.features} needs {needed}")
    try:
        part, t, label, *x = zip(*lines, strict=True) if lines else [()] * len(expected)
        rows = _Rows(
            np.array(part, dtype=str),
            np.array([_round(text) for text in t], dtype=int),
            np.array([int(text) for text in label], dtype=int),
            np.array([[float(text) for text in column] for column in x], dtype=float).T.copy(),
        )
    except ValueError as error:
        raise DataError(f"{ROWS} cannot be read: {error}") from None
    unknown = sorted(set(part) - {"train", "val", "test"})
    if unknown:
        raise DataError(f"{ROWS}: part must be train, val or test, got {unknown}")
    return rows, _agreed(folder, config)


def _agreed(folder: Path, config: ExperimentConfig) -> dict[str, Any]:
    """Return what the federation agreed on; a folder that was made for another config is refused."""
    where, again = f"{folder.name}/{AGREED}", "export the folders again (python -m qfl_core network export)"
    try:
        agreed = json.loads((folder / AGREED).read_text(encoding="utf-8"))
        made_for = agreed.get("config")
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{where} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(made_for, dict):
        raise DataError(f"{where} does not say for which config it was made: {again}")
    wanted = _settings(config)
    if other := [name for name in SETTINGS if made_for.get(name) != wanted[name]]:
        told = ", ".join(f"{name}={made_for.get(name)!r} (the run: {wanted[name]!r})" for name in other[:4])
        raise DataError(f"{where} was made for {told}: {again}")
    found: dict[str, Any] = agreed
    return found


def _settings(config: ExperimentConfig) -> dict[str, Any]:
    """Return the settings that decide the rows and the counts, as they are written."""
    written = config.to_dict()
    return {name: written[name] for name in SETTINGS}


def _round(text: str) -> int:
    if not text:
        return ALWAYS
    if (t := int(text)) < 0:
        raise ValueError(f"round {t} is below 0")
    return t
