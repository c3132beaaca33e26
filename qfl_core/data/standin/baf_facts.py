"""Published facts about the Bank Account Fraud (BAF) base variant: column layout, shares, rates and figures.

Everything here is an aggregate that the dataset's own documentation states or that was counted once; no row of the
dataset is stored. The stand-in generator is built from these numbers, and the fidelity table compares with them.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "fraud_bool", "income", "name_email_similarity", "prev_address_months_count",
    "current_address_months_count", "customer_age", "days_since_request", "intended_balcon_amount",
    "payment_type", "zip_count_4w", "velocity_6h", "velocity_24h", "velocity_4w", "bank_branch_count_8w",
    "date_of_birth_distinct_emails_4w", "employment_status", "credit_risk_score", "email_is_free",
    "housing_status", "phone_home_valid", "phone_mobile_valid", "bank_months_count", "has_other_cards",
    "proposed_credit_limit", "foreign_request", "source", "session_length_in_minutes", "device_os",
    "keep_alive_session", "device_distinct_emails_8w", "device_fraud_count", "month",
)  # fmt: skip
TEXT_COLUMNS = ("payment_type", "employment_status", "housing_status", "source", "device_os")
FLOAT_COLUMNS = (
    "income", "name_email_similarity", "days_since_request", "intended_balcon_amount", "velocity_6h",
    "velocity_24h", "velocity_4w", "proposed_credit_limit", "session_length_in_minutes",
)  # fmt: skip
BINARY_COLUMNS = (
    "email_is_free", "phone_home_valid", "phone_mobile_valid", "has_other_cards", "foreign_request",
    "keep_alive_session",
)  # fmt: skip

ROWS = 1_000_000
FRAUDS = 11_029
PRIOR = FRAUDS / ROWS

# Share of rows coded as missing: -1, or any negative value for intended_balcon_amount.
MISSING = {
    "prev_address_months_count": 0.713,
    "bank_months_count": 0.254,
    "current_address_months_count": 0.0043,
    "session_length_in_minutes": 0.0020,
    "device_distinct_emails_8w": 0.0004,
    "intended_balcon_amount": 0.743,
}

# Means over all eight months, (legitimate, fraud).
CLASS_MEANS = {
    "velocity_6h": (5671.0, 5184.0),
    "velocity_24h": (4772.0, 4613.0),
    "velocity_4w": (4857.0, 4756.0),
    "current_address_months_count": (86.3, 114.8),
    "prev_address_months_count": (16.8, 5.9),
    "credit_risk_score": (130.5, 177.6),
    "customer_age": (33.6, 40.9),
    "income": (0.561, 0.687),
}
VELOCITY_4W_BY_MONTH = (6190.0, 5393.0, 5363.0, 4916.0, 4650.0, 4291.0, 4118.0, 3373.0)
BALCON_MEAN_AA = 34.0

# Mean test ROC-AUC on real rows: 4,999 stratified rows split 2,999 / 750 / 1,250, 20 seeds.
ROC_AUC = {"pca4_logistic": 0.767, "logistic": 0.804, "random_forest": 0.852, "gradient_boosting": 0.822}
PCA4_EXPLAINED = 0.28


@cache
def table(name: str) -> pd.DataFrame:
    """Return the facts table ``<name>.csv``; its first column is the index. Do not modify the result."""
    import pandas as pd  # here, because the names of the columns are needed without it

    with files("qfl_core.data").joinpath("facts", f"{name}.csv").open("r", encoding="utf-8") as handle:
        return pd.read_csv(handle, index_col=0)


def marginal(name: str, column: str) -> pd.Series:
    """Return the row of one BAF column in the facts table ``<name>.csv``."""
    import pandas as pd

    row = table(name).loc[column]
    assert isinstance(row, pd.Series)  # a column has one row in the tables of marginals
    return row


def rates(column: str) -> pd.DataFrame:
    """Return the published ``share`` and ``fraud_rate`` of each value of a column, indexed by value (text).

    A share that is not published is NaN.
    """
    rows = table("baf_rates").loc[[column]]
    return rows.astype({"value": "str"}).set_index("value")
