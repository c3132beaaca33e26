"""Which rows of the BAF stand-in make its margin between methods differ from the real file's?

Legitimate rows and frauds are taken from the stand-in or from the real file, which gives four populations of the same
size. Both methods are trained on each with the same seeds. If the margin follows the frauds, the stand-in's frauds lack
something that real ones have; if it follows the legitimate rows, these do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd

from qfl_core.analysis.inference import intervals
from qfl_core.analysis.tables import markdown
from qfl_core.base.errors import DataError
from qfl_core.base.numbers import interval, number
from qfl_core.base.processes import in_processes
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig, Profile
from qfl_core.data import baf
from qfl_core.data.preprocess import stratified_parts
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.standin.baf_facts import TEXT_COLUMNS
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import make_federation, make_model

STAND_IN, REAL = "stand-in", "real"
#: Whose margin is asked, the first minus the second.
METHODS = ("duqfl-prox", "fedprox-qfl")
#: No other study uses these seeds.
FIRST_SEED = 2_400
SAMPLES, SEEDS = 8, 20
#: What is measured in every population, by its column.
MEASURES = {
    "margin": "DUQFL-Prox − FedProx-QFL, final global accuracy",
    "spread": "spread of frauds / spread of legitimate rows, mean over the four angles",
    "linear": "test ROC-AUC of logistic regression on the four angles",
    "quadratic": "test ROC-AUC of quadratic discriminant analysis on the four angles",
    "leverage": "how far random weights move the share of legitimate rows called fraud (standard deviation)",
}
#: So many random weight vectors, the same for all populations.
_WEIGHTS = 500


def splits_of(frame: pd.DataFrame, config: ExperimentConfig) -> Splits:
    """Return the splits of BAF rows as :func:`qfl_core.data.baf.load_baf` makes them from a file with these rows."""
    columns = [
        np.unique(frame[name].to_numpy(str), return_inverse=True)[1] if name in TEXT_COLUMNS else frame[name]
        for name in baf.ENCODED
    ]
    matrix, labels = np.column_stack(columns).astype(float), frame[baf.TARGET].to_numpy(np.int64)
    parts = stratified_parts(labels, (config.train_size, config.val_size, config.test_size), config.seed, "baf-parts")
    encoder = baf.baf_pipeline(config).fit(matrix[parts[0]])
    digest = hashlib.sha256(matrix.tobytes() + labels.tobytes()).hexdigest()
    source = DataSource("baf", "local", "rows of two sources", digest, "the study of hybrids mixes them")
    train_part, val, test = (Split(encoder.transform(matrix[rows]), labels[rows], rows) for rows in parts)
    return Splits(train_part, val, test, source)


def mixed(stand_in: pd.DataFrame, real: pd.DataFrame, legit: str, frauds: str, sample: int) -> pd.DataFrame:
    """Return a population of the real file's size: legitimate rows of one source and frauds of one source.

    ``sample`` chooses rows of the stand-in; all rows of the real file are taken.
    """
    parts = []
    for label, source in enumerate((legit, frauds)):
        whole = real[real[baf.TARGET] == label]
        if source == STAND_IN:
            mine = stand_in[stand_in[baf.TARGET] == label]
            rng = stream(sample, f"hybrids-rows-{label}")
            whole = mine.iloc[np.sort(rng.choice(len(mine), len(whole), replace=False))]
        parts.append(whole)
    return pd.concat(parts, ignore_index=True)


def hybrids(
    settings: Profile,
    stand_in: pd.DataFrame,
    real: pd.DataFrame,
    samples: int = SAMPLES,
    seeds: int = SEEDS,
    jobs: int = -1,
) -> pd.DataFrame:
    """Return one row per population, sample and seed, with the columns of :data:`MEASURES`.

    A sample of the stand-in has ``seeds`` seeds of its own, and all four populations run with the same ones.
    """
    needed = settings.config("baf").train_size + settings.config("baf").val_size + settings.config("baf").test_size
    if len(real) < needed:
        raise DataError(f"the real file has {len(real):,} usable rows, a run takes {needed:,}")

    def asked() -> Iterator[tuple[ExperimentConfig, pd.DataFrame, dict[str, object]]]:
        for sample in range(samples):
            for legit, frauds in product((STAND_IN, REAL), repeat=2):
                frame = mixed(stand_in, real, legit, frauds, sample)
                for seed in range(FIRST_SEED + sample * seeds, FIRST_SEED + (sample + 1) * seeds):
                    labels = {"legit": legit, "frauds": frauds, "sample": sample, "seed": seed}
                    yield settings.config("baf", seed=seed), frame, labels

    return pd.DataFrame(list(in_processes(_measured, asked(), jobs)))


def _measured(config: ExperimentConfig, frame: pd.DataFrame, labels: dict[str, object]) -> dict[str, object]:
    splits = splits_of(frame, config)
    ends = [_final_accuracy(config.replace(method=method), splits) for method in METHODS]
    return labels | {"margin": ends[0] - ends[1]} | rows_facts(splits) | {"leverage": leverage(config, splits)}


def _final_accuracy(config: ExperimentConfig, splits: Splits) -> float:
    *_, last = train(make_federation(config, splits))
    return float(last["global_accuracies"][0]["global_accuracy"])


def rows_facts(splits: Splits) -> dict[str, float]:
    """Return what classical measures say about the angles: spread, linear and quadratic of :data:`MEASURES`."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    X, y = splits.train.X, splits.train.y
    models = {
        "linear": LogisticRegression(max_iter=5_000, class_weight="balanced"),
        "quadratic": QuadraticDiscriminantAnalysis(priors=[0.5, 0.5]),
    }
    scores = {
        name: float(roc_auc_score(splits.test.y, model.fit(X, y).predict_proba(splits.test.X)[:, 1]))
        for name, model in models.items()
    }
    return {"spread": float(np.mean(X[y == 1].std(axis=0) / X[y == 0].std(axis=0))), **scores}


def leverage(config: ExperimentConfig, splits: Splits) -> float:
    """Return the standard deviation, over random weights, of the mean probability of fraud of legitimate rows.

    The less alike the encoded rows are, the more their probabilities cancel, and the less a change of the weights moves
    the share that is called fraud, which is nearly all of BAF's accuracy.
    """
    engine = make_model(config.replace(shots=None)).engine
    weights = stream(0, "hybrids-weights").uniform(-np.pi, np.pi, (_WEIGHTS, engine.qnn.num_weights))
    legit = splits.train.X[splits.train.y == 0]
    return float(engine.probabilities(engine.encode(legit), weights).mean(axis=1).std())


#: The four populations by (legitimate rows, frauds), as the table heads them.
POPULATIONS = {
    (STAND_IN, STAND_IN): "stand-in",
    (STAND_IN, REAL): "stand-in, real frauds",
    (REAL, STAND_IN): "real, stand-in's frauds",
    (REAL, REAL): "real",
}
#: Column of the rows -> what its table calls the change from the stand-in's rows to real ones.
CHANGES = {"frauds": "real frauds change", "legit": "real legitimate rows change"}


def hybrids_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per measure: every population, and what real rows of one kind change on average over the other.

    Intervals are over the samples of the stand-in, after the mean over the seeds of each.
    """
    means = rows.groupby(["legit", "frauds", "sample"], sort=False)[list(MEASURES)].mean().reset_index()
    table = []
    for name, words in MEASURES.items():
        row, digits = {"": words}, 4 if name == "leverage" else 3
        for (legit, frauds), title in POPULATIONS.items():
            row[title] = _told(means[(means["legit"] == legit) & (means["frauds"] == frauds)][name], digits)
        for which, title in CHANGES.items():
            by = means.pivot_table(index="sample", columns=which, values=name)
            row[title] = _told(by[REAL] - by[STAND_IN], digits, sign=True)
        table.append(row)
    return pd.DataFrame(table)


def hybrids_text(rows: pd.DataFrame) -> str:
    """Return the table in Markdown, with what its intervals speak of."""
    samples, seeds = rows["sample"].nunique(), rows["seed"].nunique()
    return (
        f"Means with 95 % intervals over {samples} samples of the stand-in, {seeds} seeds in all, shared by all "
        "populations. The real file is one sample: where all rows are real, an interval holds the noise of training "
        f"and splitting alone.\n\n{markdown(hybrids_table(rows))}"
    )


def _told(values: pd.Series, digits: int, *, sign: bool = False) -> str:
    table = pd.DataFrame({"value": values.to_numpy(), "all": ""})
    if len(table) < 2:
        return number(float(table["value"].iloc[0]), digits, signed=sign)
    row = intervals(table, "value", ["all"]).iloc[0]
    return interval(row["mean"], row["low"], row["high"], digits, signed=sign)
