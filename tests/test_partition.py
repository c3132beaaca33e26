import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfl_core.base.errors import DataError
from qfl_core.config import ExperimentConfig
from qfl_core.data.partition import make_partition
from qfl_core.data.splits import DataSource, Split, Splits


def planted(train=400, test=100, share=0.5, seed=0) -> Splits:
    rng = np.random.default_rng(seed)

    def part(rows, offset):
        y = np.zeros(rows, int)
        y[: max(2, round(share * rows))] = 1
        return Split(rng.uniform(size=(rows, 2)), rng.permutation(y), np.arange(rows) + offset)

    return Splits(part(train, 0), part(50, 10_000), part(test, 20_000), DataSource("baf", "stand-in", "", "", ""))


CONFIGS = st.builds(
    ExperimentConfig,
    split=st.sampled_from(["label-skew", "dirichlet", "iid"]),
    clients=st.integers(1, 12),
    rounds=st.integers(1, 6),
    chunk=st.integers(2, 60),
    client_test=st.sampled_from(["shared", "split"]),
    client_val=st.sampled_from(["natural", "skewed"]),
    min_per_class=st.just(0),
    seed=st.integers(0, 1000),
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS, st.sampled_from([0.02, 0.5]))
def test_training_and_validation_rows_never_meet(config, share):
    splits = planted(share=share)
    partition = make_partition(splits, config)
    trained, validated = set(), set()
    for t in range(config.rounds):
        for data in partition.round(t):
            assert len(data.train) > 0
            assert len(data.val) > 0
            trained |= set(data.train.tolist())
            validated |= set(data.val.tolist())
    assert not trained & validated
    assert max(trained | validated) < len(splits.train)


@settings(max_examples=30, deadline=None)
@given(CONFIGS)
def test_one_seed_repeats_and_two_seeds_differ(config):
    splits = planted()
    once, again = make_partition(splits, config), make_partition(splits, config)
    other = make_partition(splits, config.replace(seed=config.seed + 1))
    for t in range(config.rounds):
        for a, b in zip(once.round(t), again.round(t), strict=True):
            assert np.array_equal(a.train, b.train)
            assert np.array_equal(a.val, b.val)
            assert np.array_equal(a.test, b.test)
    rows = [np.concatenate([np.concatenate(r) for r in p.train]) for p in (once, other)]
    assert len(rows[0]) != len(rows[1]) or not np.array_equal(*rows)


def test_label_skew_prefers_label_0_for_even_and_1_for_odd_clients():
    config = ExperimentConfig(clients=10, rounds=20, chunk=50)
    splits = planted(train=3000)
    table = make_partition(splits, config).table(splits)
    share = table.groupby("client")["share_of_label_1"].mean()
    assert np.allclose(share[0::2], 0.2, atol=0.02)
    assert np.allclose(share[1::2], 0.8, atol=0.02)


@pytest.mark.parametrize(("client_val", "expected"), [("natural", (0.1, 0.1)), ("skewed", (0.2, 0.8))])
def test_client_validation_has_the_mix_of_the_data_or_of_the_client(client_val, expected):
    splits = planted(train=3000, share=0.1)
    config = ExperimentConfig(clients=10, rounds=40, chunk=50, client_val=client_val)
    partition = make_partition(splits, config)
    for parity in (0, 1):
        rows = np.concatenate([chunks[i] for chunks in partition.val for i in range(parity, 10, 2)])
        assert splits.train.y[rows].mean() == pytest.approx(expected[parity], abs=0.03)


def test_the_validation_mix_changes_no_training_row():
    splits = planted(train=3000, share=0.1)
    natural, skewed = (make_partition(splits, ExperimentConfig(client_val=mix)) for mix in ("natural", "skewed"))
    for one, other in zip(natural.train, skewed.train, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert [len(rows) for chunk in natural.val for rows in chunk] == [len(rows) for c in skewed.val for rows in c]


def test_chunk_sizes_vary_by_half_around_the_mean():
    config = ExperimentConfig(clients=10, rounds=50, chunk=50)
    splits = planted(train=3000)
    size = make_partition(splits, config).table(splits)["samples"]
    assert size.min() >= 25
    assert size.max() <= 75
    assert abs(size.mean() - 50) < 2
    assert size.std() == pytest.approx(50 / np.sqrt(12), rel=0.1)


def test_no_variation_gives_equal_chunks():
    splits = planted(train=3000)
    config = ExperimentConfig(size_variation=0, rounds=3)
    assert set(make_partition(splits, config).table(splits)["samples"]) == {50}


def test_cyclic_draws_use_every_row_of_a_rare_label_about_equally():
    splits = planted(train=1000, share=0.03)
    config = ExperimentConfig(clients=10, rounds=10, chunk=50)
    partition = make_partition(splits, config)
    drawn = np.concatenate([np.concatenate(chunks) for chunks in partition.train])
    rare = drawn[splits.train.y[drawn] == 1]
    counts = np.unique(rare, return_counts=True)[1]
    assert len(counts) == 24  # 30 rows of the label, a fifth of them reserved for validation
    assert counts.max() - counts.min() <= 1


def test_every_round_draws_a_new_chunk():
    splits = planted(train=3000)
    partition = make_partition(splits, ExperimentConfig(clients=2, rounds=3))
    for i in range(2):
        assert not set(partition.train[0][i]) & set(partition.train[1][i])


@pytest.mark.parametrize("split", ["dirichlet", "iid"])
def test_owned_rows_belong_to_one_client(split):
    splits = planted()
    config = ExperimentConfig(split=split, clients=5, rounds=40, chunk=30)
    partition = make_partition(splits, config)
    owned = [set(np.concatenate([r[i] for r in partition.train])) for i in range(5)]
    for i in range(5):
        for j in range(i):
            assert not owned[i] & owned[j]
    assert len(set().union(*owned)) == 320  # all rows but the validation reserve


def test_dirichlet_spreads_from_extreme_to_even():
    splits = planted(train=3000)

    def spread(alpha):
        config = ExperimentConfig(split="dirichlet", dirichlet_alpha=alpha, rounds=1, chunk=250, min_per_class=0)
        return make_partition(splits, config).table(splits)["share_of_label_1"].std()

    assert spread(0.1) > 0.25
    assert spread(1000) < 0.05


def test_dirichlet_keeps_the_minimum_count_of_each_class():
    splits = planted(train=1000)
    config = ExperimentConfig(split="dirichlet", dirichlet_alpha=0.3, clients=5, min_per_class=5, rounds=60)
    partition = make_partition(splits, config)
    for i in range(5):
        rows = np.unique(np.concatenate([r[i] for r in partition.train]))
        assert np.bincount(splits.train.y[rows], minlength=2).min() >= 5


def test_iid_clients_share_the_federation_s_label_mix():
    splits = planted(train=3000)
    table = make_partition(splits, ExperimentConfig(split="iid", rounds=1, chunk=240)).table(splits)
    assert np.allclose(table["share_of_label_1"], 0.5, atol=0.01)


def test_split_test_sets_are_disjoint_stratified_and_complete():
    splits = planted(test=100)
    parts = make_partition(splits, ExperimentConfig(client_test="split", clients=7)).test
    rows = np.concatenate(parts)
    assert sorted(rows) == list(range(100))
    assert all(abs(splits.test.y[part].mean() - 0.5) < 0.1 for part in parts)


def test_shared_test_sets_are_the_whole_test_part():
    parts = make_partition(planted(test=100), ExperimentConfig(clients=3)).test
    assert all(np.array_equal(part, np.arange(100)) for part in parts)


def test_every_sample_can_be_traced_to_its_origin():
    splits = planted()
    data = make_partition(splits, ExperimentConfig(client_test="split")).round(0)[0]
    assert set(splits.train.origin[data.train]) <= set(range(400))
    assert set(splits.test.origin[data.test]) <= set(range(20_000, 20_100))


@pytest.mark.parametrize(
    ("changes", "splits", "message"),
    [
        ({"clients": 500}, {}, "clients=500.*400 training rows"),
        ({"clients": 150, "client_test": "split"}, {}, "cannot split 100 test rows"),
        ({"split": "dirichlet", "clients": 10, "min_per_class": 50}, {}, "min_per_class=50"),
        ({"split": "dirichlet", "dirichlet_alpha": 0.001, "min_per_class": 5}, {}, "raise dirichlet_alpha"),
        ({"split": "iid", "clients": 350}, {}, "owns no training row"),
    ],
)
def test_what_cannot_be_shared_is_a_clear_error(changes, splits, message):
    with pytest.raises(DataError, match=message):
        make_partition(planted(**splits), ExperimentConfig(**changes))


def test_an_absent_class_is_a_clear_error():
    whole = planted()
    one_class = Split(whole.train.X, np.zeros(400, int), whole.train.origin)
    with pytest.raises(DataError, match="class 1: 0"):
        make_partition(Splits(one_class, whole.val, whole.test, whole.provenance), ExperimentConfig())


def test_a_round_that_does_not_exist_is_an_error():
    with pytest.raises(IndexError, match="rounds 0 to 9"):
        make_partition(planted(), ExperimentConfig()).round(10)
