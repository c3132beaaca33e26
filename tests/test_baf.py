import numpy as np
import pandas as pd
import pytest

from qfl_core.base.errors import ConfigError, DataError
from qfl_core.config import ExperimentConfig
from qfl_core.data import baf, load_splits
from qfl_core.data.preprocess import stratified_parts
from qfl_core.data.standin.baf import generate_baf

SMALL = {"train_size": 300, "val_size": 100, "test_size": 100}


@pytest.fixture(scope="module")
def sample():
    return generate_baf(800, seed=5)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Write a frame or text as Base.csv (or Base.parquet) into QFL_DATA_DIR."""
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path))

    def write(content, name="Base.csv"):
        file = tmp_path / name
        if isinstance(content, (bytes, str)):
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        elif name.endswith("csv"):
            content.to_csv(file, index=False)
        else:
            content.to_parquet(file, index=False)
        return file

    return write


def load(**changes):
    return load_splits(ExperimentConfig(dataset="baf", source="official", **(SMALL | changes)))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_parts_are_the_paper_s(seed):
    splits = load_splits(ExperimentConfig(seed=seed))
    assert [len(part) for part in splits.parts.values()] == [2999, 750, 1250]
    assert [int(part.y.sum()) for part in splits.parts.values()] == [33, 8, 14]
    assert splits.train.X.shape == (2999, 4)


def test_parts_share_no_row_and_depend_on_the_seed_alone():
    one, same, other = (load_splits(ExperimentConfig(seed=s)) for s in (0, 0, 1))
    rows = [set(part.origin) for part in one.parts.values()]
    assert len(set.union(*rows)) == sum(map(len, rows)) == 4999
    assert np.array_equal(one.train.X, same.train.X)
    assert not np.array_equal(one.train.origin, other.train.origin)


@pytest.mark.parametrize("angle_range", [(0, np.pi), (0, 1), (-2, 5)])
def test_angles_stay_inside_the_range_also_for_unseen_extremes(place, sample, angle_range):
    extreme = sample.copy()
    parts = stratified_parts(sample["fraud_bool"].to_numpy(), tuple(SMALL.values()), 0, "baf-parts")
    extreme.loc[parts[2], ["velocity_6h", "credit_risk_score"]] = [1e9, -(10**9)]
    place(extreme)
    splits = load(angle_range=angle_range)
    low, high = angle_range
    for part in splits.parts.values():
        assert part.X.min() >= low
        assert part.X.max() <= high
    assert splits.train.X.min(axis=0) == pytest.approx([low] * 4)
    assert splits.train.X.max(axis=0) == pytest.approx([high] * 4)


def test_nothing_is_fitted_on_validation_or_test(place, sample):
    parts = stratified_parts(sample["fraud_bool"].to_numpy(), tuple(SMALL.values()), 0, "baf-parts")
    place(sample)
    before = load()
    changed = sample.copy()
    held_out = np.concatenate(parts[1:])
    changed.loc[held_out, "velocity_6h"] = changed.loc[held_out, "velocity_6h"] * 100
    changed.loc[held_out, "payment_type"] = "AA"
    place(changed)
    after = load()
    assert np.array_equal(before.train.X, after.train.X)
    assert not np.array_equal(before.test.X, after.test.X)


def test_an_unseen_category_is_encoded_not_refused(place, sample):
    parts = stratified_parts(sample["fraud_bool"].to_numpy(), tuple(SMALL.values()), 0, "baf-parts")
    changed = sample.copy()
    changed.loc[parts[2], "device_os"] = "templeos"
    place(changed)
    assert np.isfinite(load().test.X).all()


def test_rows_with_nan_are_dropped_and_counted_and_codes_are_kept(place, sample):
    holes = sample.astype({"income": float})
    holes.loc[[3, 17], "income"] = np.nan
    assert (sample["prev_address_months_count"] == -1).mean() > 0.5
    place(holes)
    frame, dropped = baf.read_baf(place(holes))
    assert dropped == 2
    assert len(frame) == 798
    assert 3 not in frame.index
    assert load().notes == {"rows with NaN": 2}


def test_csv_and_parquet_give_the_same_parts(place, sample):
    place(sample)
    from_csv = load()
    place(sample, "Base.parquet")
    from_parquet = load()
    assert from_parquet.provenance.name == "Base.parquet"
    assert np.array_equal(from_csv.train.origin, from_parquet.train.origin)
    assert np.allclose(from_csv.test.X, from_parquet.test.X)


def test_tail_clipping_frees_the_scale_from_outliers(place, sample):
    place(sample)
    clipped, plain = load(tail_share=0.05), load()
    assert clipped.train.X.std(axis=0).min() > plain.train.X.std(axis=0).min()
    at_the_ends = (clipped.train.X == 0).mean(axis=0)
    assert np.allclose(at_the_ends, 0.05, atol=0.01)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s.rename(columns={"income": "incom"}), "lacks 1 official column.*income.*did you mean 'incom'"),
        (lambda s: s.drop(columns=["month", "source"]), "lacks 2 official column.*source, month"),
        (lambda s: s.assign(fraud_bool=s["fraud_bool"] * 2), "fraud_bool must be 0 or 1.*2"),
        (lambda s: s.assign(fraud_bool=s["fraud_bool"].where(s.index != 4)), "fraud_bool must be 0 or 1.*nan"),
        (lambda s: s.assign(fraud_bool=0), "0 in every row"),
        (lambda s: s.assign(income="high"), "income must be numeric, got 'high'"),
        (lambda s: s.assign(device_os=7), "device_os must hold category names"),
        (lambda s: s.assign(income=np.nan), "income has no values"),
        (lambda s: s.assign(velocity_6h=np.inf), "velocity_6h has infinite values"),
        (lambda s: s.assign(fraud_bool=s["fraud_bool"].map({0: "no", 1: "yes"})), "fraud_bool must be 0 or 1.*'no'"),
        (lambda s: s.assign(zip_count_4w=10**30), "zip_count_4w must be numeric, got '?10{30}"),
        (lambda s: s.head(0), "has a header but no rows"),
        (lambda s: "", "is empty"),
        (lambda s: "hello world\nnothing here\n", "lacks 32 official"),
        (lambda s: s.to_csv(index=False)[:-40], "is truncated"),
        (lambda s: s.to_csv(index=False)[:-2], "is truncated"),
        (lambda s: b"\x00\xff\xfe" * 100, "cannot be read|lacks|truncated"),
    ],
)
def test_a_bad_csv_is_a_clear_error_and_leaves_no_file(place, sample, tmp_path, damage, message):
    place(damage(sample))
    with pytest.raises(DataError, match=message):
        load()
    assert [p.name for p in tmp_path.iterdir()] == ["Base.csv"]


def test_a_csv_without_a_final_newline_is_whole(place, sample):
    place(sample.to_csv(index=False).rstrip("\n"))
    assert load().source == "local"


def test_a_truncated_parquet_is_a_clear_error(place, sample):
    file = place(sample, "Base.parquet")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"Base.parquet cannot be read.*truncated"):
        load()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("income", "0.5", "income must be numeric, got '0.5'"),
        ("month", pd.Timestamp("2022-01-01"), "month must be numeric, got Timestamp"),
        ("source", [1], "source must hold category names, got array"),
    ],
)
def test_a_parquet_column_of_another_type_is_a_clear_error(place, sample, column, value, message):
    place(sample.assign(**{column: [value] * len(sample)}), "Base.parquet")
    with pytest.raises(DataError, match=message):
        load()


def test_origins_are_row_numbers_whatever_index_a_parquet_file_brings(place, sample, tmp_path):
    place(sample, "Base.parquet")
    plain = load()
    sample.set_index(np.zeros(len(sample), int)).to_parquet(tmp_path / "Base.parquet")
    indexed = load()
    assert np.array_equal(plain.train.origin, indexed.train.origin)
    assert len(set(indexed.train.origin)) == 300


@pytest.mark.parametrize("value", [1e308, -1e13])
def test_a_number_beyond_all_meaning_is_a_clear_error(place, sample, value):
    place(sample.assign(income=[value, *sample["income"][1:]]))
    with pytest.raises(DataError, match=r"Base.csv: column income has the value 1e\+(308|13), the limit is 1e\+12"):
        load()


def test_more_rows_than_exist_is_a_clear_error(place, sample):
    place(sample)
    with pytest.raises(DataError, match="1200 rows were requested .1000 \\+ 100 \\+ 100. but only 800 exist"):
        load(train_size=1000)


def test_too_few_frauds_for_three_parts_is_a_clear_error(place, sample):
    frauds = sample.index[sample["fraud_bool"] == 1]
    place(sample.drop(frauds[2:]))
    with pytest.raises(DataError, match="class 1 has 2 of"):
        load()


def test_a_part_too_small_for_both_classes_is_a_clear_error(place, sample):
    place(sample)
    with pytest.raises(DataError, match="a split of 10 rows would have none of class 1, which has 9 of 800 rows"):
        load(val_size=10)


def test_fewer_training_rows_than_features_is_a_clear_error():
    with pytest.raises(DataError, match="features=4 cannot be fitted on train_size=3 rows"):
        load_splits(ExperimentConfig(dataset="genome", encoding="kmer", features=4, train_size=3, clients=2))


def test_more_features_than_columns_is_refused_by_the_config():
    with pytest.raises(ConfigError, match="features=40"):
        ExperimentConfig(features=40)


@pytest.mark.real_data
def test_real_rows_give_the_paper_s_parts(real_data):
    splits = load_splits(ExperimentConfig(source="official"))
    assert [len(part) for part in splits.parts.values()] == [2999, 750, 1250]
    assert splits.notes == {"rows with NaN": 0}
