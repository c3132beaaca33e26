"""The train-test gap, and the part of it that the shift of the class mix explains.

Client i trains on a chunk with a share m_i of label 1 and tests on samples with a share m_test. Let its uploaded model
answer rightly for a share r1_i of the positive and r0_i of the negative test samples. If it did exactly as well on its
chunk, class by class, its training accuracy would be m_i r1_i + (1 - m_i) r0_i, and the gap

    mean_i (m_i - m_test) (r1_i - r0_i)

would arise from the mix of classes alone: without memory of any sample, and also for a model that never trained. What
is left of the gap is what the model does better on samples that it has trained on, and the chance of which samples are
in chunk and test set; the untrained model's rest is that chance alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pandas as pd

from qfl_core.algorithm.methods import method_named
from qfl_core.analysis.inference import intervals
from qfl_core.analysis.kept import keep
from qfl_core.analysis.summary import last_rounds
from qfl_core.base.errors import DataError
from qfl_core.config import ExperimentConfig
from qfl_core.data import data_source, load_splits
from qfl_core.data.partition import make_partition
from qfl_core.runs import RunResult
from qfl_core.runs.study import Study

#: Columns of :func:`gap_parts`: the whole, and the two parts that add up to it.
PARTS = {"gap": "train-test gap", "shift": "explained by the class mix", "rest": "rest"}


def class_mixes(config: ExperimentConfig) -> pd.DataFrame:
    """Return ``train_share`` (m_i) and ``test_share`` (m_test) of label 1, one row per round and client.

    Both follow from the config alone: nothing is trained or encoded. Rounds count from 1, as in a client trace.
    """
    splits = load_splits(config)
    partition = make_partition(splits, config)
    train = partition.table(splits)
    test = [splits.test.y[rows].mean() for rows in partition.test]
    return pd.DataFrame(
        {
            "round": train["round"] + 1,
            "client": train["client"],
            "train_share": train["share_of_label_1"],
            "test_share": [test[client] for client in train["client"]],
        }
    )


def explained_by_shift(uploads: pd.DataFrame) -> pd.Series:
    """Return (m_i - m_test) (r1_i - r0_i), one value per row of uploaded models.

    Parameters
    ----------
    uploads : has ``test_accuracy``, ``test_recall`` (r1_i), ``train_share`` (m_i) and ``test_share`` (m_test).

    Notes
    -----
    The accuracy is m_test r1 + (1 - m_test) r0, which gives r0. Where the test samples have one class only, the other
    rate is not known and the value is NaN.
    """
    share, recall = uploads["test_share"], uploads["test_recall"]
    negatives = (1 - share).where(share < 1, np.nan)
    specificity = (uploads["test_accuracy"] - share * recall) / negatives
    return (uploads["train_share"] - share) * (recall - specificity)


def gap_parts(study: Study) -> pd.DataFrame:
    """Return the train-test gap of every run and round with its two parts, the columns of :data:`PARTS`.

    One row per method, seed and round; each value is a mean over the clients that took part.
    """
    uploads = with_mixes(study)
    uploads = uploads.assign(
        gap=uploads["train_accuracy"] - uploads["test_accuracy"], shift=explained_by_shift(uploads)
    )
    found = uploads.groupby(["method", "seed", "round"], sort=False)[["gap", "shift"]].mean().reset_index()
    return found.assign(rest=found["gap"] - found["shift"])


def with_mixes(study: Study) -> pd.DataFrame:
    """Return the client trace of every upload, with the columns of :func:`class_mixes`."""
    trace = study.table("client_trace")
    return trace[trace["is_selected"]].merge(_mixes(study), on=["seed", "round", "client"], validate="many_to_one")


def _mixes(study: Study) -> pd.DataFrame:
    """Return :func:`class_mixes` of every seed, kept in the cache folder under the identities of the runs."""
    first = {run.config.seed: run for run in study.runs}
    identities = "\n".join(f"{seed} {run.environment['identity']}" for seed, run in first.items())

    def mixes() -> pd.DataFrame:
        return pd.concat([_checked_mixes(run).assign(seed=seed) for seed, run in first.items()], ignore_index=True)

    return keep(hashlib.sha256(identities.encode()).hexdigest(), "class-mixes", mixes)


def _checked_mixes(run: RunResult) -> pd.DataFrame:
    """Return the mixes of a run's config.

    Raises
    ------
    DataError
        When the data that are here now are not those of the run.
    """
    here, there = data_source(run.config).sha256, run.environment["data"]["sha256"]
    if here != there:
        raise DataError(
            f"run {run.path.name} was trained on other data (SHA-256 {there[:12]}...) than those found now "
            f"({here[:12]}...), so the class mix of its clients is not known"
        )
    return class_mixes(run.config)


def gap_table(parts: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the parts of the gap in the last round: mean, low and high (95 % over seeds), by track and method.

    ``parts`` maps each track to its :func:`gap_parts`.
    """
    rows = []
    for track, table in parts.items():
        last = last_rounds(table)
        for part in PARTS:
            found = intervals(last, part, ["method"])
            rows.append(found.assign(track=track, part=part, label=[method_named(m).label for m in found["method"]]))
    return pd.concat(rows, ignore_index=True)[["track", "method", "label", "part", "mean", "low", "high", "seeds"]]


def gap_sheet(table: pd.DataFrame) -> pd.DataFrame:
    """Return :func:`gap_table` for readers: one row per track and method, one triple of columns per part."""
    wide = []
    for (track, label), rows in table.groupby(["track", "label"], sort=False):
        row = {"track": track, "method": label, "seeds": int(rows["seeds"].iloc[0])}
        for part in rows.itertuples():
            name = PARTS[str(part.part)]
            row |= {name: part.mean, f"{name}: low": part.low, f"{name}: high": part.high}
        wide.append(row)
    return pd.DataFrame(wide)
