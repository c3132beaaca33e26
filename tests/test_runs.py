"""Runs: what they write, and that nothing short of a new seed changes it."""

import dataclasses
import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from planted import SEALED, planted_splits, small

from qfl_core.__main__ import main
from qfl_core.algorithm.client import TRACE
from qfl_core.algorithm.hooks import BlockResult, LocalOptimizer
from qfl_core.algorithm.meta import refine_controller
from qfl_core.algorithm.methods import METHODS
from qfl_core.algorithm.server import InProcess
from qfl_core.base.errors import ConfigError, DataError, NotFiniteError, RunError
from qfl_core.base.registry import DATASETS, METHOD_NAMES, DatasetSpec
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.engines.qnn import z_map
from qfl_core.runs import RunResult, experiment, find_runs, identity, load_runs, make_federation, run_experiment
from qfl_core.runs import folder as folder_module
from qfl_core.runs import run as runs
from qfl_core.runs.experiment import train
from qfl_core.runs.finite import MAX_WEIGHT, check_finite
from qfl_core.runs.folder import RunFolder
from qfl_core.runs.identity import run_identity
from qfl_core.runs.journal import Journal
from qfl_core.runs.plugins import register_dataset, register_feature_map, register_loss
from qfl_core.runs.prepare import make_model, prepare
from qfl_core.runs.schema import SCHEMA, to_csv

HERE = Path(__file__).parent
SPLITS = planted_splits()
CONFIG = small(rounds=3, outer_period=2)
FILES = {*SEALED, "DONE", "timings.csv"}


def run(results, config=CONFIG, **options) -> RunResult:
    return run_experiment(config, results, splits=SPLITS, **options)


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a run by name, hidden ones too, timings apart."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.name != "timings.csv"}


def run_folders(results: Path, config=CONFIG) -> list[Path]:
    parent = runs.run_parent(config, results)
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.is_dir() else []


def only_run(results: Path, config=CONFIG) -> dict[str, bytes]:
    (path,) = run_folders(results, config)
    assert {file.name for file in path.iterdir()} == FILES
    return contents(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    return run(tmp_path_factory.mktemp("whole"))


class Interruption(BaseException):
    """Like Ctrl-C: no error that a run could handle."""


def stop_after(monkeypatch, count):
    """Let a run write this many records, then interrupt it."""

    def stopped(federation, state, trainer):
        for done, record in enumerate(train(federation, state, trainer)):
            if done == count:
                raise Interruption
            yield record
        raise Interruption

    monkeypatch.setattr(runs, "train", stopped)


# What a run writes

COLUMNS = {
    "global_accuracies": """round global_train_accuracy global_val_accuracy global_accuracy client_train_accuracy
        client_test_accuracy client_test_accuracy_min client_test_accuracy_max train_test_gap fairness_gap
        global_fairness_gap clients drift_from_broadcast upload_spread
        circuits_train circuits_calibration circuits_monitor circuits_validation
        circuits_virtual circuits_tuning shots""",
    "validation": "round val_loss client_val_loss meta_loss",
    "client_trace": """round client unfold eta delta loss_before loss_after task_loss_before task_loss_after
        train_accuracy test_accuracy test_recall val_loss val_accuracy displacement clipped selected_unfold is_selected
        client_size val_size aggregation_weight heterogeneity""",
    "outer_meta": """round meta_loss meta_val_loss omega_fair omega_comm omega_stab updated meta_loss_plus
        meta_loss_minus controller_gradient_norm
        phi_eta_constant phi_eta_unfold phi_eta_round phi_eta_loss_change phi_eta_displacement phi_eta_data_fraction
        phi_eta_heterogeneity
        phi_delta_constant phi_delta_unfold phi_delta_round phi_delta_loss_change phi_delta_displacement
        phi_delta_data_fraction phi_delta_heterogeneity""",
    "classification_metrics": """round part accuracy balanced_accuracy precision recall f1 specificity roc_auc pr_auc
        mcc tn fp fn tp loss""",
    "timings": "round seconds",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_has_exactly_these_columns(whole, name):
    header = (whole.path / f"{name}.csv").read_text().splitlines()[0]
    assert header.split(",") == COLUMNS[name].split()


def test_the_schema_is_the_tables():
    assert {name: list(columns) for name, columns in SCHEMA.items()} == {
        name: columns.split() for name, columns in COLUMNS.items() if name != "timings"
    }


def test_every_quantity_of_the_papers_trace_logging_has_its_column():
    named = {
        "global_accuracies": {  # "global and client train/test accuracies", "fairness information"
            "global_train_accuracy",
            "global_accuracy",
            "client_train_accuracy",
            "client_test_accuracy",
            "fairness_gap",
        },
        "validation": {"val_loss", "meta_loss"},
        "client_trace": {  # in the paper's order
            "unfold",
            "eta",
            "delta",
            "loss_before",
            "loss_after",
            "train_accuracy",
            "test_accuracy",
            "val_loss",
            "displacement",
            "clipped",
            "selected_unfold",
            "client_size",
            "heterogeneity",
        },
        "outer_meta": {"meta_loss_plus", "meta_loss_minus", "controller_gradient_norm"},
        "classification_metrics": {
            "precision",
            "recall",
            "f1",
            "roc_auc",
            "pr_auc",
            "mcc",
            "specificity",
            "tn",
            "fp",
            "fn",
            "tp",
        },
    }
    for table, columns in named.items():
        assert columns <= set(SCHEMA[table]), table


def test_a_run_holds_the_papers_six_files_and_where_they_come_from(whole):
    assert {file.name for file in whole.path.iterdir()} == FILES


def test_folders_are_by_method_dataset_split_seed_and_timestamp(whole):
    *_, method, dataset, split, seed, stamp = whole.path.parts
    assert (method, dataset, split, seed) == ("duqfl-prox", "baf-pca", "label-skew", "seed-0")
    identity = run_identity(CONFIG, SPLITS.digest)
    assert re.fullmatch(rf"\d{{8}}T\d{{12}}-{identity[:8]}", stamp)


def test_the_config_comes_back(whole):
    assert whole.config == CONFIG


def test_a_table_keeps_every_bit_of_the_numbers(whole):
    told = list(train(make_federation(CONFIG, SPLITS)))
    folder = RunFolder(whole.path)
    for name in SCHEMA:
        expected = pd.DataFrame([row for record in told for row in record[name]], columns=SCHEMA[name])
        pd.testing.assert_frame_equal(folder.table(name), expected, check_exact=True, check_dtype=False)
    assert np.array_equal(whole.weights, [record["state"]["theta"] for record in told])


def test_weights_go_from_the_initial_model_to_the_last(whole):
    assert whole.weights.shape == (4, 8)
    assert np.array_equal(whole.weights[0], make_federation(CONFIG, SPLITS).initial_theta())


def test_the_trace_has_a_row_a_round_client_and_unfold(whole):
    rows = whole.clients[["round", "client", "unfold"]].to_numpy().tolist()
    assert rows == [[t, i, k] for t in (1, 2, 3) for i in (0, 1, 2) for k in (1, 2)]
    assert (whole.clients["is_selected"] == (whole.clients["unfold"] == whole.clients["selected_unfold"])).all()
    assert np.allclose(whole.clients.query("unfold == 1").groupby("round")["aggregation_weight"].sum(), 1)


def test_the_tables_tell_one_story(whole):
    rounds, trace = whole.rounds, whole.clients
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    uploaded = trace[trace["is_selected"]].groupby("round")
    test = uploaded["test_accuracy"]
    later = rounds[rounds["round"] > 0].set_index("round")
    assert np.allclose(later["client_test_accuracy"], test.mean())
    assert np.allclose(later["fairness_gap"], test.quantile(0.9) - test.quantile(0.1))
    assert np.allclose(later["train_test_gap"], uploaded["train_accuracy"].mean() - test.mean())
    assert np.allclose(later["client_val_loss"], uploaded["val_loss"].mean())
    metrics = pd.read_csv(whole.path / "classification_metrics.csv")
    assert np.allclose(rounds["global_accuracy"], metrics.query("part == 'test'")["accuracy"])
    assert np.allclose(rounds["global_val_accuracy"], metrics.query("part == 'val'")["accuracy"])
    assert np.allclose(rounds["val_loss"], metrics.query("part == 'val'")["loss"])
    assert (metrics[["tn", "fp", "fn", "tp"]].sum(axis=1) == metrics["part"].map({"val": 40, "test": 30})).all()


def test_timings_have_a_row_a_round(whole):
    timings = pd.read_csv(whole.path / "timings.csv")
    assert timings["round"].tolist() == [0, 1, 2, 3]
    assert (timings["seconds"] > 0).all()


def test_adams_tuning_is_counted_once(tmp_path):
    config = small(method="adam-qfl", adam_rates=(0.01, 0.1))
    circuits = run(tmp_path, config).rounds["circuits_tuning"]
    assert (circuits > 0).sum() == 1


def test_a_value_without_a_column_is_refused():
    with pytest.raises(RunError, match="extra"):
        to_csv([{"round": 0, "extra": 1}], ("round",))


_FLOATS = st.floats(width=64)
_INTEGERS = st.integers(-(2**53), 2**53)
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=5)
_COLUMNS = st.sampled_from(
    [_FLOATS, _INTEGERS, st.booleans(), st.none() | _FLOATS, st.none() | _INTEGERS, _INTEGERS | _FLOATS]
)


@given(st.data(), st.integers(0, 6))
def test_tables_are_written_as_pandas_writes_them(data, rows):
    kinds = {name: data.draw(_COLUMNS) for name in ("b", "c", "d")}
    table = [{"a": number, **{name: data.draw(kind) for name, kind in kinds.items()}} for number in range(rows)]
    table = [{name: value for name, value in row.items() if value is not None} for row in table]
    columns = ["a", *kinds]
    expected = pd.DataFrame(table, columns=columns).to_csv(index=False, lineterminator="\n")
    assert to_csv(table, columns) == expected


@given(st.lists(_TEXT, min_size=1))
def test_texts_are_quoted_as_pandas_quotes_them(texts):
    table = [{"round": number, "reason": text} for number, text in enumerate(texts)]
    expected = pd.DataFrame(table).to_csv(index=False, lineterminator="\n")
    assert to_csv(table, ("round", "reason")) == expected


@pytest.mark.parametrize("name", sorted(SCHEMA))
def test_rows_read_without_pandas_equal_the_table(whole, name):
    table = whole.table(name)
    assert pd.DataFrame(whole.rows(name), columns=table.columns).astype(table.dtypes).equals(table)


def test_listing_runs_hashes_every_file_once_and_the_config_twice(several, monkeypatch, capsys):
    hashed, compute = [], folder_module._sha256
    monkeypatch.setattr(folder_module, "_sha256", lambda path: hashed.append(path) or compute(path))
    assert main(["list", "--results", str(several)]) == 0
    counts = {path: hashed.count(path) for path in hashed}
    assert {path.name for path in counts} == set(SEALED)
    assert {path.name for path, count in counts.items() if count > 1} == {"config.json"}
    assert max(counts.values()) == 2


def test_runs_with_one_circuit_share_its_compiled_engine(clean_tables):
    config = small()
    engine = make_model(config).engine
    assert make_model(config.replace(method="default-qfl", seed=3, rounds=9)).engine is engine
    for change in ({"ansatz_reps": 1}, {"feature_map_reps": 1}, {"feature_map": "z"}, {"shots": None}):
        assert make_model(config.replace(**change)).engine is not engine
    engines = []
    for reps in (1, 2):
        register_feature_map("mine", lambda features, _, reps=reps: z_map(features, reps))
        engines.append(make_model(config.replace(feature_map="mine")).engine)
    assert [engine.qnn.feature_map.size() for engine in engines] == [4, 8]


def test_the_environment_tells_versions_data_and_engine(whole):
    found = whole.environment
    assert set(found) == {
        "identity",
        "code_sha256",
        "commit",
        "python",
        "platform",
        "packages",
        "data",
        "data_notes",
        "engine",
    }
    assert found["data"] == {
        "source": "stand-in",
        "name": SPLITS.provenance.name,
        "sha256": SPLITS.provenance.sha256,
        "splits_sha256": SPLITS.digest,
    }
    assert (found["engine"]["kind"], found["engine"]["shots"]) == ("shots", 64)
    assert found["packages"]["numpy"] == np.__version__


def texts(value):
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in texts(part)]
    return [text for part in value for text in texts(part)] if isinstance(value, list) else [str(value)]


def test_the_environment_names_no_path_of_the_machine(tmp_path):
    config = small(source="stand-in", rounds=1, train_size=200, val_size=50, test_size=50)
    found = run_experiment(config, tmp_path)
    assert found.environment["data"]["source"] == "stand-in"
    assert [t for t in texts(found.environment) if re.search(r"(^|\s)(/|~|[A-Za-z]:\\)", t)] == []
    everything = b"".join(contents(found.path).values())
    for place in (Path.home(), tmp_path, HERE.parent):
        assert os.fsencode(place) not in everything


# Same seed, same bits


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_seed_decides_every_byte(tmp_path, name):
    config = small(method=name)
    first, again = run(tmp_path / "a", config), run(tmp_path / "b", config)
    other = run(tmp_path / "a", config.replace(seed=1))
    assert contents(first.path) == contents(again.path)
    assert not np.array_equal(first.weights, other.weights)
    assert contents(first.path)["client_trace.csv"] != contents(other.path)["client_trace.csv"]


def crash(scenario, folder):
    """Let a scenario of crash.py happen in a process of its own, and return its report."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    limits = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    limits |= {"JE_ARROW_MALLOC_CONF": "background_thread:false", "QFL_PROGRESS": "on"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "crash.py"), scenario, str(folder), identity.commit()],
        env=os.environ | limits | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


# Resume


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("name", ["duqfl-prox", "adam-qfl"])
def test_a_run_interrupted_after_any_round_ends_in_the_same_bytes(tmp_path, monkeypatch, name, count):
    config = CONFIG.replace(method=name)
    expected = contents(run(tmp_path / "whole", config).path)
    with monkeypatch.context() as patch:
        stop_after(patch, count)
        with pytest.raises(Interruption):
            run(tmp_path / "cut", config)
    run(tmp_path / "cut", config)
    assert only_run(tmp_path / "cut", config) == expected


def test_a_resumed_run_goes_on_after_its_last_complete_round(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Interruption):
            run(tmp_path)
    started = []

    def watched(federation, state, trainer):
        started.append(state.t)
        return train(federation, state, trainer)

    monkeypatch.setattr(runs, "train", watched)
    run(tmp_path)
    assert started == [2]


@pytest.fixture(scope="module")
def unsealed(tmp_path_factory):
    """A run that stopped when its journal was complete, before its tables were written."""
    results = tmp_path_factory.mktemp("unsealed")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 99)
        with pytest.raises(Interruption):
            run(results)
    return results


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.MendedJournal")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
@example(0)
@example(1)
def test_a_journal_cut_at_any_byte_ends_in_the_same_bytes(whole, unsealed, tmp_path_factory, where):
    results = tmp_path_factory.mktemp("torn") / "results"
    shutil.copytree(unsealed, results)
    (path,) = run_folders(results)
    size = (path / "journal.jsonl").stat().st_size
    os.truncate(path / "journal.jsonl", where % (size + 1))
    run(results)
    assert only_run(results) == contents(whole.path)


def test_reading_a_run_that_another_process_writes_leaves_its_journal_alone(unsealed, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(unsealed, results)
    (path,) = run_folders(results)
    os.truncate(path / "journal.jsonl", (path / "journal.jsonl").stat().st_size - 10)
    before = contents(path)
    assert [record["state"]["done"] for record in RunFolder(path).journal.records()] == [0, 1, 2]
    assert contents(path) == before


@pytest.mark.outside
def test_a_run_killed_at_any_step_ends_in_the_same_bytes(whole, tmp_path):
    codes, errors = crash("every-step", tmp_path)
    assert codes[-1] == [0, 0], errors
    assert set(map(tuple, codes[:-1])) == {(-9, 0)}, errors
    assert len(codes) > 25
    for number in range(1, len(codes) + 1):
        assert only_run(tmp_path / f"{number}") == contents(whole.path), number


@pytest.mark.outside
def test_adam_killed_at_any_step_ends_in_the_same_bytes(tmp_path):
    config = CONFIG.replace(method="adam-qfl", rounds=1, adam_rates=(0.1,))
    expected = contents(run(tmp_path / "whole", config).path)
    codes, errors = crash("every-step-adam", tmp_path)
    assert set(map(tuple, codes[:-1])) == {(-9, 0)}, errors
    for number in range(1, len(codes) + 1):
        assert only_run(tmp_path / f"{number}", config) == expected, number


@pytest.mark.outside
def test_a_run_killed_at_any_moment_ends_in_the_same_bytes(whole, tmp_path):
    codes, errors = crash("any-moment", tmp_path)
    assert set(codes) <= {0, -signal.SIGKILL}, errors
    assert codes[::5] == [-signal.SIGKILL] * 4
    assert codes[4::5] == [0] * 4
    for attempt in ("whole", *range(4)):
        assert only_run(tmp_path / f"{attempt}") == contents(whole.path)


@pytest.mark.outside
def test_a_run_killed_while_it_draws_its_bar_does_not_stop_the_others(whole, tmp_path):
    codes, errors = crash("in-a-bar", tmp_path)
    assert codes == [-signal.SIGKILL, 0], errors
    assert only_run(tmp_path) == contents(whole.path)


@pytest.mark.outside
def test_processes_at_once_make_one_run(whole, tmp_path):
    codes, errors = crash("at-once", tmp_path)
    assert codes == [0] * 4, errors
    assert only_run(tmp_path) == contents(whole.path)


@pytest.mark.outside
def test_a_disk_that_fills_inside_a_line_stops_the_run_and_nothing_is_lost(whole, tmp_path):
    codes, errors = crash("disk-fills", tmp_path)
    for first, _, second in codes:
        assert (first, second) == (3, 0), errors
    # At least once the journal was cut at the limit, in the middle of a line.
    limits = (500, 1500, 4000, 7000, 12000)
    assert any(journal == [limit] for limit, (_, journal, _) in zip(limits, codes, strict=True))
    for limit in limits:
        assert only_run(tmp_path / f"{limit}") == contents(whole.path)


# Finished runs


def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(runs, "train", lambda *_: pytest.fail("trained again"))
    assert run(tmp_path).path == first.path


def test_a_finished_run_is_repeated_when_asked(tmp_path):
    first = run(tmp_path)
    second = run(tmp_path, repeat=True)
    assert first.path != second.path
    assert contents(first.path) == contents(second.path)
    assert run(tmp_path).path == second.path


def test_a_repetition_that_was_interrupted_is_resumed_when_asked_again(tmp_path, monkeypatch):
    first = run(tmp_path)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Interruption):
            run(tmp_path, repeat=True)
    assert run(tmp_path).path == first.path
    second = run(tmp_path, repeat=True)
    assert len(run_folders(tmp_path)) == 2
    assert contents(second.path) == contents(first.path)


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_other_training_code_is_not_reused(tmp_path, monkeypatch, finished):
    with monkeypatch.context() as patch:
        patch.setattr(identity, "code_digest", lambda: "before")
        if not finished:
            stop_after(patch, 2)
            with pytest.raises(Interruption):
                run(tmp_path)
        else:
            run(tmp_path)
    (old,) = run_folders(tmp_path)
    kept = contents(old)
    new = run(tmp_path)
    assert new.path != old
    assert contents(old) == kept
    assert new.environment["code_sha256"] == identity.code_digest()


def test_other_data_or_another_config_is_another_run():
    identities = {
        run_identity(CONFIG, SPLITS.provenance.sha256),
        run_identity(CONFIG.replace(mu=0.02), SPLITS.provenance.sha256),
        run_identity(CONFIG, planted_splits(seed=1).provenance.sha256),
    }
    assert len(identities) == 3


BUNDLED = small(dataset="breast-cancer", rounds=1)


def test_a_run_on_another_seeds_splits_is_never_returned_for_the_config_alone(tmp_path):
    other = load_splits(BUNDLED)
    config = BUNDLED.replace(seed=1)
    wrong = run_experiment(config, tmp_path, splits=other)
    honest = run_experiment(config, tmp_path)
    assert honest.path != wrong.path
    assert not np.array_equal(honest.weights, wrong.weights)
    assert run_experiment(config, tmp_path).path == honest.path
    assert run_experiment(config, tmp_path, splits=other).path == wrong.path
    assert wrong.environment["data"]["splits_sha256"] == other.digest
    assert "splits_sha256" not in honest.environment["data"]
    assert run_experiment(config, tmp_path, splits=load_splits(config)).path not in (wrong.path, honest.path)


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_is_found_by_its_whole_identity(tmp_path, monkeypatch, is_finished):
    """The names of two runs can agree in their 8 digits, by chance or because a folder was renamed."""
    config, splits = small(rounds=1), planted_splits()
    other = config.replace(mu=0.5)
    with monkeypatch.context() as patch:
        if not is_finished:
            patch.setattr(RunFolder, "seal", lambda _: None)
        done = run_experiment(config, tmp_path, splits=splits).path
    digits = run_identity(other, splits.digest)[:8]
    renamed = done.rename(done.with_name(f"{done.name[:-8]}{digits}"))
    found = run_experiment(other, tmp_path, splits=splits)
    assert found.path != renamed
    assert found.config == other


def test_a_machine_without_git_makes_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    identity.commit.cache_clear()
    try:
        found = run_experiment(small(rounds=1), tmp_path / "results", splits=planted_splits())
        assert found.environment["commit"] == "unknown"
    finally:
        identity.commit.cache_clear()


def test_a_federation_on_another_seeds_splits_is_kept_apart_too(tmp_path):
    config, trainer = BUNDLED.replace(seed=1), InProcess()
    wrong = runs.run_prepared(prepare(config, load_splits(BUNDLED)), tmp_path, trainer)
    assert runs.run_prepared(prepare(config), tmp_path, trainer).path != wrong.path


@pytest.mark.parametrize("part", ["train", "val", "test"])
@pytest.mark.parametrize("name", ["X", "y", "origin"])
def test_every_value_of_every_split_is_part_of_its_digest(part, name):
    split = getattr(SPLITS, part)
    changed = getattr(split, name).copy()
    changed.flat[-1] = np.nextafter(changed.flat[-1], 0) if name == "X" else 1 - changed.flat[-1]
    other = dataclasses.replace(SPLITS, **{part: dataclasses.replace(split, **{name: changed})})
    assert other.digest != SPLITS.digest
    assert planted_splits().digest == SPLITS.digest


@pytest.mark.parametrize("name", ["X", "y", "origin"])
@pytest.mark.parametrize("view", [False, True])
def test_splits_do_not_change_with_the_arrays_that_they_were_made_of(name, view):
    """Otherwise their digest, which is computed once, would be that of other data."""
    mine = getattr(SPLITS.train, name).copy()
    split = dataclasses.replace(SPLITS.train, **{name: mine[:] if view else mine})
    mine[:] = 0  # the caller's array is not frozen
    assert np.array_equal(getattr(split, name), getattr(SPLITS.train, name))
    with pytest.raises(ValueError, match="read-only"):
        getattr(split, name)[:] = 0


def test_a_read_only_view_of_what_can_be_written_is_copied_and_other_read_only_arrays_are_not():
    mine = SPLITS.train.X.copy()
    frozen = mine[:]
    frozen.setflags(write=False)
    assert not np.shares_memory(dataclasses.replace(SPLITS.train, X=frozen).X, mine)
    assert dataclasses.replace(SPLITS.train).X is SPLITS.train.X
    stored = np.frombuffer(SPLITS.train.X.tobytes()).reshape(SPLITS.train.X.shape)  # as the store reads them
    assert dataclasses.replace(SPLITS.train, X=stored).X is stored


def test_ids_of_rows_may_be_python_objects():
    def named(text):
        origin = np.array([f"{text}{i}" for i in range(len(SPLITS.val))], dtype=object)
        return dataclasses.replace(SPLITS, val=dataclasses.replace(SPLITS.val, origin=origin)).digest

    assert named("row ") == named("row ") != named("line ")


@pytest.mark.parametrize("change", [{"train_size": 161}, {"val_size": 39}, {"test_size": 31}, {"features": 3}])
def test_splits_that_contradict_the_config_are_refused_before_anything_is_written(tmp_path, change):
    ((name, value),) = change.items()
    with pytest.raises(ConfigError, match=f"the splits are not those of the config, which says {name}={value}, got"):
        run(tmp_path / "results", CONFIG.replace(**change))
    assert list(tmp_path.iterdir()) == []


def test_splits_of_another_size_make_no_federation(tmp_path):
    """Whoever trains over a network prepares the federation first."""
    with pytest.raises(ConfigError, match="train_size=161, got 160; test_size=31, got 30: change the settings or the"):
        prepare(CONFIG.replace(train_size=161, test_size=31), SPLITS)


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_every_part_has_the_features_of_the_config(part):
    split = getattr(SPLITS, part)
    narrow = dataclasses.replace(SPLITS, **{part: dataclasses.replace(split, X=split.X[:, :1].copy())})
    with pytest.raises(ConfigError, match=f"features=2, got 1 in {part}: change"):
        prepare(CONFIG, narrow)


def test_a_loader_whose_splits_are_not_those_of_the_config_makes_no_run(tmp_path, clean_tables):
    def always_the_same(config, order=None):
        return SPLITS

    spec = DatasetSpec(always_the_same, (160, 40, 30), {"pca": DATASETS["baf"].encodings["pca"]})
    register_dataset("mine", spec)
    with pytest.raises(ConfigError, match="which says train_size=999, got 160"):
        run_experiment(small(dataset="mine", train_size=999), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert run_experiment(small(dataset="mine"), tmp_path).config.train_size == 160


def test_only_the_config_s_method_can_be_filed_under_its_name():
    """What :func:`run_prepared` keeps is named by the config, and so is its identity."""
    assert prepare(CONFIG, SPLITS).federation.method == METHODS[CONFIG.method].configured(CONFIG)
    assert make_federation(CONFIG, SPLITS, METHODS["default-qfl"]).method.label == "Default-QFL"
    with pytest.raises(TypeError):
        prepare(CONFIG, SPLITS, METHODS["default-qfl"])


@pytest.mark.parametrize("shape", [(160,), (160, 2, 1)])
def test_angles_of_another_shape_are_refused_by_name(shape):
    split = SPLITS.train
    with pytest.raises(
        DataError, match=rf"X must be \(rows, features\) and y \(rows,\), got the shapes {re.escape(str(shape))}"
    ):
        dataclasses.replace(split, X=np.zeros(shape))


def test_a_loss_without_a_derivative_is_refused_before_anything_is_written(tmp_path, clean_tables):
    register_loss("flat", lambda p, y, margin: 0.0 * p)
    with pytest.raises(ConfigError, match="this loss has no derivative: register it with a slope, or choose an SPSA"):
        run(tmp_path / "results", CONFIG.replace(method="adam-qfl", loss="flat"))
    assert list(tmp_path.iterdir()) == []


def test_an_engine_without_gradients_is_refused_by_name():
    with pytest.raises(ConfigError, match="engine='density' has no exact gradients"):
        make_federation(CONFIG.replace(engine="density"), SPLITS, METHODS["adam-qfl"])


def test_a_finished_run_is_found_without_its_data(tmp_path, monkeypatch):
    first = run_experiment(BUNDLED, tmp_path)
    monkeypatch.setattr(runs, "prepare", lambda *_: pytest.fail("data were loaded"))
    assert run_experiment(BUNDLED, tmp_path).path == first.path


# Read-only folders


def refuse_writing(monkeypatch):
    """Let every attempt to lock, create, change or remove a file fail as on a read-only disk."""

    def refused(*arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(FileLock, "acquire", refused)
    for name in ("mkdir", "unlink", "truncate", "replace", "fsync"):
        monkeypatch.setattr(os, name, refused)


@pytest.mark.parametrize("journal", [False, True])
def test_a_finished_run_on_a_read_only_disk_is_returned(tmp_path, monkeypatch, journal):
    first = run(tmp_path)
    if journal:  # as a crash leaves it between the seal and the removal of the journal
        (first.path / "journal.jsonl").touch()
    refuse_writing(monkeypatch)
    assert run(tmp_path).path == first.path
    with pytest.raises(RunError, match="cannot write results to .*: Read-only file system"):
        run(tmp_path, repeat=True)
    assert len(load_runs(tmp_path)) == CONFIG.rounds + 1
    for command in (["list"], ["show", first.path.name]):
        assert main([*command, "--results", str(tmp_path)]) == 0


def test_looking_up_a_finished_run_creates_nothing(tmp_path):
    first = run(tmp_path)
    for lock in tmp_path.rglob("*.lock"):
        lock.unlink()
    before = sorted(tmp_path.rglob("*"))
    assert run(tmp_path).path == first.path
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_cannot_be_prepared_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(*_):
        raise DataError("no such data")

    monkeypatch.setattr(runs, "prepare", refuse)
    with pytest.raises(DataError):
        run(tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


def test_the_digest_covers_what_trains_and_not_what_draws(tmp_path, monkeypatch):
    package = tmp_path / "qfl_core"
    shutil.copytree(HERE.parent / "qfl_core", package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity.source_code, "__file__", str(package / "base" / "source_code.py"))
    # So that a file is parsed again only where it was touched.
    monkeypatch.setattr(identity.source_code, "tree_digest", functools.cache(identity.source_code.tree_digest))
    digest = identity.code_digest.__wrapped__
    before = digest()
    assert before == identity.code_digest()

    def touched(name):
        path = package / name
        text = path.read_bytes()
        path.write_bytes(text + added)
        after = digest()
        path.write_bytes(text)
        return after != before

    algorithm = sorted(path.relative_to(package).as_posix() for path in (package / "algorithm").glob("*.py"))
    trains = ["engines/qnn.py", "base/streams.py", "data/partition.py", "data/standin/baf.py", "engines/statevector.py"]
    trains += ["extras/scaffold.py", "runs/experiment.py", "runs/prepare.py"]
    others = ("figures/__init__.py", "runs/run.py", "runs/folder.py", "data/audit.py", "data/standin/fidelity.py")
    added = b"\nTOUCHED = 1\n"
    assert [name for name in (*algorithm, *trains) if not touched(name)] == []
    assert [name for name in others if touched(name)] == []
    added = b"\n# touched\n"  # a comment changes no number
    assert [name for name in (*algorithm, *trains) if touched(name)] == []


def test_a_changed_result_file_is_flagged(tmp_path):
    found = run(tmp_path)
    assert found.changed_files() == []
    for name in ("client_trace.csv", "global_params.npz", "config.json"):
        path = found.path / name
        kept = path.read_bytes()
        path.write_bytes(kept + b" ")
        assert found.changed_files() == [name]
        path.write_bytes(kept)
    (found.path / "timings.csv").write_text("")
    assert found.changed_files() == []


def test_a_missing_result_file_is_flagged(tmp_path):
    found = run(tmp_path)
    (found.path / "validation.csv").unlink()
    assert found.changed_files() == ["validation.csv"]


# Errors that a user can act on


def test_a_folder_that_cannot_exist_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write results to .*file"):
        run(tmp_path / "file" / "results")


def test_an_unwritable_folder_is_a_clear_error(tmp_path, monkeypatch):
    opened = Path.open

    def refused(self, mode="r", *arguments, **options):
        if set(mode) & set("wax"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(RunError, match="Permission denied"):
        run(tmp_path)


def stopped_by(action, *arguments) -> str | None:
    """Return the message of the RunError that ended the action, or None."""
    try:
        action(*arguments)
    except RunError as error:
        return str(error)
    return None


class Filling:
    """A file on a disk that fills: a write that fails has written half of its data."""

    def __init__(self, file, step):
        self.file, self.step = file, step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        try:
            self.step()
        except OSError:
            self.file.write(data[: len(data) // 2])
            raise
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def fail_at(monkeypatch, number) -> list[int]:
    """Let the disk be full at the step of this number: a write, or a call that changes a file or a folder.

    The list that is returned tells the steps that were reached.
    """
    steps = []

    def step():
        steps.append(len(steps) + 1)
        if steps[-1] == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def stepping(original):
        def call(*arguments, **options):
            step()
            return original(*arguments, **options)

        return call

    def opened(self, mode="r", *arguments, **options):
        file = original_open(self, mode, *arguments, **options)
        return Filling(file, step) if set(mode) & set("wax") else file

    original_open = Path.open
    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(FileLock, "acquire", stepping(FileLock.acquire))
    for name in ("fsync", "replace", "mkdir", "unlink", "truncate"):
        monkeypatch.setattr(os, name, stepping(getattr(os, name)))
    return steps


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.MendedJournal")
def test_a_disk_full_at_any_step_stops_the_run_and_it_can_be_resumed(whole, tmp_path, monkeypatch):
    append, stops = Journal.append, 0
    for number in range(1, 1000):
        results, appended = tmp_path / f"{number}", []

        def counted(self, record, appended=appended):
            append(self, record)
            appended.append(record["state"]["done"])

        with monkeypatch.context() as patch:
            reached = fail_at(patch, number)
            patch.setattr(Journal, "append", counted)
            stopped = stopped_by(run, results)
        if number not in reached:
            break
        # A failure that the run can live with, e.g. to make a folder that exists, does not stop it.
        assert stopped is None or "No space left on device" in stopped
        stops += stopped is not None
        for path in run_folders(results):
            found = [record["state"]["done"] for record in RunFolder(path).journal.records()]
            assert RunFolder(path).is_done or found[: len(appended)] == appended
        run(results)
        assert only_run(results) == contents(whole.path), number
    assert stops > 30


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.MendedJournal")
def test_a_disk_full_while_a_journal_is_mended_stops_the_run_and_it_can_be_resumed(
    whole, unsealed, tmp_path, monkeypatch
):
    for number in range(1, 1000):
        results = tmp_path / f"{number}"
        shutil.copytree(unsealed, results)
        (path,) = run_folders(results)
        os.truncate(path / "journal.jsonl", 2000)
        (path / ".config.json.0123.part").touch()
        with monkeypatch.context() as patch:
            reached = fail_at(patch, number)
            stopped_by(run, results)
        if number not in reached:
            break
        run(results)
        assert only_run(results) == contents(whole.path), number
    assert number > 30


# What is not finite


@dataclasses.dataclass(frozen=True)
class Leap(LocalOptimizer):
    """An optimiser of a user that goes wrong in round 2: it returns weights of this value."""

    value: float
    calls: list[int] = dataclasses.field(default_factory=list)

    def update(self, block, objective, state):
        self.calls.append(1)
        end = np.full_like(block.theta, self.value) if len(self.calls) > CONFIG.unfolds else block.theta
        return BlockResult(end, block.eta, block.delta, {"train": 0}), state


def assert_stopped(results, config, in_round, reason):
    """The run stops in one line and warns of nothing; the rounds before are kept and finite, and nothing is sealed."""
    told = stopped_by(run, results, config)
    assert told is not None
    assert re.fullmatch(f"run \\S+ stops in round {in_round}: {reason}; the rounds before it are kept; lower .*", told)
    (path,) = run_folders(results, config)
    assert {file.name for file in path.iterdir()} == {"config.json", "environment.json", "journal.jsonl"}
    records = RunFolder(path).journal.records()
    assert [record["state"]["done"] for record in records] == list(range(in_round))
    for record in records:
        check_finite(record)
    assert find_runs(results) == []


@pytest.mark.parametrize("compiled", ["on", "off"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1e300, ".* must be finite, got (inf|nan)"),
        (1e155, ".* must be finite, got (inf|nan)"),
        (np.inf, r"weights must be finite angles, got inf at index \(0, 0, 0\)"),
        (np.nan, r"weights must be finite angles, got nan at index \(0, 0, 0\)"),
    ],
)
def test_an_optimiser_that_returns_endless_weights_stops_the_run(tmp_path, monkeypatch, value, reason, compiled):
    monkeypatch.setenv("QFL_COMPILED", compiled)
    method = dataclasses.replace(METHODS["duqfl-prox"], optimizer=Leap(value))

    def leaping(config, splits):
        return dataclasses.replace(prepare(config, splits), federation=make_federation(config, splits, method))

    monkeypatch.setattr(runs, "prepare", leaping)
    assert_stopped(tmp_path, CONFIG, 2, reason)


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_a_loss_without_a_slope_stops_the_calibrated_spsa(tmp_path, monkeypatch, clean_tables, compiled):
    """Its calibration divides by the mean slope, as the library's does."""
    monkeypatch.setenv("QFL_COMPILED", compiled)
    register_loss("flat", lambda p, y, margin: 0.0 * p)
    config = small(method="default-qfl", loss="flat")
    assert_stopped(tmp_path, config, 1, "weights must be finite angles, got (inf|nan) .*")


@pytest.mark.parametrize("compiled", ["on", "off"])
def test_rates_that_the_controller_raises_until_the_weights_diverge_stop_the_run(tmp_path, monkeypatch, compiled):
    """The proximal term overshoots at eta = 1; rounding ends the growth near 1e16, so that all numbers stay finite."""
    monkeypatch.setenv("QFL_COMPILED", compiled)

    def raised(*arguments):
        phi = np.zeros((2, 7))
        phi[:, 0] = 9, -9
        return dataclasses.replace(refine_controller(*arguments), phi={"controller": phi})

    monkeypatch.setattr(experiment, "refine_controller", raised)
    config = CONFIG.replace(mu=1.0, learning_rate=0.001, unfolds=4, spsa_iterations=25, outer_period=1)
    assert_stopped(tmp_path, config, 2, "the weights of the global model diverge: one is .*e.*, above 1e.12")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_controller_that_is_not_finite_is_not_kept_and_the_run_goes_on_when_it_is_mended(
    whole, tmp_path, monkeypatch, value
):
    def broken(*arguments):
        return dataclasses.replace(refine_controller(*arguments), phi={"controller": np.full((2, 7), value)})

    with monkeypatch.context() as patch:
        patch.setattr(experiment, "refine_controller", broken)
        assert_stopped(tmp_path, CONFIG, 2, f"the controller's parameters 'controller' must be finite, got {value}")
    run(tmp_path)
    assert only_run(tmp_path) == contents(whole.path)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (("state", "theta"), "the weights of the global model"),
        (("state", "phi", "controller"), "the controller's parameters 'controller'"),
        (("state", "server", "m"), "the server optimiser's parameters 'm'"),
        (("validation", 0, "val_loss"), "val_loss in validation.csv"),
        (("client_trace", 1, "task_loss_after"), "task_loss_after in client_trace.csv"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_record_with_a_number_that_is_not_finite_is_refused_by_name(place, told, value):
    record = {
        "state": {"theta": [0.0], "phi": {"controller": [[0.0]]}, "memory": {"rate": [np.nan]}, "server": {"m": [0.0]}},
        "validation": [{"val_loss": 0.0}],
        "client_trace": [dict.fromkeys(TRACE, 0.0), dict.fromkeys(TRACE, 0.0)],
    }
    check_finite(record)
    with pytest.raises(NotFiniteError, match="diverge: one is 2.0e.12, above 1e.12"):
        check_finite(record | {"state": record["state"] | {"theta": [0.0, -2 * MAX_WEIGHT]}})
    *path, last = place
    inner = functools.reduce(lambda values, key: values[key], path, record)
    inner[last] = [value] if isinstance(inner[last], list) else value
    with pytest.raises(NotFiniteError, match=f"{re.escape(told)} must be finite, got {value}"):
        check_finite(record)


def test_a_record_that_cannot_be_stored_is_refused_by_its_type(tmp_path):
    with pytest.raises(TypeError, match="set"):
        RunFolder(tmp_path).journal.append({"round": {1}})


# Reading many runs


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    results = tmp_path_factory.mktemp("several")
    for seed in (0, 1):
        for name in ("duqfl-prox", "duqfl-best"):
            run(results, small(method=name, seed=seed))
    return results


def test_all_runs_are_one_tidy_table(several):
    table = load_runs(several)
    assert len(table) == 4 * 3
    keys = ["method", "seed", "round"]
    assert not table.duplicated(keys).any()
    assert set(table["method"]) == {"duqfl-prox", "duqfl-best"}
    assert set(table["source"]) == {"stand-in"}
    assert set(table["kind"]) == {"shots"}
    assert {"global_accuracy", "test_roc_auc", "val_loss", "fairness_gap", "dataset", "run"} <= set(table)


def test_filters_are_config_fields(several):
    assert set(load_runs(several, seed=1)["seed"]) == {1}
    assert set(load_runs(several, method=["duqfl-best", "adam-qfl"])["method"]) == {"duqfl-best"}
    assert len(find_runs(several, method="duqfl-prox", seed=0)) == 1
    assert find_runs(several, clients=99) == []


@pytest.mark.parametrize(
    "seeds",
    [range(1, 5), (1,), {1}, [1, 7], np.array([1, 2]), np.array(1), np.int64(1), pd.Series([1, 9]), iter([1, 2])],
    ids=lambda seeds: type(seeds).__name__,
)
def test_a_filter_takes_any_iterable(several, seeds):
    assert [run.config.seed for run in find_runs(several, seed=seeds)] == [1, 1]


def test_text_and_the_value_of_a_field_that_holds_several_numbers_are_one_value(several):
    assert find_runs(several, method="duqfl-prox duqfl-best") == []
    for both in ((0.001, 1.0), [0.001, 1.0], np.array([0.001, 1.0]), [(0.001, 1.0), (0.1, 1.0)]):
        assert len(find_runs(several, eta_bounds=both)) == 4
    assert find_runs(several, eta_bounds=(0.1, 1.0)) == []


def test_an_unknown_filter_names_the_closest_field(several):
    with pytest.raises(ConfigError, match=r"unknown filter 'metod' \(did you mean 'method'\?\)"):
        load_runs(several, metod="duqfl-prox")


def test_no_run_that_matches_is_a_clear_error(several, tmp_path):
    with pytest.raises(RunError, match="no finished run .* matches .*99"):
        load_runs(several, clients=99)
    with pytest.raises(RunError, match="no finished run"):
        load_runs(tmp_path / "nothing")


def test_an_unfinished_run_is_not_read(tmp_path, monkeypatch):
    stop_after(monkeypatch, 2)
    with pytest.raises(Interruption):
        run(tmp_path)
    assert find_runs(tmp_path) == []


def test_a_run_loads_its_own_data(tmp_path):
    config = ExperimentConfig(clients=3, rounds=1, chunk=12, unfolds=2, spsa_iterations=2, source="stand-in")
    found = run_experiment(config, tmp_path, progress=True)
    assert found.rounds["round"].tolist() == [0, 1]
    assert found.weights.shape == (2, 16)


def test_the_digest_of_the_code_is_remembered_and_a_damaged_memory_is_computed_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("QFL_CACHE_DIR", str(tmp_path / "cache"))
    digest = identity.code_digest.__wrapped__
    expected = digest()
    (kept,) = (tmp_path / "cache" / "code").iterdir()
    assert kept.read_text() == expected
    with monkeypatch.context() as patch:
        patch.setattr(identity.source_code, "code_digest", lambda sources: pytest.fail("parsed again"))
        assert digest() == expected
    for damage in ("", "x" * 64, expected[:-1]):
        kept.write_text(damage)
        assert digest() == expected
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("QFL_CACHE_DIR", str(blocked))
    assert digest() == expected
