"""The stand-ins agree with the published figures, and the fidelity table notices when a data set does not."""

import numpy as np
import pandas as pd
import pytest

from qfl_core.data.baf import read_baf
from qfl_core.data.genome import read_genome
from qfl_core.data.standin.baf import generate_baf
from qfl_core.data.standin.fidelity import SPREAD, baf_fidelity, genome_fidelity
from qfl_core.data.standin.genome import generate_genome

COLUMNS = ["quantity", "published", "measured", "difference", "tolerance", "ok"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return generate_baf(200_000, seed=0)


@pytest.fixture(scope="module")
def baf_table(frame) -> pd.DataFrame:
    return baf_fidelity(frame, seeds=range(3))


def failures(result: pd.DataFrame) -> list[str]:
    return result.loc[~result["ok"], "quantity"].tolist()


def test_baf_stand_in_is_faithful(baf_table):
    assert list(baf_table) == COLUMNS
    assert not failures(baf_table)


@pytest.mark.parametrize(
    ("model", "published", "window"),
    [("pca4_logistic", 0.767, 0.04), ("logistic", 0.804, 0.04), ("random_forest", 0.852, 0.05)],
)
def test_baf_stand_in_is_as_separable_as_the_real_rows(baf_table, model, published, window):
    measured = baf_table.set_index("quantity").loc[f"ROC-AUC, {model}", "measured"]
    assert abs(measured - published) < window


def test_the_spread_of_frauds_is_measured_and_told_to_have_no_published_figure(frame, baf_table):
    row = baf_table.set_index("quantity").loc[SPREAD]
    assert np.isnan(row["published"])
    assert 0.8 < row["measured"] < 1.0
    wide = frame.copy()  # frauds that are a mixture of very different legitimate rows lie wider than these do
    numbers = wide.select_dtypes("number").columns.drop(["fraud_bool", "month", "device_fraud_count"])
    frauds, legit = wide["fraud_bool"] == 1, wide.loc[wide["fraud_bool"] == 0, numbers]
    away = legit.sample(frauds.sum(), random_state=0).to_numpy() - legit.mean().to_numpy()
    wide[numbers] = wide[numbers].astype(float)
    wide.loc[frauds, numbers] = legit.mean().to_numpy() + 2 * away
    planted = baf_fidelity(wide, seeds=range(1), models=()).set_index("quantity")
    assert planted.loc[SPREAD, "measured"] > 1.5


def test_the_table_notices_lost_drift_lost_correlation_and_lost_separability(frame):
    rng = np.random.default_rng(0)
    broken = frame.assign(**{c: rng.permutation(frame[c].to_numpy()) for c in ("month", "credit_risk_score")})
    failed = failures(baf_fidelity(broken, seeds=range(1), models=()))
    assert "velocity_4w by month, max relative deviation" in failed
    assert "mean credit_risk_score, fraud" in failed
    assert "rank correlations, max absolute deviation" in failed
    shuffled = frame.assign(fraud_bool=rng.permutation(frame["fraud_bool"].to_numpy()))
    failed = failures(baf_fidelity(shuffled, seeds=range(2), models=("pca4_logistic",)))
    assert "ROC-AUC, pca4_logistic" in failed
    assert "fraud rate of each housing_status, max deviation" in failed


def test_an_unknown_model_is_an_error_that_names_it(frame):
    with pytest.raises(ValueError, match="'svm'"):
        baf_fidelity(frame.head(5_000), seeds=range(1), models=("svm",))


def test_too_few_rows_is_an_error_that_names_the_count(frame):
    with pytest.raises(ValueError, match="got 3749"):
        baf_fidelity(frame.head(3_749))


def test_genome_stand_in_is_faithful():
    sequences, labels = generate_genome(8_000, seed=0)
    result = genome_fidelity(sequences, labels)
    assert list(result) == COLUMNS
    assert not failures(result)


def test_the_table_notices_swapped_letters():
    sequences, labels = generate_genome(1_000, seed=0)
    swapped = np.char.translate(sequences, bytes.maketrans(b"AC", b"CA")).astype("S200")
    assert "GC mean, human" in failures(genome_fidelity(swapped, labels, ks=(1,)))


@pytest.mark.real_data
def test_baf_figures_on_real_rows_are_the_published_ones(frame, real_data):
    real, _ = read_baf(real_data / "Base.csv")
    result = baf_fidelity(frame, seeds=range(6), real=real, models=("pca4_logistic", "logistic", "random_forest"))
    assert not failures(result)
    result = result.set_index("quantity")
    auc = result[result.index.str.startswith("ROC-AUC")]
    # Some 30 training frauds: a split's ROC-AUC has a standard deviation of about 0.05.
    assert (auc["real"] - auc["published"]).abs().max() < 0.06
    assert result.loc["variance explained by 4 components", "real"] == pytest.approx(0.28, abs=0.005)


@pytest.mark.real_data
def test_genome_stand_in_agrees_with_real_windows(real_data):
    real, _ = read_genome(real_data / "demo_human_or_worm_v0.zip")
    result = genome_fidelity(*generate_genome(8_000, seed=0), real=(real.bases, real.labels))
    assert (result["measured"] - result["real"]).abs().max() < 0.03
