"""Where files come from, in which order, and that nothing unchecked or half-written is ever used."""

import functools
import http.server
import json
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qfl_core.data
from qfl_core.__main__ import main
from qfl_core.base.errors import DataError
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig
from qfl_core.data import baf, data_source, genome, load_splits, preprocess, sources
from qfl_core.data.standin import common as standin
from qfl_core.data.standin.baf import generate_baf

SMALL = {"train_size": 300, "val_size": 100, "test_size": 100}


@pytest.fixture(autouse=True)
def forget():
    for cached in (sources._checked, sources._digest, sources._download, baf._read, genome._read, qfl_core.data._kept):
        cached.cache_clear()


@pytest.fixture(scope="module")
def sample():
    return generate_baf(800, seed=5)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("QFL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def user_folder(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("QFL_DATA_DIR", str(folder))
    return folder


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serve a folder on loopback, let downloads happen, and count the requests."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        requests = 0

        def do_GET(self):
            Handler.requests += 1
            super().do_GET()

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    monkeypatch.setenv("QFL_OFFLINE", "0")
    monkeypatch.setattr(sources, "RETRIES", 0)
    url = f"http://127.0.0.1:{httpd.server_port}/Base.parquet"
    monkeypatch.setattr(baf, "OFFICIAL", replace(baf.OFFICIAL, url=url))
    yield folder, Handler
    httpd.shutdown()
    httpd.server_close()


def publish(monkeypatch, file):
    """Declare a file the published one."""
    monkeypatch.setattr(baf, "OFFICIAL_BLOB", sources.git_blob_id(file))


def config(**changes):
    return ExperimentConfig(dataset="baf", **SMALL, **changes)


def test_git_blob_id_is_git_s(tmp_path):
    file = tmp_path / "hello"
    file.write_bytes(b"hello\n")
    assert sources.git_blob_id(file) == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_without_files_the_stand_in_is_used_and_says_why(cache):
    splits = load_splits(config())
    assert splits.source == "stand-in"
    assert "QFL_OFFLINE" in splits.provenance.reason
    assert len(splits.provenance.sha256) == 64
    assert not files_of(cache)


def test_the_stand_in_s_digest_covers_every_module_that_makes_it():
    """Modules that the generators import from this folder are part of what decides the rows."""
    folder = Path(standin.__file__).parent
    covered, pending = set(), ["baf", "genome"]
    while pending:
        name = pending.pop()
        covered.add(f"{name}.py")
        imported = re.findall(r"from qfl_core\.data\.standin\.(\w+) import", (folder / f"{name}.py").read_text())
        pending += [other for other in imported if f"{other}.py" not in covered]
    assert covered == set(standin.GENERATOR_CODE)


def test_official_refuses_the_stand_in(cache):
    with pytest.raises(DataError, match="source='official' refuses the stand-in for baf.*QFL_DATA_DIR"):
        load_splits(config(source="official"))


def test_stand_in_never_looks_for_files(user_folder):
    (user_folder / "Base.csv").write_text("rubbish")
    assert load_splits(config(source="stand-in")).source == "stand-in"


@pytest.mark.parametrize("name", ["Base.csv", "Base.parquet"])
def test_the_user_s_folder_comes_first(user_folder, cache, sample, name):
    generate_baf(700, seed=6).to_csv(cache / "Base.csv", index=False)
    write = sample.to_csv if name.endswith("csv") else sample.to_parquet
    write(user_folder / name, index=False)
    splits = load_splits(config(source="official"))
    assert splits.source == "local"
    assert splits.provenance.name == name
    assert splits.provenance.sha256 == sources.file_sha256(user_folder / name)
    assert max(splits.train.origin) > 700


def test_a_user_s_folder_without_the_file_leaves_the_choice_to_the_cache(user_folder, cache, sample):
    sample.to_csv(cache / "Base.csv", index=False)
    assert "cache" in load_splits(config()).provenance.reason


def test_a_user_s_folder_that_does_not_exist_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("QFL_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="QFL_DATA_DIR=.*nowhere.*not a folder"):
        load_splits(config())


def test_the_cache_remembers_the_sha256_and_notices_a_change(cache, sample):
    file = cache / "Base.csv"
    sample.to_csv(file, index=False)
    load_splits(config())
    memory = json.loads((cache / "Base.csv.json").read_text())
    assert memory["sha256"] == sources.file_sha256(file)
    file.write_text(file.read_text().replace("INTERNET", "TELEAPP", 1))
    with pytest.raises(DataError, match=r"Base.csv in the cache has changed.*SHA-256"):
        load_splits(config())


@pytest.mark.parametrize("memory", ["", "{", "[]", "{}"])
def test_a_damaged_memory_means_a_full_check(cache, sample, memory):
    sample.to_csv(cache / "Base.csv", index=False)
    (cache / "Base.csv.json").write_text(memory)
    assert load_splits(config()).source == "local"
    assert json.loads((cache / "Base.csv.json").read_text())["sha256"] == sources.file_sha256(cache / "Base.csv")


@pytest.mark.parametrize("thing", ["folder", "dangling link"])
def test_what_is_no_file_is_an_error_not_a_reason_for_the_stand_in(user_folder, thing):
    path = user_folder / "Base.csv"
    path.mkdir() if thing == "folder" else path.symlink_to(user_folder / "nothing")
    with pytest.raises(DataError, match="Base.csv in .* is not a file"):
        load_splits(config())


def test_an_unreadable_file_is_a_clear_error(user_folder, sample, monkeypatch):
    sample.to_csv(user_folder / "Base.csv", index=False)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: False if mode == os.R_OK else access(path, mode))
    with pytest.raises(DataError, match="Base.csv in .* cannot be read: change its permissions"):
        load_splits(config())


@pytest.mark.loopback
def test_a_download_is_checked_then_used_then_remembered(server, cache, sample, monkeypatch):
    folder, handler = server
    sample.to_parquet(folder / "Base.parquet", index=False)
    publish(monkeypatch, folder / "Base.parquet")
    for _ in range(2):
        splits = load_splits(config(source="official"))
        assert splits.source == "official"
        assert "git blob" in splits.provenance.reason
        forget_process()
    assert handler.requests == 1
    assert files_of(cache) == {"Base.parquet", "Base.parquet.json"}


def files_of(cache):
    """Return the names of the files of datasets; what was computed from them is in folders of its own."""
    return {path.name for path in cache.iterdir() if path.is_file()}


def forget_process():
    for cached in (sources._download, sources._checked, sources._digest):
        cached.cache_clear()


@pytest.mark.loopback
def test_a_download_of_something_else_is_refused_and_leaves_no_file(server, cache, sample):
    folder, _ = server
    sample.to_parquet(folder / "Base.parquet", index=False)  # whole, but not the published one
    assert load_splits(config()).source == "stand-in"
    forget_process()
    with pytest.raises(DataError, match="download refused.*not the published file"):
        load_splits(config(source="official"))
    assert not files_of(cache)


@pytest.mark.loopback
def test_a_truncated_download_is_refused_and_leaves_no_file(server, cache, sample):
    folder, _ = server
    sample.to_parquet(folder / "whole", index=False)
    whole = (folder / "whole").read_bytes()
    (folder / "Base.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="download refused"):
        load_splits(config(source="official"))
    assert not files_of(cache)


@pytest.mark.loopback
def test_no_server_means_the_stand_in_after_one_attempt(server, cache):
    _, handler = server
    for _ in range(3):
        splits = load_splits(config())
        assert splits.source == "stand-in"
        assert "download failed (HTTPError)" in splits.provenance.reason
    assert handler.requests == 1


def test_offline_never_tries_the_network(server, cache, monkeypatch):
    _, handler = server
    monkeypatch.setenv("QFL_OFFLINE", "1")
    load_splits(config())
    assert handler.requests == 0


def test_a_cache_that_cannot_be_created_is_a_clear_error(server, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="cannot create the cache folder.*QFL_CACHE_DIR"):
        load_splits(config())


def test_a_read_only_cache_is_a_clear_error(server, cache, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: False if mode == os.W_OK else access(path, mode))
    with pytest.raises(DataError, match="is read-only.*QFL_CACHE_DIR"):
        load_splits(config())
    assert not any(cache.iterdir())


def test_the_choice_is_printed_once(cache, capsys):
    from qfl_core.data.standin.common import announce

    announce.cache_clear()
    for seed in range(3):
        load_splits(config(seed=seed))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[data]")]
    assert len(lines) == 1
    assert "baf: stand-in data" in lines[0]


def calls(monkeypatch, module, name):
    """Count the calls of a function from now on."""
    counted, original = [], getattr(module, name)

    def counting(*args, **options):
        counted.append(args)
        return original(*args, **options)

    monkeypatch.setattr(module, name, counting)
    return counted


def same_bits(one, other):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one.parts.values(), other.parts.values(), strict=True)
        for name in ("X", "y", "origin")
    )


@pytest.mark.parametrize("name", ["Base.csv", "Base.parquet"])
@pytest.mark.parametrize("where", ["user_folder", "cache"])
def test_a_file_is_parsed_once_for_all_seeds(request, sample, monkeypatch, name, where):
    folder = request.getfixturevalue(where)
    (sample.to_csv if name.endswith("csv") else sample.to_parquet)(folder / name, index=False)
    parsed, hashed = calls(monkeypatch, baf, "_parse"), calls(monkeypatch, sources, "file_sha256")
    several = [load_splits(config(seed=seed)) for seed in range(3)]
    assert len(parsed) == len(hashed) == 1
    for seed, splits in enumerate(several):
        forget_process()
        baf._read.cache_clear()
        assert same_bits(splits, baf.load_baf(config(seed=seed)))
    assert len(parsed) == 1  # another process finds the rows on disk
    shutil.rmtree(Path(os.environ["QFL_CACHE_DIR"]) / "rows")
    baf._read.cache_clear()
    assert same_bits(several[0], baf.load_baf(config(seed=0)))
    assert len(parsed) == 2


def test_a_file_with_other_content_is_parsed_again(user_folder, sample):
    (user_folder / "Base.csv").write_text(sample.to_csv(index=False))
    one = load_splits(config())
    (user_folder / "Base.csv").write_text(sample.iloc[::-1].to_csv(index=False))
    other = load_splits(config())
    assert one.provenance.sha256 != other.provenance.sha256
    assert not same_bits(one, other)


def test_configs_with_equal_data_settings_share_one_result(monkeypatch):
    loaded = calls(monkeypatch, baf, "baf_pipeline")
    one = load_splits(config(method="duqfl-prox"))
    assert load_splits(config(method="default-qfl", clients=3, rounds=2, shots=None, split="iid")) is one
    assert len(loaded) == 1
    assert load_splits(config(seed=1)) is not one
    assert load_splits(config(features=3)).train.X.shape[1] == 3
    assert same_bits(one, baf.load_baf(config()))


def test_a_shuffled_order_is_loaded_anew_and_not_kept():
    plain = load_splits(config())
    one, same = (load_splits(config(), order=np.random.default_rng(0)) for _ in range(2))
    assert one is not same
    assert same_bits(one, same)
    assert load_splits(config()) is plain


@pytest.mark.parametrize("dataset", ["baf", "genome", "breast-cancer"])
def test_a_package_s_loader_reads_the_data_settings_alone(dataset):
    """Else two configs that share one result in memory would not mean the same splits."""
    read = set()

    class Watched:
        def __init__(self, config):
            self.config = config

        def __getattr__(self, name):
            read.add(name)
            return getattr(self.config, name)

    for encoding in DATASETS[dataset].encodings:
        qfl_core.data.resolve(DATASETS[dataset].loader)(
            Watched(ExperimentConfig(dataset=dataset, encoding=encoding)), None
        )
    assert {"seed", "train_size"} <= read <= set(qfl_core.data.DATA_SETTINGS)


@pytest.mark.parametrize("dataset", ["baf", "genome", "breast-cancer"])
@pytest.mark.parametrize("source", ["auto", "stand-in"])
def test_the_source_is_told_without_parsing_splitting_or_encoding(dataset, source, monkeypatch, cache, capsys):
    def never(*args, **options):
        raise AssertionError("the data were read")

    config = ExperimentConfig(dataset=dataset, source=source)
    expected = load_splits(config).provenance
    standin.announce.cache_clear()
    capsys.readouterr()
    for module, name in (
        (baf, "_parse"),
        (baf, "standin_rows"),
        (genome, "_read"),
        (genome, "standin_sequences"),
        (preprocess, "stratified_parts"),
    ):
        monkeypatch.setattr(module, name, never)
    for _ in range(2):
        assert data_source(config) == expected
    assert capsys.readouterr().out == f"[data] {expected}\n"


def test_the_source_of_a_file_costs_one_check_and_no_encoding(user_folder, sample, monkeypatch):
    sample.to_csv(user_folder / "Base.csv", index=False)
    parsed, encoded = calls(monkeypatch, baf, "_parse"), calls(monkeypatch, baf, "baf_pipeline")
    found = data_source(config())
    assert (len(parsed), len(encoded)) == (1, 0)
    assert found == load_splits(config()).provenance
    assert (len(parsed), len(encoded)) == (1, 1)


def test_the_source_refuses_what_loading_refuses(cache):
    with pytest.raises(DataError, match="source='official' refuses the stand-in for baf"):
        data_source(config(source="official"))


def test_a_user_s_dataset_needs_no_source_and_may_have_one(monkeypatch):
    loads = []

    def load(config, order=None):
        loads.append(config)
        return baf.load_baf(config, order)

    spec = replace(DATASETS["baf"], loader=load, source=None)
    monkeypatch.setitem(DATASETS, "baf", spec)
    assert data_source(config()) == load_splits(config()).provenance
    assert len(loads) == 2  # without a source nothing is kept, because nobody knows whether it is still the same

    monkeypatch.setitem(DATASETS, "baf", replace(spec, source=baf.baf_source))
    loads.clear()
    data_source(config())
    assert not loads
    one = load_splits(config(clients=3))
    assert load_splits(config(clients=3)) is one
    assert load_splits(config(clients=4)) is not one  # a user's loader may read any setting
    assert len(loads) == 2


def test_a_docstring_of_a_generator_does_not_change_the_stand_in_s_digest(monkeypatch):
    before = standin.generator_digest("100 rows")
    assert before != standin.generator_digest("101 rows")
    read = Path.read_text

    def digest(edit):
        standin.generator_digest.cache_clear()
        monkeypatch.setattr(Path, "read_text", lambda self, **options: edit(read(self, **options)))
        return standin.generator_digest("100 rows")

    try:
        assert digest(lambda code: code.replace('"""Return', '"""Give back')) == before
        assert digest(lambda code: code.replace("VEILED = 0.1", "VEILED = 0.2")) != before
    finally:
        standin.generator_digest.cache_clear()


def test_make_data_reports_both_sets_and_fails_where_official_cannot_be_had(cache, capsys):
    assert main(["data"]) == 0
    out = capsys.readouterr().out
    assert "2,999 / 750 / 1,250" in out
    assert "8,000 / 2,000 / 2,000" in out
    assert main(["data", "--source", "official"]) == 1
    assert "refuses the stand-in for genome" in capsys.readouterr().err


@pytest.mark.real_data
def test_real_files_are_found_and_called_local(real_data):
    for dataset in ("baf", "genome"):
        assert load_splits(ExperimentConfig(dataset=dataset, source="official")).source in ("local", "official")
