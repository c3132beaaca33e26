"""What is not imported: heavy packages wait until something needs them, because they take seconds of every process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.outside
HEAVY = ("pandas", "sklearn", "pyarrow", "scipy.linalg", "scipy.sparse", "scipy.stats", "joblib", "distributed")
HEAVY += ("matplotlib", "flwr", "qiskit_aer", "qiskit_machine_learning", "requests")
#: What training needs, and nothing before it.
TRAINING = ("numpy", "scipy", "qiskit", "numba")
SIZES = {"train_size": 300, "val_size": 100, "test_size": 100}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
OPTIONS += ["--rounds=1", "--clients=2", "--chunk=8", "--unfolds=1", "--spsa-iterations=1", "--source=stand-in"]
LOAD = f"""
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
for dataset in ("baf", "genome", "breast-cancer"):
    load_splits(ExperimentConfig(dataset=dataset, **{SIZES}))
"""


def imported(code, *arguments):
    """Run Python code in a new process; return the modules that it has imported."""
    tell = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", tell, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a cache folder that holds the data of this module's runs."""
    folder = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QFL_CACHE_DIR", str(folder))
        # As in every test: a fixture of a module comes before those of its tests.
        patch.setenv("QFL_OFFLINE", "1")
        patch.delenv("QFL_DATA_DIR", raising=False)
        assert {"pandas", "sklearn"} <= imported(LOAD)
    return folder


@pytest.mark.parametrize("package", ["qfl_core", "qfl_core.runs", "qfl_core.config", "qfl_core.__main__"])
def test_importing_a_package_imports_nothing_heavy(package):
    assert not imported(f"import {package}") & {*HEAVY, *TRAINING}


def test_data_that_were_kept_are_loaded_without_the_packages_that_made_them(cache, monkeypatch):
    monkeypatch.setenv("QFL_CACHE_DIR", str(cache))
    assert not imported(LOAD) & {*HEAVY, "qiskit", "numba"}


def test_a_run_with_kept_data_imports_what_trains_and_nothing_else(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("QFL_CACHE_DIR", str(cache))
    command = "from qfl_core.__main__ import main\nimport sys\nassert main(sys.argv[1:]) == 0"
    for _ in range(2):  # it trains, then it finds the finished run
        found = imported(command, "run", "--results", str(tmp_path), *OPTIONS)
        assert "qfl_core.runs.run" in found
        assert not found & set(HEAVY)
    assert not imported(command, "list", "--results", str(tmp_path)) & set(HEAVY)


NODE = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
from fakegrid import FakeGrid
from qfl_core.config import ExperimentConfig
from qfl_core.data import load_splits
from qfl_core.network import supernode
from qfl_core.network.asking import Nodes, Patience
from qfl_core.network.nodes import NodeTrainer
from qfl_core.network.site import export_client
from qfl_core.runs.experiment import train
from qfl_core.runs.prepare import prepare
config = ExperimentConfig(rounds=1, clients=2, chunk=8, unfolds=1, spsa_iterations=1, source="stand-in", **{SIZES})
splits = load_splits(config)
prepared, nodes = prepare(config, splits), []
for i in range(config.clients):
    folder = Path(sys.argv[1]) / str(i)
    export_client(splits, prepared.federation, i, folder)
    nodes.append({{"partition-id": i, "data-dir": str(folder)}})
records = list(train(prepared.federation, trainer=NodeTrainer(Nodes(FakeGrid(config, nodes), Patience()), "")))
assert records[1]["global_accuracies"][0]["clients"] == config.clients
"""


def test_a_node_imports_no_tables_and_no_plots(cache, monkeypatch, tmp_path):
    """What it takes to connect and to train a client that has a folder of its own; what Flower imports is Flower's."""
    pytest.importorskip("flwr")
    monkeypatch.setenv("QFL_CACHE_DIR", str(cache))
    assert imported(NODE, str(tmp_path)) & (set(HEAVY) - {"flwr", "requests"}) == set()


def test_the_help_of_a_command_imports_nothing_that_trains():
    command = (
        "from qfl_core.__main__ import main\nimport sys\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass"
    )
    assert not imported(command, "run", "--help") & {*HEAVY, *TRAINING}


def test_linear_algebra_is_still_there_for_other_compiled_code():
    """Loading our compiled code does not import SciPy's linear algebra; somebody else's matrix product does."""
    code = """
import sys
import numpy as np
from qfl_core.engines.inner_loop import compiled_code
assert compiled_code() is not None
assert "scipy.linalg" not in sys.modules
from numba import njit
assert (njit(lambda a, b: a @ b)(np.eye(2), np.eye(2)) == np.eye(2)).all()
"""
    assert "scipy.linalg" in imported(code)
