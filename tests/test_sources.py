"""Where files come from, in which order, and that nothing unchecked or half-written is ever used."""

import functools
import http.server
import json
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from qfl_core.__main__ import main
from qfl_core.base.errors import DataError
from qfl_core.config import ExperimentConfig
from qfl_core.data import baf, genome, load_splits, sources
from qfl_core.data.standin import common as standin
from qfl_core.data.standin.baf import generate_baf

SMALL = {"train_size": 300, "val_size": 100, "test_size": 100}


@pytest.fixture(autouse=True)
def forget():
    for cached in (sources._checked, sources._download, baf._read, genome._read):
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
    assert not any(cache.iterdir())


def test_the_stand_in_s_digest_covers_every_module_that_makes_it():
    """Modules that the generators import from this folder are part of what decides the rows."""
    folder = Path(standin.__file__).parent
    covered, pending = set(), ["standin_baf", "standin_genome"]
    while pending:
        name = pending.pop()
        covered.add(f"{name}.py")
        imported = re.findall(r"from qfl_core\.data\.(\w+) import", (folder / f"{name}.py").read_text())
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
    assert {p.name for p in cache.iterdir()} == {"Base.parquet", "Base.parquet.json"}


def forget_process():
    sources._download.cache_clear()
    sources._checked.cache_clear()


@pytest.mark.loopback
def test_a_download_of_something_else_is_refused_and_leaves_no_file(server, cache, sample):
    folder, _ = server
    sample.to_parquet(folder / "Base.parquet", index=False)  # whole, but not the published one
    assert load_splits(config()).source == "stand-in"
    forget_process()
    with pytest.raises(DataError, match="download refused.*not the published file"):
        load_splits(config(source="official"))
    assert not any(cache.iterdir())


@pytest.mark.loopback
def test_a_truncated_download_is_refused_and_leaves_no_file(server, cache, sample):
    folder, _ = server
    sample.to_parquet(folder / "whole", index=False)
    whole = (folder / "whole").read_bytes()
    (folder / "Base.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="download refused"):
        load_splits(config(source="official"))
    assert not any(cache.iterdir())


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
