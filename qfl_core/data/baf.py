"""Bank Account Fraud (base variant): official file or stand-in, then the paper's preprocessing.

Missing values: the paper removes them. The official file has no NaN. It codes "missing" as -1 (as any negative number
for ``intended_balcon_amount``), and three rows in four have such a code, so without these rows it would be another
population. Therefore rows with NaN are dropped and counted, and the codes are kept as ordinary values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qfl_core.base.errors import DataError, did_you_mean
from qfl_core.config import ExperimentConfig
from qfl_core.data.sources import FoundFile, OfficialFile, digest_of, find_file, git_blob_id, require_unchanged
from qfl_core.data.splits import DataSource, Split, Splits
from qfl_core.data.standin.baf_facts import COLUMNS, FRAUDS, ROWS, TEXT_COLUMNS
from qfl_core.data.standin.common import choose_source, describe_source
from qfl_core.data.store import Entry, compact, kept

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.pipeline import Pipeline

TARGET = "fraud_bool"
FEATURES = tuple(c for c in COLUMNS if c != TARGET)
#: The columns in the order in which the encoder takes them.
ENCODED = (*TEXT_COLUMNS, *(c for c in FEATURES if c not in TEXT_COLUMNS))
OFFICIAL_BLOB = "054d0309f9b19735521b023ec66f49fbd9a24b2c"

#: The largest number of the official file is below 1e6; the encoder squares numbers, which must not overflow.
MAX_VALUE = 1e12

#: The stand-in is one fixed population, like the official file; config seeds only choose samples from it.
STANDIN_ROWS, STANDIN_SEED = 100_000, 2022


@dataclass(frozen=True, eq=False)
class Rows:
    """All usable rows of a file or of the stand-in, as numbers.

    Attributes
    ----------
    features : the columns of :data:`ENCODED`, (n,) each. A text column holds the positions of its words in the sorted
        list of all its words.
    labels : (n,) 1 for fraud.
    numbers : (n,) the number of each row in the file.
    dropped : how many rows were left out because of NaN.
    frauds : how many rows are frauds, those that were left out included.
    """

    features: tuple[np.ndarray, ...]
    labels: np.ndarray
    numbers: np.ndarray
    dropped: int
    frauds: int

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of some rows: (rows, columns)."""
        chosen = np.empty((len(rows), len(self.features)))
        for position, column in enumerate(self.features):
            chosen[:, position] = column[rows]
        return chosen


def load_baf(config: ExperimentConfig, order: np.random.Generator | None = None) -> Splits:
    """Return the paper's splits of 2,999 / 750 / 1,250 rows (or of the config's sizes) as angles.

    The splits are drawn first, stratified. Everything after that is fitted on the training split alone, whose rows the
    encoder meets in a shuffled order where ``order`` is given.
    """
    from qfl_core.data import preprocess  # here, because scikit-learn takes seconds to import

    everything, provenance = baf_rows(config.source)
    sizes = (config.train_size, config.val_size, config.test_size)
    parts = preprocess.stratified_parts(everything.labels, sizes, config.seed, "baf-parts")
    met = parts[0] if order is None else order.permutation(parts[0])
    encoder = baf_pipeline(config).fit(everything.matrix(met))
    train, val, test = (
        Split(encoder.transform(everything.matrix(rows)), everything.labels[rows], everything.numbers[rows])
        for rows in parts
    )
    return Splits(train, val, test, provenance, {"rows with NaN": everything.dropped})


def baf_pipeline(config: ExperimentConfig) -> Pipeline:
    """Return the encoder: ordinal codes (unseen categories become -1), standardisation, PCA, angles."""
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder, StandardScaler

    from qfl_core.data.preprocess import angle_scaler, component_analysis

    ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    texts = len(TEXT_COLUMNS)
    columns = make_column_transformer((ordinal, slice(texts)), ("passthrough", slice(texts, None)))
    if config.features > len(FEATURES):
        raise DataError(f"features={config.features}, but BAF has only {len(FEATURES)} columns to reduce")
    return make_pipeline(columns, StandardScaler(), component_analysis(config), angle_scaler(config))


def baf_source(config: ExperimentConfig) -> DataSource:
    """Return where the config's rows come from, without encoding them."""
    return _describe(_find(config.source))


def baf_rows(source: str) -> tuple[Rows, DataSource]:
    """Return all usable rows and their source. They are parsed, checked and kept on disk once per content."""
    found = _find(source)
    provenance = _describe(found)
    if isinstance(found, FoundFile):
        return _read(found.path, found.sha256), provenance
    return standin_rows(provenance.sha256), provenance


def standin_frame() -> pd.DataFrame:
    """Return the stand-in population in the official layout."""
    from qfl_core.data.standin.baf import generate_baf  # here, because pandas and SciPy take long to import

    return generate_baf(STANDIN_ROWS, STANDIN_SEED)


def official_frame(source: str) -> pd.DataFrame | None:
    """Return the usable rows of the official file, in its layout; None where the stand-in takes its place."""
    found = _find(source)
    return read_baf(found.path)[0] if isinstance(found, FoundFile) else None


def _find(source: str) -> FoundFile | str:
    return choose_source(source, "baf", lambda: find_file(OFFICIAL))


def _describe(found: FoundFile | str) -> DataSource:
    return describe_source("baf", found, f"{STANDIN_ROWS:,} rows, seed {STANDIN_SEED}")


@lru_cache(maxsize=1)
def standin_rows(sha256: str) -> Rows:
    """Return the stand-in population; ``sha256`` is the digest of its generator."""

    def generate() -> Entry:
        return _packed(standin_frame(), dropped=0)

    return _unpacked(kept("rows", {"dataset": "baf", "sha256": sha256}, generate))


@lru_cache(maxsize=2)
def _read(file: Path, sha256: str) -> Rows:
    """Return the rows of a file with this digest; it is parsed where no earlier process has kept its rows."""

    def read() -> Entry:
        frame, dropped, frauds = _checked_rows(file)
        require_unchanged(file, sha256)
        return _packed(frame, dropped, frauds)

    # The ending decides how the file is parsed.
    return _unpacked(kept("rows", {"dataset": "baf", "sha256": sha256, "ending": file.suffix}, read))


def _packed(frame: pd.DataFrame, dropped: int, frauds: int | None = None) -> Entry:
    labels = frame[TARGET].to_numpy(np.int64)
    columns = {
        name: _positions(frame[name]) if name in TEXT_COLUMNS else frame[name].to_numpy(float) for name in ENCODED
    }
    columns |= {TARGET: labels, "row": frame.index.to_numpy(np.int64)}
    facts = {"dropped": dropped, "frauds": int(labels.sum()) if frauds is None else frauds}
    return Entry({name: compact(values) for name, values in columns.items()}, facts)


def _unpacked(entry: Entry) -> Rows:
    labels, numbers = (entry.arrays[name].astype(np.int64) for name in (TARGET, "row"))
    features = tuple(entry.arrays[name] for name in ENCODED)
    return Rows(features, labels, numbers, entry.facts["dropped"], entry.facts["frauds"])


def _positions(texts: pd.Series) -> np.ndarray:
    """Return the position of each text in the sorted list of all texts of a column."""
    values = texts.to_numpy(object)
    position = {text: number for number, text in enumerate(sorted(set(values)))}
    return np.array([position[text] for text in values])


def read_baf(path: Path) -> tuple[pd.DataFrame, int]:
    """Read Base.csv or Base.parquet; return the rows without NaN and the number of rows that had one.

    A row keeps its number in the file as its index.

    Raises
    ------
    DataError
        When the file is not in the official format.
    """
    frame, dropped, _ = _checked_rows(path)
    return frame, dropped


def _checked_rows(file: Path) -> tuple[pd.DataFrame, int, int]:
    """Return the rows without NaN, the number of rows with NaN, and the number of frauds among all of them."""
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
    import pandas as pd  # here, because it takes long to import and kept rows need none of it

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
    import pandas as pd

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

    Counting means parsing; the parsed rows are kept for :func:`baf_rows`.
    """
    if _is_parquet(path) and git_blob_id(path) == OFFICIAL_BLOB:
        return True, f"git blob {OFFICIAL_BLOB[:12]}"
    found = _read(path, digest_of(path))
    rows = len(found.labels) + found.dropped
    published = not _is_parquet(path) and (rows, found.frauds) == (ROWS, FRAUDS)
    return published, f"{rows:,} rows, {found.frauds:,} frauds"


OFFICIAL = OfficialFile(
    names=("Base.parquet", "Base.csv"),
    url="https://raw.githubusercontent.com/dssg/aequitas/master/datasets/BankAccountFraud/Base.parquet",
    download_name="Base.parquet",
    check=check_official,
)
