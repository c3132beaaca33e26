"""Lock, pyproject.toml and environment.yml describe one environment."""

import importlib.metadata
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^]]+\])?==([^ ;]+)(?: ; (.+?))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.M,
)


def lock_entries():
    return [(canonicalize_name(m[1]), m[2], m[3], m[4]) for m in ENTRY.finditer(LOCK)]


@cache
def installed():
    return {canonicalize_name(found.metadata["Name"]) for found in importlib.metadata.distributions()}


def direct_requirements():
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(r) for r in (*PROJECT["dependencies"], *(r for extra in extras for r in extra))]


def test_every_pin_of_the_lock_has_hashes():
    pins = re.findall(r"^[A-Za-z0-9._\[\],-]+==", LOCK, re.M)
    assert len(pins) > 100
    assert len(lock_entries()) == len(pins)


def test_the_lock_keeps_extras_so_that_pip_looks_at_no_newer_release():
    """With "coverage[toml]" asked for and "coverage" pinned, pip met a newer release without a hash and stopped."""
    asked = {
        (canonicalize_name(needed.name), extra)
        for name, *_ in lock_entries()
        for text in (importlib.metadata.requires(name) if name in installed() else None) or ()
        if not (needed := Requirement(text)).marker or needed.marker.evaluate({"extra": ""})
        for extra in needed.extras
    }
    pinned = {
        (canonicalize_name(n), e) for n, es in re.findall(r"^([\w.-]+)\[(.+?)\]==", LOCK, re.M) for e in es.split(",")
    }
    assert ("coverage", "toml") in asked
    assert asked <= pinned


def test_the_lock_names_no_index_and_no_machine():
    assert not re.search(r"https?://|file:|--index|--find-links", LOCK)


def test_torch_is_not_pulled_in():
    assert not {"torch", "tensorflow", "jax"} & {name for name, *_ in lock_entries()}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(("platform", "system"), [("linux", "Linux"), ("darwin", "Darwin"), ("win32", "Windows")])
def test_the_lock_satisfies_every_direct_requirement_everywhere(python, platform, system):
    environment = {
        "python_version": python,
        "python_full_version": python + ".5",
        "sys_platform": platform,
        "platform_system": system,
        "os_name": "nt" if platform == "win32" else "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    pins = {}
    for name, version, marker, _ in lock_entries():
        if marker is None or Marker(marker).evaluate(environment):
            assert name not in pins, f"{name} is pinned twice for Python {python} on {platform}"
            pins[name] = version
    for requirement in direct_requirements():
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked for Python {python} on {platform}"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} but locked {version}"


def test_the_environment_under_test_is_the_locked_one():
    installed = {canonicalize_name(d.name): d.version for d in importlib.metadata.distributions()}
    pins = {}
    for name, version, marker, _ in lock_entries():
        if marker is None or Marker(marker).evaluate():
            pins[name] = version
    assert {n: installed.get(n) for n in pins} == pins


def test_conda_users_get_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, *tools, pip = environment["dependencies"]
    assert pip == {"pip": ["-r requirements.lock"]}
    assert set(tools) == {"pip", "make"}
    assert python.startswith("python" + PROJECT["requires-python"])
    named = (ROOT / "environment.yml").read_text()
    card = "qiskit qiskit-machine-learning qiskit-aer qiskit-ibm-runtime numpy pandas scikit-learn seaborn"
    card += " papermill jupytext nbval"
    direct = {r.name for r in direct_requirements()}
    for package in card.split():
        assert package in direct
        assert package in named


def test_an_installed_package_has_every_file_that_the_code_reads():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    shipped = {
        file
        for package, patterns in declared.items()
        for pattern in patterns
        for file in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    files = {file for file in (ROOT / "qfl_core").rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    assert {file for file in files if file.suffix != ".py"} == shipped
    assert {file.name for file in shipped} >= {"paper.yaml", "smoke.yaml"}


def test_the_flower_app_of_an_installed_package_is_the_repositorys():
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = tomllib.loads((ROOT / "qfl_core" / "network" / "app.toml").read_text())
    assert shipped["project"] == {name: ours["project"][name] for name in ("name", "version", "description", "license")}
    app = ours["tool"]["flwr"]["app"]
    del app["fab-include"]  # a clone has more files than Flower may take
    assert shipped["tool"] == {"flwr": {"app": app}}


def test_the_heavy_parts_are_extras():
    core = {Requirement(r).name for r in PROJECT["dependencies"]}
    extras = {name: {Requirement(r).name for r in rs} for name, rs in PROJECT["optional-dependencies"].items()}
    assert "papermill" in extras["notebooks"]
    assert "flwr" in extras["federation"]
    assert "pytest" in extras["dev"]
    assert not core & set().union(*extras.values())
