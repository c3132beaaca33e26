import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from qfl_core.base.errors import ConfigError, DataError
from qfl_core.config import ExperimentConfig
from qfl_core.data import genome, load_splits, preprocess
from qfl_core.data.standin.genome import generate_genome

SMALL = {"train_size": 200, "val_size": 60, "test_size": 60}
FOLDERS = ("train/human", "train/worm", "test/human", "test/worm")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Write {entry: text} as the official zip into QFL_DATA_DIR."""
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path))

    def write(entries):
        file = tmp_path / "demo_human_or_worm_v0.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in entries.items():
                archive.writestr(f"demo_human_or_worm/{name}.txt", text)
        return file

    return write


@pytest.fixture(scope="module")
def entries():
    bases, labels = generate_genome(400, seed=9)
    texts = [b.decode() for b in bases]
    of = {"human": texts[:400], "worm": texts[400:]}
    assert labels[400] == 1
    named = {}
    for folder in FOLDERS:
        part, label = folder.split("/")
        chosen = of[label][:300] if part == "train" else of[label][300:]
        named |= {f"{folder}/{i}": text for i, text in enumerate(chosen)}
    return named


def load(**changes):
    return load_splits(ExperimentConfig(dataset="genome", source="official", **(SMALL | changes)))


@pytest.mark.parametrize("encoding", ["word-id", "word-id-shuffled", "kmer"])
@pytest.mark.parametrize("features", [2, 4])
def test_the_parts_are_the_paper_s_and_angles_stay_in_range(encoding, features):
    config = ExperimentConfig(dataset="genome", encoding=encoding, features=features)
    splits = load_splits(config)
    assert [len(part) for part in splits.parts.values()] == [8000, 2000, 2000]
    assert splits.train.X.shape == (8000, features)
    for part in splits.parts.values():
        assert part.X.min() >= 0
        assert part.X.max() <= 1
        assert part.y.mean() == pytest.approx(0.5)


def test_test_sequences_come_from_the_official_test_folder():
    splits = load_splits(ExperimentConfig(dataset="genome"))
    assert all(name.startswith("test/") for name in splits.test.origin)
    assert all(name.startswith("train/") for part in (splits.train, splits.val) for name in part.origin)
    assert not set(splits.train.origin) & set(splits.val.origin)


def test_word_ids_count_first_appearances_along_the_list():
    rng = np.random.default_rng(0)
    bases = np.array([bytes(rng.choice(list(b"AC"), 8)) for _ in range(60)], "S8")
    order = rng.permutation(60)
    dictionary = {}
    for row in order:
        for start in range(0, 8, 2):
            dictionary.setdefault(bases[row][start : start + 2], len(dictionary))
    expected = [[dictionary[b[start : start + 2]] for start in range(0, 8, 2)] for b in bases]
    assert np.array_equal(genome.word_ids(bases, 2, order), expected)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_kmer_counts_equal_scikit_learn_s(k):
    bases, _ = generate_genome(50, seed=1)
    vectorizer = CountVectorizer(analyzer="char", ngram_range=(k, k), lowercase=False)
    expected = vectorizer.fit_transform([b.decode() for b in bases]).toarray()
    ours = genome.kmer_counts(bases, k)
    words = sorted("".join(w) for w in np.array(np.meshgrid(*[list("ACGT")] * k)).reshape(k, -1).T)
    columns = [words.index(word) for word in vectorizer.get_feature_names_out()]
    assert np.array_equal(ours[:, columns], expected)
    assert ours.sum() == 100 * (200 - k + 1)


def test_few_words_are_reduced_by_the_full_solver_and_many_by_the_truncated_one():
    """The clean track counts words of 4 letters: its published numbers rest on the full solver."""
    config = ExperimentConfig(dataset="genome", encoding="kmer")
    assert config.kmer == 4
    solvers = [genome.kmer_pipeline(config.replace(kmer=k))["pca"].svd_solver for k in range(1, 7)]
    assert solvers == ["full"] * 4 + ["arpack"] * 2
    few = config.replace(kmer=6, train_size=2, features=2, clients=2)
    assert genome.kmer_pipeline(few)["pca"].svd_solver == "full"  # the truncated one cannot return all components


def test_the_truncated_solver_gives_the_angles_of_the_full_one_and_the_same_bits_every_time(monkeypatch):
    config = ExperimentConfig(dataset="genome", encoding="kmer", kmer=5, features=4, train_size=500)
    bases, _ = generate_genome(300, seed=1)
    counts = genome.kmer_counts(bases, 5)
    one, same = (genome.kmer_pipeline(config).fit(counts[:500]).transform(counts) for _ in range(2))
    assert one.tobytes() == same.tobytes()
    monkeypatch.setattr(preprocess, "FULL_COLUMNS", 4**6)
    full = genome.kmer_pipeline(config).fit(counts[:500]).transform(counts)
    assert np.abs(one - full).max() < 1e-9


def test_kmer_features_are_fitted_on_the_training_part_alone(place, entries):
    place(entries)
    before = load(encoding="kmer")
    place({name: text[::-1] if name.startswith("test") else text for name, text in entries.items()})
    after = load(encoding="kmer")
    assert np.array_equal(before.train.X, after.train.X)
    assert not np.array_equal(before.test.X, after.test.X)


def test_word_ids_follow_the_class_sorted_file_list(place, entries):
    place(entries)
    splits = load(encoding="word-id")
    X = np.concatenate([p.X[:, 0] for p in splits.parts.values()])
    y = np.concatenate([p.y for p in splits.parts.values()])
    assert X[y == 0].max() < X[y == 1].min()


def test_the_zip_is_read_in_place(place, entries, tmp_path):
    file = place(entries)
    load()
    assert list(tmp_path.iterdir()) == [file]


def test_gaps_and_odd_lengths_are_dropped_and_counted_and_lower_case_is_read(place, entries):
    changed = dict(entries)
    changed["train/human/0"] = "N" * 200
    changed["train/human/1"] = entries["train/human/1"][:-1] + "N"
    changed["train/worm/2"] = entries["train/worm/2"][:150]
    changed["train/worm/3"] = entries["train/worm/3"].lower() + "\n"
    sequences, dropped = genome.read_genome(place(changed))
    assert dropped == {"another length": 1, "letters other than ACGT": 2}
    assert len(sequences) == 797
    kept = dict(zip(sequences.names, sequences.bases, strict=True))
    assert kept["train/worm/3"].decode() == entries["train/worm/3"]
    assert load().notes == dropped


def test_entries_are_sorted_by_number_not_by_text(place, entries):
    sequences, _ = genome.read_genome(place(dict(sorted(entries.items()))))
    numbers = [int(n.split("/")[2]) for n in sequences.names if n.startswith("train/human")]
    assert numbers == sorted(numbers)


def test_the_published_counts_are_recognised(place, monkeypatch, entries):
    monkeypatch.setattr(genome, "OFFICIAL_COUNTS", dict.fromkeys(FOLDERS[:2], 300) | dict.fromkeys(FOLDERS[2:], 100))
    assert genome.check_official(place(entries)) == (
        True,
        "train/human 300, train/worm 300, test/human 100, test/worm 100",
    )
    shortened = entries | {"train/human/5": entries["train/human/5"][:100]}
    assert not genome.check_official(place(shortened))[0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda e: {k: v for k, v in e.items() if "worm" not in k}, "no entries under train/worm, test/worm"),
        (lambda e: {k.replace("human", "hooman"): v for k, v in e.items()}, "no entries under train/human"),
        (lambda e: {k: "N" * 200 if "worm" in k else v for k, v in e.items()}, "no usable sequence of one class"),
        (lambda e: {}, "no entries under"),
    ],
)
def test_a_zip_of_another_layout_is_a_clear_error(place, entries, damage, message):
    place(damage(entries))
    with pytest.raises(DataError, match=message):
        load()


def test_empty_truncated_and_damaged_zips_are_clear_errors(place, entries):
    file = place(entries)
    whole = file.read_bytes()
    for content, message in ((b"", "is empty"), (whole[: len(whole) // 2], "truncated"), (b"x" * 900, "truncated")):
        file.write_bytes(content)
        with pytest.raises(DataError, match=message):
            load()
    damaged = bytearray(whole)
    damaged[60:90] = b"\xff" * 30
    file.write_bytes(damaged)
    with pytest.raises(DataError, match="is damaged"):
        load()


def test_what_a_mac_adds_to_a_zip_is_no_sequence(place, entries):
    file = place(entries)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("__MACOSX/demo_human_or_worm/train/human/._0.txt", "A" * 200)
    sequences, dropped = genome.read_genome(file)
    assert len(sequences) == 800
    assert not any(dropped.values())


def test_a_name_that_occurs_twice_is_a_clear_error(place, entries):
    file = place(entries)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("another_folder/train/human/0.txt", "A" * 200)
    with pytest.raises(DataError, match="holds train/human/0.txt more than once"):
        load()


def test_a_huge_entry_is_dropped_without_unpacking_it(place, entries, monkeypatch):
    read = zipfile.ZipFile.read

    def small_only(archive, info):
        assert info.file_size < 10_000
        return read(archive, info)

    monkeypatch.setattr(zipfile.ZipFile, "read", small_only)
    assert genome.read_genome(place(entries | {"train/human/0": "A" * 10**6}))[1]["another length"] == 1


@pytest.mark.parametrize(
    ("local", "central", "value", "message"),
    [
        (6, 8, 1, "cannot be read.*encrypted"),
        (8, 10, 99, "cannot be read.*compression"),
        (4, 6, 200, "zip file version"),
    ],
)
def test_encrypted_or_unknown_compression_is_a_clear_error(place, entries, local, central, value, message):
    file = place(entries)
    content = bytearray(file.read_bytes())
    for signature, offset in ((b"PK\3\4", local), (b"PK\1\2", central)):
        start = content.find(signature)
        while start >= 0:
            content[start + offset] = value
            start = content.find(signature, start + 4)
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load()


def test_file_names_of_any_alphabet_are_sorted(place, entries):
    assert len(genome.read_genome(place(entries | {"train/human/²³": entries["train/human/0"]}))[0]) == 801


def test_more_sequences_than_exist_is_a_clear_error(place, entries):
    place(entries)
    with pytest.raises(DataError, match="requested .900 \\+ 60. but only 600 exist"):
        load(train_size=900)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 3}, "features=3 .*a divisor of 200 letters"),
        ({"encoding": "kmer", "kmer": 1, "features": 5}, "features=5 .*at most 4, the number of words"),
    ],
)
def test_impossible_encodings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        load_splits(ExperimentConfig(dataset="genome", **changes))


@pytest.mark.outside
def test_angles_have_the_same_bits_for_any_number_of_threads_and_any_hash_seed():
    code = (
        "import hashlib; from qfl_core import ExperimentConfig, load_splits; "
        "c = ExperimentConfig(dataset='genome', encoding='kmer', source='stand-in'); "
        "print(hashlib.sha256(load_splits(c).train.X.tobytes()).hexdigest())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
        for threads in ("1", "2")
    ]
    assert printed[0] == printed[1]


@pytest.mark.real_data
def test_real_sequences_load(real_data):
    splits = load_splits(ExperimentConfig(dataset="genome", source="official", encoding="kmer"))
    assert [len(part) for part in splits.parts.values()] == [8000, 2000, 2000]
