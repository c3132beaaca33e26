"""A file is written whole or not at all, whoever else writes it; a lock lets one process in at a time."""

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from qfl_core.base import files
from qfl_core.base.errors import RunError

#: Seconds until a lock counts as hung; no test waits so long.
PATIENCE = 600

#: Writes until the test has seen enough, and at least so often that both writers meet.
WRITER = """
import itertools, sys
from pathlib import Path
from qfl_core.base.files import write_text
path, name, stop = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
for i in itertools.count():
    write_text(path, f"{name} {i}\\n" * 2000)
    if i >= 300 and stop.exists():
        break
"""

COUNTER = """
import sys
from pathlib import Path
from qfl_core.base.files import locked
count = Path(sys.argv[1])
for _ in range(30):
    with locked(count.with_name("lock")):
        count.write_text(str(int(count.read_text()) + 1))
"""


@pytest.mark.outside
def test_two_processes_write_the_same_file_and_it_is_always_whole(tmp_path):
    folder, stop = tmp_path / "shared", tmp_path / "stop"
    folder.mkdir()
    path = folder / "shared.txt"
    files.write_text(path, "start\n" * 2000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name, stop]) for name in ("left", "right")]
    seen = Counter()
    try:
        while all(writer.poll() is None for writer in writers):  # one that fails ends the test
            lines = path.read_text().splitlines()
            assert len(lines) == 2000
            assert len(set(lines)) == 1
            seen[lines[0].split()[0]] += 1
            if min(seen["left"], seen["right"]) >= 20:
                stop.touch()
    finally:
        stop.touch()
        codes = [writer.wait() for writer in writers]
    assert codes == [0, 0]
    assert min(seen["left"], seen["right"]) >= 20
    assert [p.name for p in folder.iterdir()] == ["shared.txt"]


def test_text_is_utf_8_with_its_own_line_ends(tmp_path):
    files.write_text(tmp_path / "a", "η\r\nδ\n")
    assert (tmp_path / "a").read_bytes() == "η\r\nδ\n".encode()


def test_a_new_file_has_the_permissions_that_any_new_file_has(tmp_path):
    files.write_bytes(tmp_path / "ours", b"")
    (tmp_path / "theirs").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failing_write_keeps_the_old_content_and_leaves_no_temporary_file(tmp_path, monkeypatch, failing, error):
    path = tmp_path / "kept"
    files.write_text(path, "old")

    def fail(*args):
        raise error

    owner = os if failing == "fsync" else Path
    monkeypatch.setattr(owner, failing, fail)
    with pytest.raises(type(error)):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_missing_folder_is_an_error_of_the_operating_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "nowhere" / "a", "text")


@pytest.mark.outside
def test_the_lock_lets_one_process_in_at_a_time(tmp_path):
    count = tmp_path / "count"
    count.write_text("0")
    workers = [subprocess.Popen([sys.executable, "-c", COUNTER, count]) for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert count.read_text() == "60"


@pytest.mark.outside
def test_a_thread_waits_for_the_lock_and_an_error_inside_releases_it(tmp_path, monkeypatch):
    lock = tmp_path / "new" / "folder" / "lock"
    entered, asked, acquire = [], threading.Event(), files.FileLock.acquire

    def watched(self, *arguments, **options):
        if threading.current_thread() is thread:
            asked.set()
        return acquire(self, *arguments, **options)

    monkeypatch.setattr(files.FileLock, "acquire", watched)

    def enter():
        with files.locked(lock):
            entered.append("second")

    def fail_inside():
        with files.locked(lock):
            thread.start()
            assert asked.wait(PATIENCE)
            entered.append("first")
            raise OSError("of the caller")

    thread = threading.Thread(target=enter)
    with pytest.raises(OSError, match="of the caller"):  # and not a RunError, which is for the lock's own trouble
        fail_inside()
    thread.join(PATIENCE)
    assert entered == ["first", "second"]


def test_a_lock_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    expected = "cannot write results to .*file.*complete rounds are kept"
    with pytest.raises(RunError, match=expected), files.locked(tmp_path / "file" / "lock"):
        pytest.fail("the lock was granted")
