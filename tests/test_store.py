"""What is kept on disk of data: the same bits, found by everything that decides them, and never damaged ones."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qfl_core.data
from qfl_core.base import source_code
from qfl_core.base.errors import DataError
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig
from qfl_core.data import baf, breast_cancer, genome, load_splits, sources, store
from qfl_core.data.standin.baf import generate_baf
from qfl_core.data.store import Entry, compact, kept

SMALL = {"train_size": 300, "val_size": 100, "test_size": 100}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path / "cache"))
    forget_process()
    yield tmp_path / "cache"
    forget_process()


def forget_process():
    """Forget what this process remembers, so that the next load is like that of another process."""
    for remembered in (
        *(sources._checked, sources._digest, sources._download, store._surroundings, qfl_core.data._kept),
        *(baf._read, baf.standin_rows, genome._read, genome.standin_sequences, breast_cancer._tumours),
    ):
        remembered.cache_clear()


@pytest.fixture
def computed(monkeypatch):
    """Return the list of configs whose splits were computed and not found."""
    loads, load = [], qfl_core.data._load
    monkeypatch.setattr(
        qfl_core.data, "_load", lambda loader, config, order: loads.append(config) or load(loader, config, order)
    )
    return loads


def entry(value=1.0):
    return Entry({"x": np.arange(3) + value, "names": np.array([b"a", b"bc"])}, {"note": "ä", "n": 3})


def same(one, other):
    return one.facts == other.facts and all(
        np.array_equal(one.arrays[name], other.arrays[name]) and one.arrays[name].dtype == other.arrays[name].dtype
        for name in one.arrays | other.arrays
    )


def never():
    raise AssertionError("computed although it was kept")


# One entry


def test_what_was_computed_is_found_again_with_the_same_bits(cache):
    made = kept("things", {"a": 1}, entry)
    found = kept("things", {"a": 1}, never)
    assert same(found, made)
    assert not found.arrays["x"].flags.writeable


def test_another_deciding_value_is_another_entry(cache):
    kept("things", {"a": 1}, entry)
    assert same(kept("things", {"a": 2}, lambda: entry(2.0)), entry(2.0))


@pytest.mark.parametrize("deciding", ["code", "version", "machine"])
def test_code_packages_and_machine_decide_every_entry(cache, monkeypatch, deciding):
    kept("things", {"a": 1}, entry)
    if deciding == "code":
        monkeypatch.setattr(store, "package_digest", lambda parts, without: "another")
    elif deciding == "version":
        monkeypatch.setattr(store, "version", lambda name: "99")
    else:
        monkeypatch.setattr(store.platform, "machine", lambda: "another")
    store._surroundings.cache_clear()
    assert same(kept("things", {"a": 1}, lambda: entry(2.0)), entry(2.0))


def test_the_code_behind_an_entry_is_the_whole_data_room_but_what_only_looks(cache, monkeypatch):
    seen = {}
    monkeypatch.setattr(source_code, "kept_digest", lambda files: seen.update(files) or "digest")
    store._surroundings()
    assert {"base/streams.py", "data/baf.py", "data/preprocess.py", "data/standin/genome.py"} <= set(seen)
    assert not {"data/audit.py", "data/command.py", "data/standin/fidelity.py"} & set(seen)


@pytest.mark.parametrize("position", [0, 30, 64, 70, 150, -1])
def test_an_entry_with_one_changed_byte_is_computed_again_and_mended(cache, position):
    kept("things", {"a": 1}, entry)
    (file,) = (cache / "things").iterdir()
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[position] ^= 1
    file.write_bytes(damaged)
    asked = []
    assert same(kept("things", {"a": 1}, lambda: asked.append(1) or entry()), entry())
    assert asked
    assert file.read_bytes() == whole


def test_an_entry_cut_at_any_byte_is_computed_again(cache):
    kept("things", {"a": 1}, entry)
    (file,) = (cache / "things").iterdir()
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert store._load(file) is None


def test_a_folder_in_the_place_of_an_entry_costs_time_only(cache):
    kept("things", {"a": 1}, entry)
    (file,) = (cache / "things").iterdir()
    file.unlink()
    file.mkdir()
    for _ in range(2):
        assert same(kept("things", {"a": 1}, entry), entry())


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path / "file"))
    assert same(kept("things", {"a": 1}, entry), entry())


def test_the_oldest_entries_go_when_the_limit_is_reached(cache, monkeypatch):
    files = []
    for number in range(4):
        kept("things", {"a": number}, entry)
        (new,) = {*(cache / "things").iterdir()} - {*files}
        os.utime(new, (number, number))
        files.append(new)
    monkeypatch.setattr(store, "LIMIT", 3 * files[0].stat().st_size)
    kept("things", {"a": 4}, entry)
    assert [file.exists() for file in files] == [False, False, True, True]


def test_an_entry_beyond_the_limit_is_not_kept(cache, monkeypatch):
    monkeypatch.setattr(store, "LIMIT", 100)
    assert same(kept("things", {"a": 1}, entry), entry())
    assert not (cache / "things").exists()


def test_leftovers_of_killed_processes_are_removed_and_files_in_work_are_not(cache):
    kept("things", {"a": 1}, entry)
    old, new = (cache / "things" / f".x.{name}.part" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    kept("things", {"a": 2}, entry)
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, -128], np.int8),
        ([0, 1, 128], np.int16),
        ([40_000], np.int32),
        ([0.5, 1e12], np.float64),
        ([0.5], np.float32),
        ([0.1], np.float64),
        ([-0.0], np.float32),
        ([2.0**40], np.float32),
        ([2**60 + 1], np.int64),
    ],
)
def test_numbers_take_the_smallest_type_that_holds_them_to_the_bit(values, kind):
    values = np.array(values)
    small = compact(values)
    assert small.dtype == kind
    assert small.astype(values.dtype).tobytes() == values.tobytes()


# Splits


@pytest.mark.parametrize(
    ("dataset", "encoding"), [(name, encoding) for name in DATASETS for encoding in DATASETS[name].encodings]
)
def test_splits_from_the_disk_have_the_bits_of_computed_ones(cache, computed, dataset, encoding):
    config = ExperimentConfig(dataset=dataset, encoding=encoding, **SMALL | {"train_size": 341})
    first = load_splits(config)
    forget_process()
    second = load_splits(config)
    assert len(computed) == 1
    assert second is not first
    assert (second.digest, second.provenance, dict(second.notes)) == (
        first.digest,
        first.provenance,
        dict(first.notes),
    )
    for one, other in zip(first.parts.values(), second.parts.values(), strict=True):
        for name in ("X", "y", "origin"):
            assert getattr(one, name).dtype == getattr(other, name).dtype
            assert getattr(other, name).flags.c_contiguous
            assert not getattr(other, name).flags.writeable


def test_every_data_setting_decides_the_splits(cache, computed):
    config = ExperimentConfig(**SMALL, source="stand-in")
    changes = {
        "features": 3,
        "angle_range": (0.0, 2.0),
        "tail_share": 0.1,
        "train_size": 299,
        "val_size": 99,
        "test_size": 99,
        "seed": 1,
    }
    load_splits(config)
    for name, value in changes.items():
        load_splits(config.replace(**{name: value}))
    assert len(computed) == 1 + len(changes)
    forget_process()
    load_splits(config.replace(method="default-qfl", clients=3))
    assert len(computed) == 1 + len(changes)


def test_a_changed_file_is_read_again_by_the_next_process(cache, tmp_path, monkeypatch):
    sample, folder = generate_baf(800, seed=5), tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("QFL_DATA_DIR", str(folder))
    sample.to_csv(folder / "Base.csv", index=False)
    before = load_splits(ExperimentConfig(**SMALL))
    forget_process()
    sample.iloc[::-1].to_csv(folder / "Base.csv", index=False)  # as many bytes as before
    after = load_splits(ExperimentConfig(**SMALL))
    assert before.provenance.sha256 != after.provenance.sha256
    assert before.digest != after.digest


def test_a_file_that_changes_while_it_is_read_is_refused(cache, tmp_path, monkeypatch):
    sample, folder = generate_baf(800, seed=5), tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("QFL_DATA_DIR", str(folder))
    sample.to_csv(folder / "Base.csv", index=False)
    parse = baf._parse

    def parse_and_change(file):
        frame = parse(file)
        with file.open("a") as stream:
            stream.write("\n")
        return frame

    monkeypatch.setattr(baf, "_parse", parse_and_change)
    with pytest.raises(DataError, match=r"Base\.csv changed while it was read"):
        load_splits(ExperimentConfig(**SMALL))
    assert not (cache / "rows").exists()


def test_a_user_s_loader_is_not_kept_on_disk(cache, monkeypatch):
    def load(config, order=None):
        return baf.load_baf(config, order)

    monkeypatch.setitem(DATASETS, "baf", replace(DATASETS["baf"], loader=load))
    load_splits(ExperimentConfig(**SMALL))
    assert not (cache / "splits").exists()


# Digests of files


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


@pytest.fixture
def hashed(monkeypatch):
    """Return the list of the files that were hashed."""
    files, compute = [], sources.file_sha256
    monkeypatch.setattr(sources, "file_sha256", lambda path: files.append(path) or compute(path))
    return files


@pytest.fixture
def settled(monkeypatch):
    """Let files that were just written count as old ones."""
    monkeypatch.setattr(sources, "SETTLED_NS", -(10**18))


def test_a_file_is_hashed_once_for_all_processes(cache, file, hashed, settled):
    digest = sources.digest_of(file)
    forget_process()
    assert sources.digest_of(file) == digest
    assert hashed == [file]


def test_the_digest_of_a_file_that_just_changed_is_not_kept(cache, file, hashed):
    for _ in range(2):
        sources.digest_of(file)
        forget_process()
    assert len(hashed) == 2


@pytest.mark.parametrize("change", ["content", "size", "replaced", "touched"])
def test_a_file_in_another_state_is_hashed_again(cache, file, hashed, settled, change):
    sources.digest_of(file)
    forget_process()
    state = file.stat()
    if change == "replaced":
        other = file.with_name("other")
        other.write_bytes(b"CONTENT")
        os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
        other.replace(file)
    elif change == "touched":
        os.utime(file, ns=(1, 1))
    else:
        file.write_bytes(b"CONTENT" if change == "content" else b"longer content")
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))  # the other time cannot be set back
    assert sources.digest_of(file) == sources.file_sha256(file)
    assert len(hashed) == 3


@pytest.mark.parametrize("damage", [b"", b"x" * 64, b"0" * 63, b"\xff"])
def test_a_damaged_memory_of_a_digest_is_not_used(cache, file, hashed, settled, damage):
    digest = sources.digest_of(file)
    (memory,) = Path(cache / "digests").iterdir()
    memory.write_bytes(damage)
    forget_process()
    assert sources.digest_of(file) == digest
    assert len(hashed) == 2
