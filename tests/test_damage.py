"""Every file of a run is damaged in every way: the run ends in the same bytes, or one line says what is wrong."""

import json
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planted import SEALED, planted_splits, small

from qfl_core.__main__ import main
from qfl_core.base.errors import ChangedResults, MendedJournal, RunError
from qfl_core.runs import RunResult, find_runs, load_runs, run_experiment, tidy
from qfl_core.runs.folder import RunFolder

SPLITS = planted_splits()
CONFIG = small(clients=2, unfolds=1, spsa_iterations=1, shots=16)
OTHER = CONFIG.replace(seed=1)
#: Bytes that no reader of a run's files understands.
GARBAGE = {
    "empty": b"",
    "NUL bytes": b"\0" * 500,
    "not UTF-8": b"\xff\xfe\x80abc\n" * 20,
    "a huge line": b"x" * 3_000_000,
    "empty lines": b"\n\n\n",
    "an empty object": b"{}\n",
    "a list": b"[]\n",
    "a number": b"1\n",
    "brackets without end": b"[" * 100_000,
    "other columns": b"a,b\n1,2\n",
}


class Stopped(BaseException):
    """Like Ctrl-C."""


def run(results: Path, config=CONFIG) -> RunResult:
    return run_experiment(config, results, splits=SPLITS)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "timings.csv"}


def cuts(data: bytes) -> list[bytes]:
    """Cut the data off at 50 places."""
    return [data[: len(data) * place // 50] for place in range(50)]


def flips(data: bytes, count: int) -> list[bytes]:
    """Flip one bit in each copy."""
    rng, copies = random.Random(0), []
    for _ in range(count):
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        copies.append(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
    return copies


def moved_lines(data: bytes) -> list[bytes]:
    """Repeat, remove and swap lines."""
    lines = data.splitlines(keepends=True)
    first, *rest = lines
    return [b"".join(change) for change in ([*lines, lines[-1]], [first, *lines], rest, lines[:-1], lines[::-1])]


def damages(data: bytes) -> list[bytes]:
    """Return every kind of damage to a file of a finished run."""
    rng = random.Random(1)
    noise = [rng.randbytes(size) for size in (1, 100, len(data))]
    found = [*GARBAGE.values(), *noise, *cuts(data), *flips(data, 8), *moved_lines(data), data + b"\n"]
    return [damaged for damaged in dict.fromkeys(found) if damaged != data]


# Finished runs


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return a results folder with two finished runs."""
    results = tmp_path_factory.mktemp("made")
    for config in (CONFIG, OTHER):
        run(results, config)
    return results


@pytest.fixture
def results(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path / "results")
    return tmp_path / "results"


def refusal(action, *arguments) -> str:
    """Return the message of the RunError that ended the action, or an empty text."""
    try:
        action(*arguments)
    except RunError as error:
        return str(error)
    return ""


def assert_listed(results: Path, found: RunResult, named: str, capsys) -> None:
    """``list`` shows the damaged run in one line with the names of the changed files, and the other run as ever."""
    assert main(["list", "--results", str(results)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    _, *lines = told.out.splitlines()  # the first line names the folder
    damaged, other = sorted(lines, key=lambda line: not line.startswith(found.path.name))
    assert damaged.startswith(f"{found.path.name}  duqfl-prox   baf-")
    assert f"CHANGED since the run was sealed: {named}" in damaged
    assert "CHANGED" not in other
    assert "seed 1   stand-in  accuracy 0." in other


def assert_told(results: Path, found: RunResult, named: str, capsys) -> None:
    """Every way to read the run says in one line that it is damaged."""
    assert_listed(results, found, named, capsys)
    name = found.path.name
    assert main(["show", name, "--results", str(results)]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("qfl_core: ")
    assert name in told
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        refusals = [
            refusal(load_runs, results),
            refusal(tidy, [RunResult(found.path)], "client_trace"),
            refusal(lambda: RunResult(found.path).weights),
        ]
    assert all(name in told and "\n" not in told for told in refusals if told)
    assert [w.category for w in warned] == [ChangedResults] * 3
    assert all(f"run {name}: {named}" in str(w.message) for w in warned)


@pytest.mark.parametrize("name", SEALED)
def test_a_finished_run_with_a_damaged_file_is_told_and_no_other_run_suffers(results, name, capsys):
    found = run(results)
    path = found.path / name
    kept = path.read_bytes()
    for number, damaged in enumerate(damages(kept)):
        path.write_bytes(damaged)
        (assert_listed if number % 4 else assert_told)(results, found, name, capsys)
    left = contents(found.path)
    assert run(results).path == found.path
    assert contents(found.path) == left  # nothing writes over what a reader may want to see
    path.unlink()
    assert_told(results, found, name, capsys)
    path.mkdir()
    assert_told(results, found, name, capsys)
    (other,) = find_runs(results)[1:]
    assert main(["show", other.path.name, "--results", str(results)]) == 0
    assert "CHANGED" not in capsys.readouterr().out


def test_several_damaged_runs_are_told_line_by_line_and_the_others_are_read(results, capsys):
    for seed in (2, 3, 4):
        run(results, CONFIG.replace(seed=seed))
    paths = {found.config.seed: found.path for found in find_runs(results)}
    (paths[0] / "config.json").write_bytes(b"\xff")
    (paths[1] / "client_trace.csv").unlink()
    (paths[2] / "environment.json").write_text("{}")
    (paths[2] / "DONE").write_bytes(b"")
    (paths[3] / "global_accuracies.csv").write_bytes(b"")
    assert main(["list", "--results", str(results)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    lines = {
        line.split()[0]: line.partition("CHANGED since the run was sealed: ")[2] for line in told.out.splitlines()[1:]
    }
    assert lines == {
        paths[0].name: "config.json",
        paths[1].name: "client_trace.csv",
        paths[2].name: "DONE",
        paths[3].name: "global_accuracies.csv",
        paths[4].name: "",
    }
    for seed, path in paths.items():
        assert main(["show", path.name, "--results", str(results)]) == (0 if seed == 4 else 1)
        assert capsys.readouterr().err.count("\n") == (0 if seed == 4 else 1)


@pytest.mark.parametrize("name", ["global_accuracies", "validation", "classification_metrics"])
@pytest.mark.parametrize("value", ["7", "True", "1e999"])
def test_a_table_whose_columns_were_overwritten_is_told(results, name, value, capsys):
    found = run(results)
    path = found.path / f"{name}.csv"
    table = pd.read_csv(path, dtype=str)
    table[[column for column in table if column != "part"]] = value
    table.to_csv(path, index=False)
    assert_told(results, found, path.name, capsys)


@pytest.mark.parametrize("seal", [None, b"damaged"])
@pytest.mark.parametrize("field", ["method", "dataset", "loss"])
def test_a_run_without_its_seal_whose_config_names_nothing_known_is_told(results, seal, field, capsys):
    found = run(results)
    path = found.path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: "unknown"}))
    if seal is None:
        (found.path / "DONE").unlink()
    else:
        (found.path / "DONE").write_bytes(seal)
    assert_told(results, found, "DONE", capsys)


@pytest.mark.parametrize("depth", [3, 400])
def test_an_environment_of_lists_in_lists_is_told(results, depth, capsys):
    found = run(results)
    path = found.path / "environment.json"
    nested: list = []
    for _ in range(depth):
        nested = [nested]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"more": nested}))
    assert_told(results, found, path.name, capsys)


def test_a_run_with_a_damaged_seal_is_told(results, capsys):
    found = run(results)
    done = found.path / "DONE"
    sealed = json.loads(done.read_text())
    spoilt = [json.dumps(sealed | {"../x\n": "0"}).encode(), json.dumps(dict.fromkeys(sealed, 3)).encode()]
    for number, damaged in enumerate([*damages(done.read_bytes()), *spoilt]):
        done.write_bytes(damaged)
        named = ", ".join(RunResult(found.path).changed_files())
        assert "DONE" in named or ".csv" in named or ".json" in named or ".npz" in named
        (assert_listed if number % 4 else assert_told)(results, found, named, capsys)


def test_a_run_that_lost_its_seal_is_told_and_the_next_start_makes_it_anew(results, capsys):
    found = run(results)
    before = contents(found.path)
    (found.path / "DONE").unlink()
    assert_told(results, found, "DONE", capsys)
    for name in SEALED:
        (found.path / name).write_bytes(b"damaged")
    (found.path / "exclusions.csv").write_bytes(b"round,client,reason\n1,0,planted\n")
    assert run(results).path == found.path
    assert contents(found.path) == before


def test_timings_are_not_part_of_the_result(results, capsys):
    found = run(results)
    for damaged in GARBAGE.values():
        (found.path / "timings.csv").write_bytes(damaged)
        assert main(["list", "--results", str(results)]) == 0
        assert main(["show", found.path.name, "--results", str(results)]) == 0
        assert "CHANGED" not in capsys.readouterr().out


def test_a_file_that_cannot_be_opened_is_told(results, capsys, monkeypatch):
    found = run(results)
    original = Path.read_bytes

    def refused(self):
        if self == found.path / "validation.csv":
            raise PermissionError(13, "Permission denied", str(self))
        return original(self)

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert_told(results, found, "validation.csv", capsys)


def test_a_seal_that_is_a_folder_is_told(results, capsys):
    found = run(results)
    (found.path / "DONE").unlink()
    (found.path / "DONE").mkdir()
    assert_told(results, found, "DONE", capsys)
    assert run(results).path == found.path


@contextmanager
def closed(folder: Path, mode: int = 0) -> Iterator[None]:
    """Take a folder's permissions away; root, who may do everything, is another user meanwhile."""
    is_root = os.geteuid() == 0
    folder.chmod(mode)
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the modes of folders mean something else on Windows")
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_folders_that_cannot_be_read_are_told_line_by_line_and_the_others_are_read(results, mode, capsys, monkeypatch):
    found, other = find_runs(results)
    # Below the current folder, another user needs no permission for the folders above.
    monkeypatch.chdir(results.parent)
    for folder in (results.parent, results):
        folder.chmod(0o755)
    place = Path("results") / found.path.relative_to(results)
    listing = ["list", "--results", "results"]
    assert main(listing) == 0  # now everything is imported that another user may not be allowed to read
    expected = capsys.readouterr().out.splitlines()

    with closed(place, mode):
        assert main(listing) == 0
        told = capsys.readouterr().out.splitlines()
        with (
            pytest.warns(ChangedResults),
            pytest.raises(RunError, match=f"config.json of run {place.name} cannot be read"),
        ):
            load_runs("results", seed=0)
    assert told[0] == expected[0]
    assert told[2:] == expected[2:]
    assert told[1].startswith(f"{place.name}  duqfl-prox   baf-")
    assert told[1].endswith("seed 0   unknown   accuracy unknown  CANNOT BE READ")

    with closed(place.parent):
        assert main(listing) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [expected[0], expected[2], f"{place.parent} CANNOT BE READ, so its runs are not listed"]
    assert other.path.name in told[1]


def test_list_filters_a_run_without_config_by_the_names_of_its_folders(results, capsys):
    found = run(results)
    (found.path / "config.json").unlink()
    wanted = ("--method", "duqfl-prox", "--dataset", "baf", "--encoding", "pca", "--split", "label-skew")
    assert main(["list", "--results", str(results), *wanted]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3  # the folder and both runs
    assert main(["list", "--results", str(results), "--method", "duqfl-best"]) == 0
    assert capsys.readouterr().out.startswith("no finished run in ")


# Unfinished runs


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    """Return the folder of a run that was stopped when all its rounds were in the journal."""
    results = tmp_path_factory.mktemp("begun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "seal", stop)
        with pytest.raises(Stopped):
            run(results)
    return next(results.rglob("journal.jsonl")).parent


def stop(_):
    raise Stopped


@pytest.fixture(scope="module")
def expected(made) -> dict[str, bytes]:
    """Return the files of the same run when nothing was damaged."""
    return contents(next(found.path for found in find_runs(made) if found.config == CONFIG))


def assert_mended(begun: Path, expected: dict[str, bytes], tmp_path: Path, name: str, damaged: bytes) -> None:
    """A run that goes on from this file ends in the same bytes, and warns once if more than whole lines are lost."""
    results = tmp_path / "results"
    shutil.rmtree(results, ignore_errors=True)
    path = results.joinpath(*begun.parts[-5:])
    shutil.copytree(begun, path)
    (path / name).write_bytes(damaged)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = run(results)
    assert found.path == path
    assert contents(path) == expected
    lines = (begun / "journal.jsonl").read_bytes().splitlines(keepends=True)
    left = [b"".join(lines[:count]) for count in range(len(lines) + 1)]
    is_quiet = damaged in left if name == "journal.jsonl" else damaged == (begun / name).read_bytes()
    assert [w.category for w in warned] == ([] if is_quiet else [MendedJournal])
    assert all(f"run {path.name}: its journal is not whole; training " in str(w.message) for w in warned)
    assert all(Path(w.filename) == Path(__file__) for w in warned)


def test_a_damaged_journal_ends_in_the_same_bytes(begun, expected, tmp_path):
    for damaged in damages((begun / "journal.jsonl").read_bytes()):
        assert_mended(begun, expected, tmp_path, "journal.jsonl", damaged)


def edited(lines: list[bytes], change: tuple[str, int, int, bytes]) -> list[bytes]:
    """Change the lines of a journal."""
    kind, first, second, data = change
    if not lines:
        return [data]
    i, j = first % len(lines), second % len(lines)
    line = lines[i]
    place = second % (len(line) + 1)
    if kind == "repeat":
        return [*lines[:j], line, *lines[j:]]
    if kind == "remove":
        return lines[:i] + lines[i + 1 :]
    if kind == "swap":
        lines = lines.copy()
        lines[i], lines[j] = lines[j], lines[i]
        return lines
    if kind == "insert":
        return [*lines[:i], line[:place] + data + line[place:], *lines[i + 1 :]]
    if kind == "overwrite":
        return [*lines[:i], line[:place] + data + line[place + len(data) :], *lines[i + 1 :]]
    return [*lines[:i], line[:place], *lines[i + 1 :]]  # cut


KINDS = ("repeat", "remove", "swap", "insert", "overwrite", "cut")
CHANGES = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9999), st.binary(max_size=20))


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=3))
@example([("repeat", 1, 1, b"")])
@example([("remove", 0, 0, b"")])
@example([("remove", 1, 0, b"")])
@example([("swap", 1, 2, b"")])
@example([("insert", 1, 0, b"\n")])
@example([("overwrite", 2, 300, b"1")])
def test_a_journal_changed_in_any_way_ends_in_the_same_bytes(begun, expected, tmp_path_factory, changes):
    lines = (begun / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for change in changes:
        lines = edited(lines, change)
    assert_mended(begun, expected, tmp_path_factory.mktemp("changed"), "journal.jsonl", b"".join(lines))


@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_a_run_whose_origin_was_changed_starts_anew_and_ends_in_the_same_bytes(begun, expected, tmp_path, name):
    kept = (begun / name).read_bytes()
    for damaged in [*GARBAGE.values(), *cuts(kept)[::10], *flips(kept, 5)]:
        assert_mended(begun, expected, tmp_path, name, damaged)


def test_a_journal_holds_its_rounds_from_0_on_without_a_gap(tmp_path):
    journal = RunFolder(tmp_path).journal
    for done in (0, 1, 3, 2):
        journal.append({"state": {"done": done}})
    assert [record["state"]["done"] for record in journal.records()] == [0, 1]
    assert journal.mend()
    assert not journal.mend()


def test_a_journal_that_changes_while_the_run_goes_on_is_not_sealed(expected, tmp_path, monkeypatch):
    seal = RunFolder.seal

    def interfered(self):
        lines = self.journal.path.read_bytes().splitlines(keepends=True)
        self.journal.path.write_bytes(b"".join(lines[:-1]))
        seal(self)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "seal", interfered)
        with pytest.raises(RunError, match="changed while the run went on: start the run again"):
            run(tmp_path)
    assert contents(run(tmp_path).path) == expected


def test_a_journal_that_cannot_be_read_is_one_line(begun, tmp_path, monkeypatch):
    path = tmp_path.joinpath(*begun.parts[-5:])
    shutil.copytree(begun, path)
    opened = Path.open

    def refused(self, *arguments, **options):
        if self.name == "journal.jsonl":
            raise OSError(5, "Input/output error")
        return opened(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        with pytest.raises(RunError, match=f"the journal of run {path.name} cannot be read: Input/output error"):
            run(tmp_path)
