"""The BAF stand-in: official layout, published marginals and drift, the same bytes everywhere."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from qfl_core.data.baf import read_baf
from qfl_core.data.standin import baf as standin_baf
from qfl_core.data.standin import baf_facts
from qfl_core.data.standin.baf import generate_baf
from qfl_core.data.standin.curves import curves, overt_curve
from qfl_core.data.standin.discrete import DISCRETE_COLUMNS, discrete

LIMITS = {190, 200, 210, 490, 500, 510, 990, 1000, 1500, 1900, 2000, 2100}
GOLDEN = "3a92857f26f2e31b788604b3ba1bedf5a14b10480a30a291b02df694637622ae"


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return generate_baf(200_000, seed=0)


def digest(frame: pd.DataFrame) -> str:
    return hashlib.sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()


def test_columns_and_dtypes_are_the_official_ones(frame):
    assert list(frame) == list(baf_facts.COLUMNS)
    assert frame.dtypes.astype(str).value_counts().to_dict() == {"int64": 18, "float64": 9, "str": 5}
    for column in frame:
        if column in baf_facts.TEXT_COLUMNS:
            assert isinstance(frame[column].dtype, pd.StringDtype), column
        else:
            kind = np.float64 if column in baf_facts.FLOAT_COLUMNS else np.int64
            assert frame[column].dtype == kind, column


def test_no_value_is_nan(frame):
    assert not frame.isna().any(axis=None)


@pytest.mark.parametrize("rows", [1, 7, 91, 4_999, 100_001])
def test_any_row_count_gives_the_rounded_number_of_frauds(rows):
    made = generate_baf(rows, seed=3)
    assert len(made) == rows
    assert made["fraud_bool"].sum() == round(rows * 0.011029)


def test_frauds_are_scattered_over_the_rows(frame):
    tenths = frame["fraud_bool"].to_numpy().reshape(10, -1).mean(axis=1)
    assert tenths.min() > 0.008
    assert tenths.max() < 0.014


@pytest.mark.parametrize("column", [c for c in DISCRETE_COLUMNS if c != "proposed_credit_limit"])
def test_discrete_values_are_the_published_ones(frame, column):
    known = {str(value) for value in baf_facts.rates(column).index}
    values = frame[column].round(1) if column == "income" else frame[column]
    assert set(values.astype("str")) <= known
    # A value with a ten-thousandth of the rows must occur in 200,000.
    share = pd.Series(discrete(column).shares[0], index=discrete(column).values)
    assert set(share.index[share > 1e-4]) <= set(frame[column])


def test_income_has_the_official_binary_values(frame):
    assert set(frame["income"]) == {k * 0.1 for k in range(1, 10)}


def test_credit_limits_lie_on_the_official_grid(frame):
    limits = frame["proposed_credit_limit"]
    assert set(limits) <= LIMITS
    legit = limits[frame["fraud_bool"] == 0]
    facts = baf_facts.table("baf_legit_marginals").loc["proposed_credit_limit"]
    assert legit.mean() == pytest.approx(facts["mean"], rel=0.02)
    assert legit.std() == pytest.approx(facts["std"], rel=0.02)
    assert legit.quantile(0.75) == 510


def test_missing_is_coded_as_in_the_official_file(frame):
    assert (frame["device_fraud_count"] == 0).all()
    signed = {"credit_risk_score", "intended_balcon_amount"}
    for column in frame.select_dtypes("number").columns.difference(signed):
        negative = frame[column][frame[column] < 0]
        assert set(negative) <= ({-1} if column in baf_facts.MISSING else set()), column
    assert (frame["bank_months_count"] != 0).all()


def test_amounts_exist_for_payment_type_aa_only(frame):
    recorded = frame["intended_balcon_amount"] >= 0
    assert (recorded == (frame["payment_type"] == "AA")).all()
    assert frame.loc[recorded, "intended_balcon_amount"].mean() == pytest.approx(34.0, rel=0.03)


def test_fraud_rate_and_velocity_drift_over_the_months(frame):
    by_month = frame.groupby("month")
    rate = by_month["fraud_bool"].mean().to_numpy()
    facts = baf_facts.rates("month")
    # Five standard errors of a rate of 0.011 among 200,000 / 8 rows.
    assert np.abs(rate - facts["fraud_rate"].to_numpy()).max() < 5 * np.sqrt(0.011 / 25_000)
    assert np.abs(by_month.size() / len(frame) - facts["share"].to_numpy()).max() < 0.005
    velocity = by_month["velocity_4w"].mean().to_numpy()
    assert np.abs(velocity / baf_facts.VELOCITY_4W_BY_MONTH - 1.0).max() < 0.05
    assert by_month["velocity_6h"].mean()[7] < 0.7 * by_month["velocity_6h"].mean()[0]


def test_camouflage_keeps_the_published_fraud_shares(frame):
    frauds = frame[frame["fraud_bool"] == 1]
    for column in DISCRETE_COLUMNS:
        marginal = discrete(column)
        share = frauds[column].value_counts(normalize=True).reindex(marginal.values, fill_value=0.0)
        # 2,206 frauds: the standard error of a share is at most 0.0107.
        assert np.abs(share.to_numpy() - marginal.shares[1]).max() < 0.045, column


@pytest.mark.parametrize("column", ["credit_risk_score", "name_email_similarity", "bank_months_count"])
def test_overt_and_legitimate_cells_mix_to_the_fraud_marginal(column):
    legit, fraud = curves(column, False)
    overt, q = overt_curve(legit, fraud, 0.1), 0.1
    x = np.linspace(legit.x[0], legit.x[-1], 50)
    mixed = q * (1 - legit.missing) * legit.cdf(x) + (1 - q) * (1 - overt.missing) * overt.cdf(x)
    assert np.abs(mixed - (1 - fraud.missing) * fraud.cdf(x)).max() < 0.02


def test_same_seed_repeats_and_another_differs():
    first = generate_baf(1_000, seed=5)
    pd.testing.assert_frame_equal(first, generate_baf(1_000, seed=5))
    other = generate_baf(1_000, seed=6)
    for column in ("velocity_6h", "credit_risk_score", "fraud_bool"):
        assert not first[column].equals(other[column])


def test_blocks_are_independent_draws(monkeypatch):
    monkeypatch.setattr(standin_baf, "BLOCK", 500)
    made = generate_baf(1_200, seed=1)
    velocity = made["velocity_6h"].to_numpy()
    assert len(np.unique(velocity)) > 1_190
    assert abs(np.corrcoef(velocity[:500], velocity[500:1_000])[0, 1]) < 0.2


def test_2000_rows_have_the_golden_digest():
    assert digest(generate_baf(2_000, seed=0)) == GOLDEN


@pytest.mark.parametrize(("rows", "seed", "named"), [(0, 0, "rows.*0"), (-5, 0, "rows.*-5"), (10, -1, "seed.*-1")])
def test_bad_input_is_an_error_that_names_the_value(rows, seed, named):
    with pytest.raises(ValueError, match=named):
        generate_baf(rows, seed)


@pytest.mark.real_data
def test_layout_and_codes_are_those_of_the_real_rows(frame, real_data):
    real, _ = read_baf(real_data / "Base.csv")
    assert list(frame) == list(real)
    assert set(frame.select_dtypes("number")) == set(real.select_dtypes("number"))
    for column in DISCRETE_COLUMNS:
        assert set(real[column]) <= set(discrete(column).values), column
    for column in real.select_dtypes("number"):
        assert frame[column].min() >= real[column].min() - 0.2 * real[column].std(), column
        assert frame[column].max() <= real[column].max() + (2 if column == "month" else real[column].std()), column
