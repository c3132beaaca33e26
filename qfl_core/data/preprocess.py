"""Steps that the datasets share: drawing stratified splits, PCA, and scaling into the angle range."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from qfl_core.base.errors import DataError
from qfl_core.base.streams import stream
from qfl_core.config import ExperimentConfig

#: Up to so many columns, all components are computed and the others are dropped. The full solver takes 0.2 s for 8,000
#: rows of 256 columns (``kmer=4``, the default), 3 s for 1,024 columns and a minute for 4,096; the truncated one
#: takes 0.1, 0.3 and 1.5 s. Both agree to rounding errors. The full solver stays where it is quick enough, because
#: the published results of the clean track were made with it.
FULL_COLUMNS = 256


class TailClipper(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Clip each feature to its training quantiles ``[tail_share, 1 - tail_share]``.

    Without clipping, one outlier would decide the scale of all other angles.
    """

    def __init__(self, tail_share: float = 0.0):
        self.tail_share = tail_share

    def fit(self, X: np.ndarray, y: None = None) -> TailClipper:
        """Learn the quantiles of ``X`` (n, features)."""
        X = validate_data(self, X)
        self.low_, self.high_ = np.quantile(X, [self.tail_share, 1 - self.tail_share], axis=0)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return ``X`` (n, features) clipped."""
        check_is_fitted(self)
        return np.clip(validate_data(self, X, reset=False), self.low_, self.high_)


def angle_scaler(config: ExperimentConfig) -> Pipeline:
    """Return the scaler of features into ``angle_range``; it moves values beyond the training extremes to its ends."""
    return make_pipeline(TailClipper(config.tail_share), MinMaxScaler(feature_range=config.angle_range, clip=True))


def stratified_parts(y: np.ndarray, sizes: tuple[int, ...], seed: int, purpose: str) -> list[np.ndarray]:
    """Draw the rows of disjoint splits; each split has the class shares of ``y``.

    Parameters
    ----------
    y : (n,) labels, 0 or 1.
    sizes : rows of each split. Where their sum is below n, the other rows stay unused.
    seed : the experiment's seed.
    purpose : the name of the random stream.

    Returns
    -------
    One array of row numbers per split, in the order of ``sizes``.
    """
    wanted = sum(sizes)
    if wanted > len(y):
        raise DataError(f"{wanted} rows were requested ({' + '.join(map(str, sizes))}) but only {len(y)} exist")
    counts = np.bincount(y, minlength=2)
    if counts.min() < len(sizes):
        raise DataError(
            f"class {counts.argmin()} has {counts.min()} of {len(y)} rows: each of the {len(sizes)} splits needs one"
        )
    rng = stream(seed, purpose)
    rest, parts = np.arange(len(y)), []
    for size in reversed(sizes):
        if size == len(rest):
            parts.append(rng.permutation(rest))
            break
        try:
            rest, part = train_test_split(rest, test_size=size, stratify=y[rest], random_state=int(rng.integers(2**31)))
        except ValueError as error:
            raise DataError(f"cannot draw a stratified split of {size} rows from {len(rest)}: {error}") from None
        parts.append(part)
    for part in parts:
        if len(absent := np.flatnonzero(np.bincount(y[part], minlength=2) == 0)):
            raise DataError(
                f"a split of {len(part)} rows would have none of class {absent[0]}, which has {counts[absent[0]]} of "
                f"{len(y)} rows: ask for more"
            )
    return parts[::-1]


def component_analysis(config: ExperimentConfig, columns: int = 0) -> PCA:
    """Return the PCA that keeps ``config.features`` components; it needs at least as many training rows.

    Parameters
    ----------
    config : the experiment.
    columns : the number of columns that the PCA will see, where it may be large. Beyond :data:`FULL_COLUMNS`, a
        truncated solver computes the wanted components alone.
    """
    if config.features > config.train_size:
        raise DataError(f"features={config.features} cannot be fitted on train_size={config.train_size} rows")
    if columns <= FULL_COLUMNS or config.features == config.train_size:
        return PCA(config.features, svd_solver="full")
    # The same start vector every time; PCA itself fixes the signs. So equal rows give equal bits.
    return PCA(config.features, svd_solver="arpack", random_state=0)
