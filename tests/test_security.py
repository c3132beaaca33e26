"""What SECURITY.md promises: no file can run code, no config leads out of its folder, altered results are told."""

import ast
import hashlib
import json
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from planted import planted_splits, planted_study, small

from qfl_core.__main__ import main
from qfl_core.base.errors import ChangedResults, ConfigError, RunError
from qfl_core.base.paths import below
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig, load_profile
from qfl_core.data import sources
from qfl_core.hardware import plan as planning
from qfl_core.hardware.store import Folder
from qfl_core.runs import RunResult, find_runs, load_runs, run_experiment, tidy
from qfl_core.runs.run import run_parent

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = [path for folder in ("qfl_core", "tools", "notebooks") for path in sorted((ROOT / folder).rglob("*.py"))]
UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "torch"}
UNSAFE_CALLS = {"eval", "exec", "read_pickle", "unpickle"}
SAFE_YAML = {"safe_load", "safe_dump", "YAMLError"}


def unsafe(source: str) -> list[str]:
    """Return what in the source could run code from a file: unpickling, unsafe YAML, eval."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        if isinstance(node, ast.ImportFrom):
            module, names = (node.module or "").split(".")[0], {alias.name for alias in node.names}
            found += [module] if module in UNSAFE_MODULES else []
            found += [f"{module}.load"] if module in ("joblib", "numpy") and "load" in names else []
            found += [f"yaml.{name}" for name in names - SAFE_YAML] if module == "yaml" else []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"yaml.{node.attr}"] if node.value.id == "yaml" and node.attr not in SAFE_YAML else []
            found += ["joblib.load"] if (node.value.id, node.attr) == ("joblib", "load") else []
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            pickles = {k.arg: getattr(k.value, "value", None) for k in node.keywords}.get("allow_pickle", "not said")
            found += [name] if name in UNSAFE_CALLS else []
            found += ["np.load"] if owner in ("np", "numpy") and name == "load" and pickles is not False else []
            found += ["allow_pickle"] if pickles not in ("not said", False) else []
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "import torch.nn",
        "from joblib import load",
        "joblib.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "pd.read_pickle(path)",
        "yaml.load(text, yaml.Loader)",
        "yaml.full_load(text)",
        "from yaml import unsafe_load",
        "eval(text)",
    ],
)
def test_the_scan_finds_what_it_looks_for(source):
    assert unsafe(source)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_source_unpickles_or_loads_unsafe_yaml(path):
    assert unsafe(path.read_text(encoding="utf-8")) == []


# Planted files


class Payload:
    """Unpickled, it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def poisoned(path: Path, name: str, mark: Path) -> None:
    np.savez(path, **{name: np.array([Payload(mark)], dtype=object)})


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    results = tmp_path_factory.mktemp("sealed") / "results"
    run_experiment(small(), results, splits=planted_splits())
    return results


@pytest.fixture
def run(sealed, tmp_path) -> RunResult:
    """A finished run in a results folder of its own."""
    shutil.copytree(sealed, tmp_path / "results")
    return find_runs(tmp_path / "results")[0]


def altered(run: RunResult) -> RunResult:
    """Return the run as one who opens it now sees it."""
    return RunResult(run.path)


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
def test_a_pickle_in_a_results_folder_is_refused_and_not_run(run, tmp_path):
    poisoned(run.path / "global_params.npz", "weights", tmp_path / "ran")
    with pytest.raises(RunError, match=r"global_params\.npz .* cannot be read: Object arrays"):
        _ = altered(run).weights
    (run.path / "global_params.npz").write_bytes(b"PK no archive")
    with pytest.raises(RunError, match="cannot be read"):
        _ = altered(run).weights
    assert not (tmp_path / "ran").exists()


def test_a_pickle_in_a_hardware_folder_is_refused_and_not_run(tmp_path):
    folder = Folder(tmp_path)
    poisoned(tmp_path / "inputs.npz", "y", tmp_path / "ran")
    with pytest.raises(ValueError, match="Object arrays"):
        folder.inputs()
    digest = hashlib.sha256((tmp_path / "inputs.npz").read_bytes()).hexdigest()
    with pytest.raises(ValueError, match="Object arrays"):
        folder.counts("inputs.npz", digest)
    assert not (tmp_path / "ran").exists()


def test_yaml_that_names_python_objects_is_refused_and_not_run(tmp_path, capsys):
    planted = f"!!python/object/apply:os.mkdir [{tmp_path / 'ran'}]"
    with pytest.raises(ConfigError, match="not valid YAML"):
        ExperimentConfig.from_yaml(f"mu: {planted}")
    (tmp_path / "planted.yaml").write_text(f"profile: {planted}\n")
    with pytest.raises(ConfigError, match=r"planted\.yaml is not valid YAML"):
        load_profile("planted", tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--mu", planted, "--results", str(tmp_path / "results")])
    assert main(["hardware", "dry-run", "--profile", "smoke", "--set", f"shots={planted}"]) == 2
    assert "shots: '!!python" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "planted.yaml"]


# Paths

OUTSIDE = ["../outside", "../../outside", "/outside", "duqfl-prox/../../../outside", "..", "", "."]


@pytest.mark.parametrize("name", OUTSIDE)
def test_only_names_below_a_folder_become_paths(name, tmp_path):
    with pytest.raises(RunError, match="is not the name of something below"):
        below(tmp_path, "first", name)
    assert below(tmp_path, "first", "second-1.npz") == tmp_path / "first" / "second-1.npz"


@pytest.mark.parametrize("field", ["method", "dataset", "encoding", "split", "engine", "seed", "source"])
@pytest.mark.parametrize("value", OUTSIDE)
def test_no_field_of_a_config_takes_a_path(field, value):
    with pytest.raises(ConfigError, match=f"{field}="):
        ExperimentConfig.from_dict({field: value})


def test_a_registered_name_that_leads_out_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "../../../outside", DATASETS["baf"])
    with pytest.raises(RunError, match="is not the name of something below"):
        run_parent(ExperimentConfig(dataset="../../../outside"), tmp_path / "results")


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
@pytest.mark.parametrize("field", ["method", "dataset", "encoding", "split"])
def test_a_config_in_a_results_folder_that_names_a_path_is_refused(run, field):
    path = run.path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: "../../outside"}))
    results = run.path.parents[4]
    with pytest.raises(RunError, match=rf"config\.json of run {run.path.name} cannot be read: {field}='../../outside'"):
        load_runs(results, seed=0)
    assert main(["show", run.path.name, "--results", str(results)]) == 1


@pytest.mark.filterwarnings("ignore::qfl_core.base.errors.ChangedResults")
@pytest.mark.parametrize("text", [None, "", "[]", "{"])
def test_a_run_whose_config_is_gone_or_damaged_is_told(run, text):
    (run.path / "config.json").unlink() if text is None else (run.path / "config.json").write_text(text)
    with pytest.raises(RunError, match=rf"config\.json of run {run.path.name} cannot be read"):
        load_runs(run.path.parents[4])


@pytest.mark.parametrize("name", ["../outside", "/etc", "*", "baf-pca/../.."])
def test_show_takes_names_of_runs_and_no_paths(run, name, capsys):
    assert main(["show", name, "--results", str(run.path.parents[4])]) == 2
    assert "0 finished runs" in capsys.readouterr().err


def test_a_profile_is_a_name():
    with pytest.raises(ConfigError, match="unknown profile"):
        load_profile("../../pyproject")


def test_a_hardware_folder_reads_nothing_outside(tmp_path):
    secret = tmp_path / "secret.npz"
    np.savez(secret, pub0=np.zeros(1))
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    inside = Folder(tmp_path / "folder")
    shutil.copytree(tmp_path, inside.path)
    assert len(inside.counts("secret.npz", digest)) == 1
    for name in ("../secret.npz", str(secret), "counts/../../secret.npz"):
        with pytest.raises(RunError, match="is not the name of something below"):
            inside.counts(name, digest)


def test_a_backend_s_name_leads_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "draft", lambda *_, **__: SimpleNamespace(name="genome-/../../../outside-0123"))
    with pytest.raises(RunError, match="is not the name of something below"):
        planning.make_plan(planted_study([], tmp_path), None, None)


def test_a_federation_writes_nothing_outside_its_folder(tmp_path, capsys):
    out = tmp_path / "a" / "out"
    (tmp_path / "experiment.json").write_text(json.dumps({"encoding": "../../outside"}))
    assert main(["network", "export", str(tmp_path / "experiment.json"), "--out", str(out)]) == 2
    assert "encoding='../../outside'" in capsys.readouterr().err
    assert main(["network", "node-key", "../outside", "--out", str(out)]) == 2
    assert main(["network", "node-key", str(tmp_path / "outside"), "--out", str(out)]) == 2
    assert list(tmp_path.rglob("*outside*")) == []


# Results that were altered


@pytest.mark.parametrize("name", ["global_accuracies.csv", "config.json", "global_params.npz", "client_trace.csv"])
def test_an_altered_run_is_flagged_wherever_it_is_read(run, name, capsys):
    path, results = run.path / name, run.path.parents[4]
    path.write_bytes(path.read_bytes() + b"\n")
    told = rf"run {run.path.name}: {name} changed since the run was sealed"
    with pytest.warns(ChangedResults, match=told):
        load_runs(results)
    with pytest.warns(ChangedResults, match=told):
        tidy([altered(run)], "outer_meta")
    with pytest.warns(ChangedResults, match=told):
        _ = altered(run).weights
    assert main(["list", "--results", str(results)]) == 0
    assert f"CHANGED since the run was sealed: {name}" in capsys.readouterr().out


def test_an_untouched_run_is_not_flagged(run, capsys):
    load_runs(run.path.parents[4])  # a warning would be an error
    assert main(["list", "--results", str(run.path.parents[4])]) == 0
    assert "CHANGED" not in capsys.readouterr().out


@pytest.mark.parametrize("seal", ["", "[]", "not JSON"])
def test_a_run_whose_seal_is_damaged_is_flagged(run, seal):
    (run.path / "DONE").write_text(seal)
    assert run.changed_files() == ["DONE"]
    with pytest.warns(ChangedResults, match="DONE changed"):
        load_runs(run.path.parents[4])


def test_a_file_that_was_added_is_flagged(run):
    (run.path / "exclusions.csv").write_text("round,client,reason\n1,0,planted\n")
    assert run.changed_files() == ["exclusions.csv"]


# The network in tests


@pytest.fixture
def port():
    """A port of this machine that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_test_has_no_network_and_not_even_this_machine(port):
    for address in (("127.0.0.1", port), ("192.0.2.1", 80)):
        with socket.socket() as probe:
            with pytest.raises(AssertionError, match="tried to reach"):
                probe.connect(address)
            with pytest.raises(AssertionError, match="tried to reach"):
                probe.connect_ex(address)
    with pytest.raises(AssertionError, match="asked for the address"):
        socket.create_connection(("example.org", 80))


@pytest.mark.loopback
def test_a_test_marked_so_reaches_this_machine_alone(port):
    socket.create_connection(("127.0.0.1", port)).close()
    with socket.socket() as probe, pytest.raises(AssertionError, match="tried to reach"):
        probe.connect(("192.0.2.1", 80))


def test_a_download_that_was_not_forbidden_would_be_noticed(monkeypatch):
    sources._download.cache_clear()
    monkeypatch.setenv("QFL_OFFLINE", "0")
    with pytest.raises(AssertionError, match="tried to reach|asked for the address"):
        sources.find_file(
            sources.OfficialFile(("x.bin",), "http://192.0.2.1/x.bin", "x.bin", lambda _: (True, "planted"))
        )
