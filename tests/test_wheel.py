"""An installed wheel does all that a clone does but run notebooks, on every system."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from qfl_core.algorithm.methods import METHODS
from qfl_core.base.errors import FederationError
from qfl_core.base.registry import DATASETS
from qfl_core.config import ExperimentConfig
from qfl_core.runs.run import run_parent

pytestmark = pytest.mark.outside

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "qfl_core"
#: Modules that Windows does not have.
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
#: Calls and constants that Windows does not have, and the only module that may use them; it says so on Windows.
POSIX_CALLS = {"chown", "fork", "getegid", "geteuid", "getpgid", "getuid", "killpg", "mkfifo", "setsid", "uname"}
POSIX_CALLS |= {"SIGKILL", "SIGHUP", "SIGALRM", "alarm", "sched_getaffinity"}
GUARDED = {PACKAGE / "network" / "deployment.py"}


RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def is_legal(name: str) -> bool:
    """Whether Windows allows this name of a file."""
    return not re.search(r'[<>:"/\\|?*\x00-\x1f]', name) and not RESERVED.fullmatch(name) and name[-1] not in ". "


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel from a copy of the sources, because a build leaves folders beside them."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, sources / "qfl_core", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("tools", "tests", "notebooks"):  # where the build sees them, as in a clone
        (sources / name).mkdir()
        (sources / name / "module.py").touch()
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=sources, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The unpacked wheel."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(installed: Path, code: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Run code in an empty folder, with the unpacked wheel and the libraries; return what it prints.

    ``-I`` and ``-S`` keep out the clone: no PYTHONPATH, no current folder and no links of an editable installation.
    """
    paths = [str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    start = f"import sys; sys.path += {paths!r}; import qfl_core; assert qfl_core.__file__.startswith({paths[0]!r})\n"
    command = [sys.executable, "-I", "-S", "-c", start + code, *arguments]
    kept = os.environ | environment
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


COMMAND = "import runpy; sys.argv[0] = 'qfl_core'; runpy.run_module('qfl_core', run_name='__main__')"


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert {"qfl_core/py.typed", "qfl_core/config/profiles/paper.yaml", "qfl_core/data/facts/baf_rates.csv"} <= names


USE = """
from qfl_core import ExperimentConfig, load_profile, run_experiment
from qfl_core.base.paths import repository_root
from qfl_core.data import load_splits
settings = load_profile("paper")
assert settings.seeds and settings.config("baf").rounds
assert repository_root() is None
assert len(load_splits(settings.config("baf")).train)
small = {"clients": 2, "rounds": 1, "chunk": 10, "unfolds": 1, "spsa_iterations": 1, "shots": 16}
config = ExperimentConfig(dataset="breast-cancer", **small)
done = run_experiment(config, "results/smoke")
assert run_experiment(config, "results/smoke").path == done.path
print(done.path.name)
"""


def test_the_wheel_is_used_from_an_empty_folder(installed, tmp_path):
    name = python(installed, USE, tmp_path).splitlines()[-1]
    assert [path.parent.name for path in tmp_path.rglob("DONE")] == [name]
    assert all(is_legal(path.name) for path in tmp_path.rglob("*"))
    assert "duqfl-prox" in python(installed, COMMAND, tmp_path, "list", "--results", "results/smoke")


def test_the_commands_of_the_wheel_find_their_profiles(installed, tmp_path):
    assert "usage" in python(installed, COMMAND, tmp_path, "protocol", "--help")
    told = python(
        installed, COMMAND, tmp_path, "hardware", "dry-run", "--profile", "smoke", "--dataset", "breast-cancer"
    )
    assert "dry run: nothing was submitted" in told
    assert "local mode costs nothing" in told


BUNDLE = """
from pathlib import Path
from qfl_core.network.launch import bundle
from flwr.cli.build import build_fab_from_disk
import tomllib
app = bundle(Path("app"))
settings = tomllib.loads((app / "pyproject.toml").read_text())
print(settings["tool"]["flwr"]["app"]["components"]["serverapp"], len(build_fab_from_disk(app)))
"""


def test_the_wheel_has_the_flower_app_that_federate_submits(installed, tmp_path):
    pytest.importorskip("flwr")
    assert python(installed, BUNDLE, tmp_path).startswith("qfl_core.network.app:server_app ")


# Windows


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_needs_what_windows_does_not_have(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not POSIX_ONLY & {name.partition(".")[0] for name in imported}
    if path not in GUARDED:
        assert not POSIX_CALLS & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_a_local_federation_says_that_it_needs_another_system(monkeypatch):
    pytest.importorskip("flwr")
    from qfl_core.network import deployment

    monkeypatch.setattr(deployment.sys, "platform", "win32")
    with pytest.raises(FederationError, match="a federation on one machine needs Linux or macOS"):
        deployment.Deployment()


#: Python without the modules and calls that Windows does not have, under the name of Windows.
ON_WINDOWS = """
import os, signal
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
import numpy, scipy, pandas, qiskit, matplotlib.pyplot, filelock, joblib, subprocess, multiprocessing, sklearn, pooch
for name in {modules!r}:
    sys.modules.pop(name, None)
for name in {calls!r}:
    for module in (os, signal):
        vars(module).pop(name, None)
sys.meta_path.insert(0, Missing())
sys.platform = "win32"
import importlib, pkgutil
for found in pkgutil.walk_packages(qfl_core.__path__, "qfl_core."):
    if not found.name.startswith("qfl_core.network") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""


def test_the_package_imports_and_runs_where_posix_is_missing(installed, tmp_path):
    missing = ON_WINDOWS.format(modules=sorted(POSIX_ONLY - {"posix"}), calls=sorted(POSIX_CALLS))
    python(installed, missing + USE, tmp_path, QFL_COMPILED="off")  # compiling takes seconds and needs no POSIX
    assert len(list(tmp_path.rglob("DONE"))) == 1


def repository_names() -> set[str]:
    """Return all parts of the paths of the repository's files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {part for path in listed.split("\0") if path for part in path.split("/")}


def test_the_names_of_the_repositorys_files_are_legal_on_windows():
    assert not {name for name in repository_names() if not is_legal(name)}


def test_the_names_of_runs_are_legal_on_windows(tmp_path):
    for track, spec in DATASETS.items():
        for encoding in spec.encodings:
            for method in METHODS:
                config = ExperimentConfig(dataset=track, encoding=encoding, method=method)
                assert all(map(is_legal, run_parent(config, tmp_path).relative_to(tmp_path).parts))
