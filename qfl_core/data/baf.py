"""Bank Account Fraud (base variant): official file or stand-in, then the paper's preprocessing.

Missing values: the paper removes them. The official file has no NaN. It codes "missing" as -1 (as any negative number
for ``intended_balcon_amount``), and three rows in four have such a code, so without these rows it would be another
population. Therefore rows with NaN are dropped and counted, and the codes are kept as ordinary values.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from qfl_core.base.errors import DataError, did_you_mean
from qfl_core.config import ExperimentConfig
from qfl_core.data.preprocess import angle_scaler, component_analysis, stratified_parts
from qfl_core.data.sources import FoundFile, OfficialFile, digest_of, find_file, git_blob_id
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.standin.baf import generate_baf
from qfl_core.data.standin.baf_facts import COLUMNS, FRAUDS, ROWS, TEXT_COLUMNS
from qfl_core.data.standin.common import choose_source, describe_source

TARGET = "fraud_bool"
FEATURES = tuple(c for c in COLUMNS if c != TARGET)
OFFICIAL_BLOB = "054d0309f9b19735521b023ec66f49fbd9a24b2c"

#: The largest number of the official file is below 1e6; the encoder squares numbers, which must not overflow.
MAX_VALUE = 1e12

#: The stand-in is one fixed population, like the official file; config seeds only choose samples from it.
STANDIN_ROWS, STANDIN_SEED = 100_000, 2022


def load_baf(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return the paper's splits of 2,999 / 750 / 1,250 rows (or of the config's sizes) as angles.

    The splits are drawn first, stratified. Everything after that is fitted on the training split alone, whose rows the
    encoder meets in a shuffled order where ``order`` is given.
    """
    frame, provenance, notes = baf_rows(config.source)
    y = frame[TARGET].to_numpy(np.int64)
    sizes = (config.train_size, config.val_size, config.test_size)
    parts = stratified_parts(y, sizes, config.seed, "baf-parts")
    met = parts[0] if order is None else order.permutation(parts[0])
    encoder = baf_pipeline(config).fit(frame.iloc[met])
    origin = frame.index.to_numpy()
    train, val, test = (Split(encoder.transform(frame.iloc[rows]), y[rows], origin[rows]) for rows in parts)
    return Splits(train, val, test, provenance, notes)


def baf_pipeline(config: ExperimentConfig) -> Pipeline:
    """Return the encoder: ordinal codes (unseen categories become -1), standardisation, PCA, angles."""
    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    numeric = [c for c in FEATURES if c not in TEXT_COLUMNS]
    columns = make_column_transformer((ordinal, list(TEXT_COLUMNS)), ("passthrough", numeric))
    if config.features > len(FEATURES):
        raise DataError(f"features={config.features}, but BAF has only {len(FEATURES)} columns to reduce")
    return make_pipeline(columns, StandardScaler(), component_analysis(config), angle_scaler(config))


def baf_source(config: ExperimentConfig) -> DataSource:
    """Return where the config's rows come from, without encoding them."""
    return _describe(_find(config.source))


def baf_rows(source: str) -> tuple[pd.DataFrame, DataSource, dict[str, int]]:
    """Return all usable rows (their index is the row number in the file), their source, and what was dropped."""
    found = _find(source)
    frame, dropped = read_baf(found.path) if isinstance(found, FoundFile) else (standin_rows(), 0)
    return frame, _describe(found), {"rows with NaN": dropped}


def _find(source: str) -> FoundFile | str:
    return choose_source(source, "baf", lambda: find_file(OFFICIAL))


def _describe(found: FoundFile | str) -> DataSource:
    return describe_source("baf", found, f"{STANDIN_ROWS:,} rows, seed {STANDIN_SEED}")


@lru_cache(maxsize=1)
def standin_rows() -> pd.DataFrame:
    """Return the stand-in population, generated once per process."""
    return generate_baf(STANDIN_ROWS, STANDIN_SEED)


def read_baf(path: Path) -> tuple[pd.DataFrame, int]:
    """Read Base.csv or Base.parquet; return the rows without NaN and the number of rows that had one.

    A row keeps its number in the file as its index. A file is parsed once per process and content.

    Raises
    ------
    DataError
        When the file is not in the official format.
    """
    frame, dropped, _ = _read(path, digest_of(path))
    return frame, dropped


@lru_cache(maxsize=2)
def _read(file: Path, sha256: str) -> tuple[pd.DataFrame, int, int]:
    """Return the rows without NaN, the number of rows with NaN, and the number of frauds among all of them.

    ``sha256`` is the digest of the file; it makes a changed file a new key of the cache.
    """
    frame = _parse(file)
    _check_columns(file.name, frame)
    if frame.empty:
        raise DataError(f"{file.name} has a header but no rows")
    frame = frame[list(COLUMNS)]
    _check_values(file.name, frame)
    frauds = int(frame[TARGET].sum())
    complete = frame.notna().all(axis=1)
    frame, dropped = frame[complete], int((~complete).sum())
    if frame.empty:
        raise DataError(f"{file.name} has no row without missing values")
    return frame, dropped, frauds


def _parse(file: Path) -> pd.DataFrame:
    if file.stat().st_size == 0:
        raise DataError(f"{file.name} is empty")
    is_csv = not _is_parquet(file)
    if is_csv:
        _check_last_line(file)
    try:
        frame = pd.read_csv(file) if is_csv else pd.read_parquet(file)
    except (ValueError, OSError) as error:  # pandas' and pyarrow's parser errors are both of these
        raise DataError(f"{file.name} cannot be read, it may be truncated or of another format: {error}") from None
    return frame.reset_index(drop=True)  # a parquet file may bring an index of its own


def _is_parquet(file: Path) -> bool:
    # By content: a download in progress has no ending yet.
    with file.open("rb") as stream:
        return stream.read(4) == b"PAR1" or file.suffix == ".parquet"


def _check_last_line(file: Path) -> None:
    """Refuse a CSV that stops inside a row, because pandas would fill that row with NaN and it would be dropped."""
    with file.open("rb") as stream:
        header = stream.readline()
        stream.seek(max(0, file.stat().st_size - 8192))
        tail = stream.read()
    last = tail.rstrip(b"\r\n").rpartition(b"\n")[2]
    cut = not tail.endswith(b"\n") and (last.endswith(b",") or not last)
    if last.count(b",") < header.count(b",") or cut:
        raise DataError(f"{file.name} is truncated: its last line has {last.count(b',') + 1} fields")


def _check_columns(name: str, frame: pd.DataFrame) -> None:
    if missing := [c for c in COLUMNS if c not in frame.columns]:
        extra = [c for c in frame.columns if c not in COLUMNS]
        renamed = did_you_mean(missing[0], extra)
        raise DataError(f"{name} lacks {len(missing)} official column(s): {', '.join(missing)}{renamed}")


def _check_values(name: str, frame: pd.DataFrame) -> None:
    labels = frame[TARGET]
    if labels.isna().any() or not labels.isin([0, 1]).all():
        odd = labels[~labels.isin([0, 1])].iloc[0]
        raise DataError(f"{name}: {TARGET} must be 0 or 1 in every row, got {odd!r}")
    for column in FEATURES:
        values = frame[column]
        if values.isna().all():
            raise DataError(f"{name}: column {column} has no values")
        numeric = pd.api.types.is_numeric_dtype(values)
        if column not in TEXT_COLUMNS and not numeric:
            unreadable = values[pd.to_numeric(values, errors="coerce").isna() & values.notna()]
            odd = (unreadable if len(unreadable) else values.dropna()).iloc[0]
            raise DataError(f"{name}: column {column} must be numeric, got {odd!r}")
        if column in TEXT_COLUMNS and numeric:
            raise DataError(f"{name}: column {column} must hold category names, got numbers")
        if column in TEXT_COLUMNS and not values.dropna().map(type).isin([str, bytes]).all():
            raise DataError(f"{name}: column {column} must hold category names, got {values.dropna().iloc[0]!r}")
        if numeric and (largest := np.nanmax(np.abs(values.to_numpy(float)))) > MAX_VALUE:
            told = "infinite values" if np.isinf(largest) else f"the value {largest:g}, the limit is {MAX_VALUE:g}"
            raise DataError(f"{name}: column {column} has {told}")
    if labels.nunique() < 2:
        raise DataError(f"{name}: {TARGET} is {labels.iloc[0]} in every row, both classes are needed")


def check_official(path: Path) -> tuple[bool, str]:
    """Tell whether a file is the published base variant: by git blob id for parquet, by counts for CSV.

    Counting means parsing; the parsed rows are kept for :func:`read_baf`.
    """
    if _is_parquet(path) and git_blob_id(path) == OFFICIAL_BLOB:
        return True, f"git blob {OFFICIAL_BLOB[:12]}"
    frame, dropped, frauds = _read(path, digest_of(path))
    rows = len(frame) + dropped
    published = not _is_parquet(path) and (rows, frauds) == (ROWS, FRAUDS)
    return published, f"{rows:,} rows, {frauds:,} frauds"


OFFICIAL = OfficialFile(
    names=("Base.parquet", "Base.csv"),
    url="https://raw.githubusercontent.com/dssg/aequitas/master/datasets/BankAccountFraud/Base.parquet",
    download_name="Base.parquet",
    check=check_official,
)
